"""Runs: the events of each run, and the snapshot of memory that it sees.

Hosts open runs. The service records its own work, and requests without a run, as runs, too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Annotated, Any, NewType, TypeVar

from pydantic import Field

from ..engine.engine import Transaction
from ..errors import Conflict, Refusal, required
from ..http.query import EVENT, public_id
from ..light import dataclass
from ..memory import rows
from ..memory.memory import MemoryId
from ..memory.redactor import as_json, require_margin
from ..memory.rows import Column, RowMapper, Uids, micros, tag_array
from ..memory.space import MemoryRef
from ..memory.table import Sql, Table
from ..record import CamelRecord, Milliseconds
from .api import NOWHERE, JsonObject, Offset, Snapshot, put_by, undeleted_at, values

T = TypeVar("T")
Internal = Annotated[T, Field(exclude=True)]
"""A field that is not sent to clients."""

RunId = NewType("RunId", str)
"""The id that a host chose for a run, or `run_` and the digits of a stable id."""

ACTIVITY_STEP = timedelta(seconds=1)  # resolution of `heard_at`
EXPIRED = "retention_expired"  # why a snapshot is lost
FORGOTTEN = "forgotten:"  # prefix of the aliases of refs whose names were forgotten


class RunKind(StrEnum):
    """Who opened a run, and for what."""

    HOST = "host"
    PASS = "pass"  # noqa: S105 - work of the service, or a request without a run
    REPLAY = "replay"  # a copy of another run's log
    BRANCH = "branch"  # begins at an event of another run


class RunStatus(StrEnum):
    """Whether a run has ended, and how."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEventType(StrEnum):
    """The type of an event; no payload has the content of entries."""

    STARTED = "run.started"
    COMPLETED = "run.completed"
    FAILED = "run.failed"
    CANCELLED = "run.cancelled"
    WRITTEN = "memory.written"
    COMPACTED = "memory.compacted"
    CONSOLIDATED = "agent.memory.consolidated"
    FIRED = "commitment.fired"
    PROPOSED = "proposal.created"
    ACTIVATED = "proposal.activated"
    DELETED = "agentops-memory.memory.deleted"
    FORGOTTEN = "agentops-memory.memory.forgotten"
    UNDONE = "agentops-memory.pass.undone"


END_EVENTS: Mapping[RunStatus, RunEventType] = {
    it: RunEventType(f"run.{it}") for it in RunStatus if it is not RunStatus.RUNNING
}


class Run(CamelRecord):
    """A run."""

    id: Annotated[RunId, Column("name"), Field(serialization_alias="runId")]
    status: RunStatus
    started_at: Milliseconds
    ended_at: Milliseconds | None = None
    agent: str | None = Field(default=None, serialization_alias="agentId")
    workflow: str | None = Field(default=None, serialization_alias="workflowId")
    kind: RunKind
    source: RunId | None = Field(default=None, serialization_alias="sourceRunId")
    number: Annotated[Internal[int], Column("id")]
    refs: Internal[tuple[str, ...]]  # refs that the run declared
    wrote: Internal[tuple[str, ...]]  # refs that the run has written to
    from_sequence: Internal[int]  # the sequence of the source run at which a fork begins
    snapshot: Internal[Snapshot]
    secrets: Internal[Mapping[str, int]]  # the number of registered values by secret id
    heard_at: Internal[datetime]  # the last activity of the run

    @property
    def is_open(self) -> bool:
        return self.status is RunStatus.RUNNING


RUN = RowMapper(Run, "runs", "id")


class RunEvent(CamelRecord):
    """An event of a run; a copied event keeps the snapshot of its original."""

    id: Annotated[
        str, Column("v.uid", read=partial(public_id, EVENT)), Field(serialization_alias="eventId")
    ]
    run: Annotated[RunId, Column("r.name"), Field(serialization_alias="runId")]
    type: RunEventType
    payload: dict[str, Any]
    at: Milliseconds = Field(serialization_alias="timestamp")
    sequence: int  # from 0, without gaps
    node: str | None = Field(default=None, serialization_alias="nodeId")
    offset: Annotated[Internal[Offset], Column("v.id")]
    original: Annotated[Internal[Offset], Column("coalesce(v.copied, v.id)")]
    high: Internal[MemoryId]

    @property
    def snapshot(self) -> Snapshot:
        """Memory just after the event."""
        return Snapshot(offset=self.original, high=self.high, at=self.at)


_EVENT = RowMapper(RunEvent, "run_events", "v.id", alias="v.", joins="JOIN runs r ON r.id = v.run")


class RunEnded(Conflict):
    code = "run_terminal"  # a run that has ended takes no writes


class SecretsLost(Conflict):
    code = "run_secrets_lost"  # this process lacks the values, so it could store them


class SnapshotLost(Refusal):
    """Part of what the run saw is gone; current memory is never returned instead."""

    code = "replay_memory_snapshot_unavailable"

    def __init__(self, source: RunId, from_sequence: int, reason: str = EXPIRED) -> None:
        super().__init__("The memory that the run saw is no longer available.")
        self.source, self.from_sequence, self.reason = source, from_sequence, reason


class InvalidSequence(Refusal):
    code = "invalid_from_seq"  # it is beyond the sequence of the run's next event


def require_open(tx: Transaction, run: str) -> Run:
    """Return a run that is open; raises NotFound or RunEnded."""
    known = tx[RunTable].known(run)
    if not known.is_open:
        raise RunEnded("The run has ended.")
    return known


# A run sees memory as it was when the run began: all of it, or an error (OpenWOP RFC 0004 §A).


def snapshot_of(tx: Transaction, run: str | None, ref: MemoryRef) -> Snapshot | None:
    """Return the snapshot of a run, or None without a run; raises NotFound or SnapshotLost.

    While a run is open, its snapshot is kept, except for entries that expire. After its end, and
    in refs that the source of a fork had not named, entries may be gone.
    """
    known = None if run is None else tx[RunTable].known(run)
    if known is None or ref == NOWHERE:
        return None
    is_host = known.kind is RunKind.HOST
    if known.is_open and (is_host or ref in known.refs):
        return known.snapshot
    first = tx[RunTable].event(known, 0)
    # An expiry up to `until` loses part of the snapshot; a later one is part of the run itself.
    until = known.snapshot.at if is_host else known.started_at
    at, since = known.snapshot, first.offset if first else None
    if is_lost(tx, known, at, [ref], until, since) or _may_be_forgotten(tx, ref, at):
        raise SnapshotLost(known.source or known.id, known.from_sequence)
    return at


def is_lost(
    tx: Transaction, run: Run, at: Snapshot, refs: Iterable[MemoryRef], until: datetime,
    since: Offset | None = None,
) -> bool:  # fmt: skip
    """Return whether part of a snapshot in the run's log is gone.

    Entries that expired by `until` or were erased are lost. An entry that was deleted after the
    event `since`, and has expired since `until`, is no loss. A damaged expiry counts as a loss.
    """
    last = tx[RunTable].event(run)
    if last is None or not (run.is_open or last.type in END_EVENTS.values()):
        return True  # retention removes the last events of a log first
    leads = tx[Sql].dialect.leads
    is_damaged = f"e.ends_at NOT BETWEEN {rows.EARLIEST} AND {rows.LAST}"
    losses = f"""SELECT 1
                   FROM refs f
                  {leads} ref_losses e ON e.space_id = f.space_id
                  WHERE f.ref = :ref AND e.memory_id <= :high
                        AND (e.deleted_after >= :offset OR e.deleted_after < 0)
                        AND (e.ends_at IS NULL OR e.ends_at > :at OR {is_damaged})
                        AND NOT coalesce(e.deleted_after >= :since AND e.ends_at > :until
                                         AND e.ends_at <= :now, FALSE)
                  UNION ALL
                 SELECT 1
                   FROM refs f
                  {leads} ref_entries e {tx[Sql].dialect.hint("ref_entries_by_end")}
                        ON e.space_id = f.space_id
                  WHERE f.ref = :ref AND {put_by("e")} AND {undeleted_at("e")}
                        AND e.ends_at IS NOT NULL
                        AND ((e.ends_at > :at AND e.ends_at <= :until) OR {is_damaged})
                  LIMIT 1"""
    # A clock set back must not revive expired entries in a snapshot.
    instants = {"at": at.at, "until": until, "now": max(tx.now, at.at)}
    bounds = {name: micros(it) for name, it in instants.items()}
    return any(tx[Sql].exists(losses, ref=it, since=since, **bounds, **values(at)) for it in refs)


def _may_be_forgotten(tx: Transaction, ref: MemoryRef, at: Snapshot) -> bool:
    """Return whether a ref without entries in a snapshot may be one whose name was forgotten."""
    sql = tx[Sql]
    known = " UNION ALL ".join(
        f"""SELECT 1
              FROM refs f
              JOIN {table} e ON e.space_id = f.space_id {which}
             WHERE f.ref = :ref AND e.memory_id <= :high"""
        for table, which in (  # the most likely table first
            ("ref_entries", "AND e.deleted_after IS NULL"), ("ref_losses", ""),
            ("ref_entries", "AND e.deleted_after IS NOT NULL"),
        )
    )  # fmt: skip
    return not sql.exists(known, ref=ref, high=at.high) and sql.exists(
        f"""SELECT 1
              FROM refs f
              JOIN ref_losses l ON l.space_id = f.space_id
             WHERE f.ref >= '{FORGOTTEN}' AND f.ref < '{FORGOTTEN[:-1]};'
                   AND l.memory_id <= :high AND {undeleted_at("l")}
             LIMIT 1""",
        **values(at),
    )


def fork_run(tx: Transaction, run: str, kind: RunKind, number: int) -> Run:
    """Fork a run at one of its events: a copy that has ended, or a new run that begins there.

    Raises InvalidSequence, or SnapshotLost if an event is gone, or part of what the run saw of the
    refs that it named.
    """
    source = tx[RunTable].known(run)
    last = tx[RunTable].event(source)
    if last is None:
        raise SnapshotLost(source.id, number)
    if number > last.sequence + 1:
        raise InvalidSequence("fromSeq is beyond the run's next event.")
    events = "SELECT count(*) FROM run_events WHERE run = :run"
    if tx[Sql].number(events, run=source.number) <= last.sequence:
        raise SnapshotLost(source.id, number, "event_log_unavailable")
    at = source.snapshot
    if kind is RunKind.BRANCH and number:  # otherwise it has the snapshot of its source
        at = (tx[RunTable].event(source, number) or last).snapshot
    refs = tuple(MemoryRef(it) for it in sorted({*source.refs, *source.wrote}))
    if is_lost(tx, source, at, refs, until=tx.now):
        raise SnapshotLost(source.id, number)
    require_margin(tx)
    columns = {
        "agent": source.agent, "workflow": source.workflow, "source": source.id,
        "from_sequence": number, "log_offset": at.offset, "high": at.high, "at": micros(at.at),
    }  # fmt: skip
    if kind is RunKind.REPLAY:
        return tx[RunTable].copy(source, last.sequence + 1, columns)
    return tx[RunTable].open(kind, refs, **columns)


# The rows.

Row = dict[str, Any]
Log = Sequence[tuple[RunEventType, JsonObject]]


@dataclass(eq=False)
class RunTable(Table):
    """Runs and their events."""

    _now: datetime
    _uids: Uids

    def get(self, run: str) -> Run | None:
        return self._fetch(RUN, "name = :name", name=run)

    def known(self, run: str) -> Run:
        """Return the run; raises NotFound."""
        return required(self.get(run), "run not found")

    def open(self, kind: RunKind = RunKind.HOST, refs: Sequence[str] = (), **columns: Any) -> Run:
        """Open a run and begin its log; `columns` may set another snapshot than the current one."""
        row = self._row(kind, refs) | {name: it for name, it in columns.items() if it is not None}
        started = RunEventType.STARTED, {"workflowId": row.get("workflow") or kind.value}
        self._begin([row], [[started]], sees_now="high" not in row)
        return self.known(row["name"])

    def copy(self, source: Run, events: int, columns: Row) -> Run:
        """Create an ended run with these columns and a copy of the log of `source`; return it."""
        row = self._row(RunKind.REPLAY, source.refs) | columns
        if not source.is_open:
            row |= {"status": source.status.value, "ended_at": micros(self._now)}
        number = self._inserted("runs", **row)
        self._execute(
            f"""INSERT INTO run_events (uid, run, sequence, type, payload, node, at, copied, high)
                SELECT listed.value, :run, v.sequence, v.type, v.payload, v.node, v.at,
                       coalesce(v.copied, v.id), v.high
                  FROM {self._sql.texts("listed")}
                 {self._sql.leads} run_events v ON v.run = :source AND v.sequence = listed.key
              ORDER BY v.sequence""",
            texts=json.dumps([self._uids.make(self._now) for _ in range(events)]), run=number,
            source=source.number,
        )  # fmt: skip
        copied = self.known(row["name"])
        return self.end(copied, RunStatus.CANCELLED) if copied.is_open else copied

    def append_event(
        self, run: Run, type_: RunEventType, payload: JsonObject, node: str | None = None
    ) -> None:
        """Add an event to the log of a run."""
        last = self._number("SELECT max(sequence) FROM run_events WHERE run = :run", run=run.number)
        event = self._event(run.number, last + 1, type_, payload, self.high())
        self._insert("run_events", **event, node=node)

    def end(self, run: Run, status: RunStatus) -> Run:
        """End a run, with the event of its status as the last of its log."""
        failed = {"code": "run_failed", "message": "The run has failed."}  # why, the host knows
        payload = {"error": failed} if status is RunStatus.FAILED else {}
        self.append_event(run, END_EVENTS[status], payload)
        self._execute(
            "UPDATE runs SET status = :status, ended_at = :now WHERE id = :number",
            number=run.number, status=status.value, now=micros(self._now),
        )  # fmt: skip
        return self.known(run.id)

    def record(self, type_: RunEventType, *events: tuple[JsonObject, Sequence[str]]) -> None:
        """Create a run of the kind `pass` for each event and the refs that the event is about.

        The log of each run is complete: started, the event, completed.
        """
        kind, status = RunKind.PASS, RunStatus.COMPLETED
        done = {"status": status.value, "ended_at": micros(self._now)}
        started = RunEventType.STARTED, {"workflowId": kind.value}
        self._begin(
            [self._row(kind, refs) | done for _, refs in events],
            [[started, (type_, payload), (END_EVENTS[status], {})] for payload, _ in events],
        )

    def touch(self, run: Run, ref: MemoryRef | None = None) -> None:
        """Note activity in a run, and a ref that it wrote; activity once per ACTIVITY_STEP."""
        wrote = run.wrote if ref is None or ref in run.wrote else (*run.wrote, ref)
        if wrote is not run.wrote or abs(self._now - run.heard_at) >= ACTIVITY_STEP:
            self._execute(
                "UPDATE runs SET heard_at = :now, wrote = :wrote WHERE id = :number",
                number=run.number, wrote=tag_array(wrote), now=micros(self._now),
            )  # fmt: skip

    def event(self, run: Run, sequence: int | None = None) -> RunEvent | None:
        """Return the event at a sequence, by default the last, or None if it is gone."""
        which = "AND v.sequence = :sequence" if sequence is not None else ""
        last = f"v.run = :run {which} ORDER BY v.sequence DESC LIMIT 1"
        return next(iter(self.some(last, run=run.number, sequence=sequence)), None)

    def some(self, which: str, most: int | None = None, **values: object) -> list[RunEvent]:
        """Return events; `which` is SQL on events `v` and runs `r`."""
        rows = self._stream(_EVENT.selecting() + which, **values)
        return list(islice(self._intact(rows, _EVENT), most))

    def newest(self) -> Offset:
        """Return the offset of the newest event, or 0 without events."""
        return Offset(self._number("SELECT coalesce(max(id), 0) FROM run_events"))

    def silent(self, until: datetime, most: int) -> list[RunId]:
        """Return open runs without activity since `until`."""
        which = """ended_at IS NULL AND heard_at <= :until
                   ORDER BY high, log_offset, id
                   LIMIT :most"""
        return [run.id for run in self._fetch_all(RUN, which, until=micros(until), most=most)]

    def past(self, until: datetime, most: int, *, with_events: bool) -> list[int]:
        """Return runs that ended by `until`; with `with_events`, only those that have events."""
        which = "EXISTS (SELECT 1 FROM run_events WHERE run = runs.id)" if with_events else "TRUE"
        return self._scalars(
            f"SELECT id FROM runs WHERE ended_at <= :until AND {which} LIMIT :most",
            until=micros(until), most=most,
        )  # fmt: skip

    def forget_events(self, run: int, most: int) -> int:
        """Remove at most `most` events of a run, the last first; return how many were removed."""
        return self._execute(
            """DELETE FROM run_events
                WHERE id IN (SELECT id FROM run_events
                              WHERE run = :run ORDER BY sequence DESC LIMIT :most)""",
            run=run,
            most=most,
        ).rowcount

    def forget(self, runs: Sequence[int]) -> int:
        """Remove runs and their remaining events; return how many runs were removed."""
        chosen, ids = f"(SELECT value FROM {self._sql.ids('listed')})", json.dumps(list(runs))
        self._execute(f"DELETE FROM run_events WHERE run IN {chosen}", ids=ids)
        gone = self._execute(f"DELETE FROM runs WHERE id IN {chosen}", ids=ids).rowcount
        # Losses and supersessions that no remaining run can see.
        for table, end in (("ref_losses", "deleted_after"), ("ref_supersessions", "ended_after")):
            self._execute(
                f"""DELETE FROM {table}
                     WHERE {end} < (SELECT min(log_offset) FROM runs)
                           OR ({end} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs))"""
            )
        return gone

    def _row(self, kind: RunKind, refs: Sequence[str]) -> Row:
        """Return the row of a run that begins now, without its snapshot."""
        now = micros(self._now)
        return {
            "name": f"run_{self._uids.make(self._now).replace('-', '')}", "kind": kind.value,
            "status": RunStatus.RUNNING.value, "refs": tag_array(refs), "from_sequence": 0,
            "at": now, "secrets": "{}", "wrote": "[]", "started_at": now, "heard_at": now,
        }  # fmt: skip

    def _begin(self, runs: Sequence[Row], logs: Sequence[Log], *, sees_now: bool = True) -> None:
        """Store runs with their logs; by default their snapshot is memory at the first event."""
        high = self.high()
        snapshot = {"log_offset": 0, "high": high} if sees_now else {}
        numbers = self._inserted_all("runs", [{**run, **snapshot} for run in runs])
        events = [
            self._event(number, sequence, *event, high)
            for number, log in zip(numbers, logs, strict=True)
            for sequence, event in enumerate(log)
        ]
        first, *_ = self._inserted_all("run_events", events)
        if sees_now:
            self._execute(
                f"""UPDATE runs
                       SET log_offset = :first
                     WHERE id IN (SELECT value FROM {self._sql.ids("listed")})""",
                ids=json.dumps(list(numbers)), first=first,
            )  # fmt: skip

    def _event(
        self, run: int, sequence: int, type_: RunEventType, payload: JsonObject, high: int
    ) -> Row:
        return {
            "uid": self._uids.make(self._now), "run": run, "sequence": sequence,
            "type": type_.value, "payload": as_json(payload), "at": micros(self._now),
            "high": high,
        }  # fmt: skip

    def high(self) -> MemoryId:
        """Return the newest memory of any kind."""
        return MemoryId(self._number("SELECT coalesce(max(id), 0) FROM memories"))
