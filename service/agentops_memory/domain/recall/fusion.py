"""Hits of several places as one list, by reciprocal rank."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from ..model.search import Hit

K = 60  # of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): how little the first lead


def merged(lists: Iterable[Sequence[Hit]], limit: int) -> list[Hit]:
    """The best of the lists: a hit counts 1 / (60 + its place) for each; ties by id."""
    hits: dict[int, Hit] = {}
    scores: dict[int, Fraction] = {}
    for found in lists:
        for place, hit in enumerate(found, start=1):
            id_ = hit.memory.id
            hits.setdefault(id_, replace(hit, place=place))
            scores[id_] = scores.get(id_, Fraction()) + Fraction(1, K + place)
    best = sorted(hits, key=lambda id_: (-scores[id_], id_))
    return [hits[id_] for id_ in best[:limit]]
