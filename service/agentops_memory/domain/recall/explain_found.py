"""The explanation of an answer, under a timeout of its own."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from ..errors import WITHOUT_WORDS
from ..model.search import Explained, Explanation, Hit, Reason, Source, Tier, Wanted, WhyNot
from ..ports.engine import Transaction
from ..text.query import Query
from .explain import MOST_EXPLAINED, explained
from .why_not import Answer, why_not

TIMEOUT = timedelta(seconds=1)  # of each half of an explanation

T = TypeVar("T")


def explanation(
    tx: Transaction, asked: Query, hits: Sequence[Hit], answer: Answer, wanted: Wanted
) -> Explanation:
    """Why these hits are in the answer, and why one is not; each half may time out."""
    items = _in_time(tx, lambda: _items(tx, hits, answer)) if wanted.explain else {}
    why = None
    if (memory := wanted.why_not) is not None:
        why = _in_time(tx, lambda: why_not(tx, memory, answer)) or _TIMED_OUT
    return Explanation(
        asked=frozenset(asked.terms),
        items=items or {},
        why_not=why,
        is_timed_out=items is None or why is _TIMED_OUT,
    )


_TIMED_OUT = WhyNot(reason=Reason.TIMED_OUT)


def _items(tx: Transaction, hits: Sequence[Hit], answer: Answer) -> dict[int, Explained]:
    found = answer.found
    shown = [hit.memory.id for hit in hits[:MOST_EXPLAINED]]
    alone = Source(seen=answer.searched, query=found.query, hits=tuple(hits))
    items: dict[int, Explained] = {}
    for source in found.sources or (alone,):
        for tier in (Tier.EVERY, Tier.ANY):
            listed = {hit.memory.id for hit in source.hits if hit.tier is tier}
            if ids := [id_ for id_ in shown if id_ in listed]:
                parts = tx.search.parts(tier, source.query, source.seen, answer.limit, ids)
                items |= {id_: explained(part, source.query, tier) for id_, part in parts.items()}
    return items


def _in_time(tx: Transaction, work: Callable[[], T]) -> T | None:
    try:
        with tx.search.within(TIMEOUT):
            return work()
    except WITHOUT_WORDS:
        return None
