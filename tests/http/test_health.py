"""What probes are told, and that they are told the truth."""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from agentops_memory.engine.engine import Condition
from agentops_memory.http import app as health
from agentops_memory.memory.access import TenantId
from agentops_memory.sqlite.tenants import tenant_file
from agentops_memory.telemetry import Telemetry
from agentops_memory.telemetry.metrics import INDEX_DRIFT

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
def test_all_is_well_and_each_look_writes_to_the_disk_and_to_no_memory(service: Service) -> None:
    service.save("apple")
    before = service.http.get("/export").content
    for path in ("/health", "/health/live", "/health/startup"):
        answer = service.http.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    (status, first), (_, found) = ready(service.http), ready(service.http)

    assert (status, found["status"], list(found["checks"])) == (200, "ok", NAMES)
    assert {check["status"] for check in found["checks"].values()} == {"ok"}
    assert found["checks"]["disk"]["bytes"] > 0
    wal = service.path.with_name(f"{service.path.name}-wal")
    assert first["checks"]["wal"]["bytes"] < found["checks"]["wal"]["bytes"] == wal.stat().st_size
    assert found["checks"]["index"]["rows"] == 0
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
def test_a_file_that_another_program_has_changed_is_no_readiness_and_no_warning_hides_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LONG_LOG", 0)
    for pragma, value, database in (("user_version", 999, "ok"), ("application_id", 5, "ok")):
        with closing(sqlite3.connect(service.path)) as other:
            ((before,),) = other.execute(f"PRAGMA {pragma}")
            other.execute(f"PRAGMA {pragma} = {value}")
            status, found = ready(service.http)
            # To ask writes only what is there.
            assert other.execute(f"PRAGMA {pragma}").fetchone() == (value,)
            other.execute(f"PRAGMA {pragma} = {before}")

        states = {name: found["checks"][name]["status"] for name in ("migrations", "wal")}
        assert (status, found["status"]) == (503, "failed")
        assert states == {"migrations": "failed", "wal": "warning"}
        assert found["error"] == found["checks"]["migrations"]["detail"]
        assert found["checks"]["database"]["status"] == database
    assert ready(service.http)[0] == 200


GONE = "The database file is gone, or another one is in its place."


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.sqlite_files
@pytest.mark.parametrize("harm", ["deleted", "replaced", "folder gone"])
def test_a_file_that_is_not_in_its_place_any_more_is_no_readiness_and_takes_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))
    with serving(tmp_path / "data" / "memory.db") as service:
        service.save("before")
        assert ready(service.http)[0] == 200
        if harm == "replaced":
            shutil.copy(service.path, tmp_path / "another")
            (tmp_path / "another").replace(service.path)
        elif harm == "deleted":
            service.path.unlink()
        else:
            shutil.rmtree(service.path.parent)

        status, found = ready(service.http)
        saved = save(service, "lost")

        assert (status, found["checks"]["database"]["status"]) == (503, "failed")
        assert found["error"] == GONE
        disk = found["checks"]["disk"]
        assert disk["status"] == ("failed" if harm == "folder gone" else "ok")
        assert "full" not in disk.get("detail", "")
        assert service.http.get("/metrics").status_code == 200
        assert (saved.status_code, saved.json(), saved.headers["Retry-After"]) == (
            503, {"error": GONE}, "1",
        )  # fmt: skip
        assert service.http.get("/stats").json()["total_observations"] == 1
        assert harm != "replaced" or list(stored(service.path)) == ["before"]


@pytest.mark.sqlite_files
def test_what_nears_its_end_is_told(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound, value, check, status in (
        ("LOW_SPACE", 1 << 62, "disk", "warning"), ("NO_SPACE", 1 << 62, "disk", "failed"),
        ("LONG_LOG", 0, "wal", "warning"),
    ):  # fmt: skip
        with monkeypatch.context() as patched:
            patched.setattr(health, bound, value)
            code, found = ready(service.http)

        assert (code, found["status"]) == (503 if status == "failed" else 200, status)
        assert found["checks"][check]["status"] == status
        assert found["checks"][check]["detail"].endswith(".")
        assert ("error" in found) == (status == "failed")


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

    async def probe() -> Condition:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        return Condition()

    loop = asyncio.get_running_loop()
    clock, late = loop.time, health.RESULT_LIFETIME.total_seconds() + 0.5
    monkeypatch.setattr(loop, "time", lambda: clock() + looks * late)
    slow: Any = SimpleNamespace(maintenance=SimpleNamespace(has_files=False), probe=probe)
    probes = health.Probes(storage=slow, metrics=Telemetry.started(None).metrics)
    await asyncio.gather(*(probes.readiness() for _ in range(3)))
    assert looks == 1
