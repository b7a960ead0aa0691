"""Reviews: what is due, what expires soon, and what looks alike. Derived when it is read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, cast

from ..engine.engine import Transaction
from .lifecycles import with_links
from .memories import MemoryTable
from .model.liveness import live, superseded
from .model.memory import Memory, MemoryId
from .model.rows import instant, micros, reads
from .model.search import Filter
from .model.table import FilteredTable

SOON = timedelta(days=7)  # before its end, in which a memory is told of

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

        A pair is told if the caller may read both, unless one supersedes the other or
        either was confirmed since.
        """
        listed = f"{self._on_spaces(filter_)} AND {_to_look_at('m')}"
        parts = {
            ReviewReason.DUE: self._due(listed, len(periods)),
            ReviewReason.EXPIRES: _expiring(listed),
            ReviewReason.SIMILAR: self._similar(filter_),
        }
        chosen = " UNION ALL ".join(sql for reason, sql in parts.items() if reason in reasons)
        after = "(-at, reason, id, other) > (-:at, :reason, :id, :other)" if before else "TRUE"
        rows = self._execute(
            f"""SELECT id, at, reason, other, score
                  FROM ({chosen or _NOTHING}) chosen
                 WHERE {after}
              ORDER BY at DESC, reason, id, other
                 LIMIT :limit""",
            limit=limit, **_values(periods, before), **self._values(filter_),
        )  # fmt: skip
        return list(self._intact(rows, _line))

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
    return f"{live(alias)} AND NOT {superseded(alias + '.id')}"


_NEVER = micros(datetime.max.replace(tzinfo=instant(0).tzinfo))


def _expiring(listed: str) -> str:
    return f"""
        SELECT l.expires_at - {_SOON} AS at, 'expires_soon' AS reason, m.id, 0 AS other,
               {_NO_SCORE}
          FROM lifecycles l
          JOIN memories m ON m.id = l.memory_id
          JOIN spaces s ON s.id = m.space_id
         WHERE l.expires_at <= :now + {_SOON} AND {listed}"""


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
