"""Sealing: what is confidential is stored encrypted, so that no file has it (RFC-0015 §9.2)."""

from typing import Protocol

from ..memory.model.agent_memory import Sealed


class Sealer(Protocol):
    """Seals texts, each bound to what it belongs to: elsewhere it does not open. Thread-safe."""

    def seal(self, text: str, bound_to: bytes) -> Sealed:
        """The text under the newest key, made if there is none; Unavailable if that fails."""

    def opened(self, sealed: Sealed, bound_to: bytes) -> str | None:
        """The text; None if its key is lost, or if it is not what was sealed for this."""
