"""What the domain asks of storage about words."""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol

from ..model.memory import MemoryId
from ..model.search import Filter, Hit, Parts, Tier
from ..text.query import Corrections, Query


class SearchTable(Protocol):
    """The full-text index over live memories, and the way round it.

    Over several projects ranks are comparable only roughly.
    """

    def within(self, timeout: timedelta) -> AbstractContextManager[None]:
        """Inside, reads that take longer in all raise TimedOut; the transaction goes on.

        So it does when they meet damage, and raise Damaged.
        """

    def keyed(self, path: str, filter_: Filter, limit: int) -> list[Hit]:
        """Memories whose key contains the path literally, newest first."""

    def lookalikes(self, words: Collection[str], filter_: Filter) -> Corrections:
        """What words may have meant that neither the project nor a global memory has.

        Up to three that differ in one letter, not the first; of more the most
        frequent. At most four words are answered for, and none when no single
        project or store is asked.
        """

    def every(self, query: Query, filter_: Filter, limit: int) -> list[Hit]:
        """Memories in which all pieces of the query occur, best first, ties by id."""

    def best(self, query: Query, filter_: Filter, limit: int) -> list[Hit]:
        """Memories in which any term occurs, best first, ties by id.

        A memory's rank is its best sentence's plus 0.4 times the sum of the
        others'. Each sentence contributes its best few alone.
        """

    def ranking(
        self, tier: Tier, query: Query, filter_: Filter, limit: int
    ) -> list[tuple[MemoryId, float]]:
        """All that a tier would list, best first, with their ranks; at most 10,000.

        Sentences contribute what they do for the limit; a single one contributes all.
        """

    def parts(
        self, tier: Tier, query: Query, filter_: Filter, limit: int, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        """What made the ranks of these memories, for a tier and a limit that listed them.

        A visible memory that was not listed has the terms that it matches, too;
        one that is not visible is left out.
        """

    def backfill(self, filter_: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        """The newest memories that are not among `but`."""
