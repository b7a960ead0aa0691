"""Memory stores in the domain, over the engine itself."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Denied, Invalid, NotFound
from agentops_memory.memory.access import OPERATOR, Caller, Patterns
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.search import Filter
from agentops_memory.memory.space import NO_PROJECT, Project, StoreId
from agentops_memory.recall.recall import Recall, totals
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.stores import entry as entries
from agentops_memory.stores import entry as versions
from agentops_memory.stores import store as stores
from agentops_memory.stores.entry import Version
from agentops_memory.stores.store import Body, EntryId, Page, Policy, Serving, VersionId, stores_of

from ..support import engine as engines
from ..support.database import assert_index_is_whole
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


def test_a_caller_of_some_projects_finds_its_own_beside_stores(path: Path) -> None:
    part = Caller(projects=Patterns(("demo*",)))

    async def look(engine: SqliteEngine) -> None:
        store, own = await new_store(engine), over(engine)
        await entries.create(own, OPERATOR, store, Given(path="a", content="an apple"))
        await engines.save(engine, "an apple too")
        recall = Recall(engine=engine)
        for seen in (Filter(), Filter(scope="project"), Filter(global_too=True)):
            found = await recall.search(part, "apple", seen, 9)
            assert [hit.memory.text.content for hit in found.hits] == ["an apple too"]
        assert not (await recall.search(part, "apple", Filter(scope=store), 9)).hits
        assert (await engine.read(part, totals, None)).projects == (Project("demo"),)
        assert NO_PROJECT not in (await engine.read(OPERATOR, totals, None)).projects

    engines.run(path, look)


def test_a_store_is_searched_before_anything_is_in_it(path: Path) -> None:
    async def look(engine: SqliteEngine) -> None:
        store = await new_store(engine)
        assert not (await Recall(engine=engine).search_store(OPERATOR, store, "apple", 9)).hits

    engines.run(path, look)
    assert_index_is_whole(path)


def test_an_unknown_entry_of_an_archived_store_is_unknown(path: Path) -> None:
    async def look(engine: SqliteEngine) -> None:
        store, own = await new_store(engine), over(engine)
        await stores.archive(own, OPERATOR, store)
        for change in (
            entries.amend(own, OPERATOR, store, EntryId("none"), Given(content="x")),
            entries.delete(own, OPERATOR, store, EntryId("none")),
        ):
            with pytest.raises(NotFound):
                await change

    engines.run(path, look)


def test_a_name_is_as_long_as_the_policy_lets_it_be_also_without_its_secrets(path: Path) -> None:
    name = "postgres://a:b1C2d3@c " * 2

    async def look(engine: SqliteEngine) -> None:
        own = replace(over(engine), policy=replace(POLICY, longest_name=len(name)))
        made = await stores.create(own, OPERATOR, Given(name=name))
        assert (made.redacted, len(made.value.name)) == (2, len(name))
        amended = await stores.amend(own, OPERATOR, made.value.id, Given(name=name))
        assert (amended.redacted, len(amended.value.name)) == (2, len(name))

    engines.run(path, look)


@pytest.mark.representative(2)
@pytest.mark.parametrize(
    "path", ["", "a//b", "a/../b", "./a", "a/", "/a", "a\0", "/".join("a" * 21), "x" * 1025]
)
def test_a_path_is_refused_in_the_domain_whatever_the_dialect(tmp_path: Path, path: str) -> None:
    async def look(engine: SqliteEngine) -> None:
        store, own = await new_store(engine), over(engine)
        with pytest.raises(Invalid):
            await entries.create(own, OPERATOR, store, Given(path=path, content="x"))

    engines.run(tmp_path / "memory.db", look)


def test_a_caller_of_some_projects_is_denied_whatever_it_asks_of_stores(path: Path) -> None:
    part, never = Caller(projects=Patterns(("demo*",))), EntryId("none")
    draft = Given(path="a", content="b")

    async def look(engine: SqliteEngine) -> None:
        store, own = await new_store(engine), over(engine)
        for asked in (
            stores.create(own, part, Given(name="a")), engine.read(part, stores.known_store, store),
            engine.read(part, stores.list_stores, limit=9),
            stores.amend(own, part, store, Given(name="a")), stores.archive(own, part, store),
            stores.delete(own, part, store), entries.create(own, part, store, draft),
            engine.read(part, entries.known_entry, store, never),
            engine.read(part, entries.list_entries, store, limit=9),
            engine.read(part, entries.tree, store, limit=9),
            entries.amend(own, part, store, never, Given(content="b")),
            entries.delete(own, part, store, never),
            engine.read(part, versions.known_version, store, VersionId("none")),
            engine.read(part, versions.list_versions, store, limit=9),
            versions.redact(own, part, store, VersionId("none")),
            Recall(engine=engine).search_store(part, store, "apple", 9),
        ):  # fmt: skip
            with pytest.raises(Denied):
                await asked

    engines.run(path, look)


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


def test_a_tree_is_that_of_its_paths(tmp_path: Path) -> None:
    paths = ["a", "a.md", "a/b", "a/b/c", "a0", "b/é/x", "b/é/y", "b/z", "é", "𝄞/a", "𝄞/b/c"]

    async def look(engine: SqliteEngine) -> None:
        store, own = await new_store(engine), over(engine)
        for path in reversed(paths):
            await entries.create(own, OPERATOR, store, Given(path=path, content=path))
        for prefix, is_shallow, limit in product(
            ("", "a/", "b/", "b/é/", "c/"), (0, 1), (1, 2, 20)
        ):
            found: list[str] = []
            after, is_more = None, True
            while is_more:
                part = await engine.read(
                    OPERATOR, entries.tree, store, prefix=prefix, is_shallow=bool(is_shallow),
                    after=after, limit=limit, with_content=True,
                )  # fmt: skip
                items, is_more = part.items, part.has_more
                assert len(items) <= limit
                assert all(isinstance(i, str) or i.content == i.path for i in items)
                found += [item if isinstance(item, str) else item.path for item in items]
                after = found[-1] if found else None
            assert found == items_of(paths, prefix, is_shallow=bool(is_shallow))

    engines.run(tmp_path / "memory.db", look)


def items_of(paths: list[str], prefix: str, *, is_shallow: bool) -> list[str]:
    """What a tree has below a prefix, in the order of code points."""
    below = [path for path in sorted(paths) if path.startswith(prefix)]
    if not is_shallow:
        return below
    items = []
    for path in below:
        segment, slash, _ = path.removeprefix(prefix).partition("/")
        items.append(prefix + segment + slash)
    return sorted(set(items))


def test_what_is_in_a_deleted_store_is_in_no_list_any_more(path: Path) -> None:
    def told(tx: Transaction, store: StoreId) -> list[object]:
        return [
            *stores_of(tx, Page(limit=9)).items,
            *tx[MemoryTable].newest(Filter(store=store), 9),
        ]

    async def look(engine: SqliteEngine) -> None:
        store, own = await new_store(engine), over(engine)
        made = (await entries.create(own, OPERATOR, store, Given(path="a", content="b"))).value
        assert len(await engine.read(OPERATOR, told, store)) == 2
        assert (
            await engine.read(OPERATOR, versions.known_version, store, made.version)
        ).content == "b"
        await stores.delete(own, OPERATOR, store)  # and nobody has emptied it yet
        assert await engine.read(OPERATOR, told, store) == []
        for asked in (
            engine.read(OPERATOR, stores.known_store, store),
            engine.read(OPERATOR, entries.known_entry, store, made.id),
            engine.read(OPERATOR, entries.list_entries, store, limit=9),
            engine.read(OPERATOR, entries.tree, store, limit=9),
            engine.read(OPERATOR, versions.known_version, store, made.version),
            engine.read(OPERATOR, versions.list_versions, store, limit=9),
        ):
            with pytest.raises(NotFound):
                await asked

    engines.run(path, look)
