"""Of a large project only the memories that may be among the best are added up."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

import pytest

from agentops_memory.recall import group

from ..support.chart import CHECKS
from ..support.fast_reads import Counted, both, counted, held
from ..support.samples import for_each
from ..support.service import observation, serving

__all__ = ["counted"]

RARE = [f"word{chr(97 + at // 26)}{chr(97 + at % 26)}" for at in range(300)]
MEMORIES = group.LARGE + 200


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


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize(
    ("has_numpy", "unit"), [(False, group.UNIT), (True, group.UNIT), (False, 64 * group.UNIT)]
)
def test_a_large_project_is_answered_as_the_long_way_answers(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch, has_numpy: bool, unit: int
) -> None:
    """In the largest unit few sums fit into a lane."""
    monkeypatch.setattr(group, "UNIT", unit)
    if has_numpy:
        pytest.importorskip("numpy", reason=CHECKS)
    else:
        monkeypatch.setitem(sys.modules, "numpy", None)
    group.numpy_or_none.cache_clear()
    chance = random.Random(7)  # noqa: S311 - not secret
    rows = [
        observation(" ".join([*said(chance, 12), "deploy"]), session_id=f"s{number // 9}")
        for number in range(MEMORIES)
    ]
    with serving(tmp_path / "memory.db") as service:
        service.http.post("/import", json={"observations": rows}).raise_for_status()
        for _ in range(5):
            body = observation(" ".join(said(chance, 12))) | {"ttl": 60}
            service.http.post("/observations", json=body).raise_for_status()
        held(service, counted, path_of("deploy", said(chance, 8)))
        service.clock.advance(seconds=90)
        for _ in range(60):
            path = path_of(chance.choice(["", "deploy", "wordaa."]), said(chance, 30))
            memory, long_way = both(service, path)
            assert memory == long_way, path
    group.numpy_or_none.cache_clear()


def said(chance: random.Random, count: int) -> list[str]:
    """Words, some of them in many memories."""
    return [RARE[int(len(RARE) * chance.random() ** 3)] for _ in range(count)]


def path_of(first: str, words: Sequence[str]) -> str:
    query = {"project": "demo", "query": " ".join([first, *words]), "limit": "20"}
    return f"/context?{urlencode(query)}"
