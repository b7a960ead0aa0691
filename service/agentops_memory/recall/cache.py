"""The in-memory index of each database: kept in sync with commits, bounded in bytes."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import ref

from ..light import dataclass, field
from ..memory.search import Totals
from ..memory.space import GLOBAL_AREA, IndexGroup, group_of
from ..secrets.redaction import Rules
from .area import STEM_BYTES, Area, Row, StemCounts
from .group import Group
from .stems import Entry, Vocabulary
from .text import Columns

DEFAULT_BYTES = 64 * 1024 * 1024
MAX_LOGGED = 256  # recent commits, which tell an old snapshot from another process's write
MAX_PENDING_CHARS = 512 * 1024  # of all pending memories, and of all in the log
SIZE_CHECK_INTERVAL = 8  # pending memories of a group between two checks of their size
MAX_REPLAYED = 64  # commits that can be applied to areas read before them
ROW_BYTES, READ_BYTES = 1_500, 500  # approximate growth by a new memory, and by a prompt
MAX_DEFERRALS = 20  # prompts that wait for free memory; then unused parts are evicted
MEMORIES_PER_PROMPT = 64  # loading 64 memories takes 3 ms, which each later prompt saves
MAX_PROMPTS = 16  # prompts after which any part is loaded, as SQL is slow with many memories
STEMS_AT_ONCE = 256  # are numbered in 0.3 ms, while no request is answered
RETRY_AFTER = 60.0  # seconds until a part that failed to load is tried again

Token = int
"""Identifies a state of a database: each transaction of any process sets a new one."""

AreaKey = tuple[int, int]
"""A group and an area; the global area belongs to no group."""


class NewMemory(NamedTuple):
    """A memory that was saved, with its text to index; its entry is built on first use."""

    key: AreaKey
    row: Row
    columns: Columns

    @property
    def size(self) -> int:
        return sum(map(len, self.columns))


@dataclass(slots=True)
class Changes:
    """The changes of one transaction, by area of the index and by project."""

    areas: set[AreaKey] = field(default_factory=set)  # areas with changes besides new memories
    new: list[NewMemory] = field(default_factory=list)
    projects: set[str] = field(default_factory=set)  # projects with changed summaries


class Commit(NamedTuple):
    before: Token
    after: Token
    changes: Changes


class Part(Protocol):
    """A unit that is loaded and dropped as a whole."""

    used_at: float

    @property
    def size(self) -> int:
        """The approximate bytes in use."""


P = TypeVar("P", bound=Part)


class IndexCache:
    """The in-memory indexes of all databases, at most `max_bytes` in all; 0 disables them."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self.databases: list[InMemory[Any]] = []  # each adds and removes itself
        self._summed = self._grown = 0  # bytes: the last sum, and the growth since

    @property
    def size(self) -> int:
        return sum(it.size for it in list(self.databases))

    @property
    def free(self) -> int:
        return self.max_bytes - self.size

    @property
    def fullness(self) -> float:
        """From 0 to 1, approximately."""
        used = self._summed + self._grown
        return min(used / self.max_bytes, 1.0) if self.max_bytes else 1.0

    def has_room(self, size: int) -> bool:
        """Whether as many bytes are free."""
        return self._summed + self._grown + size <= self.max_bytes or size <= self.free

    def note_growth(self, size: int) -> None:
        """Count approximate growth in bytes, for which `grew` will evict."""
        self._grown += size

    def grew(self, size: int) -> None:
        """Count approximate growth in bytes, and evict at times."""
        self.note_growth(size)
        if self._grown > self.max_bytes >> 6:
            self.make_room()

    def unused(self, since: float) -> int:
        """Return the bytes of parts that were last used before `since`."""
        return sum(
            part.size
            for database in list(self.databases)
            for part in list(database.parts.values())
            if part.used_at < since
        )

    def make_room(self) -> None:
        """Evict least recently used data until the rest fits: rendered text, then whole parts."""
        size = self._summed = self.size
        self._grown = 0
        if size <= self.max_bytes:
            return
        every = [
            (part.used_at, number, database)
            for database in list(self.databases)
            for number, part in list(database.parts.items())
        ]
        every.sort(key=lambda it: it[0])
        for is_rendered_only in (True, False):
            for _, number, database in every:
                evict = database.forget_rendered if is_rendered_only else database.drop
                size -= evict(number)
                self._summed = size
                if size <= self.max_bytes:
                    return


class InMemory(ABC, Generic[P]):
    """The cached parts of one database, by number."""

    def __init__(self, cache: IndexCache, vocabulary: Vocabulary) -> None:
        self.lock = Lock()  # held while parts are used or changed
        self.cache = cache
        self.vocabulary = vocabulary
        self.parts: dict[int, P] = {}
        self.queue = LoadQueue(self)
        self._is_closed = False
        cache.databases.append(self)

    @property
    def is_disabled(self) -> bool:
        return self.cache.max_bytes == 0 or self._is_closed

    @property
    def size(self) -> int:
        """The approximate bytes in use."""
        return sum(it.size for it in list(self.parts.values())) + self.vocabulary.size

    @abstractmethod
    def forget(self) -> None:
        """Drop all cached data."""

    @abstractmethod
    def _drop(self, number: int) -> int: ...

    def forget_rendered(self, number: int) -> int:  # noqa: ARG002 - not every part has text
        """Drop the rendered text of a part, as rendering is cheaper than loading."""
        return 0

    def drop(self, number: int) -> int:
        """Drop a part; return the bytes freed."""
        with self.lock:
            return self._drop(number)

    def close(self) -> None:
        self._is_closed = True
        self.forget()
        self.cache.databases.remove(self)


class LoadQueue:
    """The missing parts that prompts need; readers load them after they have answered."""

    def __init__(self, memory: InMemory[Any]) -> None:
        self._memory = memory
        # By part: when it was first requested, how often, how often it must be; its bytes.
        self._requests: dict[int, tuple[float, int, float, int]] = {}
        self._failed: dict[int, float] = {}  # by part, the time of the next try
        self._loading = Lock()

    def request(self, number: int, memories: int = 0) -> None:
        """Request a missing part, which has about `memories` memories.

        It is loaded once prompts without it have taken as long as loading does, and sooner
        while the cache has free room.
        """
        since, times, *_ = self._requests.get(number) or (time.monotonic(), 0)
        cache, needed = self._memory.cache, min(memories / MEMORIES_PER_PROMPT, MAX_PROMPTS)
        size = min(memories * ROW_BYTES, cache.max_bytes // 2)  # short memories take far less
        self._requests[number] = since, times + 1, needed * cache.fullness, size

    @property
    def is_due(self) -> bool:
        return bool(self._requests)

    @contextmanager
    def next(self) -> Iterator[int | None]:
        """Yield the part to load, to one reader at a time, or None."""
        if not (self.is_due and self._loading.acquire(blocking=False)):
            yield None
            return
        try:
            yield self._next(time.monotonic())
        finally:
            self._loading.release()

    @contextmanager
    def loading(self, number: int, timeout: float) -> Iterator[bool]:
        """Yield whether a caller that needs the part may load it now, as no other reader loads."""
        is_ours = self._failed.get(number, 0.0) <= time.monotonic() and self._loading.acquire(
            timeout=timeout
        )
        try:
            yield is_ours
        finally:
            if is_ours:
                self._loading.release()

    def defer(self, number: int) -> None:
        """Ignore requests for a part that cannot be loaded for RETRY_AFTER seconds."""
        self._failed[number] = time.monotonic() + RETRY_AFTER

    def _next(self, now: float) -> int | None:
        memory, cache, free = self._memory, self._memory.cache, self._memory.cache.free
        for number, (since, times, needed, size) in list(self._requests.items()):
            if self._failed.get(number, 0.0) > now:
                del self._requests[number]
            elif times < needed and number not in memory.parts:
                continue
            elif number in memory.parts or size <= free:
                del self._requests[number]
                return number
            elif times >= MAX_DEFERRALS:
                del self._requests[number]
                if size <= free + cache.unused(since):  # else all cached parts are in use, too
                    return number
        return None


class LoadPlan(NamedTuple):
    """The part to load: areas of a group, all of it if None, and maybe the global area."""

    number: int
    areas: frozenset[int] | None
    globals_too: bool
    requested: frozenset[int] | None = None  # areas that a request needs; statistics do for others


class DatabaseIndex(InMemory[Group]):
    """The cached groups of one database, all as of the same state.

    A reader passes the token of its snapshot and gets data only if the states are equal. The
    writer hands over its commits; a token that this process did not make drops everything.
    """

    def __init__(
        self,
        cache: IndexCache,
        vocabulary: Vocabulary,
        entry_of: Callable[[Columns], Entry],
    ) -> None:
        super().__init__(cache, vocabulary)
        self.summaries: dict[str, list[str]] = {}  # the newest ones by project
        self.locations: dict[str, Any] = {}  # by project
        self.loaded_at = 0.0  # when an area was last loaded
        self.on_unprepared: Callable[[], object] = lambda: None  # on any thread; see `prepare_some`
        self._rules: Callable[[], Rules | None] = lambda: None  # redaction of rendered text
        self._globals: Area | None = None
        self._pending: dict[int, list[NewMemory]] = {}  # by group
        self._entry_of = entry_of
        self._token: Token | None = None
        self._writing: Token | None = None  # of the open write transaction
        self._committed: deque[Commit] = deque()  # commits to apply
        self._log: deque[Commit] = deque(maxlen=MAX_LOGGED)
        self._texts: deque[tuple[Changes, int]] = deque()  # changes with texts, their characters
        self._texts_size = 0

    @property
    def size(self) -> int:
        return super().size + (self._globals.size if self._globals else 0)

    def forget_rendered(self, number: int) -> int:
        with self.lock:
            group = self.parts.get(number)
            areas = [*group.areas.values(), *filter(None, [self._globals])] if group else []
            return sum(it.forget_rendered() for it in areas)

    # Callers of the following methods hold the lock.

    def is_at(self, token: Token | None) -> bool:
        """Apply commits, then return whether the cache is as of this token, if there is one."""
        self._catch_up()
        if token is None:
            return False
        if token == self._token:
            return True
        if self._token is None or token == self._writing or self._commits_since(token) is not None:
            return False  # nothing is cached, or the snapshot is newer or older than the cache
        self._forget()
        return False

    def has(self, number: int, areas: Iterable[int]) -> bool:
        """Whether these areas of a group are cached, and the statistics of the others."""
        group = self.parts.get(number)
        return (
            group is not None
            and not group.missing
            and (group.globals is not None or not group.has_globals)
            and group.others.keys().isdisjoint(areas)
        )

    def group(self, number: int, areas: Iterable[int]) -> Group | None:
        """Return a group if it is cached as `has` requires, or None."""
        group = self.parts.get(number)
        if group is not None:
            group.used_at = time.monotonic()
            self._add_pending(group)
            if self.has(number, areas):
                return group
        return None

    def set_rules(self, rules: Rules) -> None:
        """Drop text that was rendered with other redaction rules."""
        if self._rules() is not rules:
            self._rules = ref(rules)  # weak: only the registry may keep secret values alive
            areas = chain.from_iterable(it.areas.values() for it in self.parts.values())
            for area in (*areas, *filter(None, [self._globals])):
                area.forget_rendered()

    def _catch_up(self) -> None:
        """Apply this process's commits."""
        while self._committed:
            commit = self._committed.popleft()
            if self._token not in (None, commit.before):
                self._forget()  # another process has committed in between
            if self._log and self._log[-1].after != commit.before:
                self._log.clear()  # as above, while nothing was cached
            self._log.append(commit)
            if self._token is not None:
                self._token = commit.after
                self._apply(commit.changes)
            self._bound_texts(commit.changes)

    def _bound_texts(self, newest: Changes) -> None:
        """Keep no text that may be erased by now, nor more texts than a load may need."""
        texts = self._texts
        if newest.new:
            texts.append((newest, sum(it.size for it in newest.new)))
            self._texts_size += texts[-1][1]
        while texts and (
            self._texts_size > MAX_PENDING_CHARS or (newest.areas and texts[0][0] is not newest)
        ):
            changes, size = texts.popleft()
            changes.areas |= {it.key for it in changes.new}  # without texts, areas are reloaded
            changes.new = []
            self._texts_size -= size

    def _commits_since(self, token: Token) -> list[Commit] | None:
        """Return the commits after a state, or None if the log does not have it."""
        log = list(self._log)
        if token == self._token:
            return []
        for at in range(len(log) - 1, -1, -1):
            if log[at].after == token:
                return log[at + 1 :]
            if log[at].before == token:
                return log[at:]
        return None

    def _forget(self) -> None:
        for number in list(self.parts):
            self._drop(number)
        self._drop_globals()
        self.summaries.clear()
        self.locations.clear()
        self._token = None
        self._log.clear()

    def _apply(self, changes: Changes) -> None:
        for project in changes.projects:
            self.summaries.pop(project, None)
        if changes.areas:
            self.locations.clear()
        for number, area in changes.areas:
            self._invalidate(number, area)
        for it in changes.new:
            if it.key not in changes.areas:
                self._add(it)

    def _invalidate(self, number: int, area: int) -> None:
        if area == GLOBAL_AREA:
            self.locations.clear()  # a project may have its first global memory
            self._drop_globals()
        elif (group := self.parts.get(number)) is not None:
            group.missing.add(area)
            self._remove_area(group, area)
            if pending := self._pending.pop(number, None):
                self._pending[number] = [it for it in pending if it.key[1] != area]

    def _remove_area(self, group: Group, area: int) -> None:
        if (old := group.remove_area(area)) is not None:
            self.vocabulary.remove(old.stem_numbers())

    def _add(self, new: NewMemory) -> None:
        number, area = new.key
        if area == GLOBAL_AREA:
            self._invalidate(number, area)
        elif (group := self.parts.get(number)) is not None and area not in group.missing:
            pending = self._pending.setdefault(number, [])
            pending.append(new)
            is_checked = len(pending) % SIZE_CHECK_INTERVAL == 0
            if is_checked and sum(it.size for it in pending) > MAX_PENDING_CHARS:
                self._drop(number)  # no reader uses the group

    def _add_pending(self, group: Group) -> None:
        for (_, area), row, texts in self._pending.pop(group.number, ()):
            if area in group.others:
                self._invalidate(group.number, area)  # its postings are not known
            elif group.is_behind(area, row.id):
                group.add(area, row, self._entry_of(texts))
                self.on_unprepared()

    def _drop(self, number: int) -> int:
        group = self.parts.pop(number, None)
        if group is None:
            return 0
        size = group.size
        self._pending.pop(number, None)
        for area in list(group.areas):
            self._remove_area(group, area)
        if self._globals is not None and not self.parts:
            size += self._globals.size
            self._drop_globals()
        return size

    def _drop_globals(self) -> None:
        if self._globals is not None:
            self.vocabulary.remove(self._globals.stem_numbers())
            self._globals = None
            for group in self.parts.values():
                group.set_globals(None)

    # Callers of the following methods do not hold the lock.

    def refresh(self, token: Token) -> None:
        """Apply commits, and drop everything if the token is unknown here."""
        with self.lock:
            self.is_at(token)

    def forget(self) -> None:
        with self.lock:
            self._forget()

    @contextmanager
    def writing(self, token: Token) -> Iterator[Callable[[Token, Changes], None]]:
        """Within, a transaction that sets this token is run and committed.

        It passes the token before it and its changes to the yielded function.
        """
        commits: list[Commit] = []
        self._writing = token
        try:
            yield lambda before, changes: commits.append(Commit(before, token, changes))
            self._committed.extend(commits)
        finally:
            self._writing = None

    def apply_commits(self) -> None:
        """Apply this process's commits, before any caller gets its answer."""
        if self._committed:
            rows = sum(len(it.changes.new) for it in self._committed)
            with self.lock:
                self._catch_up()
            self.cache.grew(rows * ROW_BYTES)

    def plan(self, number: int, requested: Iterable[int] | None = None) -> LoadPlan:
        """Return the plan for loading what a request lacks of a group, or all that is missing."""
        with self.lock:
            group, areas = self.parts.get(number), None
            its = None if requested is None else frozenset(requested)
            if group is not None:
                unread = group.others.keys()
                areas = frozenset(group.missing) | (unread if its is None else its & unread)
            has_globals = group_of(number) is IndexGroup.PROJECTS
            return LoadPlan(number, areas, has_globals and self._globals is None, its)

    def install(
        self, token: Token, plan: LoadPlan, areas: Sequence[Area], others: Sequence[StemCounts],
        totals: Totals,
    ) -> bool:  # fmt: skip
        """Cache areas that were read as of a token, unless they have changed since.

        Return False if the stored index has other totals.
        """
        with self.lock:
            self._catch_up()
            since = self._changes_since(token, plan, [*areas, *others])
            if since is None:
                return True
            group = self._put(plan, areas, others)
            self._add_pending(group)
            if not (since or group.missing) and group.totals != totals:
                self._drop(plan.number)
                return False
            pending = self._pending.setdefault(plan.number, [])
            new = (it for changes in since for it in changes.new)
            pending += [it for it in new if it.key[0] == plan.number]
        self.cache.grew(sum(it.size for it in areas) + sum(it.size for it in others))
        if plan.number not in self.parts:  # it exceeds the cache by itself
            self.queue.defer(plan.number)
        self.loaded_at = time.monotonic()
        self.on_unprepared()
        return True

    def prepare_some(self) -> bool:
        """Number some stems of an area, or prepare them for typos; return False if all are done.

        It takes less than a millisecond, and does nothing while another thread has the lock.
        """
        if not self.lock.acquire(blocking=False):
            return True
        try:
            areas = chain.from_iterable(
                (*it.areas.values(), it.globals) for it in self.parts.values()
            )
            area = next((it for it in areas if it and not it.is_numbered), None)
            if area is None:
                return self.vocabulary.add_some_forms()
            before = self.vocabulary.size
            area.number_some(self.vocabulary, STEMS_AT_ONCE)
            size = self.vocabulary.size - before + STEMS_AT_ONCE * STEM_BYTES
        finally:
            self.lock.release()
        self.cache.grew(size)
        return True

    def _changes_since(
        self, token: Token, plan: LoadPlan, areas: Sequence[Area | StemCounts]
    ) -> list[Changes] | None:
        """Return the changes since a token, or None if the areas cannot follow them."""
        since, log = self._commits_since(token), list(self._log)
        if self._is_closed or (plan.number in self.parts) is (plan.areas is None):
            return None
        if self._token is None and since is None:
            self._token, since = token, []  # only readers of this state use it
            self._log.clear()
        if since is None or len(since) > MAX_REPLAYED:
            return None
        own = {it.number for it in areas}
        for changes in (it.changes for it in since):
            changed = {area for _, area in changes.areas}
            has_globals = GLOBAL_AREA in changed | {it.key[1] for it in changes.new}
            if own & changed or (plan.globals_too and has_globals):
                return None
        if self._token is None:
            self._token = log[-1].after
        return [it.changes for it in since]

    def _put(self, plan: LoadPlan, areas: Sequence[Area], others: Sequence[StemCounts]) -> Group:
        group = self.parts.get(plan.number)
        if group is None:
            group = self.parts[plan.number] = Group(plan.number, self.vocabulary)
        for it in areas:
            if it.number in group.areas:
                self._remove_area(group, it.number)
        group.put([it for it in areas if it.number != GLOBAL_AREA], others)
        group.missing -= plan.areas or set()
        self._globals = next((it for it in areas if it.number == GLOBAL_AREA), self._globals)
        for each in self.parts.values():
            each.set_globals(self._globals)
        return group
