"""The audit port, and the callback that does nothing."""

from typing import Protocol

from ..model.access import Caller


class Audit(Protocol):
    """The audit log."""

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        """Record an action before it is done; Unavailable if that fails."""


def noop(*_: object) -> None:
    """A callback that ignores its arguments."""
