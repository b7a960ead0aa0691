"""What leaves memory when there is no room for it, and what that costs."""

from collections.abc import Iterable, Iterator

from agentops_memory.memory.memory import MemoryId
from agentops_memory.memory.ranking import Totals
from agentops_memory.recall.area import Draft, Row, drafted
from agentops_memory.recall.cache import DatabaseIndex, IndexCache, LoadPlan
from agentops_memory.recall.stems import MOST_CODES, Entry, Vocabulary

PART, AREA = 1, 7
WEIGHTS = (1.0, 1.0, 1.0, 1.0)


def entry_of(texts: Iterable[str]) -> Entry:
    return Entry.of_fields([it.split() for it in texts])


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
