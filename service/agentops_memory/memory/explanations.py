"""What explains an answer, as it is sent: apart, as a plain search needs no pydantic."""

import pydantic

from ..record import Record


class LeftOutEntry(Record):
    """A candidate that a budget had no room for."""

    id: int
    place: int
    tokens: int
    chars: int


class SentencePart(Record):
    """A sentence's part of a score; one in which the memory was not among the best has none."""

    sentence: int
    weight: float = pydantic.Field(
        description="What it weighs beside the others: less the more words it has, more if it asks."
    )
    score: float
    share: float
    counted: bool


class FollowingPart(Record):
    """A memory that follows in the session and is among the best itself: its part of a score."""

    id: int
    weight: float
    score: float
    share: float


class WhyNotAnswer(Record):
    """What kept a memory out of an answer; with the reason `none` it is in."""

    id: int
    reason: str
    filters: list[str] | None = None
    tier: str | None = None
    # Among all that the tiers list; none of a memory behind too many, or that no sentence has
    # among its best.
    place: int | None = None
    score: float | None = None
    last_score: float | None = None
    older: bool | None = None  # than the newest that fill up the answer
    beyond_depth: bool | None = None
    superseded_by: list[int] | None = None
