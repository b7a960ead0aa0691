"""Reviews: what is due, what expires soon, and what looks alike. Derived when it is read."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast

from ..engine.engine import Engine, Transaction
from .lifecycles import with_links
from .model.access import Caller, Role
from .model.memory import Memory
from .model.review import (
    ReviewItem,
    ReviewList,
    ReviewPeriods,
    ReviewPlace,
    ReviewReason,
    ReviewRow,
)
from .model.search import Filter
from .sql.memories import MemoryTable
from .sql.reviews import ReviewTable

EVERY_REASON = frozenset(ReviewReason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviews:
    """The reviews of one service; `periods` are those after which memories of a type are due."""

    engine: Engine
    periods: ReviewPeriods = field(default_factory=dict)

    async def page(
        self,
        caller: Caller,
        filter_: Filter,
        limit: int,
        *,
        reasons: Collection[ReviewReason] = EVERY_REASON,
        before: ReviewPlace | None = None,
    ) -> ReviewList:
        """What somebody should look at, the newest reason first; with `before`, what follows."""
        caller.require(Role.READER)
        return await self.engine.read(caller, review, filter_, limit, reasons, self.periods, before)


def review(
    tx: Transaction,
    filter_: Filter,
    limit: int,
    reasons: Collection[ReviewReason],
    periods: ReviewPeriods,
    before: ReviewPlace | None,
) -> ReviewList:
    rows = tx[ReviewTable].lines(filter_, reasons, periods, before, limit + 1)
    items = tuple(_item(tx, row) for row in rows[:limit])
    return ReviewList(items=items, next=items[-1].place if len(rows) > limit and items else None)


def _item(tx: Transaction, row: ReviewRow) -> ReviewItem:
    ids = [row.place.memory, *([row.place.other] if row.place.other else [])]
    # They were there a moment ago, in the same snapshot.
    found = cast(list[Memory], [tx[MemoryTable].get(id_) for id_ in ids])
    memory, *other = with_links(tx, found)
    return ReviewItem(
        place=row.place, memory=memory, other=other[0] if other else None, score=row.score
    )
