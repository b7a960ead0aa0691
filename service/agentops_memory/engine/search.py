"""The search port: the full-text index."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol

from ..memory.model.memory import Memory, MemoryId
from ..memory.model.ranking import Scored
from ..memory.model.search import Filter, Hit, Parts, Tier
from ..recall.text.query import Corrections, Query, Term


class SearchTable(Protocol):
    """Search over live memories; ranks of different projects are only roughly comparable."""

    def within(self, timeout: timedelta) -> AbstractContextManager[None]:
        """A context whose reads raise TimedOut, or Damaged, and leave the transaction usable."""

    def keyed(self, path: str, filter_: Filter, limit: int) -> list[Hit]:
        """Memories whose key contains the path literally, newest first."""

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        """Corrections of words that are neither in the project or store nor in a global memory.

        The three most frequent words one edit away, with the same first letter. At most four
        words are corrected; none without a single project or store.
        """

    def every(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Memories in which all pieces of the query occur, best first, ties by id."""

    def best(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Memories in which any term occurs, best first, ties by id.

        A score is that of the best sentence plus 0.4 times the sum of the others, each times
        the sentence's weight; each of several sentences contributes its best memories alone
        (`sentence_depth`). The best then gain by those that follow them (`with_gains`).
        """

    def similar(self, terms: Collection[Term], filter_: Filter, limit: int) -> list[Memory]:
        """Memories that have any of the rare terms among their own words, best first, ties by id.

        The rarest that several memories have, as many as bring SCORED rows; if there is none,
        every term counts.
        """

    def similarities(self, text: str, others: Sequence[str]) -> list[float]:
        """How alike a text and each of the others are (`similarity`), by stems without stop words.

        No statistics count, so that a score is the same in any project and in every engine.
        """

    def ranking(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """The full ranking of a tier, at most PLACES long.

        Sentence depth is that of the limit; a single sentence contributes all.
        """

    def parts(
        self, tier: Tier, query: Query, filter_: Filter, limit: int, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        """The score parts of these memories; those that are invisible are left out.

        One beyond the limit of the tier has its matched terms, too.
        """

    def backfill(self, filter_: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        """The newest memories that are not among `but`."""
