"""Of a large project only the memories that may be among the best are added up."""

import random

import pytest

from agentops_memory.recall import group

from ..support.fast_reads import counted
from ..support.samples import for_each

__all__ = ["counted"]


@pytest.mark.slow
@for_each("seed", range(40))
def test_the_likely_places_hold_the_best_and_are_few(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - not secret
    size, depth = chance.choice([500, 2_000]), chance.choice([1, 10, 20])
    terms = [some_scores(chance, size) for _ in range(chance.choice([1, 8, 40]))]
    hidden = frozenset(chance.sample(range(size), chance.choice([0, 3, 200])))
    sums, total = [0.0] * size, 0
    for term in terms:
        total += group.lanes_of(size, [(place, group.bound_of(it)) for place, it in term])
        for place, it in term:
            sums[place] += it
    seen = [0.0 if place in hidden else it for place, it in enumerate(sums)]

    likely = group.likely_places(total, size, depth, len(terms), hidden)

    least = sorted(seen, reverse=True)[depth - 1]
    assert {place for place, it in enumerate(seen) if it and it >= least} <= {*likely}
    assert hidden.isdisjoint(likely)
    assert likely == sorted(likely)
    # A sum and the least of the best may each be told larger by a unit a term.
    least -= 2 * len(terms) / group.UNIT
    assert all(seen[place] >= least for place in likely)


def test_the_best_is_likely_where_its_bound_has_a_smaller_upper_byte() -> None:
    size, many = 600, 10
    scores = [[(1, 0.397)] for _ in range(many)] + [[(2, 3.98)]]  # 4 is the first upper byte
    total = sum(
        group.lanes_of(size, [(at, group.bound_of(it)) for at, it in each]) for each in scores
    )

    assert 2 in group.likely_places(total, size, 1, len(scores), ())


def some_scores(chance: random.Random, size: int) -> list[tuple[int, float]]:
    """What one term adds, most of it close to what it adds elsewhere."""
    worth = chance.uniform(0.01, 9.0)
    places = sorted(chance.sample(range(size), chance.choice([1, 30, size // 2])))
    return [(place, worth * chance.uniform(0.9, 1.0)) for place in places]
