"""A memory's lifecycle: pins, expiry and its sweep, what supersedes what, and reviews."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, cast

from ..engine.engine import Transaction
from ..errors import Conflict, NotFound
from .erasure import MAX_STEP
from .memories import MemoryTable
from .memory import (
    ENDED,
    MAX_PINNED,
    NO_CHANGE,
    NO_LINKS,
    RETURNED,
    UNSET,
    UNSWEPT,
    Lifecycle,
    LifecycleChange,
    Links,
    Memory,
    MemoryId,
    Reference,
    live,
    undeleted,
)
from .memory import superseded as superseded_sql
from .rows import instant, micros, portion, reads
from .search import Filter
from .space import GLOBAL_SCOPE, Project, Space
from .table import GLOBAL, FilteredTable, Index


@dataclass(eq=False)
class LifecycleTable(FilteredTable):
    """The lifecycles of memories, as of the transaction's instant."""

    _index: Index

    def pins(self, space: Space) -> int:
        """The count of live pinned memories of the space's project, or of all global ones."""
        if space.scope == GLOBAL_SCOPE:
            where = GLOBAL
        else:
            where = f"s.project = :project AND NOT ({GLOBAL})"
        return self._number(
            f"""SELECT count(*)
                  FROM spaces s
                 {self._sql.leads} lifecycles l {self._sql.hint("lifecycles_by_pin")}
                       ON l.space_id = s.id
                 {self._sql.leads} memories m ON m.id = l.memory_id
                 WHERE {where} AND l.pinned_at IS NOT NULL AND {live("m")}""",
            project=space.project,
            **self._moment.values,
        )

    def unswept(self, limit: int) -> list[MemoryId]:
        """Memories that the index holds and should not, or lacks; those of one step."""
        rows = self._execute(
            f"""SELECT m.id, length(m.content)
                  FROM (SELECT memory_id
                          FROM lifecycles
                         WHERE {UNSWEPT}
                         UNION ALL
                        SELECT memory_id FROM lifecycles WHERE {RETURNED}
                         LIMIT :limit) due
                 {self._sql.leads} memories m ON m.id = due.memory_id""",
            limit=limit,
            **self._moment.values,
        )
        return [MemoryId(id_) for id_, _ in portion(rows, MAX_STEP, lambda row: row[1])]

    def sweep(self, memories: Sequence[MemoryId]) -> int:
        """Take expired memories out of the index, and put others in; how many were taken out."""
        statement = f"""UPDATE lifecycles
                           SET is_swept = {ENDED}
                         WHERE memory_id = :id AND is_swept <> ({ENDED})
                     RETURNING is_swept"""
        taken_out = 0
        for memory in memories:
            with self._index.updating(memory):
                taken_out += sum(self._scalars(statement, id=memory, **self._moment.values))
        return taken_out

    def release_keys(self, project: Project, into: Project) -> None:
        """Let others take the keys that expired memories of both projects still hold."""
        spaces = "(SELECT id FROM spaces WHERE project IN (:project, :into))"
        values = {"project": project, "into": into, **self._moment.values}
        self._execute(
            f"""UPDATE lifecycles
                   SET held_key = (SELECT coalesce(key, held_key)
                                     FROM memories
                                    WHERE id = memory_id)
                 WHERE space_id IN {spaces} AND {ENDED}""",
            **values,
        )
        self._execute(
            f"""UPDATE memories
                   SET key = NULL
                 WHERE id IN (SELECT memory_id
                                FROM lifecycles
                               WHERE space_id IN {spaces} AND held_key IS NOT NULL)""",
            **values,
        )


@reads("supersessions")
def _uid(newer: int, uid: str) -> tuple[int, str]:
    return newer, uid


@dataclass(eq=False)
class SupersessionTable(FilteredTable):
    def of(self, memories: Collection[MemoryId]) -> dict[MemoryId, Links]:
        rows = self._execute(
            f"""SELECT listed.value, older_id, NULL
                  FROM {self._sql.ids("listed")}
                  JOIN supersessions ON newer_id = listed.value
                  JOIN memories m ON m.id = older_id
                 WHERE {undeleted("m")}
                 UNION ALL
                SELECT listed.value, NULL, newer_id
                  FROM {self._sql.ids("listed")}
                  JOIN supersessions ON older_id = listed.value
                  JOIN memories m ON m.id = newer_id
                 WHERE {live("m")}
              ORDER BY 1, 2, 3""",
            ids=json.dumps(list(memories)),
            **self._moment.values,
        ).fetchall()
        return {
            memory: Links(
                supersedes=tuple(MemoryId(it) for id_, it, _ in rows if id_ == memory and it),
                superseded_by=tuple(MemoryId(it) for id_, _, it in rows if id_ == memory and it),
            )
            for memory in {id_ for id_, _, _ in rows}
        }

    def uids(self, memories: Collection[MemoryId]) -> dict[MemoryId, tuple[str, ...]]:
        """The stable ids of the live memories that these supersede, in the order of ids."""
        rows = self._execute(
            f"""SELECT newer_id, m.uid
                  FROM {self._sql.ids("listed")}
                  JOIN supersessions ON newer_id = listed.value
                  JOIN memories m ON m.id = older_id
                 WHERE {live("m")}
              ORDER BY newer_id, older_id""",
            ids=json.dumps(list(memories)),
            **self._moment.values,
        )
        return {
            MemoryId(newer): tuple(uid for _, uid in older)
            for newer, older in groupby(self._intact(rows, _uid), key=itemgetter(0))
        }

    def add(self, newer: MemoryId, older: Iterable[MemoryId]) -> int:
        """Link a memory to those that it supersedes; how many of the links are new."""
        rows = [{"newer": newer, "older": it, **self._moment.values} for it in older]
        return self._connection.executemany(
            """INSERT INTO supersessions (newer_id, older_id, at)
               VALUES (:newer, :older, :now)
                   ON CONFLICT DO NOTHING""",
            rows,
        ).rowcount

    def clear(self, newer: MemoryId, but: Collection[MemoryId]) -> None:
        self._execute(
            f"""DELETE FROM supersessions
                 WHERE newer_id = :newer
                       AND older_id NOT IN (SELECT value FROM {self._sql.ids("kept")})""",
            newer=newer,
            ids=json.dumps(list(but)),
        )

    def leads(self, memories: Collection[MemoryId], to: MemoryId) -> bool:
        """Whether the links lead from one of the memories to another, also by deleted ones."""
        return self._exists(
            f"""WITH RECURSIVE reached (id) AS (
                    SELECT value FROM {self._sql.ids("listed")}
                     UNION
                    SELECT older_id FROM supersessions JOIN reached ON newer_id = id)
                SELECT 1 FROM reached WHERE id = :to LIMIT 1""",
            ids=json.dumps(list(memories)),
            to=to,
        )


def changed(lifecycle: Lifecycle, change: LifecycleChange, now: datetime) -> Lifecycle:
    """Set fields are changed, the rest stays; a review that was due is done unless set again."""
    if change == NO_CHANGE:
        return reviewed(lifecycle, now)
    end = change.end(now)
    return replace(
        lifecycle,
        expires_at=lifecycle.expires_at if end is UNSET else end,
        pinned_at=_pinned_at(lifecycle, change, now),
        review_at=(
            reviewed(lifecycle, now).review_at if change.review_at is UNSET else change.review_at
        ),
    )


def counted(lifecycle: Lifecycle, change: LifecycleChange, now: datetime) -> Lifecycle:
    """The lifecycle after a duplicate: the later of two ends holds, and none is the latest."""
    end = change.end(now)
    is_endless = lifecycle.expires_at is None or end is UNSET or end is None
    ends = [it for it in (lifecycle.expires_at, end) if isinstance(it, datetime)]
    after = changed(lifecycle, change, now)
    return replace(after, expires_at=None if is_endless else max(ends))


def reviewed(lifecycle: Lifecycle, now: datetime) -> Lifecycle:
    """The lifecycle without a review that was due."""
    is_due = lifecycle.review_at is not None and lifecycle.review_at <= now
    return replace(lifecycle, review_at=None) if is_due else lifecycle


def at_key(tx: Transaction, space: Space, key: str) -> Memory | None:
    """The live memory at the key; an expired one gives it up."""
    held = tx[MemoryTable].at_key(space, key)
    if held is None or held.is_live(tx.now):
        return held
    tx[MemoryTable].release_key(held)
    return None


def require_place(tx: Transaction, before: Memory, after: Memory) -> None:
    """Conflict when a memory that is live again finds its key taken, or one pin too many."""
    if not after.is_live(tx.now):
        return
    # The key of a live one may be beside it, too, when the clock went back.
    is_moved = before.lifecycle.expires_at != after.lifecycle.expires_at
    if (is_moved or not before.is_live(tx.now)) and _is_taken(tx, after):
        raise Conflict("Another observation has this topic key now.")
    require_pin(tx, before if before.is_live(tx.now) else None, after)


def require_pin(tx: Transaction, before: Memory | None, after: Memory) -> None:
    """Conflict when there are as many pins already as a project may have."""
    is_pinned = before is not None and before.lifecycle.pinned_at is not None
    if is_pinned or after.lifecycle.pinned_at is None or not after.is_live(tx.now):
        return
    if tx[LifecycleTable].pins(after.space) >= MAX_PINNED:
        whose = "global observations" if after.space.scope == GLOBAL_SCOPE else "of a project"
        raise Conflict(f"At most {MAX_PINNED} observations {whose} are pinned; unpin one first.")


def superseded(
    tx: Transaction, space: Space, references: Iterable[Reference]
) -> tuple[MemoryId, ...]:
    """The memories that are named, which one of the space may supersede, in the order of ids."""
    return tuple(sorted({_superseded(tx, space, it) for it in references}))


def link(tx: Transaction, memory: MemoryId, older: Sequence[MemoryId]) -> int:
    """Let a memory supersede others, too; Conflict when that would close a circle."""
    if not older:
        return 0
    if memory in older or tx[SupersessionTable].leads(older, memory):
        raise Conflict("An observation cannot supersede itself, nor one that supersedes it.")
    return tx[SupersessionTable].add(memory, older)


def with_links(tx: Transaction, memories: Sequence[Memory]) -> list[Memory]:
    links = tx[SupersessionTable].of([it.id for it in memories])
    return [replace(it, links=links.get(it.id, NO_LINKS), as_of=tx.now) for it in memories]


def linked(tx: Transaction, memory: Memory) -> Memory:
    """The memory with its links, as answers have it."""
    (with_its_links,) = with_links(tx, [memory])
    return with_its_links


def _is_taken(tx: Transaction, memory: Memory) -> bool:
    holder = at_key(tx, memory.space, memory.key) if memory.key else None
    return holder is not None and holder.id != memory.id


def _pinned_at(lifecycle: Lifecycle, change: LifecycleChange, now: datetime) -> datetime | None:
    if change.pinned is None:
        return lifecycle.pinned_at
    return (lifecycle.pinned_at or now) if change.pinned else None


def _superseded(tx: Transaction, space: Space, reference: Reference) -> MemoryId:
    found = _named(tx, reference)
    if found is None or found.is_deleted or found.space.project != space.project:
        raise NotFound("No such observation.")
    if (found.space.scope == GLOBAL_SCOPE) != (space.scope == GLOBAL_SCOPE):
        raise Conflict("Global observations supersede only global ones, and others only others.")
    return found.id


def _named(tx: Transaction, reference: Reference) -> Memory | None:
    if not isinstance(reference, str):
        return tx[MemoryTable].get(reference)
    found = tx[MemoryTable].by_uid(reference)
    return found and tx[MemoryTable].get(found.id)


SOON = timedelta(days=7)  # before its end, in which a memory is due for review

ReviewPeriods = Mapping[str, timedelta]
"""After how long a memory of a type is to be looked at again."""


class ReviewReason(StrEnum):
    DUE = "review_due"
    EXPIRES = "expires_soon"
    SIMILAR = "similar"


class ReviewPlace(NamedTuple):
    """Where a line stands in the list: newest first, then by reason and ids."""

    at: datetime
    reason: ReviewReason
    memory: MemoryId
    other: MemoryId = MemoryId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A memory to be looked at, since when and why; one that looks like another has both."""

    place: ReviewPlace
    memory: Memory
    other: Memory | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewList:
    """A page of lines; `next` is the place after which more follow."""

    items: tuple[ReviewItem, ...]
    next: ReviewPlace | None = None


@reads("memories")
def _line(
    id_: int, at: int, reason: str, other: int, score: float | None
) -> tuple[ReviewPlace, float | None]:
    place = ReviewPlace(instant(at), ReviewReason(reason), MemoryId(id_), MemoryId(other))
    return place, score


_SOON = int(SOON.total_seconds()) * 1_000_000
_SEEN = "m.updated_at, m.last_seen_at, coalesce(l.confirmed_at, 0)"
_NO_SCORE = "CAST(NULL AS DOUBLE PRECISION) AS score"


@dataclass(eq=False)
class ReviewTable(FilteredTable):
    """What is due for a review, as of the transaction's instant."""

    def lines(
        self,
        filter_: Filter,
        reasons: Collection[ReviewReason],
        periods: ReviewPeriods,
        before: ReviewPlace | None,
        limit: int,
    ) -> list[tuple[ReviewPlace, float | None]]:
        """The lines of live memories that nothing supersedes, newest first, those after a place.

        A pair is listed if the caller may read both, unless one supersedes the other or
        either was confirmed since.
        """
        listed = f"{self._on_spaces(filter_)} AND {_to_look_at('m')}"
        parts = {
            ReviewReason.DUE: self._due(listed, len(periods)),
            ReviewReason.EXPIRES: f"""
                SELECT l.expires_at - {_SOON} AS at, 'expires_soon' AS reason, m.id, 0 AS other,
                       {_NO_SCORE}
                  FROM lifecycles l
                  JOIN memories m ON m.id = l.memory_id
                  JOIN spaces s ON s.id = m.space_id
                 WHERE l.expires_at <= :now + {_SOON} AND {listed}""",
            ReviewReason.SIMILAR: self._similar(filter_),
        }
        chosen = " UNION ALL ".join(sql for reason, sql in parts.items() if reason in reasons)
        after = "(-at, reason, id, other) > (-:at, :reason, :id, :other)" if before else "TRUE"
        statement = f"""SELECT id, at, reason, other, score
                          FROM ({chosen or _NOTHING}) chosen
                         WHERE {after}
                      ORDER BY at DESC, reason, id, other
                         LIMIT :limit"""
        values = _values(periods, before) | self._values(filter_)
        return self._filled(
            limit, lambda most: self._execute(statement, limit=most, **values), _line
        )

    def _due(self, listed: str, periods: int) -> str:
        """What has a date that has passed, or a type of which the period has."""
        seen = f"{self._sql.greatest}({_SEEN})"
        cases = " ".join(f"WHEN :type_{at} THEN {seen} + :period_{at}" for at in range(periods))
        by_type = f"CASE m.type {cases} END" if cases else "NULL"
        types = ", ".join(f":type_{at}" for at in range(periods))
        of_a_type = f" OR m.type IN ({types})" if types else ""
        return f"""
            SELECT at, 'review_due' AS reason, id, 0 AS other, {_NO_SCORE}
              FROM (SELECT m.id, {self._sql.least}(coalesce(l.review_at, {_NEVER}),
                                                   coalesce({by_type}, {_NEVER})) AS at
                      FROM spaces s
                      JOIN memories m ON m.space_id = s.id
                      LEFT JOIN lifecycles l ON l.memory_id = m.id
                     WHERE {listed} AND (l.review_at <= :now{of_a_type})) looked_at
             WHERE at <= :now"""

    def _similar(self, filter_: Filter) -> str:
        inside = f"SELECT s.id FROM spaces s WHERE {self._on_spaces(filter_)}"
        readable = f"SELECT s.id FROM spaces s WHERE {self._readable}"
        sides = " AND ".join(f"{_to_look_at(it)} AND {it}.space_id IN ({readable})" for it in "mn")
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


_NOTHING = f"SELECT 0 AS at, '' AS reason, 0 AS id, 0 AS other, {_NO_SCORE} WHERE FALSE"


def _to_look_at(alias: str) -> str:
    return f"{live(alias)} AND NOT {superseded_sql(alias + '.id')}"


_NEVER = micros(datetime.max.replace(tzinfo=instant(0).tzinfo))


def _values(periods: ReviewPeriods, before: ReviewPlace | None) -> dict[str, object]:
    values: dict[str, object] = {}
    for at, (type_, period) in enumerate(periods.items()):
        values[f"type_{at}"] = type_
        values[f"period_{at}"] = int(period.total_seconds()) * 1_000_000
    if before is not None:
        values |= {"at": micros(before.at), "reason": before.reason.value}
        values |= {"id": before.memory, "other": before.other}
    return values


def review(
    tx: Transaction,
    filter_: Filter,
    limit: int,
    reasons: Collection[ReviewReason],
    periods: ReviewPeriods,
    before: ReviewPlace | None,
) -> ReviewList:
    rows = tx[ReviewTable].lines(filter_, reasons, periods, before, limit + 1)
    items = tuple(_item(tx, place, score) for place, score in rows[:limit])
    return ReviewList(items=items, next=items[-1].place if len(rows) > limit and items else None)


def _item(tx: Transaction, place: ReviewPlace, score: float | None) -> ReviewItem:
    found = [tx[MemoryTable].get(id_) for id_ in (place.memory, place.other) if id_]
    # They were there a moment ago, in the same snapshot.
    memory, *other = with_links(tx, cast(list[Memory], found))
    return ReviewItem(place=place, memory=memory, other=other[0] if other else None, score=score)
