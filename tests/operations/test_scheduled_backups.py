"""The service makes backups by itself, whenever one is due, and keeps the newest of them."""

import asyncio
import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.errors import SettingRefused, Unavailable
from agentops_memory.http import app as health
from agentops_memory.jobs import schedule as backing_up
from agentops_memory.jobs.schedule import Backups
from agentops_memory.operations.backup import Archive
from agentops_memory.settings import settings
from agentops_memory.telemetry import Metrics

from ..support.archives import at
from ..support.damaged_values import NO_TEXT, damage
from ..support.files import disk
from ..support.process import until
from ..support.samples import for_each
from ..support.service import START, Clock, Service, serving

MADE, FAILED = 'memory_backups_total{outcome="made"}', 'memory_backups_total{outcome="failed"}'
LAST = "memory_backup_last_success_timestamp_seconds"
WELL = {"status": "ok"}


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("LOOK_AT_FOLDER", "LONGEST_WAIT"):
        monkeypatch.setattr(backing_up, pause, timedelta(milliseconds=5))
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


@pytest.mark.slow
def test_a_backup_is_made_whenever_the_newest_is_older_than_the_interval(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with backed_up(folder, clock, MEMORY_BACKUP_KEEP="2") as service:
        until(lambda: check(service) == WELL)
        service.save("apple")
        assert names(folder) == ["memory-20300101T120000Z.zip"]
        assert observations(folder / "memory-20300101T120000Z.zip") == 0
    clock.advance(hours=23)
    with backed_up(folder, clock, MEMORY_BACKUP_KEEP="2") as service:
        until(lambda: figure(service, LAST) == START.timestamp())
        assert figure(service, "memory_backup_interval_seconds") == 24 * 60 * 60
        assert figure(service, MADE) == 0
        clock.advance(hours=1)
        until(lambda: figure(service, MADE) == 1)
        clock.advance(days=1)
        until(lambda: figure(service, LAST) == clock.now.timestamp())
        size = figure(service, "memory_backup_bytes")
        assert (figure(service, MADE), figure(service, FAILED)) == (2, 0)

    kept = ["memory-20300102T120000Z.zip", "memory-20300103T120000Z.zip"]
    assert names(folder) == kept
    assert [observations(folder / name) for name in kept] == [1, 1]
    assert size == (folder / kept[1]).stat().st_size
    assert list(folder.glob(".*")) == []
    assert (
        "backups are on the same disk as the database and would be lost with it" in caplog.messages
    )

    monkeypatch.setattr(backing_up, "LOOK_AT_FOLDER", timedelta(hours=1))
    with backed_up(folder, clock) as service:
        until(lambda: check(service) == WELL)
        clock.advance(days=2)
        assert check(service) == WELL
        clock.advance(seconds=1)
        assert check(service) == {"status": "warning", "detail": "The newest backup is too old."}
    with backed_up(folder.parent) as service:
        assert check(service) == {"status": "warning", "detail": "There is no backup yet."}
    with backed_up(folder.parent, MEMORY_BACKUP_EVERY="0") as service:
        assert "backup" not in service.http.get("/health/ready").json()["checks"]
        assert figure(service, "memory_backup_interval_seconds") == 0


@pytest.mark.slow
def test_a_folder_that_is_away_or_full_is_told_of_once_and_used_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with disk(tmp_path / "disk", size=4 << 20) as volume:
        folder, ballast = volume / "backups", volume / "ballast"
        with serving(
            tmp_path / "memory.db", clock=clock, MEMORY_BACKUP_DIR=str(folder)
        ) as service, caplog.at_level(logging.INFO):  # fmt: skip
            until(lambda: figure(service, FAILED) >= 3)
            service.save("apple")
            assert service.http.get("/health/ready").status_code == 200
            assert check(service) == {
                "status": "warning", "detail": "The last backup failed; the log says why."
            }  # fmt: skip
            assert not folder.exists()
            folder.mkdir()
            until(lambda: check(service) == WELL)
            assert figure(service, MADE) == 1
            until(lambda: "backed up" in caplog.messages)
            told = [record for record in caplog.records if record.name == backing_up.__name__]

            ballast.write_bytes(bytes((4 << 20) - (128 << 10)))
            failed = figure(service, FAILED)
            clock.advance(days=1)
            until(lambda: figure(service, FAILED) > failed)
            service.save("banana")
            assert names(folder) == ["memory-20300101T120000Z.zip"]
            ballast.unlink()
            until(lambda: check(service) == WELL)
        assert names(folder) == ["memory-20300101T120000Z.zip", "memory-20300102T120000Z.zip"]
        assert [it for it in caplog.messages if "same disk as the database" in it] == []

    assert [record.message for record in told] == [
        "backups cannot be made now", "the backup failed and will be retried", "backed up",
    ]  # fmt: skip
    assert told[1].__dict__["reason"] == f"{folder}: No such file or directory."


@pytest.mark.slow
def test_values_that_are_damaged_are_told_of_and_a_backup_without_stays(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with backed_up(folder, clock, MEMORY_BACKUP_KEEP="1") as service:
        service.save("apple")
        until(lambda: check(service) == WELL)
        sound = names(folder)
        damage(service.path, "memories", "content", NO_TEXT)
        for made in (2, 3):
            clock.advance(days=1)
            until(lambda: figure(service, MADE) == made)  # noqa: B023 - called at once
        until(lambda: len(names(folder)) == 2)
        assert check(service) == {
            "status": "warning",
            "detail": "Values in the newest backup are damaged; the newest undamaged backup is "
            "kept.",
        }

    assert names(folder) == [*sound, "memory-20300103T120000Z.zip"]
    plan = at(service.path).say("restore", folder / names(folder)[1], "--dry-run")
    assert "Values in it are damaged: default, memories 1: content" in plan
    told = [it for it in caplog.records if it.message == "the backup has damaged values"]
    assert [it.__dict__["values"] for it in told] == 2 * [["default, memories 1: content"]]


@pytest.mark.slow
def test_a_fault_that_nobody_foresaw_ends_neither_the_service_nor_the_backups(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.delattr("agentops_memory.operations.backup.newest")
        with backed_up(folder) as service:
            until(lambda: figure(service, FAILED) > 1)
            broken.undo()
            until(lambda: names(folder))
            service.save("apple")

    (told,) = [it for it in caplog.records if it.message.startswith("the backup failed and")]
    assert told.exc_info


@pytest.mark.slow
def test_after_a_failure_it_is_tried_again_after_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(folder.parent / "memory.db"):
        pass

    def failed_then_looked(every: timedelta = timedelta(days=1)) -> list[str]:
        folder.rmdir()
        backups = to_make(folder, every)
        asyncio.run(backups.keep_up())
        folder.mkdir()
        asyncio.run(backups.keep_up())
        return names(folder)

    monkeypatch.setattr(backing_up, "LONGEST_WAIT", timedelta(minutes=15))
    assert failed_then_looked() == []
    (path,) = map(folder.joinpath, failed_then_looked(timedelta(0)))
    path.unlink()
    monkeypatch.setattr(backing_up, "LONGEST_WAIT", timedelta(0))
    assert failed_then_looked() == ["memory-20300101T120000Z.zip"]


def test_old_backups_that_stay_are_told_of_and_the_same_reason_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def prune(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr("agentops_memory.operations.backup.prune", prune)
    with serving(folder.parent / "memory.db"):
        pass
    backups = to_make(folder)
    asyncio.run(backups.keep_up())

    assert (len(names(folder)), backups.trouble) == (1, None)
    assert "old backups could not be removed" in caplog.messages

    reasons = ["It needs 900 bytes.", "It needs 900 bytes.", "db-2 is gone.", "db-3 is gone."]
    reason = iter(reasons)

    def archived(*_: object, **__: object) -> None:
        raise Unavailable(next(reason))

    monkeypatch.setattr("agentops_memory.operations.backup.make_archive", archived)
    monkeypatch.setattr(backing_up, "LONGEST_WAIT", timedelta(0))
    caplog.clear()
    backups = to_make(folder, timedelta(0))
    for _ in reasons:
        asyncio.run(backups.keep_up())

    told = [record.__dict__["reason"] for record in caplog.records]
    assert told == [reasons[0], *reasons[2:]]


NO_FOLDER = "MEMORY_BACKUP_DIR must be set to the folder for backups."


@for_each(
    "variables, refused",
    [
        ("MEMORY_BACKUP_KEEP=3", f"MEMORY_BACKUP_KEEP: {NO_FOLDER}"),
        ("MEMORY_BACKUP_EVERY=6h", f"MEMORY_BACKUP_EVERY: {NO_FOLDER}"),
        ("MEMORY_BACKUP_DIR=/backup MEMORY_BACKUP_EVERY=30s",
         "MEMORY_BACKUP_EVERY: '30s' is less than a minute."),
        ("MEMORY_BACKUP_DIR=/backup MEMORY_BACKUP_KEEP=0",
         "MEMORY_BACKUP_KEEP: '0' is not a number from 1 to 10000."),
    ],
)  # fmt: skip
def test_settings_that_would_make_no_backups_are_refused(variables: str, refused: str) -> None:
    with pytest.raises(SettingRefused) as refusal:
        settings(dict(it.split("=") for it in variables.split()))

    assert str(refusal.value) == refused
    assert settings({"MEMORY_BACKUP_EVERY": "0"}).backup_dir is None
    assert settings({}, {"backup_dir": "b"}).backup_dir == Path(os.getcwd()) / "b"  # noqa: PTH109


@contextmanager
def backed_up(folder: Path, clock: Clock | None = None, **variables: str) -> Iterator[Service]:
    """A service that makes its backups there."""
    variables["MEMORY_BACKUP_DIR"] = str(folder)
    with serving(
        folder.parent / "data" / "memory.db", clock=clock, telemetry=None, **variables
    ) as service:
        yield service


def to_make(folder: Path, every: timedelta = timedelta(days=1)) -> Backups:
    """Backups of the database beside the folder, made when they are told to keep up."""
    variables = {
        "MEMORY_DB_PATH": str(folder.parent / "memory.db"), "MEMORY_BACKUP_DIR": str(folder),
        "MEMORY_BACKUP_EVERY": f"{every // timedelta(milliseconds=1)}ms", "MEMORY_BACKUP_KEEP": "1",
    }  # fmt: skip
    return Backups(settings=settings(variables), folder=folder, metrics=Metrics(), clock=Clock())


def names(folder: Path) -> list[str]:
    """What has a name there."""
    with suppress(FileNotFoundError):
        return sorted(path.name for path in folder.iterdir() if path.suffix != ".part")
    return []


def observations(archive: Path) -> int:
    with Archive.opened(archive) as whole:
        whole.verify()
        return sum(part.counts.observations for part in whole.manifest.tenants)


def figure(service: Service, name: str) -> float:
    lines = service.http.get("/metrics").text.splitlines()
    (value,) = (line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} "))
    return float(value)


def check(service: Service) -> object:
    return service.http.get("/health/ready").json()["checks"]["backup"]
