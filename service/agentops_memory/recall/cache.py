"""The index in memory of each database, kept in line with what is committed, bounded in bytes."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import ref

from ..light import dataclass, field
from ..memory.memory import MemoryId
from ..memory.search import Totals
from ..memory.space import GLOBAL_AREA, IndexGroup, group_of
from ..secrets.redaction import Rules
from .area import Area, Draft, Row
from .group import Group
from .stems import MOST_CODES, Entry, Vocabulary
from .text import Columns

USUAL = 64 * 1024 * 1024  # bytes
REMEMBERED = 256  # commits, by which an old snapshot is distinguished from a foreign write
MOST_WAITING = 512 * 1024  # characters of new memories that wait, or are remembered with commits
LOOK = 8  # new memories of a group, after which their size is looked at
REPLAYED = 64  # commits that can be added to what was read before them
ROW_BYTES, READ_BYTES = 1_500, 500  # of what a new memory, and a prompt, adds, about
PATIENCE = 20  # prompts for projects without room, before others make room for them
READ_IN_A_PROMPT = 64  # memories: reading one takes 50 us, and saves each prompt 3 ms
MOST_PROMPTS = 16  # before a part is loaded: of many memories, each takes longer by SQL
LATER = 60.0  # seconds after which a group is read again that could not be

Token = int
"""Names a state of a database: each transaction leaves another one, in any process."""

Place = tuple[int, int]
"""A group and an area; the global area is of no group."""


class NewMemory(NamedTuple):
    """One that was saved, with its text as it is indexed; its entry is made when it is needed."""

    place: Place
    row: Row
    said: Columns

    @property
    def size(self) -> int:
        return sum(map(len, self.said))


@dataclass(slots=True)
class Changes:
    """What one transaction changed, by area of the index and by project."""

    areas: set[Place] = field(default_factory=set)  # changed otherwise than by new memories
    new: list[NewMemory] = field(default_factory=list)
    projects: set[str] = field(default_factory=set)  # whose summaries changed


class Commit(NamedTuple):
    before: Token
    after: Token
    changes: Changes


class Part(Protocol):
    """What is loaded, and dropped, as a whole."""

    used_at: float

    @property
    def size(self) -> int:
        """The bytes in use, about."""


P = TypeVar("P", bound=Part)


class IndexCache:
    """What the databases of a service hold in memory, at most so many bytes; 0 is nothing."""

    def __init__(self, most: int = USUAL) -> None:
        self.most = most
        self.fullness = 0.0  # from 0 to 1, as of the last load
        self.databases: list[InMemory[Any]] = []  # a database joins and leaves by itself

    @property
    def size(self) -> int:
        return sum(it.size for it in list(self.databases))

    @property
    def free(self) -> int:
        return self.most - self.size

    def unused(self, since: float) -> int:
        """The bytes of parts that were not used since then."""
        return sum(
            part.size
            for database in list(self.databases)
            for part in list(database.parts.values())
            if part.used_at < since
        )

    def make_room(self) -> None:
        """Let what is held fit: of what was not used for longest first the lines, then all."""
        size = self.size
        self.fullness = min(size / self.most, 1.0) if self.most else 1.0
        if size <= self.most:
            return
        every = [
            (part.used_at, number, database)
            for database in list(self.databases)
            for number, part in list(database.parts.items())
        ]
        every.sort(key=lambda it: it[0])
        for lines_alone in (True, False):
            for _, number, database in every:
                forget = database.forget_rendered if lines_alone else database.drop
                size -= forget(number)
                if size <= self.most:
                    return


class InMemory(ABC, Generic[P]):
    """What is in memory of one database, in parts that have numbers."""

    def __init__(self, cache: IndexCache, vocabulary: Vocabulary) -> None:
        self.lock = Lock()  # held to use or change it
        self.cache = cache
        self.vocabulary = vocabulary
        self.parts: dict[int, P] = {}
        self.queue = LoadQueue(self)
        self._is_closed = False
        self._grown = 0
        cache.databases.append(self)

    @property
    def holds_nothing(self) -> bool:
        return self.cache.most == 0 or self._is_closed

    @property
    def size(self) -> int:
        """The bytes in use, about."""
        return sum(it.size for it in list(self.parts.values())) + self.vocabulary.size

    @abstractmethod
    def forget(self) -> None:
        """Hold nothing of what is held now."""

    @abstractmethod
    def _drop(self, number: int) -> int: ...

    def forget_rendered(self, number: int) -> int:  # noqa: ARG002 - not every part has some
        """Forget the lines of a part, which are rendered again sooner than it is loaded."""
        return 0

    def drop(self, number: int) -> int:
        """Forget a part; the bytes that it took."""
        with self.lock:
            return self._drop(number)

    def grew(self, size: int) -> None:
        """So many bytes, about, are held more. Not to be called under the lock."""
        self._grown += size
        if self._grown > self.cache.most >> 6:  # to add all up takes a while
            self._grown = 0
            self.cache.make_room()

    def close(self) -> None:
        self._is_closed = True
        self.forget()
        self.cache.databases.remove(self)


class LoadQueue:
    """The parts that prompts ask for, which readers load when they have answered."""

    def __init__(self, memory: InMemory[Any]) -> None:
        self._memory = memory
        # By part: since when, how often, and the least; and its bytes, about.
        self._requests: dict[int, tuple[float, int, float, int]] = {}
        self._refused: dict[int, float] = {}  # by part: until when
        self._loading = Lock()

    def want(self, number: int, memories: int = 0) -> None:
        """A prompt asks for a part that is not there, of so many memories.

        It is loaded once prompts have taken as much time as that will; sooner while memory has
        room for others, too.
        """
        since, times, *_ = self._requests.get(number) or (time.monotonic(), 0)
        cache, enough = self._memory.cache, min(memories / READ_IN_A_PROMPT, MOST_PROMPTS)
        size = min(memories * ROW_BYTES, cache.most // 2)  # of short memories it may be far less
        self._requests[number] = since, times + 1, enough * cache.fullness, size

    @property
    def is_due(self) -> bool:
        """Whether there is something to be loaded."""
        return bool(self._requests)

    @contextmanager
    def next(self) -> Iterator[int | None]:
        """The part to be loaded next, for one reader alone; None if there is none."""
        if not (self.is_due and self._loading.acquire(blocking=False)):
            yield None
            return
        try:
            yield self._next(time.monotonic())
        finally:
            self._loading.release()

    def refuse(self, number: int) -> None:
        """A part cannot be loaded; it is tried again later."""
        self._refused[number] = time.monotonic() + LATER

    def _next(self, now: float) -> int | None:
        memory, cache, free = self._memory, self._memory.cache, self._memory.cache.free
        for number, (since, times, enough, size) in list(self._requests.items()):
            if self._refused.get(number, 0.0) > now:
                del self._requests[number]
            elif times < enough and number not in memory.parts:
                continue
            elif number in memory.parts or size <= free:
                del self._requests[number]
                return number
            elif times >= PATIENCE:
                del self._requests[number]
                if size <= free + cache.unused(since):  # else all of the cache is used as often
                    return number
        return None


class LoadPlan(NamedTuple):
    """What a reader is to read: some areas of a group, or all of it; and the global area."""

    number: int
    areas: frozenset[int] | None
    globals_too: bool


class DatabaseIndex(InMemory[Group]):
    """The groups of one database in memory, all as of one state of it.

    A reader tells the token of its snapshot, and is answered only if that is the state. What
    the writer commits is handed over; a token that nobody here has made drops everything.
    """

    def __init__(
        self,
        cache: IndexCache,
        vocabulary: Vocabulary,
        entry_of: Callable[[Columns], Entry],
    ) -> None:
        super().__init__(cache, vocabulary)
        self.summaries: dict[str, list[str]] = {}  # the newest, by project
        self.places: dict[str, Any] = {}  # where each project lies
        self.computed: list[tuple[Token, Mapping[MemoryId, Entry]]] = []  # that are not stored
        self._rules: Callable[[], Rules | None] = lambda: None  # by which lines are rendered
        self._globals: Area | None = None
        self._waiting: dict[int, list[NewMemory]] = {}  # by group
        self._entry_of = entry_of
        self._token: Token | None = None
        self._writing: Token | None = None  # of the transaction that is being made
        self._committed: deque[Commit] = deque()  # not handed over yet
        self._log: deque[Commit] = deque(maxlen=REMEMBERED)
        self._texts: deque[tuple[Changes, int]] = deque()  # with their characters
        self._texts_size = 0

    @property
    def size(self) -> int:
        return super().size + (self._globals.size if self._globals else 0)

    def forget_rendered(self, number: int) -> int:
        with self.lock:
            group = self.parts.get(number)
            return sum(it.forget_rendered() for it in group.areas.values()) if group else 0

    # Callers of these hold the lock.

    def is_at(self, token: Token) -> bool:
        """Whether memory is as of this token, once it has caught up."""
        self._catch_up()
        if len(self.vocabulary.codes) > MOST_CODES:  # of texts that are made for it
            self._forget()
        if token == self._token:
            return True
        if self._token is None or token == self._writing or self._since(token) is not None:
            return False  # nothing is held, not handed over yet, or of an older snapshot
        self._forget()
        return False

    def group(self, number: int) -> Group | None:
        """A group, if all of it is in memory."""
        group = self.parts.get(number)
        if group is not None:
            group.used_at = time.monotonic()
            self._put_in_waiting(group)
            if not group.missing and (group.globals is not None or not group.has_globals):
                return group
        return None

    def render_by(self, rules: Rules) -> None:
        """Forget what was rendered by other rules."""
        if self._rules() is not rules:
            self._rules = ref(rules)  # the registry alone keeps the values that it knows
            areas = chain.from_iterable(it.areas.values() for it in self.parts.values())
            for area in (*areas, *filter(None, [self._globals])):
                area.forget_rendered()

    def _catch_up(self) -> None:
        """Apply what was committed here since."""
        while self._committed:
            commit = self._committed.popleft()
            if self._token not in (None, commit.before):
                self._forget()  # another process wrote between
            self._log.append(commit)
            if self._token is not None:
                self._token = commit.after
                self._apply(commit.changes)
            self._bound_texts(commit.changes)

    def _bound_texts(self, newest: Changes) -> None:
        """Remember no text that may be erased by now, nor more of them than a load may need."""
        texts = self._texts
        if newest.new:
            texts.append((newest, sum(it.size for it in newest.new)))
            self._texts_size += texts[-1][1]
        while texts and (
            self._texts_size > MOST_WAITING or (newest.areas and texts[0][0] is not newest)
        ):
            changes, size = texts.popleft()
            changes.areas |= {it.place for it in changes.new}  # what is new is taken for changed
            changes.new = []
            self._texts_size -= size

    def _since(self, token: Token) -> list[Commit] | None:
        """The commits after a state; None if that is not known."""
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
        self.vocabulary.forget_codes()
        self.summaries.clear()
        self.places.clear()
        self.computed.clear()
        self._token = None
        self._log.clear()

    def _apply(self, changes: Changes) -> None:
        for project in changes.projects:
            self.summaries.pop(project, None)
        if changes.areas:
            self.places.clear()
        for number, area in changes.areas:
            self._change_area(number, area)
        for it in changes.new:
            if it.place not in changes.areas:
                self._add(it)

    def _change_area(self, number: int, area: int) -> None:
        if area == GLOBAL_AREA:
            self.places.clear()  # a project may have its first global memory
            self._drop_globals()
        elif (group := self.parts.get(number)) is not None:
            self._take_out(group, area)
            group.missing.add(area)
            if waiting := self._waiting.pop(number, None):
                self._waiting[number] = [it for it in waiting if it.place[1] != area]

    def _take_out(self, group: Group, area: int) -> None:
        if (old := group.taken_out(area)) is not None:
            self.vocabulary.remove(old.numbers())

    def _add(self, new: NewMemory) -> None:
        number, area = new.place
        if area == GLOBAL_AREA:
            self._change_area(number, area)
        elif (group := self.parts.get(number)) is not None and area not in group.missing:
            waiting = self._waiting.setdefault(number, [])
            waiting.append(new)
            if len(waiting) % LOOK == 0 and sum(it.size for it in waiting) > MOST_WAITING:
                self._drop(number)  # nobody reads the group

    def _put_in_waiting(self, group: Group) -> None:
        for (_, area), row, texts in self._waiting.pop(group.number, ()):
            if group.is_behind(area, row.id):
                group.add(area, row, self._entry_of(texts))

    def _drop(self, number: int) -> int:
        group = self.parts.pop(number, None)
        if group is None:
            return 0
        size = group.size
        self._waiting.pop(number, None)
        for area in list(group.areas):
            self._take_out(group, area)
        return size

    def _drop_globals(self) -> None:
        if self._globals is not None:
            self.vocabulary.remove(self._globals.numbers())
            self._globals = None
            for group in self.parts.values():
                group.let_globals(None)

    # Callers of these do not.

    def keep(self, token: Token) -> None:
        """Forget everything unless memory is as of this token."""
        with self.lock:
            self.is_at(token)

    def forget(self) -> None:
        with self.lock:
            self._forget()

    @contextmanager
    def writing(self, token: Token) -> Iterator[Callable[[Token, Changes], None]]:
        """Inside, a transaction is made and committed that leaves this token.

        It tells the token that it found, and what it changed.
        """
        commits: list[Commit] = []
        self._writing = token
        try:
            yield lambda before, changes: commits.append(Commit(before, token, changes))
            self._committed.extend(commits)
        finally:
            self._writing = None

    def apply_commits(self) -> None:
        """Let memory be as of what was committed, before any caller is answered."""
        if self._committed:
            rows = sum(len(it.changes.new) for it in self._committed)
            with self.lock:
                self._catch_up()
            self.grew(rows * ROW_BYTES)

    def plan(self, number: int) -> LoadPlan:
        """What is to be read of a group."""
        with self.lock:
            group = self.parts.get(number)
            areas = None if group is None else frozenset(group.missing)
            has_globals = group_of(number) is IndexGroup.PROJECTS
            return LoadPlan(number, areas, has_globals and self._globals is None)

    def install(
        self, token: Token, plan: LoadPlan, drafts: Iterable[Draft], totals: Totals
    ) -> bool:
        """Hold what was read as of a token, unless it has changed since.

        False if the stored index has other totals then. One draft after the other is taken and
        let go, as each takes several times what its area does.
        """
        areas, coded = list[Area](), self.vocabulary.coded
        try:
            for area, postings in drafts:
                with self.lock:
                    numbers = self.vocabulary.add(postings)
                area.store(numbers, postings.values())
                areas.append(area)
                while self._looked_for_forms():
                    pass
            with self.lock:
                self._catch_up()
                since = self._changes_since(token, plan, areas)
                if since is None or coded != self.vocabulary.coded:
                    return True
                group = self._put(plan, areas)
                areas = []
                if not since and group.totals != totals:
                    self._drop(plan.number)
                    return False
                waiting = self._waiting.setdefault(plan.number, [])
                new = (it for changes in since for it in changes.new)
                waiting += [it for it in new if it.place[0] == plan.number]
        finally:
            with self.lock:
                for area in areas:
                    self.vocabulary.remove(area.numbers())
        self.cache.make_room()
        if plan.number not in self.parts:  # alone it is more than there is room for
            self.queue.refuse(plan.number)
        return True

    def _looked_for_forms(self) -> bool:
        with self.lock:
            return self.vocabulary.look_for_forms()

    def _changes_since(
        self, token: Token, plan: LoadPlan, areas: Sequence[Area]
    ) -> list[Changes] | None:
        """What was committed since a token; None if areas cannot be brought in line with it."""
        since, log = self._since(token), list(self._log)
        if self._is_closed or (plan.number in self.parts) is (plan.areas is None):
            return None
        if self._token is None and since is None and not log:
            self._token, since = token, []
        if since is None or len(since) > REPLAYED:
            return None
        own = {it.number for it in areas}
        for changes in (it.changes for it in since):
            changed = {area for _, area in changes.areas}
            has_globals = GLOBAL_AREA in changed | {it.place[1] for it in changes.new}
            if own & changed or (plan.globals_too and has_globals):
                return None
        if self._token is None:
            self._token = log[-1].after
        return [it.changes for it in since]

    def _put(self, plan: LoadPlan, areas: Sequence[Area]) -> Group:
        group = self.parts.get(plan.number)
        if group is None:
            group = self.parts[plan.number] = Group(plan.number, self.vocabulary)
        group.put([it for it in areas if it.number != GLOBAL_AREA])
        group.missing -= plan.areas or set()
        self._globals = next((it for it in areas if it.number == GLOBAL_AREA), self._globals)
        for each in self.parts.values():
            each.let_globals(self._globals)
        return group
