"""SQL for commitments."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ....domain.model.hosts.commitments import (
    Commitment,
    CommitmentQuery,
    CommitmentState,
    Condition,
)
from ....domain.model.hosts.entries import ref_entry_id
from ....domain.model.memory import MemoryId
from ....domain.model.space import MemoryRef
from ....domain.text.ids import Uids
from ..rows import instant, member, micros, optional_instant, optional_micros
from ..table import Table
from .visible import superseded, there

_CURRENT = f"{there(None)} AND NOT {superseded(None)}"
_STATE = f"CASE WHEN c.state = 'armed' AND NOT ({_CURRENT}) THEN 'cancelled' ELSE c.state END"
_COMMITMENT = f"""c.uid, c.memory_id, f.ref, e.name, m.uid, c.due_at, c.tag, {_STATE}, c.created_at,
                  c.fired_at"""
_SOURCE = """JOIN ref_entries e ON e.memory_id = c.memory_id
             JOIN memories m ON m.id = c.memory_id
             JOIN refs f ON f.space_id = e.space_id"""
_SPACE = "(SELECT space_id FROM refs WHERE ref = :ref)"
_WAITING = f"c.space_id = {_SPACE} AND c.tag = :tag AND c.state = 'armed' AND c.memory_id <> :new"


@dataclass(eq=False)
class Commitments(Table):
    """The commitments of one transaction."""

    _now: datetime
    _uids: Uids

    def get(self, uid: str) -> Commitment | None:
        return next(iter(self._some("commitments c", "c.uid = :uid", uid=uid)), None)

    def listed(self, query: CommitmentQuery) -> list[Commitment]:
        conditions = ["c.uid > :after"]
        if query.ref is not None:
            conditions.append(f"c.space_id = {_SPACE}")
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
        return self._exists(
            f"SELECT 1 FROM ref_entries e WHERE e.memory_id = :memory AND {_CURRENT}",
            memory=memory,
            **self._at,
        )

    def armed(self, source: MemoryId, condition: Condition) -> Commitment | None:
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

    def arm(self, source: MemoryId, condition: Condition) -> Commitment:
        uid = self._uids.make(self._now)
        self._execute(
            """INSERT INTO commitments (uid, memory_id, space_id, due_at, tag, state, created_at)
               SELECT :uid, memory_id, space_id, :due_at, :tag, 'armed', :now
                 FROM ref_entries
                WHERE memory_id = :source""",
            uid=uid,
            source=source,
            **_row(condition),
            **self._at,
        )
        made = self.get(uid)
        assert made is not None  # its source is in this transaction
        return made

    def has_due(self) -> bool:
        return self._exists(
            f"""SELECT 1
                  FROM commitments {self._sql.hint("commitments_by_time")}
                 WHERE state = 'armed' AND due_at <= :now
                 LIMIT 1""",
            **self._at,
        )

    def due(self, most: int) -> list[Commitment]:
        return self._some(
            f"commitments c {self._sql.hint('commitments_by_time')}",
            "c.state = 'armed' AND c.due_at <= :now ORDER BY c.due_at, c.id LIMIT :most",
            most=most,
        )

    def met(self, ref: MemoryRef, memory: MemoryId, tags: Sequence[str]) -> list[Commitment]:
        if not self._waits:
            return []
        return [
            found for tag in self._awaited(ref, tags) for found in self._met_by(ref, memory, tag)
        ]

    def has_orphans(self) -> bool:
        return bool(self.orphans(1))

    def orphans(self, most: int) -> list[MemoryId]:
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
        return self._scalars(
            "SELECT tag FROM commitments WHERE memory_id = :source AND tag IS NOT NULL ORDER BY id",
            source=source,
        )

    def retag(self, source: MemoryId, tag: str, clean: str) -> None:
        self._execute(
            "UPDATE commitments SET tag = :clean WHERE memory_id = :source AND tag = :tag",
            source=source,
            tag=tag,
            clean=clean,
        )

    def fire(self, commitment: Commitment) -> None:
        self._execute(
            """UPDATE commitments
                  SET state = 'fired', fired_at = :now
                WHERE uid = :uid AND state = 'armed'""",
            uid=commitment.uid,
            **self._at,
        )

    def cancel(self, commitment: Commitment) -> None:
        self._execute(
            "UPDATE commitments SET state = 'cancelled' WHERE uid = :uid AND state = 'armed'",
            uid=commitment.uid,
        )

    def cancel_of(self, sources: Sequence[MemoryId]) -> int:
        return self._execute(
            f"""UPDATE commitments {self._sql.hint("commitments_armed")}
                   SET state = 'cancelled'
                 WHERE state = 'armed'
                       AND memory_id IN (SELECT value FROM {self._sql.ids("given")})""",
            ids=json.dumps(list(sources)),
        ).rowcount

    def _awaited(self, ref: MemoryRef, tags: Sequence[str]) -> list[str]:
        """Those of the tags that something of the ref waits for."""
        return self._scalars(
            f"""SELECT given.value
                  FROM {self._sql.texts("given")}
                 WHERE EXISTS (SELECT 1
                                 FROM commitments c {self._sql.hint("commitments_by_tag")}
                                WHERE c.space_id = {_SPACE} AND c.tag = given.value
                                      AND c.state = 'armed')
              ORDER BY given.key""",
            ref=ref,
            texts=json.dumps(list(tags)),
        )

    def _met_by(self, ref: MemoryRef, new: MemoryId, tag: str) -> list[Commitment]:
        """What waits for a tag that no live entry has but the new one, and perhaps its source."""
        others = self._scalars(
            f"""SELECT t.memory_id
                  FROM ref_tags t
                  JOIN ref_entries e ON e.memory_id = t.memory_id
                 WHERE t.space_id = {_SPACE} AND t.tag = :tag AND t.memory_id <> :new
                       AND {there(None)}
              ORDER BY t.created_at DESC, t.memory_id DESC
                 LIMIT 2""",
            ref=ref,
            tag=tag,
            new=new,
            **self._at,
        )
        if len(others) > 1:
            return []
        alone = "AND c.memory_id = :other" if others else ""
        return self._some(
            f"commitments c {self._sql.hint('commitments_by_tag')}",
            f"{_WAITING} {alone} ORDER BY c.id",
            ref=ref,
            tag=tag,
            new=new,
            other=others[0] if others else None,
        )

    @property
    def _waits(self) -> bool:
        """Whether any ref of the tenant waits for a tag, as one look tells."""
        return self._exists(
            f"""SELECT 1
                  FROM commitments {self._sql.hint("commitments_by_tag")}
                 WHERE state = 'armed' AND tag IS NOT NULL
                 LIMIT 1"""
        )

    @property
    def _at(self) -> dict[str, object]:
        return {"now": micros(self._now)}

    def _some(self, which: str, condition: str, **values: object) -> list[Commitment]:
        rows = self._execute(
            f"SELECT {_COMMITMENT} FROM {which} {_SOURCE} WHERE {condition}", **values, **self._at
        )
        return list(map(_commitment, rows))


def _row(condition: Condition) -> dict[str, object]:
    return {"due_at": optional_micros(condition.due_at), "tag": condition.tag}


def _commitment(row: Any) -> Commitment:
    uid, memory, ref, name, of, due_at, tag, state, created_at, fired_at = row
    return Commitment(
        uid=uid,
        memory=MemoryId(memory),
        ref=MemoryRef(ref),
        entry=ref_entry_id(of, name),
        condition=Condition(due_at=optional_instant(due_at), tag=tag),
        state=member(CommitmentState, state, CommitmentState.CANCELLED),
        created_at=instant(created_at),
        fired_at=optional_instant(fired_at),
    )
