"""Runs: what happens in each, and the memory that it sees.

Hosts open runs; what the service does by itself, or without a host's run, is one, too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, NewType, TypeVar

from pydantic import Field

from ..engine.engine import Transaction
from ..errors import Conflict, Refusal, required
from ..light import dataclass
from ..memory.memory import MemoryId
from ..memory.redactor import require_margin
from ..memory.redactor import written as compact_text
from ..memory.rows import (
    EARLIEST,
    LAST,
    Column,
    RowMapper,
    Uids,
    count,
    instant,
    micros,
    reads,
    tag_array,
)
from ..memory.space import MemoryRef
from ..memory.table import Sql, Table
from ..recall.text import object_of
from ..record import CamelRecord, Milliseconds
from .api import NOWHERE, JsonObject, Offset, Snapshot, put_by, undeleted_at, values

T = TypeVar("T")
Internal = Annotated[T, Field(exclude=True)]
"""A field that no client sees."""

RunId = NewType("RunId", str)
"""A host's name for a run, or `run_` and the digits of a stable id."""

ACTIVITY_STEP = timedelta(seconds=1)  # how exactly it is noted when something was done
EXPIRED = "retention_expired"  # why a snapshot is lost
FORGOTTEN = "forgotten:"  # how refs are called whose names are


class RunKind(StrEnum):
    """Whose run it is, and of what."""

    HOST = "host"
    PASS = "pass"  # noqa: S105 - what the service did by itself, or on a request without a run
    REPLAY = "replay"  # a copy of another one's log
    BRANCH = "branch"  # begun where another one was


class RunStatus(StrEnum):
    """How a run has ended, if it has."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEventType(StrEnum):
    """What a run's log tells; no payload holds content."""

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


ENDS: Mapping[RunStatus, RunEventType] = {
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
    refs: Internal[tuple[str, ...]]  # that it was going to use
    wrote: Internal[tuple[str, ...]]  # that it has written to
    from_sequence: Internal[int]  # of the source, at which a fork begins
    snapshot: Internal[Snapshot]
    secrets: Internal[Mapping[str, int]]  # how many values each id has
    heard_at: Internal[datetime]  # when something was last done in it

    @property
    def is_open(self) -> bool:
        return self.status is RunStatus.RUNNING


RUN = RowMapper(Run, "runs", "id")


class RunEvent(CamelRecord):
    """Something that happened in a run. A copy keeps the snapshot of what it is copied from."""

    id: str = Field(serialization_alias="eventId")
    run: RunId = Field(serialization_alias="runId")
    type: RunEventType
    payload: dict[str, Any]
    at: Milliseconds = Field(serialization_alias="timestamp")
    sequence: int  # from 0, without gaps
    node: str | None = Field(default=None, serialization_alias="nodeId")
    offset: Internal[Offset]
    snapshot: Internal[Snapshot]  # memory just after it


class RunEnded(Conflict):
    code = "run_terminal"  # it takes no write


class SecretsLost(Conflict):
    code = "run_secrets_lost"  # not known in this process: what is put now could hold them


class SnapshotLost(Refusal):
    """Something that the run has seen is gone; today's memory never stands in."""

    code = "replay_memory_snapshot_unavailable"

    def __init__(self, source: RunId, from_sequence: int, reason: str = EXPIRED) -> None:
        super().__init__("The memory that the run saw is no longer available.")
        self.source, self.from_sequence, self.reason = source, from_sequence, reason


class InvalidSequence(Refusal):
    code = "invalid_from_seq"  # the run has no such event, nor is it the next


def require_open(tx: Transaction, run: str) -> Run:
    """The run, or NotFound; RunEnded if it has ended."""
    known = tx[RunTable].known(run)
    if not known.is_open:
        raise RunEnded("The run has ended.")
    return known


# What a run sees: memory as it was when it began, whole or refused (OpenWOP RFC 0004 §A).


def snapshot_of(tx: Transaction, run: str | None, ref: MemoryRef) -> Snapshot | None:
    """What the run sees of the ref, or None without a run; NotFound, SnapshotLost.

    While a run is open, what it may see is kept, but for what expires. Of a run that has
    ended, and of refs that a fork's source had not named, something may be gone.
    """
    known = None if run is None else tx[RunTable].known(run)
    if known is None or ref == NOWHERE:
        return None
    is_host = known.kind is RunKind.HOST
    if known.is_open and (is_host or ref in known.refs):
        return known.snapshot
    first = tx[RunTable].event(known, 0)
    # Until then what expires is lost to it; from then on, expiry holds in the run itself.
    until = known.snapshot.at if is_host else known.started_at
    at, since = known.snapshot, first.offset if first else None
    if is_lost(tx, known, at, [ref], until, since) or _may_have_been(tx, ref, at):
        raise SnapshotLost(known.source or known.id, known.from_sequence)
    return at


def is_lost(
    tx: Transaction, run: Run, at: Snapshot, refs: Iterable[MemoryRef], until: datetime,
    since: Offset | None = None,
) -> bool:  # fmt: skip
    """Whether a snapshot that the run's log tells of is not there as a whole any more.

    That is so if something of it had expired by `until`, or was erased. What was still there after
    the event `since`, and has expired by now, is no loss. An end that is damaged may be any.
    """
    last = tx[RunTable].event(run)
    if last is None or not (run.is_open or last.type in ENDS.values()):
        return True  # the end of a log goes first
    leads = tx[Sql].dialect.leads
    is_no_end = f"e.ends_at NOT BETWEEN {EARLIEST} AND {LAST}"
    losses = f"""SELECT 1
                   FROM refs f
                  {leads} ref_losses e ON e.space_id = f.space_id
                  WHERE f.ref = :ref AND e.memory_id <= :high
                        AND (e.deleted_after >= :offset OR e.deleted_after < 0)
                        AND (e.ends_at IS NULL OR e.ends_at > :at OR {is_no_end})
                        AND NOT coalesce(e.deleted_after >= :since AND e.ends_at > :until
                                         AND e.ends_at <= :now, FALSE)
                  UNION ALL
                 SELECT 1
                   FROM refs f
                  {leads} ref_entries e {tx[Sql].dialect.hint("ref_entries_by_end")}
                        ON e.space_id = f.space_id
                  WHERE f.ref = :ref AND {put_by("e")} AND {undeleted_at("e")}
                        AND e.ends_at IS NOT NULL
                        AND ((e.ends_at > :at AND e.ends_at <= :until) OR {is_no_end})
                  LIMIT 1"""
    # A clock that went back brings nothing into a snapshot.
    instants = {"at": at.at, "until": until, "now": max(tx.now, at.at)}
    bounds = {name: micros(it) for name, it in instants.items()}
    return any(tx[Sql].exists(losses, ref=it, since=since, **bounds, **values(at)) for it in refs)


def _may_have_been(tx: Transaction, ref: MemoryRef, at: Snapshot) -> bool:
    """Whether a ref of which nothing is known then may be one whose name is forgotten."""
    sql = tx[Sql]
    known = " UNION ALL ".join(
        f"""SELECT 1
              FROM refs f
              JOIN {table} e ON e.space_id = f.space_id {which}
             WHERE f.ref = :ref AND e.memory_id <= :high"""
        for table, which in (  # in the order in which it is soonest found
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
    """Make a run again, from one of its events on: a copy, or a run that begins where it was.

    All its events are there, as is what it has seen of the refs that it has named; InvalidSequence,
    SnapshotLost.
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
    if kind is RunKind.BRANCH and number:  # or it sees what its source began with
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

_EVENT = """v.id, v.uid, r.name, v.sequence, v.type, v.payload, v.node, v.at,
            coalesce(v.copied, v.id), v.high, r.workflow, r.kind"""

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
        """The run; NotFound."""
        return required(self.get(run), "run not found")

    def open(self, kind: RunKind = RunKind.HOST, refs: Sequence[str] = (), **columns: Any) -> Run:
        """Open a run, and begin its log; unless its columns tell, it sees memory as it is then."""
        row = self._row(kind, refs) | {name: it for name, it in columns.items() if it is not None}
        started = RunEventType.STARTED, {"workflowId": row.get("workflow") or kind.value}
        self._begin([row], [[started]], sees_now="high" not in row)
        return self.known(row["name"])

    def copy(self, source: Run, events: int, columns: Row) -> Run:
        """A run that has ended, with these columns and the log of another one, up to now."""
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

    def tell(
        self, run: Run, type_: RunEventType, payload: JsonObject, node: str | None = None
    ) -> None:
        """Add an event to the log of a run."""
        last = self._number("SELECT max(sequence) FROM run_events WHERE run = :run", run=run.number)
        event = self._event(run.number, last + 1, type_, payload, self.high())
        self._insert("run_events", **event, node=node)

    def end(self, run: Run, status: RunStatus) -> Run:
        """End a run; the last event of its log says how."""
        self.tell(run, ENDS[status], {})
        self._execute(
            "UPDATE runs SET status = :status, ended_at = :now WHERE id = :number",
            number=run.number, status=status.value, now=micros(self._now),
        )  # fmt: skip
        return self.known(run.id)

    def record(self, type_: RunEventType, *events: tuple[JsonObject, Sequence[str]]) -> None:
        """Make a run of the kind `pass` for each event, with the refs that it is about.

        Its log is complete: the run has started, the event, the run has completed.
        """
        kind, status = RunKind.PASS, RunStatus.COMPLETED
        done = {"status": status.value, "ended_at": micros(self._now)}
        started = RunEventType.STARTED, {"workflowId": kind.value}
        self._begin(
            [self._row(kind, refs) | done for _, refs in events],
            [[started, (type_, payload), (ENDS[status], {})] for payload, _ in events],
        )

    def hear(self, run: Run, ref: MemoryRef | None = None) -> None:
        """Note that something was done in a run, to a ref; the same is not noted each time."""
        wrote = run.wrote if ref is None or ref in run.wrote else (*run.wrote, ref)
        if wrote is not run.wrote or abs(self._now - run.heard_at) >= ACTIVITY_STEP:
            self._execute(
                "UPDATE runs SET heard_at = :now, wrote = :wrote WHERE id = :number",
                number=run.number, wrote=tag_array(wrote), now=micros(self._now),
            )  # fmt: skip

    def event(self, run: Run, sequence: int | None = None) -> RunEvent | None:
        """The event at a sequence, or the last so far; None if it is gone."""
        which = "AND v.sequence = :sequence" if sequence is not None else ""
        last = f"v.run = :run {which} ORDER BY v.sequence DESC LIMIT 1"
        return next(iter(self.some(last, run=run.number, sequence=sequence)), None)

    def some(self, which: str, most: int | None = None, **values: object) -> list[RunEvent]:
        """Events `v` of runs `r`."""
        rows = self._stream(
            f"SELECT {_EVENT} FROM run_events v JOIN runs r ON r.id = v.run WHERE {which}", **values
        )
        return list(islice(self._intact(rows, _event_of), most))

    def rewrite(self, event: Offset, payload: JsonObject) -> None:
        """Let an event tell this, as a secret was taken out of what it told."""
        self._execute(
            "UPDATE run_events SET payload = :payload WHERE id = :event",
            event=event, payload=compact_text(payload),
        )  # fmt: skip

    def newest(self) -> Offset:
        """The offset of the newest event; 0 if there is none."""
        return Offset(self._number("SELECT coalesce(max(id), 0) FROM run_events"))

    def silent(self, until: datetime, most: int) -> list[RunId]:
        """Open runs in which nothing was done since then."""
        which = """ended_at IS NULL AND heard_at <= :until
                   ORDER BY high, log_offset, id
                   LIMIT :most"""
        return [run.id for run in self._fetch_all(RUN, which, until=micros(until), most=most)]

    def past(self, until: datetime, most: int, *, with_events: bool) -> list[int]:
        """Runs that had ended by then, of which there are events still; or all of them."""
        which = "EXISTS (SELECT 1 FROM run_events WHERE run = runs.id)" if with_events else "TRUE"
        return self._scalars(
            f"SELECT id FROM runs WHERE ended_at <= :until AND {which} LIMIT :most",
            until=micros(until), most=most,
        )  # fmt: skip

    def forget_events(self, runs: Sequence[int], most: int) -> int:
        """Remove events of runs, at most so many; how many were removed."""
        return self._execute(
            f"""DELETE FROM run_events
                 WHERE id IN (SELECT v.id
                                FROM {self._sql.ids("listed")}
                                JOIN run_events v ON v.run = listed.value
                            ORDER BY v.run, v.sequence DESC LIMIT :most)""",
            ids=json.dumps(list(runs)), most=most,
        ).rowcount  # fmt: skip

    def forget(self, runs: Sequence[int]) -> int:
        """Remove runs, with what events they have left; how many were removed."""
        chosen, ids = f"(SELECT value FROM {self._sql.ids('listed')})", json.dumps(list(runs))
        self._execute(f"DELETE FROM run_events WHERE run IN {chosen}", ids=ids)
        gone = self._execute(f"DELETE FROM runs WHERE id IN {chosen}", ids=ids).rowcount
        # What no run that is left can have seen.
        for table, end in (("ref_losses", "deleted_after"), ("ref_supersessions", "ended_after")):
            self._execute(
                f"""DELETE FROM {table}
                     WHERE {end} < (SELECT min(log_offset) FROM runs)
                           OR ({end} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs))"""
            )
        return gone

    def _row(self, kind: RunKind, refs: Sequence[str]) -> Row:
        """The row of a run that begins now, but for what it sees."""
        now = micros(self._now)
        return {
            "name": f"run_{self._uids.make(self._now).replace('-', '')}", "kind": kind.value,
            "status": RunStatus.RUNNING.value, "refs": tag_array(refs), "from_sequence": 0,
            "at": now, "secrets": "{}", "wrote": "[]", "started_at": now, "heard_at": now,
        }  # fmt: skip

    def _begin(self, runs: Sequence[Row], logs: Sequence[Log], *, sees_now: bool = True) -> None:
        """Store runs with their logs; by default they see memory as of the first event."""
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
            "type": type_.value, "payload": compact_text(payload), "at": micros(self._now),
            "high": high,
        }  # fmt: skip

    def high(self) -> MemoryId:
        """The newest memory, whatever it is."""
        return MemoryId(self._number("SELECT coalesce(max(id), 0) FROM memories"))


@reads("run_events")
def _event_of(  # noqa: PLR0913, PLR0917 - the columns of _EVENT
    offset: int, uid: str, run: str, sequence: int, type_: str, payload: str, node: str | None,
    at: int, of: int, high: int, workflow: str | None, kind: str,
) -> RunEvent:  # fmt: skip
    then, known, fields = instant(at), RunEventType(type_), object_of(payload)
    if known is RunEventType.STARTED and "workflowId" not in fields:
        # Of an older version. What a replay is a copy of may be gone: most runs are of hosts.
        named = RunKind(kind)
        named = RunKind.HOST if named is RunKind.REPLAY else named
        fields = {"workflowId": workflow or named.value, **fields}
    if known is RunEventType.FAILED:
        # Why it did is the host's to know.
        fields = {"error": {"code": "run_failed", "message": "The run has failed."}, **fields}
    return RunEvent(
        offset=Offset(offset), id=f"evt_{uid.replace('-', '')}", run=RunId(run),
        sequence=count(sequence), type=known, payload=fields, node=node, at=then,
        snapshot=Snapshot(offset=Offset(of), high=MemoryId(high), at=then),
    )  # fmt: skip
