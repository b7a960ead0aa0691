"""SQL for commitments."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from ...memory.sql.rows import (
    EARLIEST,
    StrictRow,
    instant,
    micros,
    optional_instant,
    optional_micros,
)
from ...memory.sql.table import Table
from ...recall.text.ids import Uids
from ..model.commitments import Commitment, CommitmentQuery, CommitmentState, Condition
from ..model.entries import ref_entry_id
from .met_tags import SPACE, MetTags
from .visible import superseded, there

_CURRENT = f"{there(None)} AND NOT {superseded(None)}"
_STATE = f"CASE WHEN c.state = 'armed' AND NOT ({_CURRENT}) THEN 'cancelled' ELSE c.state END"
_COMMITMENT = f"""c.id, c.uid, c.memory_id, f.ref, e.name, m.uid, c.due_at, c.tag, {_STATE},
                  c.created_at, c.fired_at"""
_SOURCE = """JOIN ref_entries e ON e.memory_id = c.memory_id
             JOIN memories m ON m.id = c.memory_id
             JOIN refs f ON f.space_id = e.space_id"""
_IS_DUE = f"state = 'armed' AND due_at BETWEEN {EARLIEST} AND :now"


@dataclass(eq=False)
class CommitmentTable(Table):
    """Commitments of entries. One whose source is not live and current is shown as cancelled."""

    _now: datetime
    _uids: Uids

    @cached_property
    def _met_tags(self) -> MetTags:
        return MetTags(self._connection, self._sql, self._now)

    def get(self, uid: str) -> Commitment | None:
        """The commitment."""
        return self._first(
            _commitment,
            f"SELECT {_COMMITMENT} FROM commitments c {_SOURCE} WHERE c.uid = :uid",
            uid=uid,
            **self._at,
        )

    def listed(self, query: CommitmentQuery) -> list[Commitment]:
        """The commitments that a query asks for, in the order of their ids."""
        conditions = ["c.uid > :after"]
        if query.ref is not None:
            conditions.append(f"c.space_id = {SPACE}")
        if query.state is not None:
            conditions.append(f"{_STATE} = :state")
        return self._some(
            "commitments c",
            f"{' AND '.join(conditions)} ORDER BY c.uid LIMIT :limit",
            after=query.after or "",
            ref=query.ref,
            state=query.state,
            limit=query.limit,
        )

    def has_source(self, memory: MemoryId) -> bool:
        """Whether an entry is live, and no live one supersedes it."""
        return self._exists(
            f"SELECT 1 FROM ref_entries e WHERE e.memory_id = :memory AND {_CURRENT}",
            memory=memory,
            **self._at,
        )

    def armed(self, source: MemoryId, condition: Condition) -> Commitment | None:
        """The armed commitment of an entry with just this condition."""
        row = _row(condition)
        same = " AND ".join(
            f"c.{column} IS NULL" if value is None else f"c.{column} = :{column}"
            for column, value in row.items()
        )
        found = self._some(
            f"commitments c {self._sql.hint('commitments_armed')}",
            f"c.state = 'armed' AND c.memory_id = :source AND {same} LIMIT 1",
            source=source,
            **row,
        )
        return next(iter(found), None)

    def has_room(
        self, source: MemoryId, conditions: Sequence[Condition], *, of_tag: int, in_all: int
    ) -> bool:
        """Whether the ref of an entry then has at most so many armed of each tag, and in all."""
        armed = f"""SELECT 1
                      FROM commitments {self._sql.hint("commitments_by_tag")}
                     WHERE space_id = (SELECT space_id FROM ref_entries WHERE memory_id = :source)
                           AND state = 'armed'"""
        if self._exists(
            f"{armed} LIMIT 1 OFFSET :free", source=source, free=in_all - len(conditions)
        ):
            return False
        tags = [it.tag for it in conditions if it.tag is not None]
        return not tags or not self._exists(
            f"""SELECT 1
                  FROM {self._sql.texts("given")}
                 WHERE EXISTS ({armed} AND tag = given.value LIMIT 1 OFFSET :free)""",
            source=source,
            texts=json.dumps(tags),
            free=of_tag - 1,
        )

    def arm(self, source: MemoryId, conditions: Sequence[Condition]) -> list[Commitment]:
        """Make commitments of an entry."""
        uids = [self._uids.make(self._now) for _ in conditions]
        self._connection.executemany(
            """INSERT INTO commitments (uid, memory_id, space_id, due_at, tag, state, created_at)
               SELECT :uid, memory_id, space_id, :due_at, :tag, 'armed', :now
                 FROM ref_entries
                WHERE memory_id = :source""",
            [
                {"uid": uid, "source": source, **_row(condition), **self._at}
                for uid, condition in zip(uids, conditions, strict=True)
            ],
        )
        return self._some(
            f"{self._sql.texts('given')} {self._sql.leads} commitments c ON c.uid = given.value",
            "TRUE ORDER BY c.id",
            texts=json.dumps(uids),
        )

    def has_due(self) -> bool:
        """Whether a tag is noted that was met, or the time of an armed one has come."""
        return self._met_tags.exist or self._exists(
            f"""SELECT 1
                  FROM commitments {self._sql.hint("commitments_by_time")}
                 WHERE {_IS_DUE}
                 LIMIT 1""",
            **self._at,
        )

    def due(self, most: int) -> list[Commitment]:
        """Armed ones whose time has come, and which are to be fired or cancelled, in order."""
        return self._picked(
            self._scalars(
                f"""SELECT id
                      FROM commitments {self._sql.hint("commitments_by_time")}
                     WHERE {_IS_DUE}
                  ORDER BY due_at, id
                     LIMIT :most""",
                most=most,
                **self._at,
            )
        )

    def meet(self, ref: MemoryRef, memory: MemoryId, tags: Sequence[str]) -> int | None:
        """Note the tags of a new entry that armed ones of the ref wait for; the first note.

        Not where another live entry has the tag, unless that is the source itself. What is armed
        later is not met.
        """
        return self._met_tags.add(ref, memory, tags)

    def met(self, most: int, first: int = 0) -> list[Commitment]:
        """Armed ones that notes tell of, from the first one on, and which are to be fired or
        cancelled: by note, and then in order. The notes of what has no more are gone.
        """
        return self._picked(self._met_tags.take(most, first))

    def has_orphans(self) -> bool:
        """Whether the source of an armed one is gone."""
        return bool(self.orphans(1))

    def orphans(self, most: int) -> list[MemoryId]:
        """Sources of armed ones that are gone."""
        return self._scalars(
            f"""SELECT DISTINCT c.memory_id
                  FROM commitments c {self._sql.hint("commitments_armed")}
                  JOIN ref_entries e ON e.memory_id = c.memory_id
                 WHERE c.state = 'armed' AND NOT ({_CURRENT})
              ORDER BY c.memory_id
                 LIMIT :most""",
            most=most,
            **self._at,
        )

    def tags_of(self, source: MemoryId) -> list[str]:
        """What the commitments of an entry wait for, or have waited for."""
        return self._scalars(
            "SELECT tag FROM commitments WHERE memory_id = :source AND tag IS NOT NULL ORDER BY id",
            source=source,
        )

    def retag(self, source: MemoryId, tag: str, clean: str) -> None:
        """Replace a tag of the commitments of an entry."""
        self._execute(
            "UPDATE commitments SET tag = :clean WHERE memory_id = :source AND tag = :tag",
            source=source,
            tag=tag,
            clean=clean,
        )
        self._met_tags.retag(source, tag, clean)

    def fire(self, commitments: Sequence[Commitment]) -> None:
        """Note of armed ones that they have fired."""
        self._settle(commitments, "state = 'fired', fired_at = :now", **self._at)

    def cancel(self, commitments: Sequence[Commitment]) -> None:
        """Cancel those that are armed."""
        self._settle(commitments, "state = 'cancelled'")

    def cancel_of(self, sources: Sequence[MemoryId]) -> int:
        """Let the armed ones of these entries be cancelled; how many there were."""
        return self._execute(
            f"""UPDATE commitments {self._sql.hint("commitments_armed")}
                   SET state = 'cancelled'
                 WHERE state = 'armed'
                       AND memory_id IN (SELECT value FROM {self._sql.ids("given")})""",
            ids=json.dumps(list(sources)),
        ).rowcount

    def _settle(self, commitments: Sequence[Commitment], change: str, **values: object) -> None:
        if commitments:
            self._execute(
                f"""UPDATE commitments
                       SET {change}
                     WHERE state = 'armed'
                           AND uid IN (SELECT value FROM {self._sql.texts("given")})""",
                texts=json.dumps([it.uid for it in commitments]),
                **values,
            )

    @property
    def _at(self) -> dict[str, object]:
        return {"now": micros(self._now)}

    def _some(self, which: str, condition: str, **values: object) -> list[Commitment]:
        rows = self._execute(
            f"SELECT {_COMMITMENT} FROM {which} {_SOURCE} WHERE {condition}", **values, **self._at
        )
        return list(self._intact(rows, _commitment))

    def _picked(self, ids: Sequence[int]) -> list[Commitment]:
        """The commitments with these ids, in their order, each once."""
        return self._some(
            f"""{self._sql.ids("given")}
               {self._sql.leads} commitments c ON c.id = given.value""",
            "TRUE ORDER BY given.key",
            ids=json.dumps(list(dict.fromkeys(ids))),
        )


def _row(condition: Condition) -> dict[str, object]:
    return {"due_at": optional_micros(condition.due_at), "tag": condition.tag}


def _commitment(row: Any) -> Commitment:
    number, uid, memory, ref, name, of, due_at, tag, state, created_at, fired_at = row
    strict = StrictRow("commitments", number)
    return Commitment(
        uid=uid,
        memory=MemoryId(memory),
        ref=MemoryRef(ref),
        entry=ref_entry_id(of, name),
        condition=Condition(due_at=strict.optional_instant("due_at", due_at), tag=tag),
        state=strict.member("state", CommitmentState, state),
        created_at=instant(created_at),
        fired_at=optional_instant(fired_at),
    )
