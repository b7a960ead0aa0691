"""SQL for runs of passes that have ended as they began, many at a time."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from ...memory.sql.rows import micros, tag_array
from ...memory.sql.table import Table
from ...recall.text.ids import Uids
from ..model.entries import Recorded
from ..model.runs import Run, RunEvent, RunId
from .rows import payload_text


def run_id(uid: str) -> RunId:
    return RunId(f"run_{uid.replace('-', '')}")


@dataclass(eq=False)
class PassRuns(Table):
    """The runs of one transaction whose logs are complete."""

    _now: datetime
    _uids: Uids

    def add(self, like: Run, log: Sequence[RunEvent], events: Sequence[Recorded]) -> None:
        """Make runs like another, whose log that is, each of which tells of another event.

        That takes two statements, however many there are.
        """
        begun, _, ended = log
        value, runs = partial(self._sql.element, "given.value"), self._runs(like, events)
        self._execute(
            f"""INSERT INTO run_events (uid, run, sequence, type, payload, at, high)
                SELECT {value(0)}, CAST({value(1)} AS BIGINT), CAST({value(2)} AS BIGINT),
                       {value(3)}, {value(4)}, :now, :high
                  FROM {self._sql.texts("given")}
              ORDER BY given.key""",
            texts=_texts(
                (self._uids.make(self._now), run, it.sequence, it.type.value, payload_text(body))
                for run, (payload, _) in zip(runs, events, strict=True)
                for it, body in zip(log, (begun.payload, payload, ended.payload), strict=True)
            ),
            high=like.snapshot.high,
            now=micros(self._now),
        )

    def _runs(self, like: Run, events: Sequence[Recorded]) -> Sequence[int]:
        """The numbers of new runs, in order."""
        value, ids = partial(self._sql.element, "given.value"), self._new_ids(len(events))
        numbers = dict(
            self._execute(
                f"""INSERT INTO runs (name, kind, status, refs, from_sequence, log_offset, high, at,
                                      secrets, wrote, started_at, heard_at, ended_at)
                    SELECT {value(0)}, r.kind, r.status, {value(1)}, r.from_sequence, r.log_offset,
                           r.high, r.at, r.secrets, r.wrote, r.started_at, r.heard_at, r.ended_at
                      FROM {self._sql.texts("given")}
                     {self._sql.leads} runs r ON r.id = :like
                  ORDER BY given.key
                 RETURNING name, id""",
                texts=_texts(zip(ids, (tag_array(refs) for _, refs in events), strict=True)),
                like=like.number,
            )
        )
        return [numbers[id_] for id_ in ids]

    def _new_ids(self, count: int) -> Sequence[RunId]:
        return [run_id(self._uids.make(self._now)) for _ in range(count)]


def _texts(rows: Iterable[Sequence[object]]) -> str:
    """A JSON array of texts, each a JSON array itself: the rows that a statement inserts."""
    return json.dumps([json.dumps(row) for row in rows])
