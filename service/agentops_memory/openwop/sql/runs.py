"""SQL for runs and their events."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ...errors import DamagedRow
from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from ...memory.sql.rows import micros, tag_array
from ...memory.sql.table import Table
from ...recall.text.ids import Uids
from ..model.entries import Recorded
from ..model.runs import (
    ENDS,
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
from .pass_runs import PassRuns, run_id
from .rows import EVENT, LOST, RUN, event_of, payload_text, run_of

HEARD = timedelta(seconds=1)  # how exactly it is noted when something was done


@dataclass(eq=False)
class RunTable(Table):
    """Runs and their events."""

    _now: datetime
    _uids: Uids

    def get(self, run: RunId) -> Run | None:
        """The run."""
        found = self._first(run_of, f"SELECT {RUN} FROM runs WHERE name = :name", name=run)
        if found is not None and found.secrets is LOST:
            self._sql.note(self._connection, DamagedRow("runs", found.number, "secrets"))
        return found

    def open(self, draft: RunDraft, *, of: Run | None = None, kind: RunKind = RunKind.HOST) -> Run:
        """Open a run, and begin its log. Its snapshot is memory as it is then.

        A branch of another run has that one's snapshot and sequence.
        """
        id_ = draft.id or self._new_id()
        kind = kind if of is None else RunKind.BRANCH
        number = self._add(
            name=id_,
            kind=kind.value,
            status=RunStatus.RUNNING.value,
            agent=draft.agent,
            workflow=draft.workflow,
            refs=tag_array(draft.refs),
            source=of and of.id,
            ended_at=None,
            from_sequence=of.from_sequence if of else 0,
            snapshot=of.snapshot
            if of
            else Snapshot(offset=Offset(0), high=MemoryId(0), at=self._now),
        )
        payload = {"workflowId": draft.workflow or kind.value}
        offset = self._tell(number, 0, RunEventType.STARTED, payload, None)
        if of is None:
            self._execute(
                """UPDATE runs
                      SET log_offset = :offset,
                          high = (SELECT high FROM run_events WHERE id = :offset)
                    WHERE id = :number""",
                number=number,
                offset=offset,
            )
        return self._known(id_)

    def copy(self, source: Run, from_sequence: int) -> Run:
        """A run that has ended, with the snapshot of another one and its log."""
        id_ = self._new_id()
        number = self._add(
            name=id_,
            kind=RunKind.REPLAY.value,
            status=source.status.value,
            agent=source.agent,
            workflow=source.workflow,
            refs=tag_array(source.refs),
            source=source.id,
            from_sequence=from_sequence,
            ended_at=None if source.is_open else micros(self._now),
            snapshot=source.snapshot,
        )
        uids = [self._uids.make(self._now) for _ in range(self.count_events(source))]
        self._execute(
            f"""INSERT INTO run_events (uid, run, sequence, type, payload, node, at, copied, high)
                SELECT given.value, :run, v.sequence, v.type, v.payload, v.node, v.at,
                       coalesce(v.copied, v.id), v.high
                  FROM {self._sql.texts("given")}
                 {self._sql.leads} run_events v ON v.run = :source AND v.sequence = given.key
              ORDER BY v.sequence""",
            texts=json.dumps(uids),
            run=number,
            source=source.number,
        )
        return self._known(id_)

    def tell(
        self, run: Run, type_: RunEventType, payload: JsonObject, node: str | None = None
    ) -> None:
        """Add an event to the log of a run."""
        last = self._number("SELECT max(sequence) FROM run_events WHERE run = :run", run=run.number)
        self._tell(run.number, last + 1, type_, payload, node)

    def end(self, run: Run, status: RunStatus) -> Run:
        """End a run; the last event of its log says how."""
        self.tell(run, ENDS[status], {})
        self._execute(
            "UPDATE runs SET status = :status, ended_at = :now WHERE id = :number",
            number=run.number,
            status=status.value,
            **self._at,
        )
        return self._known(run.id)

    def record(self, type_: RunEventType, events: Sequence[Recorded]) -> None:
        """Make a run of the kind `pass` for each event, of which there is one at least.

        Its log is complete: the run has started, the event, the run has completed.
        """
        payload, refs = events[0]
        run = self.open(RunDraft(refs=tuple(refs)), kind=RunKind.PASS)
        self.tell(run, type_, payload)
        run = self.end(run, RunStatus.COMPLETED)
        if others := events[1:]:
            more = PassRuns(self._connection, self._sql, self._now, self._uids)
            more.add(run, self.log(run, -1, 3), others)

    def hear(self, run: Run, ref: MemoryRef | None = None) -> None:
        """Note that something was done in a run, to a ref; the same is not noted each time."""
        wrote = run.wrote if ref is None or ref in run.wrote else (*run.wrote, ref)
        if wrote is not run.wrote or abs(self._now - run.heard_at) >= HEARD:
            self._execute(
                "UPDATE runs SET heard_at = :now, wrote = :wrote WHERE id = :number",
                number=run.number,
                wrote=tag_array(wrote),
                **self._at,
            )

    def count_secrets(self, run: Run, counts: Mapping[str, int]) -> None:
        """Note how many values each id of a run has."""
        self._execute(
            "UPDATE runs SET secrets = :secrets WHERE id = :number",
            number=run.number,
            secrets=json.dumps(counts),
        )

    def event(self, run: Run, sequence: int) -> RunEvent | None:
        """The event of a run."""
        return self._one("v.run = :run AND v.sequence = :sequence", run, sequence=sequence)

    def last(self, run: Run) -> RunEvent | None:
        """The last event of a run so far; None if its events are gone."""
        return self._one("v.run = :run ORDER BY v.sequence DESC LIMIT 1", run)

    def count_events(self, run: Run) -> int:
        """How many events of it are there."""
        return self._number("SELECT count(*) FROM run_events WHERE run = :run", run=run.number)

    def log(self, run: Run, after: int, limit: int) -> list[RunEvent]:
        """The events of a run after a sequence, in order."""
        return self._some(
            "v.run = :run AND v.sequence > :after ORDER BY v.sequence LIMIT :limit",
            run=run.number,
            after=after,
            limit=limit,
        )

    def events(self, after: Offset, limit: int, type_: str | None) -> list[RunEvent]:
        """The events of all runs after an offset, in order."""
        of_type = "" if type_ is None else " AND v.type = :type"
        return self._some(
            f"v.id > :after{of_type} ORDER BY v.id LIMIT :limit",
            after=after,
            limit=limit,
            type=type_,
        )

    def newest(self) -> Offset:
        """The offset of the newest event; 0 if there is none."""
        return Offset(self._number("SELECT coalesce(max(id), 0) FROM run_events"))

    def silent(self, until: datetime, most: int) -> list[RunId]:
        """Open runs in which nothing was done since then."""
        rows = self._execute(
            f"""SELECT {RUN}
                  FROM runs
                 WHERE ended_at IS NULL AND heard_at <= :until
              ORDER BY high, log_offset, id
                 LIMIT :most""",
            until=micros(until),
            most=most,
        )
        return [run.id for run in self._intact(rows, run_of)]

    def past(self, until: datetime, most: int, *, with_events: bool) -> list[int]:
        """Runs that had ended by then, of which there are events still; or all of them."""
        told = "AND EXISTS (SELECT 1 FROM run_events WHERE run = runs.id)" if with_events else ""
        return self._scalars(
            f"SELECT id FROM runs WHERE ended_at <= :until {told} LIMIT :most",
            until=micros(until),
            most=most,
        )

    def forget_events(self, runs: Sequence[int], most: int) -> int:
        """Remove events of runs, at most so many; how many were removed."""
        return self._execute(
            f"""DELETE FROM run_events
                 WHERE id IN (SELECT v.id
                                FROM {self._sql.ids("given")}
                                JOIN run_events v ON v.run = given.value
                            ORDER BY v.run, v.sequence DESC
                               LIMIT :most)""",
            ids=json.dumps(list(runs)),
            most=most,
        ).rowcount

    def forget(self, runs: Sequence[int]) -> int:
        """Remove runs, with what events they have left; how many were removed."""
        given, ids = f"(SELECT value FROM {self._sql.ids('given')})", json.dumps(list(runs))
        self._execute(f"DELETE FROM run_events WHERE run IN {given}", ids=ids)
        gone = self._execute(f"DELETE FROM runs WHERE id IN {given}", ids=ids).rowcount
        self._execute(  # what no run that is left can have seen
            """DELETE FROM ref_losses
                WHERE deleted_after < (SELECT min(log_offset) FROM runs)
                      OR NOT EXISTS (SELECT 1 FROM runs)"""
        )
        self._execute(
            """DELETE FROM ref_supersessions
                WHERE ended_after < (SELECT min(log_offset) FROM runs)
                      OR (ended_after IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs))"""
        )
        return gone

    @property
    def _at(self) -> dict[str, object]:
        return {"now": micros(self._now)}

    def _known(self, id_: RunId) -> Run:
        run = self.get(id_)
        assert run is not None  # this transaction has just written it
        return run

    def _new_id(self) -> RunId:
        return run_id(self._uids.make(self._now))

    def _add(self, *, snapshot: Snapshot, **row: object) -> int:
        now = micros(self._now)
        return self._inserted(
            "runs",
            log_offset=snapshot.offset,
            high=snapshot.high,
            at=micros(snapshot.at),
            secrets="{}",
            wrote="[]",
            started_at=now,
            heard_at=now,
            **row,
        )

    def _tell(
        self,
        number: int,
        sequence: int,
        type_: RunEventType,
        payload: JsonObject,
        node: str | None,
    ) -> Offset:
        newest = self._number("SELECT coalesce(max(id), 0) FROM memories")
        offset = self._inserted(
            "run_events",
            uid=self._uids.make(self._now),
            run=number,
            sequence=sequence,
            type=type_.value,
            payload=payload_text(payload),
            node=node,
            at=micros(self._now),
            high=newest,
        )
        return Offset(offset)

    def _one(self, which: str, run: Run, **values: object) -> RunEvent | None:
        return next(iter(self._some(which, run=run.number, **values)), None)

    def _some(self, which: str, **values: object) -> list[RunEvent]:
        rows = self._execute(
            f"SELECT {EVENT} FROM run_events v JOIN runs r ON r.id = v.run WHERE {which}", **values
        )
        return list(map(event_of, rows))
