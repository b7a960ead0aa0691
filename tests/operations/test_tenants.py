"""A tenant is a database of its own: opened when it is asked for, closed when it is not."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Busy, NotFound, Unavailable
from agentops_memory.jobs.schedule import counted
from agentops_memory.memory.access import OPERATOR, Caller, KeyId, TenantId
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.saves import save
from agentops_memory.sqlite import SqliteEngine, engine as engines
from agentops_memory.sqlite.engine import Engines, TenantsEngine
from agentops_memory.sqlite.tenants import remove, tenant_file

from ..support.callers import calling, made_key
from ..support.engine import draft
from ..support.service import START, observation, serving

ACME, OTHER, THIRD = (
    Caller(tenant=TenantId(name), key=KeyId("of a caller")) for name in ("acme", "other", "third")
)


ENGINES = partial(SqliteEngine.opened, clock=lambda: START)


@asynccontextmanager
async def opened(
    path: Path, *, engines: Engines = ENGINES, has_key: Callable[[TenantId], bool] = lambda _: True,
    most: int = 16, idle: timedelta = timedelta(minutes=5),
) -> AsyncIterator[TenantsEngine]:  # fmt: skip
    async with TenantsEngine.opened(path, engines, has_key=has_key, most=most, idle=idle) as engine:
        yield engine


class Slow:
    """A read that takes as long as a test wants it to."""

    def __init__(self) -> None:
        self._began, self._goes_on = threading.Event(), threading.Event()

    def _read(self, tx: Transaction) -> int:
        self._began.set()
        assert self._goes_on.wait(60)
        return tx[MemoryTable].count(None)

    @asynccontextmanager
    async def reading(self, engine: TenantsEngine, caller: Caller) -> AsyncIterator[None]:
        task = asyncio.create_task(engine.read(caller, self._read))
        await asyncio.to_thread(self._began.wait)
        yield
        self._goes_on.set()
        assert isinstance(await task, int)


async def saved(engine: TenantsEngine, caller: Caller, content: str = "apple") -> None:
    await engine.write(caller, save, draft(content), timedelta())


async def count(engine: TenantsEngine, caller: Caller) -> int:
    return await engine.read(caller, lambda tx: tx[MemoryTable].count(None))


def held_open(folder: Path) -> list[str]:
    """The databases of a folder that this process has open, by name."""
    links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    targets = {Path(_target(link)) for link in links}
    return sorted(it.name for it in targets if it.suffix == ".db" and it.is_relative_to(folder))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # the one that lists
        return ""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is awaited is another's doing
            await asyncio.sleep(0.005)


@pytest.mark.slow
def test_the_tenant_is_the_keys_whatever_a_request_says(path: Path) -> None:
    with serving(path) as service:
        with calling(service, made_key(service.path)) as default:
            default.post("/observations", json=observation("apple"))
        with calling(service, made_key(service.path, tenant="acme")) as client:
            for answer in [
                client.get("/stats?tenant=default"),
                client.get("/stats", headers={"x-tenant": "default", "x-memory-tenant": "default"}),
            ]:
                assert answer.json()["total_observations"] == 0
            body: dict[str, Any] = observation("pear") | {"tenant": "default"}
            client.post("/observations", json=body)
            assert client.get("/stats").json()["total_observations"] == 1


@pytest.mark.slow
async def test_a_database_is_closed_once_nobody_uses_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db", idle=timedelta()) as engine:
        await saved(engine, ACME)
        async with Slow().reading(engine, ACME):
            assert await count(engine, ACME) == 1
            assert "acme.db" in held_open(tmp_path)
        await until(lambda: held_open(tmp_path) == ["memory.db"])
        assert await count(engine, ACME) == 1
    assert held_open(tmp_path) == []


@pytest.mark.slow
async def test_databases_share_a_few_places_and_the_one_not_used_for_longest_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, everybody = tmp_path / "memory.db", (OPERATOR, ACME, OTHER, THIRD)
    async with opened(path, most=1) as engine:
        await saved(engine, OPERATOR)
        for caller in (ACME, OTHER, ACME, THIRD, OTHER):
            await saved(engine, caller)
            assert held_open(tmp_path) == sorted([f"{caller.tenant}.db", "memory.db"])
        await asyncio.gather(*(saved(engine, caller) for caller in everybody[1:] * 3))
        assert [await count(engine, caller) for caller in everybody] == [1, 5, 5, 4]
        async with Slow().reading(engine, ACME):
            with monkeypatch.context() as hurried:
                hurried.setattr(engines, "OPENING_TIMEOUT", timedelta(milliseconds=50))
                with pytest.raises(Busy):
                    await count(engine, OTHER)
        broken = Caller(tenant=TenantId("broken"), key=ACME.key)
        tenant_file(path, broken.tenant).write_text("no database" * 1000)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await count(engine, broken)
            assert await count(engine, OTHER) == 5  # its place is free again
    assert "a tenant's database cannot be opened" in caplog.messages
    async with opened(path, most=2) as engine:
        for caller in (ACME, OTHER, ACME, THIRD):
            await count(engine, caller)
        assert held_open(tmp_path) == ["acme.db", "memory.db", "third.db"]


def test_a_log_that_a_program_makes_while_a_database_is_removed_does_not_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, unlink = tenant_file(path, ACME.tenant), Path.unlink
    log = file.with_name(f"{file.name}-wal")
    file.parent.mkdir(exist_ok=True)
    file.touch()

    def meanwhile(it: Path, missing_ok: bool = False) -> None:
        if it == file:
            log.touch()
        unlink(it, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", meanwhile)
    remove(file)
    assert list(file.parent.iterdir()) == []


@pytest.mark.slow
async def test_a_database_is_made_only_while_the_tenant_has_a_key(path: Path) -> None:
    keys = {ACME.tenant, OTHER.tenant}

    async with opened(path, has_key=keys.__contains__, most=1) as engine:
        await saved(engine, ACME)
        remove(tenant_file(path, ACME.tenant))
        async with Slow().reading(engine, OTHER):
            waiting = asyncio.create_task(saved(engine, ACME))  # for a place
            await asyncio.sleep(0)
            keys.remove(ACME.tenant)
        with pytest.raises(NotFound):
            await waiting
        with pytest.raises(NotFound):
            await saved(engine, ACME)
        assert not tenant_file(path, ACME.tenant).exists()
        keys.clear()
        assert await count(engine, Caller(tenant=OTHER.tenant)) == 0  # it is still looked after


async def test_one_who_leaves_stops_nobody_elses_opening(path: Path) -> None:
    async with opened(path) as engine:
        leaving = asyncio.create_task(count(engine, ACME))
        await asyncio.sleep(0)
        staying = asyncio.create_task(count(engine, ACME))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == 0


@pytest.mark.slow
async def test_to_count_rows_does_not_keep_a_database_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, passed = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + passed)
    async with opened(path, idle=timedelta(hours=3)) as engine:
        await saved(engine, ACME)
        for _ in range(2):
            assert [rows.memories for rows in await counted(engine)] == [0, 1]
            passed += 2 * 3600
        await until(lambda: len(engine.callers()) == 1)
        assert [rows.memories for rows in await counted(engine)] == [0]
