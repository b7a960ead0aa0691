"""Stable ids: UUIDv7, which order by the instant at which they were made."""

from datetime import datetime
from uuid import UUID

ENTROPY = 10  # bytes


def uuid7(at: datetime, entropy: bytes) -> str:
    """The UUIDv7 of an instant and ten random bytes (RFC 9562 §5.7)."""
    milliseconds = int(at.timestamp() * 1000) & (1 << 48) - 1
    value = milliseconds << 80 | int.from_bytes(entropy[:ENTROPY], "big")
    version = value & ~(0xF << 76) | 0x7 << 76
    return str(UUID(int=version & ~(0b11 << 62) | 0b10 << 62))
