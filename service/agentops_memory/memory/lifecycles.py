"""The lifecycle of memories: pins, expiry and its sweep, supersession, and reviews."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, cast

from ..engine.engine import Transaction
from ..errors import Conflict, NotFound
from ..light import dataclass, replace
from . import memory as records
from .erasure import MAX_STEP
from .memories import MemoryTable
from .memory import (
    ENDED,
    MAX_PINNED,
    NO_LINKS,
    Links,
    Memory,
    MemoryId,
    live,
    superseded as superseded_sql,
)
from .rows import MICROSECOND, columns, micros, portion, reads
from .search import Filter
from .space import Space
from .table import Dialect, FilteredTable, Sql


def unswept(tx: Transaction, limit: int) -> list[MemoryId]:
    """Return a step of memories that the index wrongly contains or lacks."""
    rows = tx[Sql].run(
        f"""SELECT m.id, length(m.content)
              FROM (SELECT memory_id
                      FROM lifecycles
                     WHERE {records.UNSWEPT}
                     UNION ALL
                    SELECT memory_id FROM lifecycles WHERE {records.UNRESTORED}
                     LIMIT :limit) due
             {tx[Sql].dialect.leads} memories m ON m.id = due.memory_id""",
        limit=limit,
    )
    return [MemoryId(id_) for id_, _ in portion(rows, MAX_STEP, lambda row: row[1])]


def swept(tx: Transaction, memories: Sequence[MemoryId]) -> int:
    """Remove expired memories from the index, and index others; return how many were removed."""
    statement = f"""UPDATE lifecycles
                       SET is_swept = {ENDED}
                     WHERE memory_id = :id AND is_swept <> ({ENDED})
                 RETURNING is_swept"""
    removed = 0
    for memory in memories:
        with tx.index.updating(memory):
            removed += sum(tx[Sql].column(statement, id=memory))
    return removed


_UID = columns("supersessions", int, str)


@dataclass(eq=False)
class SupersessionTable(FilteredTable):
    def of(self, memories: Collection[MemoryId]) -> dict[MemoryId, Links]:
        rows = self._execute(
            f"""SELECT listed.value, older_id, NULL
                  FROM {self._sql.ids("listed")}
                  JOIN supersessions ON newer_id = listed.value
                  JOIN memories m ON m.id = older_id
                 WHERE {records.undeleted("m")}
                 UNION ALL
                SELECT listed.value, NULL, newer_id
                  FROM {self._sql.ids("listed")}
                  JOIN supersessions ON older_id = listed.value
                  JOIN memories m ON m.id = newer_id
                 WHERE {live("m")}
              ORDER BY 1, 2, 3""",
            ids=json.dumps(list(memories)),
        ).fetchall()
        return {
            memory: Links(
                supersedes=tuple(MemoryId(it) for id_, it, _ in rows if id_ == memory and it),
                superseded_by=tuple(MemoryId(it) for id_, _, it in rows if id_ == memory and it),
            )
            for memory in {id_ for id_, _, _ in rows}
        }

    def uids(self, memories: Collection[MemoryId]) -> dict[MemoryId, tuple[str, ...]]:
        """Return the stable ids of the live memories that each supersedes, in the order of ids."""
        rows = self._execute(
            f"""SELECT newer_id, m.uid
                  FROM {self._sql.ids("listed")}
                  JOIN supersessions ON newer_id = listed.value
                  JOIN memories m ON m.id = older_id
                 WHERE {live("m")}
              ORDER BY newer_id, older_id""",
            ids=json.dumps(list(memories)),
        )
        return {
            MemoryId(newer): tuple(uid for _, uid in older)
            for newer, older in groupby(self._intact(rows, _UID), key=itemgetter(0))
        }

    def link(self, newer: MemoryId, older: Sequence[MemoryId]) -> int:
        """Let a memory supersede others; return the number of new links.

        Conflict if this would close a cycle, including links of deleted memories.
        """
        if not older:
            return 0
        is_cycle = self._exists(
            f"""WITH RECURSIVE reached (id) AS (
                    SELECT value FROM {self._sql.ids("listed")}
                     UNION
                    SELECT older_id FROM supersessions JOIN reached ON newer_id = id)
                SELECT 1 FROM reached WHERE id = :newer LIMIT 1""",
            ids=json.dumps(older), newer=newer,
        )  # fmt: skip
        if is_cycle:
            raise Conflict("An observation cannot supersede itself, nor one that supersedes it.")
        rows = [{"newer": newer, "older": it, **self._moment.values} for it in older]
        return self._connection.executemany(
            """INSERT INTO supersessions (newer_id, older_id, at)
               VALUES (:newer, :older, :now)
                   ON CONFLICT DO NOTHING""",
            rows,
        ).rowcount

    def relink(self, newer: MemoryId, older: Sequence[MemoryId]) -> bool:
        """Let a memory supersede exactly these; return whether this changes its links."""
        links = self.of([newer]).get(newer, NO_LINKS)
        self._execute(
            f"""DELETE FROM supersessions
                 WHERE newer_id = :newer
                       AND older_id NOT IN (SELECT value FROM {self._sql.ids("kept")})""",
            newer=newer, ids=json.dumps(older),
        )  # fmt: skip
        self.link(newer, older)
        return older != links.supersedes


def at_key(tx: Transaction, space: Space, key: str) -> Memory | None:
    """Return the live memory at the key, or None; an expired memory gives up the key."""
    holder = tx[MemoryTable].at_key(space, key)
    if holder is None or holder.is_live(tx.now):
        return holder
    tx[MemoryTable].release_key(holder)
    return None


def require_key_and_pin(tx: Transaction, before: Memory | None, after: Memory) -> None:
    """Raise Conflict if the key of a memory live again is taken, or if there are too many pins.

    A new memory has no state before, and its key is free.
    """
    if not after.is_live(tx.now):
        return
    old = before.lifecycle if before and before.is_live(tx.now) else None
    # The key of a live memory may still be in `lifecycles`, if the clock went back.
    if before and after.key and (old is None or old.expires_at != after.lifecycle.expires_at):
        holder = at_key(tx, after.space, after.key)
        if holder is not None and holder.id != after.id:
            raise Conflict("Another observation has this topic key now.")
    is_new_pin = after.lifecycle.pinned_at is not None and (old is None or old.pinned_at is None)
    if is_new_pin and tx[MemoryTable].pins(after.space) >= MAX_PINNED:
        whose = "global observations" if after.space.is_global else "of a project"
        raise Conflict(f"At most {MAX_PINNED} observations {whose} are pinned; unpin one first.")


def superseded(
    tx: Transaction, space: Space, references: Iterable[records.Reference]
) -> tuple[MemoryId, ...]:
    """Return the ids of the referenced memories, which memories of the space may supersede."""
    ids = set()
    for memory in map(tx[MemoryTable].get, references):
        if memory is None or memory.deleted_at or memory.space.project != space.project:
            raise NotFound("No such observation.")
        if memory.space.is_global != space.is_global:
            raise Conflict(
                "Global observations supersede only global ones, and others only others."
            )
        ids.add(memory.id)
    return tuple(sorted(ids))


def with_links(tx: Transaction, memories: Sequence[Memory]) -> list[Memory]:
    links = tx[SupersessionTable].of([it.id for it in memories])
    return [replace(it, links=links.get(it.id, NO_LINKS), as_of=tx.now) for it in memories]


def linked(tx: Transaction, memory: Memory) -> Memory:
    """Return the memory with its links, as responses show it."""
    (with_its_links,) = with_links(tx, [memory])
    return with_its_links


SOON = timedelta(days=7)  # how long before its expiry a memory is due for review

ReviewPeriods = Mapping[str, timedelta]
"""How long after its last change, sighting or confirmation a memory of a type needs a review."""


class ReviewReason(StrEnum):
    DUE = "review_due"
    EXPIRES = "expires_soon"
    SIMILAR = "similar"


class ReviewPosition(NamedTuple):
    """The position of an item in the list: newest first, then by reason and ids."""

    at: datetime
    reason: ReviewReason
    memory: MemoryId
    other: MemoryId = MemoryId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A memory to review, since when and why; a similar pair has `other` and `score`."""

    position: ReviewPosition
    memory: Memory
    other: Memory | None = None
    score: float | None = None


@reads("memories")
def _position(
    id_: MemoryId, at: datetime, reason: ReviewReason, other: MemoryId, score: float | None
) -> tuple[ReviewPosition, float | None]:
    return ReviewPosition(at, reason, id_, other), score


_SOON = SOON // MICROSECOND
_NEVER = micros(datetime.max.replace(tzinfo=UTC))
_NO_SCORE = "CAST(NULL AS DOUBLE PRECISION) AS score"


def positions(
    tx: Transaction, filter_: Filter, reasons: Collection[ReviewReason], periods: ReviewPeriods,
    before: ReviewPosition | None, limit: int,
) -> list[tuple[ReviewPosition, float | None]]:  # fmt: skip
    """Return the review positions of live, not superseded memories, newest first, with scores.

    A similar pair is listed if the caller may read both memories, unless one supersedes the
    other or either was confirmed since.
    """
    sql = tx[Sql]
    listed = f"{sql.on_spaces(filter_)} AND {_reviewable('m')}"
    parts = {
        ReviewReason.DUE: _due(sql.dialect, listed, len(periods)),
        ReviewReason.EXPIRES: f"""
            SELECT l.expires_at - {_SOON} AS at, 'expires_soon' AS reason, m.id, 0 AS other,
                   {_NO_SCORE}
              FROM lifecycles l
              JOIN memories m ON m.id = l.memory_id
              JOIN spaces s ON s.id = m.space_id
             WHERE l.expires_at <= :now + {_SOON} AND {listed}""",
        ReviewReason.SIMILAR: _similar(sql, filter_),
    }
    chosen = " UNION ALL ".join(sql for reason, sql in parts.items() if reason in reasons)
    after = "(-at, reason, id, other) > (-:at, :reason, :id, :other)" if before else "TRUE"
    statement = f"""SELECT id, at, reason, other, score
                      FROM ({chosen}) chosen
                     WHERE {after}
                  ORDER BY at DESC, reason, id, other
                     LIMIT :limit"""
    values = sql.values(filter_)
    for at, (type_, period) in enumerate(periods.items()):
        values |= {f"type_{at}": type_, f"period_{at}": period // MICROSECOND}
    if before is not None:
        values |= {"at": micros(before.at), "reason": before.reason.value}
        values |= {"id": before.memory, "other": before.other}
    return sql.filled(limit, lambda most: sql.run(statement, limit=most, **values), _position)


def _due(dialect: Dialect, listed: str, periods: int) -> str:
    """Return a query for memories whose review date, or whose type's review period, has passed."""
    columns = "m.updated_at, m.last_seen_at, coalesce(l.confirmed_at, 0)"
    latest = f"{dialect.greatest}({columns})"
    cases = " ".join(f"WHEN :type_{at} THEN {latest} + :period_{at}" for at in range(periods))
    by_type = f"CASE m.type {cases} END" if cases else "NULL"
    types = ", ".join(f":type_{at}" for at in range(periods))
    of_a_type = f" OR m.type IN ({types})" if types else ""
    return f"""
        SELECT at, 'review_due' AS reason, id, 0 AS other, {_NO_SCORE}
          FROM (SELECT m.id, {dialect.least}(coalesce(l.review_at, {_NEVER}),
                                             coalesce({by_type}, {_NEVER})) AS at
                  FROM spaces s
                  JOIN memories m ON m.space_id = s.id
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
                 WHERE {listed} AND (l.review_at <= :now{of_a_type})) reviewable
         WHERE at <= :now"""


def _similar(sql: Sql, filter_: Filter) -> str:
    inside = f"SELECT s.id FROM spaces s WHERE {sql.on_spaces(filter_)}"
    readable = f"SELECT s.id FROM spaces s WHERE {sql.readable}"
    sides = " AND ".join(f"{_reviewable(it)} AND {it}.space_id IN ({readable})" for it in "mn")
    return f"""
        SELECT p.at, 'similar' AS reason, m.id, n.id AS other, p.score
          FROM lookalikes p
          JOIN memories m ON m.id = p.later_id
          JOIN memories n ON n.id = p.earlier_id
         WHERE (m.space_id IN ({inside}) OR n.space_id IN ({inside})) AND {sides}
               AND NOT EXISTS (SELECT 1
                                 FROM supersessions
                                WHERE (newer_id, older_id) IN ((m.id, n.id), (n.id, m.id)))
               AND NOT EXISTS (SELECT 1
                                 FROM lifecycles
                                WHERE memory_id IN (m.id, n.id) AND confirmed_at >= p.at)"""


def _reviewable(alias: str) -> str:
    return f"{live(alias)} AND NOT {superseded_sql(alias + '.id')}"


def review(
    tx: Transaction, filter_: Filter, limit: int, reasons: Collection[ReviewReason],
    periods: ReviewPeriods, before: ReviewPosition | None,
) -> tuple[list[ReviewItem], ReviewPosition | None]:  # fmt: skip
    """Return a page of items, and the position after which more follow, or None."""
    rows = positions(tx, filter_, reasons, periods, before, limit + 1)
    items = []
    for position, score in rows[:limit]:
        stored = [tx[MemoryTable].get(id_) for id_ in (position.memory, position.other) if id_]
        # Both exist: the same snapshot has listed them.
        memory, *other = with_links(tx, cast(list[Memory], stored))
        items.append(ReviewItem(
            position=position, memory=memory, other=other[0] if other else None, score=score
        ))  # fmt: skip
    return items, items[-1].position if len(rows) > limit and items else None
