"""The port of reviews."""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from ..model.review import ReviewPeriods, ReviewPlace, ReviewReason
from ..model.search import Filter


class ReviewRow(NamedTuple):
    """A line of a list of reviews; only look-alikes have a score."""

    place: ReviewPlace
    score: float | None


class ReviewTable(Protocol):
    """What is due for a review, as of the transaction's instant."""

    def lines(
        self,
        filter_: Filter,
        reasons: Collection[ReviewReason],
        periods: ReviewPeriods,
        before: ReviewPlace | None,
        limit: int,
    ) -> list[ReviewRow]:
        """The lines of live memories that nothing supersedes, newest first, those after a place.

        A pair is told if the caller may read both, unless one supersedes the other or
        either was confirmed since.
        """
