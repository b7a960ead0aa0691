"""Memory stores in the domain, over the engine itself."""

from pathlib import Path

from agentops_memory.domain.access import Patterns
from agentops_memory.domain.entries import Entries
from agentops_memory.domain.model import NO_PROJECT, OPERATOR, Caller, Filter, StoreId
from agentops_memory.domain.recall import Recall
from agentops_memory.domain.store_model import (
    EntryDraft,
    StoreDraft,
)
from agentops_memory.domain.store_rules import Policy
from agentops_memory.domain.stores import Stores
from agentops_memory.domain.text import Project
from agentops_memory.storage.sqlite import SqliteEngine

from . import engine as engines

POLICY = Policy(
    paths_nest=True,
    unchanged_is_change=True,
    done_is_done=False,
    repeats_are_refused=True,
    archived_keeps_entries=True,
    current_is_redacted=True,
    redaction_takes_all=False,
)


def noted(caller: Caller, action: str, **fields: object) -> None:
    """An audit that nobody reads."""
    assert caller is OPERATOR, (action, fields)


def stores(engine: SqliteEngine) -> Stores:
    return Stores(engine=engine, policy=POLICY, audit=noted)


async def new_store(engine: SqliteEngine) -> StoreId:
    return (await stores(engine).create(OPERATOR, StoreDraft(name="Notes"))).value.id


def test_a_caller_of_some_projects_finds_its_own_beside_stores(tmp_path: Path) -> None:
    part = Caller(projects=Patterns(("demo*",)))

    async def look(engine: SqliteEngine) -> None:
        store, entries = await new_store(engine), Entries(engine=engine, policy=POLICY)
        await entries.create(OPERATOR, store, EntryDraft(path="a", content="an apple"))
        await engines.save(engine, "an apple too")
        recall = Recall(engine=engine)
        for seen in (Filter(), Filter(scope="project"), Filter(global_too=True)):
            found = await recall.search(part, "apple", seen, 9)
            assert [hit.memory.text.content for hit in found.hits] == ["an apple too"]
        assert not (await recall.search(part, "apple", Filter(scope=store), 9)).hits
        assert (await recall.totals(part, None)).projects == (Project("demo"),)
        assert NO_PROJECT not in (await recall.totals(OPERATOR, None)).projects

    engines.run(tmp_path / "memory.db", look)
