"""What probes are told, and that they are told the truth."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.responses import JSONResponse

from agentops_memory.compose import PROTOCOLS
from agentops_memory.engine.engine import Storage
from agentops_memory.engine.maintenance import Condition, Sizes
from agentops_memory.http import middleware as health
from agentops_memory.http.middleware import StartupGate
from agentops_memory.memory.access import Caller, TenantId
from agentops_memory.sqlite.tenants import tenant_file
from agentops_memory.telemetry import Telemetry
from agentops_memory.telemetry.metrics import INDEX_DRIFT

from ..cli.test_start import starting
from ..sqlite.test_locking import save
from ..support.callers import calling, made_key
from ..support.engine import locked
from ..support.files import disk
from ..support.process import served, stored, until
from ..support.service import PLAIN, Service, observation, serving

NAMES = ["database", "migrations", "disk", "wal", "index"]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))
    with serving(tmp_path / "memory.db") as running:
        yield running


def ready(http: httpx.Client) -> tuple[int, Any]:
    answer = http.get("/health/ready")
    return answer.status_code, answer.json()


@pytest.mark.sqlite_files
def test_all_is_well(service: Service) -> None:
    for path in ("/health", "/health/live", "/health/startup"):
        answer = service.http.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    status, found = ready(service.http)

    assert (status, found["status"], list(found["checks"])) == (200, "ok", NAMES)
    assert {check["status"] for check in found["checks"].values()} == {"ok"}
    assert found["checks"]["disk"]["bytes"] > 0
    wal = service.path.with_name(f"{service.path.name}-wal")
    assert found["checks"]["wal"]["bytes"] == wal.stat().st_size
    assert found["checks"]["index"]["rows"] == 0


@pytest.mark.sqlite_files
def test_each_look_writes_to_the_disk(service: Service) -> None:
    first, second = (ready(service.http)[1]["checks"]["wal"]["bytes"] for _ in range(2))

    assert first < second


def test_to_ask_leaves_the_memories_alone(service: Service) -> None:
    service.save("apple")
    before = service.http.get("/export").content

    for _ in range(3):
        assert ready(service.http)[0] == 200

    assert service.http.get("/export").content == before


@pytest.mark.sqlite_files
def test_a_write_that_takes_too_long_is_no_readiness(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TIMEOUT", timedelta(milliseconds=50))
    with locked(service.path):
        status, found = ready(service.http)
        assert service.http.get("/health/live").status_code == 200
        assert service.http.get("/stats").status_code == 200

    assert (status, found["status"]) == (503, "failed")
    assert found["checks"]["database"]["status"] == "failed"
    assert found["error"] == found["checks"]["database"]["detail"]
    assert found["checks"]["migrations"] == {"status": "ok"}
    monkeypatch.setattr(health, "TIMEOUT", timedelta(seconds=30))
    assert ready(service.http)[0] == 200


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_full_disk_is_no_readiness_until_there_is_space_again(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", size=4 << 20) as folder, served(folder / "memory.db") as (_, http):
        http.post("/observations", json=observation("apple")).raise_for_status()
        ballast = folder / "ballast"
        with pytest.raises(OSError, match="No space left"):
            ballast.write_bytes(bytes(4 << 20))
        status, found = ready(http)
        assert (status, found["status"]) == (503, "failed")
        assert found["checks"]["disk"]["status"] == "failed"
        assert http.get("/context?project=demo").status_code == 200
        ballast.unlink()
        until(lambda: ready(http)[0] == 200)


@pytest.mark.sqlite_files
def test_a_file_that_a_newer_program_has_changed_is_no_readiness(service: Service) -> None:
    with closing(sqlite3.connect(service.path)) as other:
        other.execute("PRAGMA user_version = 999")
        status, found = ready(service.http)
        assert (status, found["checks"]["migrations"]["status"]) == (503, "failed")
        assert found["checks"]["database"] == {"status": "ok"}


@pytest.mark.sqlite_files
def test_to_ask_writes_only_what_is_there(service: Service) -> None:
    with closing(sqlite3.connect(service.path)) as other:
        other.execute("PRAGMA application_id = 5")

        assert ready(service.http)[1]["checks"]["migrations"]["status"] == "failed"

        assert other.execute("PRAGMA application_id").fetchone() == (5,)


def deleted(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    shutil.copy(file, file.with_name("another"))
    file.with_name("another").replace(file)


def folder_gone(file: Path) -> None:
    shutil.rmtree(file.parent)


@pytest.mark.representative(2)
@pytest.mark.sqlite_files
@pytest.mark.parametrize("harm", [deleted, replaced, folder_gone])
def test_a_file_that_is_not_in_its_place_any_more_is_no_readiness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))
    with serving(tmp_path / "data" / "memory.db") as service:
        assert ready(service.http)[0] == 200
        harm(service.path)

        status, found = ready(service.http)

        assert (status, found["checks"]["database"]["status"]) == (503, "failed")
        assert found["error"] == "The database file is gone, or another one is in its place."
        told = "failed" if harm is folder_gone else "ok"
        assert found["checks"]["disk"]["status"] == told
        assert "full" not in found["checks"]["disk"].get("detail", "")
        assert service.http.get("/metrics").status_code == 200


@pytest.mark.representative(2)
@pytest.mark.sqlite_files
@pytest.mark.parametrize("harm", [deleted, replaced, folder_gone])
def test_a_save_into_a_file_that_is_not_in_its_place_is_refused_and_reads_go_on(
    service: Service, harm: Callable[[Path], None]
) -> None:
    service.save("before")
    harm(service.path)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: save(service, f"lost {n}"), range(32)))
        read = list(threads.map(lambda _: service.http.get("/stats").json(), range(32)))

    told = {"error": "The database file is gone, or another one is in its place."}
    assert [(answer.status_code, answer.json()) for answer in answers] == [(503, told)] * 32
    assert {answer.headers["Retry-After"] for answer in answers} == {"1"}
    assert [it.get("total_observations") for it in read] == [1] * 32  # whichever reader answers
    if harm is replaced:
        assert list(stored(service.path)) == ["before"]


@pytest.mark.sqlite_files
@pytest.mark.parametrize(
    ("bound", "check", "status"),
    [
        ("LITTLE", "disk", "warning"), ("NOTHING", "disk", "failed"), ("LONG", "wal", "warning"),
    ],
)  # fmt: skip
def test_what_nears_its_end_is_told(
    service: Service, monkeypatch: pytest.MonkeyPatch, bound: str, check: str, status: str
) -> None:
    monkeypatch.setattr(health, bound, 0 if bound == "LONG" else 1 << 62)

    code, found = ready(service.http)

    assert (code, found["status"]) == (503 if status == "failed" else 200, status)
    assert found["checks"][check]["status"] == status
    assert found["checks"][check]["detail"].endswith(".")
    assert ("error" in found) == (status == "failed")


@pytest.mark.sqlite_files
def test_a_warning_hides_no_failure(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LONG", 0)
    with closing(sqlite3.connect(service.path)) as other:
        other.execute("PRAGMA user_version = 999")
        status, found = ready(service.http)

    assert (status, found["status"]) == (503, "failed")
    assert found["checks"]["wal"]["status"] == "warning"
    assert found["error"] == found["checks"]["migrations"]["detail"]


@pytest.mark.sqlite_files
def test_an_index_that_was_out_of_line_is_told(path: Path) -> None:
    telemetry = Telemetry.started(None)
    with serving(path, telemetry=telemetry) as service:
        telemetry.metrics.show(INDEX_DRIFT, 3)

        status, found = ready(service.http)

    assert (status, found["status"]) == (200, "warning")
    assert (found["checks"]["index"]["status"], found["checks"]["index"]["rows"]) == ("warning", 3)


@pytest.mark.sqlite_files
def test_however_often_it_is_asked_it_is_looked_once_in_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(hours=1))
    with serving(path) as service:

        async def ask() -> list[int]:
            async with httpx.AsyncClient(base_url=service.url, verify=PLAIN) as http:
                answers = await asyncio.gather(*(http.get("/health/ready") for _ in range(20)))
            return [answer.status_code for answer in answers]

        assert asyncio.run(ask()) == [200] * 20
        text = service.http.get("/metrics").text
    assert "\nmemory_commit_batch_size_sum 1.0\n" in text


@pytest.mark.sqlite_files
def test_what_is_looked_at_is_the_database_of_the_default_tenant(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))
    with serving(path) as service:
        with calling(service, made_key(service.path, tenant="acme")) as client:
            client.post("/observations", json=observation("apple")).raise_for_status()

        wal = ready(service.http)[1]["checks"]["wal"]["bytes"]

        log = service.path.with_name(f"{service.path.name}-wal")
        others = tenant_file(service.path, TenantId("acme")).with_name("acme.db-wal")
        assert wal == log.stat().st_size != others.stat().st_size


async def test_those_who_wait_for_a_slow_look_are_told_what_it_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    class SlowDisk:
        @property
        def maintenance(self) -> "SlowDisk":
            return self

        has_files = True

        async def sizes(self, _: Caller) -> Sizes:
            return Sizes(database=0, log=0, free=None)

        async def probe(self) -> Condition:
            nonlocal looks
            looks += 1
            await asyncio.sleep(0)
            return Condition()

    loop = asyncio.get_running_loop()
    clock, late = loop.time, health.RESULT_LIFETIME.total_seconds() + 0.5
    monkeypatch.setattr(loop, "time", lambda: clock() + looks * late)
    probes = health.Probes(
        storage=cast("Storage", SlowDisk()), metrics=Telemetry.started(None).metrics
    )
    await asyncio.gather(*(probes.readiness() for _ in range(3)))
    assert looks == 1


@pytest.mark.sqlite_files
def test_while_it_starts_it_is_alive_and_neither_started_nor_ready(path: Path) -> None:
    with starting(path) as (process, http, lock):
        assert http.get("/health/live").status_code == 200
        startup = http.get("/health/startup")
        assert (startup.status_code, startup.json()["error"]) == (503, "The service is starting.")
        status, found = ready(http)
        assert (status, found["status"], list(found["checks"])) == (503, "failed", ["migrations"])
        lock.close()
        process.line("serving")

        assert http.get("/health/startup").status_code == 200
        assert ready(http)[0] == 200


def test_while_it_drains_it_is_alive_but_not_ready() -> None:
    gate = StartupGate(PROTOCOLS)
    gate.open(JSONResponse({"status": "ok"}), lambda *_: b"answered in front")
    assert gate.early(b"/health", [], b"", "") == b"answered in front"
    gate.drain()
    assert gate.early(b"/health", [], b"", "") is None

    async def ask() -> dict[str, int]:
        transport = httpx.ASGITransport(gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://gate") as http:
            paths = ["/health", "/health/live", "/health/ready"]
            return {path: (await http.get(path)).status_code for path in paths}

    expected = {"/health": 503, "/health/live": 200, "/health/ready": 503}
    assert asyncio.run(ask()) == expected
