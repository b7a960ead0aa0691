"""Work that waits for a turn, or for a connection: what happens of it, by itself or with others."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest

from agentops_memory.engine.engine import Transaction, WriteTarget, within_one_project
from agentops_memory.errors import Busy
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import DEFAULT_TENANT, OPERATOR, Caller, TenantId
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import SessionId
from agentops_memory.memory.projects import rename
from agentops_memory.memory.space import Project, Space
from agentops_memory.postgresql import transaction
from agentops_memory.postgresql.connection import schema_of
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.postgresql.index import FIRST
from agentops_memory.postgresql.transaction import Lock, number_of
from agentops_memory.postgresql.transactions import Transactions
from agentops_memory.sqlite import SqliteEngine

from ..support.engine import SOON, Work, cancel, draft, raising, saving, together, turns
from ..support.process import until
from ..support.service import Clock

Test = Callable[[PostgresEngine], Awaitable[None]]


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a group is whole."""
    monkeypatch.setattr(transaction, "LONGEST", timedelta(seconds=SOON))


def run(url: str, test: Test, **options: Any) -> None:
    """Run the test on an engine over the database."""

    async def whole() -> None:
        async with (
            asyncio.timeout(SOON),
            PostgresEngine.opened(url, clock=Clock(), **options) as engine,
        ):
            await test(engine)

    asyncio.run(whole())


def importing(tx: Transaction) -> object:
    """All who shared its transaction would wait for it."""
    tx.require_alone()
    return saving("two")(tx)


def fail(_: Transaction) -> None:
    raise Busy("no")


@pytest.mark.parametrize(
    ("second", "expected", "sizes"),
    [(importing, str, [1, 2, 1]), (saving("two", fail), Busy, [1, 1, 1])],
    ids=["an import", "one that raises"],
)
def test_rows_of_an_import_and_of_what_raises_are_in_no_transaction_of_others(
    postgresql: str, monkeypatch: pytest.MonkeyPatch, second: Work, expected: type, sizes: list[int]
) -> None:
    monkeypatch.setattr(transaction, "LONGEST", timedelta(seconds=SOON))
    commits, left = list[int](), 3 if expected is str else 2

    async def test(engine: PostgresEngine) -> None:
        works = [saving("one"), second, saving("three")]
        first, answer, last = await together(cast("SqliteEngine", engine), works)
        assert (first, type(answer), last) == ("one", expected, "three")
        assert await engine.read(OPERATOR, lambda tx: tx[MemoryTable].count(None)) == left

    run(postgresql, test, committed=lambda count, _: commits.append(count))
    assert commits == sizes


def saved_together(
    engine: PostgresEngine, *contents: str, window: timedelta = timedelta(hours=1)
) -> Awaitable[list[memories.Saved]]:
    saves = (engine.write(OPERATOR, memories.SAVE, draft(it), window) for it in contents)
    return asyncio.gather(*saves)


@pytest.mark.usefixtures("_patient")
def test_saves_that_share_a_transaction_find_what_is_stored_and_each_other(postgresql: str) -> None:
    commits = list[int]()

    async def test(engine: PostgresEngine) -> None:
        (stored,) = await saved_together(engine, "herons")
        herons, cranes, again, storks = await saved_together(
            engine, "herons", "cranes", "cranes", "storks"
        )
        created = "created", 1
        actions = [(it.action, it.memory.duplicates) for it in (herons, cranes, again, storks)]
        assert actions == [("deduplicated", 2), created, ("deduplicated", 2), created]
        assert (herons.memory.id, again.memory.id) == (stored.memory.id, cranes.memory.id)

    run(postgresql, test, committed=lambda count, _: commits.append(count))
    assert commits == [1, 4]


@within_one_project(lambda: WriteTarget(Project("demo"), SessionId("s")))
def refused(tx: Transaction) -> None:
    """What reads is not what has written, though the rows of others are stored before."""
    tx[MemoryTable].at_key(draft("").space, "key")
    raise Busy("no")


@pytest.mark.usefixtures("_patient")
def test_what_is_refused_undoes_nothing_of_others(postgresql: str) -> None:
    commits = list[int]()

    async def test(engine: PostgresEngine) -> None:
        await saved_together(engine, "herons")
        saves = saved_together(engine, "cranes"), saved_together(engine, "storks")
        raised = engine.write(OPERATOR, refused)
        _, refusal, _ = await asyncio.gather(saves[0], raised, saves[1], return_exceptions=True)
        assert isinstance(refusal, Busy)

    run(postgresql, test, committed=lambda count, _: commits.append(count))
    assert commits == [1, 2]


def test_a_text_that_cannot_be_stored_as_it_is_keeps_nothing_from_others(postgresql: str) -> None:
    contents = ["herons", "a\0nul", r"no\u0000nul", "storks"]

    async def test(engine: PostgresEngine) -> None:
        saved = await saved_together(engine, *contents)
        assert [it.action for it in saved] == ["created"] * 4
        for it, content in zip(saved, contents, strict=True):
            stored = await engine.read(
                OPERATOR, lambda tx, id_: tx[MemoryTable].get(id_), it.memory.id
            )
            assert stored is not None
            assert (stored.text.content == content) is ("\0" not in content)

    run(postgresql, test)


def test_what_is_no_exception_is_raised_to_those_who_share_it(postgresql: str) -> None:
    """Else they would wait for ever, and so would who comes after them."""

    class Torn(BaseException):
        pass

    async def test(engine: PostgresEngine) -> None:
        for error in (Torn(), asyncio.CancelledError(), Torn()):
            works = [raising(error), saving("two")]
            answers = await together(cast("SqliteEngine", engine), works)
            assert [type(it) for it in answers] == [type(error)] * 2
        assert await engine.write(OPERATOR, saving("three")) == "three"

    run(postgresql, test)


COMMITTING = f"""
SET search_path TO "{schema_of(DEFAULT_TENANT)}";
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER committing AFTER INSERT ON memories
       DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()"""
WAITING = """SELECT 1
               FROM pg_locks l
               JOIN pg_database d ON d.oid = l.database
              WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"""


def test_a_smaller_group_is_made_while_the_one_before_it_commits(postgresql: str) -> None:
    async def test(engine: PostgresEngine) -> None:
        def save(number: int) -> asyncio.Task[Any]:
            space = Space(project=Project(f"p{number}"))
            one = replace(draft("herons"), session=SessionId(f"s{number}"), space=space)
            return asyncio.create_task(engine.write(OPERATOR, memories.save, one, timedelta()))

        with psycopg.connect(postgresql, autocommit=True) as stranger:
            stranger.execute(COMMITTING.encode())
            stranger.execute("SELECT pg_advisory_lock(7)")
            saving = [save(0), save(1)]  # together
            for groups in (1, 2):
                await asyncio.to_thread(
                    until, lambda it=groups: len(stranger.execute(WAITING).fetchall()) == it
                )
                saving.append(save(groups + 1))
        await asyncio.gather(*saving)

    run(postgresql, test)


COUNTING = """SELECT 1
                FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event = 'transactionid'"""


def test_saves_of_two_sessions_into_a_project_wait_for_each_other_at_its_count_alone(
    postgresql: str,
) -> None:
    async def test(engine: PostgresEngine) -> None:
        def save(number: int) -> asyncio.Task[Any]:
            one = replace(draft(f"herons {number}"), session=SessionId(f"s{number}"))
            return asyncio.create_task(engine.write(OPERATOR, memories.save, one, timedelta()))

        for number in (3, 4):  # the project is there, and the second one sees it
            await save(number)
        with psycopg.connect(postgresql, autocommit=True) as stranger:
            stranger.execute(COMMITTING.encode())
            stranger.execute("SELECT pg_advisory_lock(7)")
            saving = []
            for number, waits in enumerate((WAITING, COUNTING), start=1):
                saving.append(save(number))
                await asyncio.to_thread(until, lambda it=waits: stranger.execute(it).fetchall())
        await asyncio.gather(*saving)
        area = max(await engine.maintenance.drifts(OPERATOR))
        assert await engine.maintenance.is_exact(OPERATOR, area)

    run(postgresql, test)


def test_what_is_saved_after_a_rename_in_a_group_is_of_the_old_name(postgresql: str) -> None:
    old, new = Project("demo"), Project("other")

    async def test(engine: PostgresEngine) -> None:
        works: list[Work] = [saving("one"), lambda tx: rename(tx, old, new), saving("two")]
        first, _, last = await together(cast("SqliteEngine", engine), works)
        assert (first, last) == ("one", "two")
        for project in (old, new):
            assert await engine.read(OPERATOR, lambda tx, it: tx[MemoryTable].count(it), project)

    run(postgresql, test)


def test_what_waits_for_the_index_beside_a_rebuild_is_counted_once(postgresql: str) -> None:
    async def test(engine: PostgresEngine) -> None:
        await engine.write(OPERATOR, saving("one"))
        area = max(await engine.maintenance.drifts(OPERATOR))
        rebuild = await engine.write(OPERATOR, lambda tx: tx.index.begin_rebuild(area))
        portion = await engine.read(OPERATOR, lambda tx: tx.index.portion(area, FIRST))
        rest = cast("Work", lambda tx: tx.index.rebuild(rebuild, portion))
        wordless = replace(draft("..."), session=SessionId("t"))  # no word of it is there twice
        works = [lambda tx: memories.save(tx, wordless, timedelta()), rest]
        _, goes_on = await together(cast("SqliteEngine", engine), works)
        assert goes_on is False
        assert (await engine.maintenance.drifts(OPERATOR))[area] == 0

    run(postgresql, test)


def test_who_missed_groups_waits_for_its_project_with_others(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself each would hold a connection meanwhile."""
    monkeypatch.setattr(transaction, "LONGEST", timedelta(0))  # of a group one is made
    sizes, began, write = list[int](), threading.Event(), Transactions.write
    number = number_of(schema_of(DEFAULT_TENANT), "project", "demo")

    def noted(self: Transactions, lock: Lock, *rest: Any) -> Any:
        if lock.project is not None:
            sizes.append(len(rest[0]))
            began.set()
        return write(self, lock, *rest)

    async def test(engine: PostgresEngine) -> None:
        with psycopg.connect(postgresql) as stranger:
            stranger.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            drafts = [draft(f"herons {it}") for it in range(4)]
            writing = [
                asyncio.create_task(engine.write(OPERATOR, memories.save, it, timedelta()))
                for it in drafts
            ]
            await asyncio.to_thread(began.wait, SOON)
        await asyncio.gather(*writing)

    monkeypatch.setattr(Transactions, "write", noted)
    run(postgresql, test)
    assert sizes == [4, 3, 2, 1]


def test_what_its_caller_has_left_keeps_its_connection_until_it_ends(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, free = threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        began.set()
        assert free.wait(SOON)

    async def test(engine: PostgresEngine) -> None:
        left = asyncio.create_task(engine.read(OPERATOR, work))
        await asyncio.to_thread(began.wait, SOON)
        await cancel(left)
        monkeypatch.setattr(transaction, "MAX_WAIT", timedelta(milliseconds=10))
        with pytest.raises(Busy):
            await engine.read(OPERATOR, lambda _: None)
        free.set()
        monkeypatch.setattr(transaction, "MAX_WAIT", timedelta(seconds=SOON))
        assert await engine.read(OPERATOR, lambda _: "done") == "done"

    try:
        run(postgresql, test, size=1)
    finally:
        free.set()


@asynccontextmanager
async def at_work(engine: PostgresEngine, caller: Caller = OPERATOR) -> AsyncIterator[None]:
    """A write of the caller's tenant has a connection until the end."""
    began, free = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(_: Transaction) -> None:
        loop.call_soon_threadsafe(began.set)
        assert free.wait(SOON)

    writing = asyncio.create_task(engine.write(caller, work))
    try:
        await began.wait()
        yield
    finally:
        free.set()
        await writing


def test_one_that_has_waited_for_too_long_is_refused_without_those_behind_it(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would share a commit, for which there is no connection."""
    other = Caller(tenant=TenantId("acme"))

    async def test(engine: PostgresEngine) -> None:
        async with AsyncExitStack() as stack:
            async with at_work(engine):
                other_works = asyncio.create_task(stack.enter_async_context(at_work(engine, other)))
                await turns(5)
                monkeypatch.setattr(transaction, "MAX_WAIT", timedelta(milliseconds=200))
                first = asyncio.create_task(engine.write(OPERATOR, saving("first")))
                await turns(5)
                monkeypatch.setattr(transaction, "MAX_WAIT", timedelta(seconds=SOON))
                second = asyncio.create_task(engine.write(OPERATOR, saving("second")))
                await turns(5)
            await other_works
            with pytest.raises(Busy):
                await first
            assert not second.done()
        assert await second == "second"

    run(postgresql, test, size=1)


def test_what_its_caller_has_left_before_it_began_is_not_made(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LONGEST", timedelta(0))  # of a group one is made
    began, free = threading.Event(), threading.Event()

    def waiting(_: Transaction) -> None:
        began.set()
        assert free.wait(SOON)

    async def test(engine: PostgresEngine) -> None:
        async with at_work(engine):
            first = asyncio.create_task(engine.write(OPERATOR, waiting))
            second = asyncio.create_task(engine.write(OPERATOR, saving("for nobody")))
            await turns(5)
        await asyncio.to_thread(began.wait, SOON)
        second.cancel()
        await asyncio.wait((second,))
        free.set()
        await first
        await engine.write(OPERATOR, saving("the next"))
        assert await engine.read(OPERATOR, lambda tx: tx[MemoryTable].count(None)) == 1

    run(postgresql, test)
