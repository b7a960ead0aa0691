"""Explanations of results as they are sent; apart, as a plain search needs no pydantic."""

import pydantic

from ..record import Record


class LeftOutEntry(Record):
    """A candidate that did not fit into the budget."""

    id: int
    place: int
    tokens: int
    chars: int


class SentencePart(Record):
    """A sentence's part of a score, if the memory was among the best of the sentence."""

    sentence: int
    weight: float = pydantic.Field(
        description="Weight relative to the others: less for more words, more for a question."
    )
    score: float
    share: float
    counted: bool


class FollowingPart(Record):
    """The part of a score from a following memory of the session that is a top hit itself."""

    id: int
    weight: float
    score: float
    share: float


class WhyNotAnswer(Record):
    """The reason why a memory is not in a result; the reason `none` means that it is."""

    id: int
    reason: str
    filters: list[str] | None = None
    tier: str | None = None
    # The position among all hits of the tiers; None if too many precede the memory, or if it is
    # not among the best of any sentence.
    place: int | None = None
    score: float | None = None
    last_score: float | None = None
    older: bool | None = None  # older than the newest memories that fill up the result
    beyond_depth: bool | None = None
    superseded_by: list[int] | None = None
