"""What is looked up of the service when somebody asks: sizes, rows, lines, and the loop."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from agentops_memory.engine import engine as ports
from agentops_memory.engine.engine import RowCounts, Sizes
from agentops_memory.errors import Unavailable
from agentops_memory.jobs import schedule as figures
from agentops_memory.jobs.jobs import background
from agentops_memory.memory.access import OPERATOR, Caller, TenantId
from agentops_memory.sqlite.tenants import tenant_file
from agentops_memory.telemetry import Telemetry, metrics as m

from ..support.callers import calling, made_key
from ..support.engine import locked, turns
from ..support.engines import rows
from ..support.measures import key, measured
from ..support.process import until
from ..support.service import Service, observation, serving


class Storage:
    """A database without a file, which notes how often its rows are counted."""

    waiting = 0
    counts = 0

    def callers(self) -> list[Caller]:
        return [OPERATOR]

    @property
    def maintenance(self) -> "Storage":
        return self

    async def sizes(self, _: Caller) -> Sizes:
        return Sizes(database=0, log=0, free=None)

    async def count(self, _: Caller) -> RowCounts:
        self.counts += 1
        await asyncio.sleep(0)
        return RowCounts(*[0] * len(RowCounts._fields))


@pytest.fixture
def _counted_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are counted whenever they are asked for."""
    monkeypatch.setattr(figures, "COUNTED_FOR", timedelta(0))
    monkeypatch.setattr(figures, "COUNT_PAUSE", 0)


@pytest.mark.sqlite_files
def test_sizes_rows_and_commits_are_those_of_the_database(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "COUNTED_FOR", timedelta(0))
    first = service.save("apple")["id"]
    service.save("banana", session_id="another")
    service.http.patch(f"/observations/{first}", json={"content": "cherry"}).raise_for_status()
    service.http.post("/sessions/another/end").raise_for_status()
    service.http.delete("/observations/2").raise_for_status()

    seen = measured(service)

    ((revisions,),) = rows(service.path, "SELECT count(*) FROM revisions")
    assert [seen[key("memory_rows", table=it)] for it in ("memories", "sessions")] == [2, 2]
    assert seen[key("memory_rows", table="revisions")] == revisions > 2
    assert seen[key("memory_sessions_open")] == 1
    assert seen[key("memory_tenants_open")] == 1
    wal = service.path.with_name(f"{service.path.name}-wal")
    assert seen[key("memory_database_bytes")] == service.path.stat().st_size
    assert seen[key("memory_wal_bytes")] == wal.stat().st_size > 0
    assert seen[key("memory_disk_free_bytes")] > 0
    assert seen[key("memory_write_queue_depth")] == 0
    assert seen[key("memory_commit_batch_size_sum")] == 5
    assert seen[key("memory_commit_seconds_count")] == seen[key("memory_commit_batch_size_count")]


@pytest.mark.usefixtures("_counted_each_time")
def test_pins_and_reviews_are_those_of_live_memories(service: Service) -> None:
    service.save("apple", pinned=True)
    service.save("banana", pinned=True, review_at="2030-01-01T12:00:01Z", ttl=60)
    service.save("cherry", review_at="2030-01-01T12:00:02Z")
    service.http.delete(f"/observations/{service.save('date', pinned=True)['id']}")

    def seen() -> tuple[float, float]:
        measures = measured(service)
        return measures[key("memory_pinned")], measures[key("memory_reviews_due")]

    assert seen() == (2, 0)
    service.clock.advance(seconds=1)
    assert seen() == (2, 1)
    service.clock.advance(seconds=1)
    assert seen() == (2, 2)
    service.clock.advance(seconds=58)
    assert seen() == (1, 1)


@pytest.mark.sqlite_files
def test_what_is_told_of_databases_is_of_all_that_are_open(path: Path) -> None:
    with serving(path) as service:
        for tenant in ("default", "acme"):
            with calling(service, made_key(service.path, tenant=tenant)) as client:
                client.post("/observations", json=observation("apple")).raise_for_status()
        with calling(service, made_key(service.path, "reader")) as client:
            seen = measured(service, client)

        assert seen[key("memory_tenants_open")] == 2
        assert seen[key("memory_rows", table="memories")] == 2
        assert seen[key("memory_sessions_open")] == 2
        files = [service.path, tenant_file(service.path, TenantId("acme"))]
        assert seen[key("memory_database_bytes")] == sum(it.stat().st_size for it in files)
        logs = [it.with_name(f"{it.name}-wal").stat().st_size for it in files]
        assert seen[key("memory_wal_bytes")] == sum(logs) > max(logs)


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_writes_wait_in_the_line_of_their_tenant_and_count_all_the_same(path: Path) -> None:
    with serving(path) as service:
        token = made_key(service.path, tenant="acme")
        with (
            calling(service, made_key(service.path, "reader")) as scraper,
            calling(service, token) as client,
            ThreadPoolExecutor(1) as pool,
        ):
            client.get("/stats").raise_for_status()
            with locked(tenant_file(service.path, TenantId("acme"))):
                saved = pool.submit(client.post, "/observations", json=observation("apple"))
                until(lambda: measured(service, scraper)[key("memory_write_queue_depth")] == 1)
            assert saved.result().status_code == 201


async def test_those_who_ask_together_or_soon_have_rows_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "COUNT_PAUSE", 0)
    storage = Storage()

    looked_up = figures.Figures(cast("ports.Storage", storage), Telemetry.started(None).metrics)
    await asyncio.gather(*(looked_up.refresh() for _ in range(3)))
    await looked_up.refresh()
    assert storage.counts == 1


@pytest.mark.usefixtures("_counted_each_time")
def test_rows_that_cannot_be_counted_now_stay_what_they_were(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen() -> float:
        return measured(service)[key("memory_rows", table="memories")]

    service.save("apple")
    assert seen() == 1
    service.save("banana")
    with monkeypatch.context() as slow:
        slow.setattr(figures, "COUNT_TIMEOUT", timedelta(0))
        measured(service)
        assert seen() == 1
    rows(service.path, "ALTER TABLE revisions RENAME TO elsewhere")
    assert seen() == 1


def test_a_count_that_took_long_is_not_repeated_soon(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "COUNTED_FOR", timedelta(0))
    counted: list[float] = []
    for rest in (0, 1e9, 0):
        monkeypatch.setattr(figures, "COUNT_PAUSE", rest)
        service.save(f"apple {len(counted)}")
        counted.append(measured(service)[key("memory_rows", table="memories")])

    assert counted == [1, 2, 2]


@pytest.mark.usefixtures("_counted_each_time")
async def test_what_is_looked_up_is_kept_fresh_for_a_collector_also_after_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage, metrics = Storage(), Telemetry.started(None).metrics

    async def unreachable(_: Caller) -> Sizes:
        raise Unavailable("The database cannot be reached now.")

    async with background(figures.Figures(cast("ports.Storage", storage), metrics).keep_fresh()):
        await turns(20)
        assert storage.counts > 1
        assert metrics.value_of(m.TENANTS_OPEN) == 1
        with monkeypatch.context() as outage:
            outage.setattr(storage, "sizes", unreachable)
            await turns(20)
        before = storage.counts
        await turns(20)
        assert storage.counts > before


def test_the_event_loop_is_looked_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "LOOK", timedelta(0))
    with serving(path) as service:
        until(lambda: measured(service)[key("memory_event_loop_lag_seconds_count")] > 0)


async def test_an_event_loop_that_is_held_up_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "LOOK", timedelta(0))
    telemetry, hour = Telemetry.started(None), timedelta(hours=1).total_seconds()
    seen = telemetry.exposition()

    loop = asyncio.get_running_loop()
    clock = loop.time
    async with background(figures.watch_the_loop(telemetry.metrics)):
        await asyncio.sleep(0)  # it has noted when it is due
        monkeypatch.setattr(loop, "time", lambda: clock() + hour)
        await asyncio.sleep(0)
    lags = re.findall(r"\nmemory_event_loop_lag_seconds_sum (.*)\n", seen("")[0].decode())
    assert float(lags[0]) >= hour
