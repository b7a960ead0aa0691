"""A write that expects a memory in a certain state is refused with the state that it is in."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import ANY_STATE, Expected, Memory, MemoryId
from agentops_memory.recall.text import sha256_of
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.stores import entry as entries
from agentops_memory.stores.entry import Stale, require_state
from agentops_memory.stores.store import EntryId

from ..stores.test_stores_domain import Given, new_store, over
from ..support import engine as engines

FIRST = Expected(revision=1, sha256=sha256_of("one"))


class First(Given):
    """Parts of an entry that must be as it was made."""

    @property
    def expected(self) -> Expected:
        return FIRST


def test_a_refusal_carries_the_entry_as_it_is_now(path: Path) -> None:
    async def race(engine: SqliteEngine) -> None:
        store, own = await new_store(engine), over(engine)
        draft = Given(path="a", content="one", metadata={"by": "ada"})
        entry = (await entries.create(own, OPERATOR, store, draft)).value.id
        await entries.amend(own, OPERATOR, store, entry, First(content="two"))
        refused = (
            entries.amend(own, OPERATOR, store, entry, First(content="three")),
            entries.delete(own, OPERATOR, store, entry, FIRST),
        )
        for write in refused:
            with pytest.raises(Stale, match="The memory has changed") as stale:
                await write
            assert shown(stale.value.current) == (entry, "a", "two", 2, {"by": "ada"})

    engines.run(path, race)


def shown(memory: Memory) -> tuple[EntryId, str | None, str, int, dict[str, str]]:
    extras = dict(memory.extras)
    return EntryId(memory.uid), memory.key, memory.text.content, memory.revision, extras


def test_any_memory_is_compared_by_revision_content_or_both(path: Path) -> None:
    def compare(tx: Transaction) -> None:
        (memory,) = tx[MemoryTable].every(MemoryId(0), 9)
        for met in (ANY_STATE, FIRST, replace(FIRST, sha256=None), replace(FIRST, revision=None)):
            require_state(memory, met)
        other_text = replace(FIRST, sha256=sha256_of("One"))
        for unmet in (replace(FIRST, revision=2), other_text, replace(other_text, revision=None)):
            with pytest.raises(Stale) as stale:
                require_state(memory, unmet)
            assert stale.value.current is memory

    async def look(engine: SqliteEngine) -> None:
        await engines.save(engine, "one")
        await engine.read(OPERATOR, compare)

    engines.run(path, look)
