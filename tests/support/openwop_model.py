"""What memory and runs should be, by the contract alone: what is live, and what a run sees.

The order is that of commits, which have numbers here; the clock says what has expired, and no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from .service import Clock

KEPT_DELETED, KEPT_EXPIRED = timedelta(hours=1), timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class Moment:
    """A commit, and what the clock showed."""

    number: int
    on: datetime


@dataclass(eq=False, slots=True, kw_only=True)
class Entry:
    """What was put."""

    ref: str
    id: str
    content: str
    tags: tuple[str, ...]
    put: Moment
    end: datetime | None
    older: frozenset["Entry"]  # which it supersedes
    deleted: Moment | None = None
    gone: int = 0  # the moment at which it was erased

    def was_ended(self, on: datetime) -> bool:
        return self.end is not None and self.end <= on


@dataclass(frozen=True, slots=True)
class Told:
    """An event that there should be; of one whose payload is None, nothing is said of it."""

    type: str
    moment: Moment
    payload: dict[str, Any] | None = None
    node: str | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Run:
    """A run, and the moment whose memory it sees."""

    id: str
    sees: Moment
    kind: str = "host"
    is_open: bool = True
    source: "Run | None" = None
    from_seq: int = 0
    declared: frozenset[str] = frozenset()
    wrote: set[str] = field(default_factory=set)
    log: list[Told] = field(default_factory=list)
    base: int = 0  # the sequence of the first event of that log
    checked: frozenset[str] = frozenset()  # refs whose wholeness its fork has seen to
    perhaps: frozenset[str] = frozenset()  # and those that it may have seen to
    broken: frozenset[str] = frozenset()  # refs that had lost something by its fork


class Model:
    """Every entry and run of a tenant."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._number = 0
        self._ended: set[Entry] = set()
        self._losses: list[tuple[int, str]] = []  # when something of a ref was lost
        self.entries: list[Entry] = []
        self.runs: list[Run] = []

    # What is there.

    def is_ended(self, entry: Entry) -> bool:
        return entry.was_ended(self._clock.now)

    def live(self, ref: str) -> list[Entry]:
        """Superseded ones, too."""
        return self.shown(self.held(ref))

    def held(self, ref: str, at: Moment | None = None) -> list[Entry]:
        """What was put by then, and not deleted by then; expired ones, too."""
        last = self._number if at is None else at.number
        return [
            it for it in self.entries
            if it.ref == ref and it.put.number <= last
            and not (it.deleted and it.deleted.number <= last)
        ]  # fmt: skip

    def shown(self, held: Iterable[Entry], run: Run | None = None) -> list[Entry]:
        """What `get` answers for: a clock that goes back brings nothing into a snapshot."""
        left = [it for it in held if not it.gone and not self.is_ended(it)]
        return left if run is None else [it for it in left if not it.was_ended(run.sees.on)]

    def listed(self, held: Iterable[Entry], run: Run | None = None) -> list[Entry]:
        """What is superseded by none of them, the newest first."""
        shown = self.shown(held, run)
        older = {it for newer in shown for it in newer.older}
        left = [it for it in shown if it not in older]
        return sorted(left, key=lambda it: (it.put.on, it.put.number), reverse=True)

    def seen(self, ref: str, run: Run | None) -> list[Entry]:
        return self.held(ref, run.sees if run else None)

    # What is done.

    def commit(self) -> Moment:
        """The next moment."""
        self.look()
        self._number += 1
        return Moment(self._number, self._clock.now)

    def look(self) -> None:
        """Notes what has expired since the last look; to be asked after each move of the clock."""
        ended = {it for it in self.entries if self.is_ended(it)}
        self._lose(ended - self._ended)
        self._ended = ended

    def swept(self, left: set[str]) -> None:
        """Notes what was erased: all that must be, and nothing that must not, is."""
        gone = [it for it in self.entries if not it.gone and it.content not in left]
        assert [it.content for it in gone if not self._may_go(it)] == []
        kept = [it for it in self.entries if it.content in left]
        assert [it.content for it in kept if self._must_go(it)] == []
        self._lose(gone)
        for it in gone:
            it.gone = self._number

    def _lose(self, entries: Iterable[Entry]) -> None:
        for it in entries:
            self._number += 1
            self._losses.append((self._number, it.ref))

    def _may_go(self, entry: Entry) -> bool:
        over = entry.end is not None and self._is_over(KEPT_EXPIRED, max(entry.end, entry.put.on))
        return over or (self._is_deleted_long_ago(entry) and (
            self.is_ended(entry) or not self._is_kept(entry)
        ))  # fmt: skip

    def _must_go(self, entry: Entry) -> bool:
        since = [it.on for it in (entry.put, entry.deleted) if it]
        over = entry.end is not None and self._is_over(KEPT_EXPIRED, max(entry.end, *since))
        return not self._is_kept(entry) and (over or self._is_deleted_long_ago(entry))

    def _is_deleted_long_ago(self, entry: Entry) -> bool:
        return entry.deleted is not None and self._is_over(KEPT_DELETED, entry.deleted.on)

    def _is_over(self, kept: timedelta, since: datetime) -> bool:
        return since + kept <= self._clock.now

    def _is_kept(self, entry: Entry) -> bool:
        """Whether an open run may see it."""
        return any(it.is_open and entry in self.held(entry.ref, it.sees) for it in self.runs)

    # What a snapshot has lost.

    def has_lost_of(self, ref: str, at: Moment) -> bool:
        """Whether anything at all of the ref was erased, or has expired, since then."""
        return any(number > at.number and it == ref for number, it in self._losses)

    def has_lost(self, ref: str, at: Moment) -> bool:
        """Whether something is missing now that a snapshot of that moment showed then."""
        showed = self._showed(ref, at)
        return len(self.shown(showed)) < len(showed)

    def _showed(self, ref: str, at: Moment) -> list[Entry]:
        held = [it for it in self.held(ref, at) if not 0 < it.gone <= at.number]
        return [it for it in held if not it.was_ended(at.on)]

    def must_refuse(self, run: Run, ref: str) -> bool:
        """Whether a read of the run's snapshot would lack something."""
        if ref in run.broken - run.checked:
            return self.has_lost(ref, run.sees)
        if run.source is None or run.is_open or ref in run.checked | run.perhaps:
            return False
        showed = self._showed(ref, run.sees)
        return any(it.gone and it.deleted and not self.is_ended(it) for it in showed)

    def may_refuse(self, run: Run, ref: str) -> bool:
        if run.is_open and (run.source is None or ref in run.checked):
            return False
        return self.has_lost_of(ref, run.sees)
