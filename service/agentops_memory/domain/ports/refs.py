"""The ports of refs and of runs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from ..model.hosts.entries import Origin, Provenance, RefEntry, RefEntryId, RefExtent, RefQuery
from ..model.hosts.runs import (
    JsonObject,
    Offset,
    Run,
    RunDraft,
    RunEvent,
    RunEventType,
    RunId,
    RunKind,
    RunStatus,
    Snapshot,
)
from ..model.memory import Memory, MemoryId
from ..model.space import MemoryRef, Space


class Recorded(NamedTuple):
    """An event that no run of a host has caused, and the refs that it is about."""

    payload: JsonObject
    refs: Sequence[str] = ()


class ListedRef(NamedTuple):
    """What is known of a listed entry before its content is read."""

    memory: MemoryId
    size: int  # bytes of its content
    length: int  # code points


class RefTable(Protocol):
    """Refs and their entries. With a snapshot, as they were then; without one, as they are.

    What has expired is never there.
    """

    def space(self, ref: MemoryRef) -> Space | None:
        """The ref's space, if anything was ever put there."""

    def add(self, ref: MemoryRef) -> Space:
        """Make a ref."""

    def get(self, ref: MemoryRef, id_: RefEntryId, at: Snapshot | None = None) -> RefEntry | None:
        """The entry, also one that others supersede."""

    def listed(
        self, ref: MemoryRef, query: RefQuery, at: Snapshot | None
    ) -> Iterator[ListedRef] | None:
        """The entries that a query asks for, newest first; None for an unknown `before`.

        Its limit and its budget are the domain's.
        """

    def some(self, memories: Sequence[MemoryId]) -> list[RefEntry]:
        """The entries that these memories are, in their order."""

    def provenance(self, ref: MemoryRef, id_: RefEntryId) -> Provenance | None:
        """Where the entry comes from."""

    def put(self, memory: Memory, name: RefEntryId | None, origin: Origin) -> None:
        """Insert what lies beside the memory of a new entry."""

    def supersede(self, newer: MemoryId, older: Sequence[MemoryId]) -> None:
        """Let an entry that is new supersede others."""

    def delete(self, memory: MemoryId, after: Offset) -> None:
        """Note after which event the entry's memory was deleted."""

    def measure(self, memory: Memory) -> None:
        """Update what lies beside a memory whose text was redacted."""

    def extents(self, after: MemoryRef, limit: int) -> list[RefExtent]:
        """Refs that hold entries, in code point order, after one."""

    def has_lost(
        self, ref: MemoryRef, at: Snapshot, until: datetime, since: Offset | None = None
    ) -> bool:
        """Whether something of a snapshot had expired by then, or was erased.

        What was still there after the event `since`, and has expired by now, is no loss.
        """


class RunTable(Protocol):
    """Runs and their events."""

    def get(self, run: RunId) -> Run | None:
        """The run."""

    def open(self, draft: RunDraft, *, of: Run | None = None, kind: RunKind = RunKind.HOST) -> Run:
        """Open a run, and begin its log. Its snapshot is memory as it is then.

        A branch of another run has that one's snapshot and sequence.
        """

    def copy(self, source: Run, from_sequence: int) -> Run:
        """A run that has ended, with the snapshot of another one and its log."""

    def tell(
        self, run: Run, type_: RunEventType, payload: JsonObject, node: str | None = None
    ) -> None:
        """Add an event to the log of a run."""

    def end(self, run: Run, status: RunStatus) -> Run:
        """End a run; the last event of its log says how."""

    def record(self, type_: RunEventType, events: Sequence[Recorded]) -> None:
        """Make a run of the kind `pass` for each event, of which there is one at least.

        Its log is complete: the run has started, the event, the run has completed.
        """

    def hear(self, run: Run, ref: MemoryRef | None = None) -> None:
        """Note that something was done in a run, to a ref; the same is not noted each time."""

    def count_secrets(self, run: Run, counts: Mapping[str, int]) -> None:
        """Note how many values each id of a run has."""

    def event(self, run: Run, sequence: int) -> RunEvent | None:
        """The event of a run."""

    def last(self, run: Run) -> RunEvent | None:
        """The last event of a run so far; None if its events are gone."""

    def count_events(self, run: Run) -> int:
        """How many events of it are there."""

    def log(self, run: Run, after: int, limit: int) -> list[RunEvent]:
        """The events of a run after a sequence, in order."""

    def events(self, after: Offset, limit: int, type_: str | None) -> list[RunEvent]:
        """The events of all runs after an offset, in order."""

    def newest(self) -> Offset:
        """The offset of the newest event; 0 if there is none."""

    def silent(self, until: datetime, most: int) -> list[RunId]:
        """Open runs in which nothing was done since then."""

    def past(self, until: datetime, most: int, *, with_events: bool) -> list[int]:
        """Runs that had ended by then, of which there are events still; or all of them."""

    def forget_events(self, runs: Sequence[int], most: int) -> int:
        """Remove events of runs, at most so many; how many were removed."""

    def forget(self, runs: Sequence[int]) -> int:
        """Remove runs, with what events they have left; how many were removed."""
