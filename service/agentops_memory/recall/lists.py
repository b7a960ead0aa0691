"""Lists of hits put together. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from ..memory.model.search import Hit

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
