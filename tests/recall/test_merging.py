"""Lists of hits become one by reciprocal rank."""

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.memory.memory import Memory, MemoryId, Text
from agentops_memory.memory.search import Hit, Method
from agentops_memory.memory.space import Project, Space
from agentops_memory.recall.recall import fused

from ..support.service import START

LISTS = st.lists(st.lists(st.integers(1, 12), unique=True, max_size=6), max_size=4)


@given(lists=LISTS, limit=st.integers(0, 8))
def test_places_count_by_their_reciprocals_and_ids_break_ties(
    lists: list[list[int]], limit: int
) -> None:
    scores: Counter[int] = Counter()
    for ids in lists:
        for place, id_ in enumerate(ids, start=1):
            scores[id_] += Fraction(1, 60 + place)  # type: ignore[assignment]
    expected = sorted(scores, key=lambda id_: (-scores[id_], id_))[:limit]

    found = fused([list(map(hit, ids)) for ids in lists], limit)

    assert [one.memory.id for one in found] == expected
    first = {id_: place for ids in lists[::-1] for place, id_ in enumerate(ids, start=1)}
    assert {one.memory.id: one.place for one in found} == {id_: first[id_] for id_ in expected}


# Helpers


def hit(id_: int) -> Hit:
    memory = Memory(
        id=MemoryId(id_), uid=str(id_), session=None, space=Space(project=Project("demo")),
        key=None, text=Text(type="t", title="t", content="c"), last_seen_at=START, created_at=START,
        updated_at=START,
    )  # fmt: skip
    return Hit(memory=memory, rank=-1.0, method=Method.FULL_TEXT)
