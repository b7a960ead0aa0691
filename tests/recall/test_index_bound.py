"""What leaves memory when there is no room for it, and what that costs."""

from collections.abc import Iterable, Iterator
from itertools import product

from agentops_memory.memory.memory import MemoryId
from agentops_memory.memory.ranking import Totals
from agentops_memory.recall.area import Draft, Row, drafted
from agentops_memory.recall.cache import DatabaseIndex, IndexCache, LoadPlan
from agentops_memory.recall.stems import MOST_CODES, Entry, Stems, Vocabulary

PART, AREA = 1, 7
WEIGHTS = (1.0, 1.0, 1.0, 1.0)


def entry_of(texts: Iterable[str]) -> Entry:
    return Entry.of_fields([it.split() for it in texts])


class Compared(str):
    """A stem that counts how often it is compared with others."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return str.__eq__(self, other)


def test_stems_that_begin_and_end_alike_are_forgotten_without_comparing_each_with_all() -> None:
    vocabulary = Vocabulary(WEIGHTS, Stems().near)
    stems = [Compared(f"ro{''.join(it)}k") for it in product("abcdefgh", repeat=3)]
    numbers = vocabulary.add([*stems, "rollback"])
    Compared.comparisons = 0

    vocabulary.remove(reversed(numbers[:-1]))

    assert Compared.comparisons <= 8 * len(stems)  # where hashes collide
    assert vocabulary.near["rolback"] == {numbers[-1]: "rollback"}
    assert vocabulary.near["roabk"] == {}


def test_counts_that_are_made_to_differ_do_not_pile_up_and_old_drafts_are_refused() -> None:
    index = DatabaseIndex(IndexCache(), Vocabulary(WEIGHTS), entry_of)
    plan, totals = LoadPlan(PART, None, False), Totals.of(1, 1)

    def draft(counts: str) -> Draft:
        row = Row(MemoryId(1), 1, None, 0, None, None)
        return drafted(AREA, [(row, f"{counts} rollback")], index.vocabulary)

    def drafts() -> Iterator[Draft]:
        yield draft("1")
        index.forget()

    assert index.install(1, plan, drafts(), totals)
    assert not index.parts
    assert index.install(1, plan, [draft("1")], totals)
    index.vocabulary.codes |= {f"made up {it}": (it, 1) for it in range(MOST_CODES)}

    assert not index.is_at(1)
    assert not index.parts
    assert len(index.vocabulary.codes) == len(index.vocabulary.often) == 0
