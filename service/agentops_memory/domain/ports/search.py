"""What the domain asks of storage about words: looking for them, and keeping the index in line."""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol

from ..model.erasure import Purge
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


class IndexTable(Protocol):
    """The full-text index as a thing to keep: it lies in partitions, each seen to on its own."""

    def partitions(self) -> list[int]:
        """The numbers of the partitions."""

    def drift(self, partition: int) -> int:
        """By how many rows it has more or fewer than the memories that belong in it."""

    def is_exact(self, partition: int) -> bool:
        """Whether it holds just what the memories say, word for word. Asked in a write."""

    def rebuild(self, partition: int) -> None:
        """Fill it afresh from the memories."""

    def is_readable(self, partition: int) -> bool:
        """Whether its storage can be read, page by page. It says nothing about words."""

    def is_damaged(self, partition: int) -> bool:
        """Whether it is not as it was written. Asked in a write."""

    def recreate(self, partition: int) -> None:
        """Replace it by one that is made of the memories, and read nothing of the old one."""

    def is_crowded(self) -> bool:
        """Whether some partition has grown so large that a project should leave it."""

    def relieve(self) -> bool:
        """Move one project out of a crowded partition; false if none can."""

    def must_purge(self, memory: MemoryId) -> None:
        """Note that words of a memory are to leave the storage of its partitions for good.

        Erasing a memory notes it by itself.
        """

    def to_purge(self) -> Mapping[int, int]:
        """The partitions of which that was noted, and how often."""

    def purged(self, notes: Mapping[int, int]) -> None:
        """Forget what `to_purge` said; of a partition with further notes nothing is forgotten."""

    def purge(self, partition: int, begun: Purge | None) -> Purge | None:
        """Do a part of ridding a partition's storage of what it no longer holds.

        Deleted words stay in it until they are merged away. The answer is to be handed
        in again, until it is None: then nothing is left of what was deleted before the
        first part. Saves in between do not prolong it.
        """
