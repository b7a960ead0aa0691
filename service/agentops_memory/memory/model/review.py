"""Reviews: which memories somebody should look at, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from .memory import Memory, MemoryId

SOON = timedelta(days=7)  # before its end, in which a memory is told of

ReviewPeriods = Mapping[str, timedelta]
"""After how long a memory of a type is to be looked at again."""


class ReviewReason(StrEnum):
    """Why somebody should look at a memory."""

    DUE = "review_due"
    EXPIRES = "expires_soon"
    SIMILAR = "similar"


class ReviewPlace(NamedTuple):
    """Where a line stands in the list: newest first, then by reason and ids."""

    at: datetime
    reason: ReviewReason
    memory: MemoryId
    other: MemoryId = MemoryId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A memory to be looked at, since when and why; one that looks like another has both."""

    place: ReviewPlace
    memory: Memory
    other: Memory | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewList:
    """A page of lines; `next` is the place after which more follow."""

    items: tuple[ReviewItem, ...]
    next: ReviewPlace | None = None


class ReviewRow(NamedTuple):
    """A line of a list of reviews; only look-alikes have a score."""

    place: ReviewPlace
    score: float | None
