"""The callbacks of the domain: the audit log, progress, and one that does nothing."""

from collections.abc import Callable
from typing import Protocol

from ..model.access import Caller

Progress = Callable[[str], None]
"""Called with the name of each step before it is taken."""


class Audit(Protocol):
    """The audit log."""

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        """Record an action before it is done; Unavailable if that fails."""


def noop(*_: object) -> None:
    """A callback that ignores its arguments."""
