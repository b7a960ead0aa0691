"""Hits put together, and their memories loaded whole where more is told than their text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from ..engine.engine import Transaction
from ..memory.lifecycles import with_links
from ..memory.model.memory import Memory, MemoryId
from ..memory.model.search import Found, Hit
from ..memory.sql.memories import AT_ONCE, MemoryTable

K = 60  # of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): how little the first lead


def never_falling(hits: Iterable[Hit]) -> Iterator[Hit]:
    """The hits with ranks that never improve: a later tier is never ranked better."""
    floor = float("-inf")
    for hit in hits:
        floor = max(floor, hit.rank)
        yield replace(hit, rank=floor)


def fused(lists: Iterable[Sequence[Hit]], limit: int) -> list[Hit]:
    """Reciprocal rank fusion: a hit counts 1 / (60 + its place) in each list; ties by id."""
    hits: dict[int, Hit] = {}
    scores: dict[int, Fraction] = {}
    for found in lists:
        for place, hit in enumerate(found, start=1):
            id_ = hit.memory.id
            hits.setdefault(id_, replace(hit, place=place))
            scores[id_] = scores.get(id_, Fraction()) + Fraction(1, K + place)
    best = sorted(hits, key=lambda id_: (-scores[id_], id_))
    return [hits[id_] for id_ in best[:limit]]


def whole(tx: Transaction, found: Found) -> Found:
    """The same, each hit with all of its memory; without one that is damaged."""
    ids = [hit.memory.id for hit in found.hits if not isinstance(hit.memory, Memory)]
    loaded: dict[MemoryId, Memory] = {}
    for start in range(0, len(ids), AT_ONCE):  # so few that no answer is too short for their texts
        some = tx[MemoryTable].loaded(ids[start : start + AT_ONCE])
        loaded.update({memory.id: memory for memory in some})
    hits = [replace(hit, memory=loaded.get(hit.memory.id, hit.memory)) for hit in found.hits]
    return replace(found, hits=tuple(it for it in hits if isinstance(it.memory, Memory)))


def linked(tx: Transaction, found: Found) -> Found:
    """The same, each hit with all of its memory and its links."""
    found = whole(tx, found)
    memories = with_links(tx, [whole_memory(hit) for hit in found.hits])
    hits = zip(found.hits, memories, strict=True)
    return replace(found, hits=tuple(replace(hit, memory=memory) for hit, memory in hits))


def whole_memory(hit: Hit) -> Memory:
    assert isinstance(hit.memory, Memory)
    return hit.memory
