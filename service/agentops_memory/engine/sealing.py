"""Sealing: what is confidential is stored encrypted, so that no file has it (RFC-0015 §9.2)."""

from collections.abc import Callable
from dataclasses import dataclass

from ..memory.model.agent_memory import Sealed


@dataclass(frozen=True, slots=True)
class Sealer:
    """Seals texts, each bound to what it belongs to: elsewhere it does not open. Thread-safe."""

    seal: Callable[[str, bytes], Sealed]
    """The text under the newest key, made if there is none; Unavailable if that fails."""
    opened: Callable[[Sealed, bytes], str | None]
    """The text; None if its key is lost, or if it is not what was sealed for this."""
