"""The groups in memory: made when asked for, kept in line by hand-over, bounded in bytes."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from threading import Lock

from ...memory.model.memory import MemoryId
from ..text.columns import Columns
from .area import Area, Codes, Entry
from .group import UNKNOWN, Change, Group
from .writes import IndexWrites, Written

EntryOf = Callable[[Columns], Entry]
"""The entry of a memory that is indexed with these columns."""


class Slot:
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
    def size(self) -> int:
        """The bytes in use, about."""
        return self.group.size + self._put - self._taken

    @property
    def newest(self) -> int:
        """The version that it has once it has caught up."""
        waiting = list(self.waiting)
        return waiting[-1].after if waiting else self.group.version


def caught_up(slot: Slot, version: int, entry_of: EntryOf) -> bool:
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


USUAL = 32 * 1024 * 1024  # bytes
MOST_WAITING = 256 * 1024  # characters of texts that wait for the next reader of a group
MOST_CODES = 65_536  # of a database
MOST_WANTED = 10_000  # areas of which it is known how often they were asked for
PATIENCE = 20  # prompts that ask for an area before it is read, which 30 to 100 then make good
REST = 2  # times as long as an area was read, before the next one is: prompts go first
MUCH_LATER = 10_000  # prompts, after which it is tried again to read what cannot be read
USUAL_BYTES = 1_000  # of a memory
MUCH_MORE = 1_000  # that prompts let groups know, before there is room made for it


Entries = Iterable[tuple[MemoryId, Entry]]


class IndexCache:
    """What the databases of a service hold in memory, at most so many bytes; 0 is nothing."""

    def __init__(self, most: int = USUAL) -> None:
        self.most = most
        self._slots: dict[tuple[CachedGroups, int], Slot] = {}
        self._lock = Lock()  # of whoever makes room

    @property
    def size(self) -> int:
        """The bytes in use, about."""
        return sum(slot.size for slot in list(self._slots.values()))

    def get(self, database: "CachedGroups", number: int) -> Slot | None:
        return self._slots.get((database, number))

    def put(self, database: "CachedGroups", number: int, group: Group) -> Slot:
        return self._slots.setdefault((database, number), Slot(group))

    def drop(self, database: "CachedGroups", number: int | None = None) -> None:
        """Forget a group of a database, or all of them."""
        for key in list(self._slots):
            if key[0] is database and number in (None, key[1]):
                self._slots.pop(key, None)

    def slots_of(self, database: "CachedGroups") -> list[tuple[int, Slot]]:
        return [
            (number, slot) for (it, number), slot in list(self._slots.items()) if it is database
        ]

    def has_room(self, size: int, since: float) -> bool:
        """Whether so much fits beside the groups that were used since then."""
        used = sum(it.size for it in list(self._slots.values()) if it.used_at >= since)
        return used + size <= self.most

    def make_room(self) -> None:
        """Forget the groups that were not used for the longest time, until the others fit."""
        with self._lock:
            size = self.size
            for key, slot in sorted(self._slots.items(), key=lambda it: it[1].used_at):
                if size <= self.most:
                    return
                size -= slot.size
                self._slots.pop(key, None)


@dataclass(slots=True)
class Wanted:
    """An area that prompts ask for, which is not in memory; how often until it is read."""

    number: int  # of its group
    area: int
    left: int
    since: float = field(default_factory=time.monotonic)


class CachedGroups:
    """The groups of one database in memory.

    A reader says which version of a group its snapshot has, and is given the group as of that
    version, or nothing. The writer hands over what it wrote when that is committed; a version
    that comes otherwise, as from another process, drops the group.

    What a reader does not find is read once it was asked for again, while the stored index
    answers.
    """

    def __init__(self, cache: IndexCache, weights: Sequence[float]) -> None:
        self._cache = cache
        self._weights = weights
        self._codes = Codes(weights)
        self._wanted: dict[int, Wanted] = {}  # by area
        self._next: deque[Wanted] = deque()
        self._loading = Lock()  # of whoever reads an area
        self._rested_at = 0.0
        self._is_closed = False
        self._learnt = 0  # by prompts, since there was last room made
        self._writing = 0  # transactions
        self._written_at = 0.0
        self._lock = Lock()  # of who begins or ends one

    @property
    def hold_nothing(self) -> bool:
        return self._cache.most == 0

    @contextmanager
    def reading(
        self, number: int, version: int, begun: float, entry_of: EntryOf
    ) -> Iterator[Group | None]:
        """The group as of a version, for one reader alone; its snapshot was made after `begun`."""
        slot = self._cache.get(self, number)
        if slot is None:
            yield None
            return
        group, has_changed = slot.group, bool(slot.waiting)
        with group.lock:
            slot.used_at = time.monotonic()
            try:
                is_there = caught_up(slot, version, entry_of)
            except BaseException:
                self.drop(number)
                raise
            is_foreign = not is_there and not self._writing and begun > self._written_at
            for area in group.refuted:
                self.refuse(Wanted(number, area, 0))
            if is_foreign or group.version == UNKNOWN:
                self.drop(number)
            before = group.known
            yield group if is_there else None
            self._learnt += group.known - before
        if has_changed or self._learnt > MUCH_MORE:
            self._learnt = 0
            self._bound()

    def want(self, number: int, areas: Iterable[int]) -> None:
        """A prompt asked for areas of a group, some of which are not in memory."""
        if len(self._wanted) > MOST_WANTED:
            self._wanted.clear()
        slot = self._cache.get(self, number)
        for area in areas:
            if slot is not None and slot.group.areas([area]):
                continue
            wanted = self._wanted.setdefault(area, Wanted(number, area, PATIENCE))
            left = wanted.left = wanted.left - 1  # whatever other readers do meanwhile
            if left == 0:
                self._next.append(replace(wanted, number=number))

    @property
    def is_wanting(self) -> bool:
        """Whether there is an area to be read, and it is time."""
        return bool(self._next) and time.monotonic() > self._rested_at

    @contextmanager
    def loading(self) -> Iterator[Wanted | None]:
        """The area to be read next, for one reader alone; None if there is none."""
        began = time.monotonic()
        if not (self.is_wanting and self._loading.acquire(blocking=False)):
            yield None
            return
        try:
            wanted = self._next.popleft() if self._next else None
            is_refused = wanted and self._wanted.get(wanted.area, wanted).left > 0  # meanwhile
            yield None if is_refused else wanted
        finally:
            now = time.monotonic()
            self._rested_at = now + REST * (now - began)
            self._loading.release()

    def admit(self, wanted: Wanted, memories: int) -> bool:
        """Whether to read an area of so many memories now.

        It has to fit beside what was used meanwhile: of more projects than there is room for,
        the first ones stay.
        """
        self._wanted.pop(wanted.area, None)
        return self._cache.has_room(memories * USUAL_BYTES, wanted.since)

    def refuse(self, wanted: Wanted) -> None:
        """An area cannot be read; try it again much later."""
        self._wanted[wanted.area] = replace(wanted, left=MUCH_LATER)

    def load(
        self, wanted: Wanted, version: int, begun: float, entries: Entries, entry_of: EntryOf
    ) -> None:
        """Hold an area, of which a reader reads the entries as of a version."""
        number = wanted.number
        slot = self._cache.get(self, number)
        if slot is None and not self._is_closed:
            slot = self._cache.put(self, number, Group(version, self._codes))
        if self._is_closed:  # by now
            self.drop()
        with self.reading(number, version, begun, entry_of) as group:
            if group is None or slot is None or group is not slot.group:
                return  # somebody is ahead; it is asked for again
            reading = group.begin(wanted.area)
        area = None
        try:
            here = takewhile(lambda _: self._cache.get(self, number) is slot, entries)
            area = Area(group.codes, here)
        finally:
            with group.lock:  # a group that was dropped meanwhile was not read to the end
                group.end(reading, area if self._cache.get(self, number) is slot else None)
        self._bound()

    @contextmanager
    def writing(self) -> Iterator[Callable[[IndexWrites], None]]:
        """Inside, a transaction is made and committed; what it tells is handed over then."""
        with self._lock:
            self._writing += 1
        written: list[IndexWrites] = []
        try:
            yield written.append
            for writes in written:
                self._hand_over(writes)
        finally:
            with self._lock:
                self._written_at = time.monotonic()
                self._writing -= 1

    def _bound(self) -> None:
        """Hold no more than there is room for, nor more codes than a database has in reason."""
        self._cache.make_room()
        if len(self._codes) > MOST_CODES:
            self.drop()
            self._codes = Codes(self._weights)

    def _hand_over(self, writes: IndexWrites) -> None:
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

    def close(self) -> None:
        """Hold nothing any more."""
        self._is_closed = True
        self.drop()
