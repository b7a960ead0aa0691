"""What became of what a session had to tell the service."""

from dataclasses import dataclass

from .. import SessionEnd
from .unsent import Unsent


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A write that the service will never have, and why."""

    write: Unsent
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of what a session had to tell."""

    ended: SessionEnd | None  # None while the service has not taken the end
    unsent: tuple[Unsent, ...]  # kept in the working memory, and so in its checkpoint
    lost: tuple[Lost, ...]  # the newest thousand
