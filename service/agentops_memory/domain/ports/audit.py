"""Whom the domain notifies: the audit, and callbacks."""

from typing import Protocol

from ..model.access import Caller


class Audit(Protocol):
    """Whoever notes what is changed."""

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        """Note what is about to be done; Unavailable if it cannot be noted."""


def noop(*_: object) -> None:
    """The callback of those who need no notification."""
