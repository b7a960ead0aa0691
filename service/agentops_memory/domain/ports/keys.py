"""What the service asks of whoever keeps its keys."""

from typing import Protocol

from ..model.keys import KeyRing


class KeyStore(Protocol):
    """The keys that open the service; a change of them holds from the next question on."""

    def ring(self) -> KeyRing:
        """The keys now; Unavailable when they cannot be known."""

    def read(self) -> KeyRing:
        """The keys now, for the start: a refusal has a sentence for the operator."""
