"""Memory stores in the domain, over the engine itself."""

from pathlib import Path

import pytest

from agentops_memory.memory.access import OPERATOR, Caller
from agentops_memory.memory.space import StoreId
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.stores import entry as entries
from agentops_memory.stores import entry as versions
from agentops_memory.stores import store as stores
from agentops_memory.stores.entry import Version
from agentops_memory.stores.store import Body, Policy, Serving

from ..support.engine import opened
from ..support.service import Clock

POLICY = Policy(
    paths_nest=True, unchanged_is_change=True, done_is_done=False, repeats_are_refused=True,
    archived_keeps_entries=True, current_is_redacted=True, redaction_takes_all=False,
)  # fmt: skip


class Given(Body):
    """Any parts of a store or of an entry."""

    name: str | None = None
    description: str | None = None
    path: str | None = None
    content: str | None = None
    metadata: dict[str, str] | None = None


def noted(caller: Caller, action: str, **fields: object) -> None:
    """An audit that nobody reads."""
    assert caller is OPERATOR, (action, fields)


def over(engine: SqliteEngine) -> Serving:
    return Serving(engine=engine, policy=POLICY, audit=noted)


async def new_store(engine: SqliteEngine) -> StoreId:
    return (await stores.create(over(engine), OPERATOR, Given(name="Notes"))).value.id


@pytest.mark.slow
async def test_versions_of_an_entry_order_as_they_were_made_whatever_the_clock_does(
    tmp_path: Path,
) -> None:
    clock, path = Clock(), tmp_path / "memory.db"

    async with opened(path, clock=clock) as one, opened(path, clock=clock) as other:
        store = await new_store(one)
        both = over(one), over(other)
        made = (await entries.create(both[0], OPERATOR, store, Given(path="a", content="0"))).value
        for number in range(1, 30):
            clock.advance(milliseconds=-1 if number % 3 else 2)
            content = Given(content=str(number))
            await entries.amend(both[number % 2], OPERATOR, store, made.id, content)

        async def page(after: str | None = None) -> list[Version]:
            shown = await one.read(
                OPERATOR, versions.list_versions, store, entry=made.id, limit=15,
                with_content=True, after=after,
            )  # fmt: skip
            return shown.items

        told = [*(newest := await page()), *await page(after=newest[-1].id)]
        assert [version.content for version in told] == [str(n) for n in range(29, -1, -1)]
        whole = await one.read(OPERATOR, versions.list_versions, store, limit=100)
        assert [version.id for version in whole.items] == [version.id for version in told]
