"""The groups in memory: made when asked for, kept in line by hand-over, bounded in bytes."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

from ...domain.text.columns import Columns
from .group import UNKNOWN, Change, Entry, Group
from .rows import Row

USUAL = 32 * 1024 * 1024  # bytes
MOST_WAITING = 1024 * 1024  # characters of texts that wait for the next reader of a group
MOST_WRITTEN = 256 * 1024  # of one transaction, which an import may write more in
MOST_ASKED = 10_000  # areas that are known to have been asked for


class Written(NamedTuple):
    """What a transaction put into the index of a group or, with a sign below zero, took out."""

    before: int  # version
    after: int
    entries: Sequence[tuple[Row, Columns, int]]

    @property
    def size(self) -> int:
        return sum(len(text) for _, said, _ in self.entries for text in said)


@dataclass(slots=True)
class _Writing:
    """What is being written into a group, of so many characters."""

    before: int
    after: int
    entries: list[tuple[Row, Columns, int]] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True)
class IndexWrites:
    """What one transaction wrote into the index, by group; of some nothing may be left."""

    groups: dict[int, _Writing] = field(default_factory=dict)
    erased: set[int] = field(default_factory=set)

    @property
    def written(self) -> dict[int, Written]:
        """What each group's next reader has to know."""
        return {
            number: Written(it.before, it.after, it.entries)
            for number, it in self.groups.items()
            if number not in self.erased
        }

    def copy(self) -> "IndexWrites":
        groups = {number: replace(it, entries=[*it.entries]) for number, it in self.groups.items()}
        return IndexWrites(groups, set(self.erased))

    def note(
        self, number: int, version: int, entries: Iterable[tuple[Row, Columns]], sign: int
    ) -> None:
        """These were put into a group, or taken out, which has this version now."""
        writing = self.groups.setdefault(number, _Writing(version - 1, version - 1))
        if writing.after != version - 1:  # something else was done to it between
            self.erased.add(number)
        writing.after = version
        for row, said in entries if number not in self.erased else ():
            writing.entries.append((row, said, sign))
            writing.size += sum(map(len, said))
        if writing.size > MOST_WRITTEN:
            self.erased.add(number)
            writing.entries.clear()


class _Slot:
    """A group, and what was written since it was last read."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.used_at = time.monotonic()
        self.waiting: deque[Written] = deque()
        self._put = self._taken = 0  # characters: the writer counts the one, a reader the other

    def put(self, written: Written) -> int:
        """Let it wait; how many characters wait now."""
        self.waiting.append(written)
        self._put += written.size
        return self._put - self._taken

    def take(self) -> Written:
        """What was written first of what waits."""
        written = self.waiting.popleft()
        self._taken += written.size
        return written

    @property
    def newest(self) -> int:
        """The version that it has once it has caught up."""
        waiting = list(self.waiting)
        return waiting[-1].after if waiting else self.group.version


class IndexCache:
    """What the databases of a service hold in memory, at most so many bytes; 0 is nothing."""

    def __init__(self, most: int = USUAL) -> None:
        self.most = most
        self._slots: dict[tuple[CachedGroups, int], _Slot] = {}
        self._lock = Lock()  # of whoever makes room

    @property
    def size(self) -> int:
        """The bytes in use, about."""
        return sum(slot.group.size for slot in list(self._slots.values()))

    def get(self, database: "CachedGroups", number: int) -> _Slot | None:
        return self._slots.get((database, number))

    def put(self, database: "CachedGroups", number: int, group: Group) -> _Slot:
        return self._slots.setdefault((database, number), _Slot(group))

    def drop(self, database: "CachedGroups", number: int | None = None) -> None:
        """Forget a group of a database, or all of them."""
        for key in list(self._slots):
            if key[0] is database and number in (None, key[1]):
                self._slots.pop(key, None)

    def slots_of(self, database: "CachedGroups") -> list[tuple[int, _Slot]]:
        return [
            (number, slot) for (it, number), slot in list(self._slots.items()) if it is database
        ]

    def make_room(self) -> None:
        """Forget the groups that were not used for the longest time, until the others fit."""
        with self._lock:
            size = self.size
            for key, slot in sorted(self._slots.items(), key=lambda it: it[1].used_at):
                if size <= self.most:
                    return
                size -= slot.group.size
                self._slots.pop(key, None)


class CachedGroups:
    """The groups of one database in memory.

    A reader says which version of a group its snapshot has, and is given the group as of that
    version, or nothing. The writer hands over what it wrote when that is committed; a version
    that comes otherwise, as from another process, drops the group.
    """

    def __init__(self, cache: IndexCache, weights: Sequence[float]) -> None:
        self._cache = cache
        self._weights = weights
        self._asked: set[int] = set()
        self._is_writing = False
        self._written_at = 0.0

    @contextmanager
    def reading(
        self, number: int, version: int, begun: float, entry_of: Callable[[Columns], Entry]
    ) -> Iterator[Group | None]:
        """The group as of a version, for one reader alone; its snapshot was made after `begun`."""
        slot = self._cache.get(self, number)
        if slot is None:
            slot = self._cache.put(self, number, Group(version, self._weights))
        group, size = slot.group, slot.group.size
        with group.lock:
            slot.used_at = time.monotonic()
            try:
                is_there = _caught_up(slot, version, entry_of)
            except BaseException:
                self.drop(number)
                raise
            is_foreign = not is_there and not self._is_writing and begun > self._written_at
            if is_foreign or group.version == UNKNOWN:
                self.drop(number)
            yield group if is_there else None
        if group.size > size:
            self._cache.make_room()

    def are_asked_again(self, areas: Sequence[int]) -> bool:
        """Whether all of the areas were asked for before: it does not pay for the first time."""
        if len(self._asked) > MOST_ASKED:
            self._asked.clear()
        are_known = self._asked.issuperset(areas)
        self._asked.update(areas)
        return are_known and self._cache.most > 0

    @contextmanager
    def writing(self) -> Iterator[Callable[["IndexWrites"], None]]:
        """Inside, a transaction is made and committed; what it tells is handed over then."""
        self._is_writing = True
        written: list[IndexWrites] = []
        try:
            yield written.append
            for writes in written:
                self._hand_over(writes)
        finally:
            self._written_at = time.monotonic()
            self._is_writing = False

    def _hand_over(self, writes: "IndexWrites") -> None:
        for number, written in writes.written.items():
            slot = self._cache.get(self, number)
            if slot is not None and slot.put(written) > MOST_WAITING:
                self.drop(number)
        for number in writes.erased:
            self.drop(number)

    def keep(self, versions: Mapping[int, int]) -> None:
        """Forget all groups but those that have these versions, by group."""
        for number, slot in self._cache.slots_of(self):
            if slot.newest != versions.get(number):
                self.drop(number)

    def drop(self, number: int | None = None) -> None:
        """Forget a group, or all: something else was done to the stored index."""
        self._cache.drop(self, number)


def _caught_up(slot: _Slot, version: int, entry_of: Callable[[Columns], Entry]) -> bool:
    """Whether the group is, now, as of the version."""
    group, waiting = slot.group, slot.waiting
    while group.version != version and waiting:
        written = slot.take()
        if written.before != group.version:
            group.version = UNKNOWN
            return False
        changes = [Change(row, entry_of(said), sign) for row, said, sign in written.entries]
        group.change(written.after, changes)
    return group.version == version
