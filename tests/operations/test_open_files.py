"""A database file or its log, removed or replaced under a service: no acknowledged save is lost."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory.errors import StartRefused, Unavailable
from agentops_memory.http import app as health
from agentops_memory.memory.access import OPERATOR, TenantId
from agentops_memory.sqlite import SqliteEngine, connection as transactions
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.open_files import GONE, LINKED, LOG_GONE
from agentops_memory.sqlite.tenants import remove, tenant_file

from ..support import engine
from ..support.callers import calling, made_key
from ..support.engines import rows
from ..support.files import assert_sound
from ..support.process import Program, run, served, stored
from ..support.service import START, Service, observation, serving

Harm = Callable[[Path], object]

WAL, SHM, FILE = "-wal", "-shm", ""


def removed(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    another = file.with_name("another")
    shutil.copy(file, another)
    another.replace(file)


def linked(file: Path) -> None:
    os.link(file, file.with_name("second"))


HARMS: list[tuple[str, Harm, str]] = [
    (WAL, removed, LOG_GONE), (WAL, linked, LOG_GONE), (SHM, removed, LOG_GONE),
    (SHM, linked, LOG_GONE), (FILE, linked, LINKED), (WAL, replaced, LOG_GONE),
    (SHM, replaced, LOG_GONE), (FILE, replaced, GONE),
]  # fmt: skip


def of(path: Path, kind: str) -> Path:
    return path.with_name(path.name + kind)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))
    with serving(tmp_path / "memory.db") as running:
        yield running


def saved(http: httpx.Client, number: int = 8) -> set[str]:
    """The contents of so many acknowledged saves."""
    contents = {f"What was learned, {n}" for n in range(number)}
    for content in contents:
        assert http.post("/observations", json=observation(content)).status_code == 201
    return contents


def assert_refused(http: httpx.Client, told: str) -> None:
    """No save is acknowledged, and the service is not ready, for this reason."""
    answer = http.post("/observations", json=observation("This is refused."))
    assert (answer.status_code, answer.json()) == (503, {"error": told})
    assert answer.headers["Retry-After"] == "1"
    found = http.get("/health/ready")
    assert (found.status_code, found.json()["error"]) == (503, told)
    assert found.json()["checks"]["database"]["status"] == "failed"


@contextmanager
def surviving(
    path: Path, end: signal.Signals = signal.SIGKILL
) -> Iterator[tuple[Program, httpx.Client, set[str]]]:
    """A service, and its saves: all of them are in the file after its end, with what is added."""
    with served(path) as (program, http):
        contents = saved(http)
        yield program, http, contents
        program.send(end)
        assert program.wait() == (0 if end is signal.SIGINT else -end)
    assert set(stored(path)) == contents
    assert_sound(path, live=len(contents))


@pytest.mark.slow
def test_saves_are_refused_and_reads_go_on_whatever_became_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))
    for number, (kind, harm, told) in enumerate(HARMS):
        (folder := tmp_path / f"{number}").mkdir()
        path = folder / "memory.db"
        with serving(path) as service:
            contents = saved(service.http)
            harm(of(path, kind))

            assert_refused(service.http, told)
            if harm is not replaced:
                total = service.http.get("/stats").json()["total_observations"]
                assert total == len(contents), kind
        (folder / "second").unlink(missing_ok=True)

        with serving(path) as service:
            assert harm is replaced or set(stored(path)) == contents
            service.save("And on.")
        assert_sound(path, live=len(stored(path)))


@pytest.mark.slow
def test_a_commit_into_files_that_went_meanwhile_is_not_acknowledged(tmp_path: Path) -> None:
    commit = transactions._commit  # noqa: SLF001 - in the midst

    for number, kind in ((1, WAL), (3, SHM), (3, FILE)):
        path = tmp_path / f"memory{number}{kind}.db"
        gone = of(path, kind)

        def harmful(database: sqlite3.Connection, gone: Path = gone) -> None:
            gone.unlink(missing_ok=True)
            commit(database)

        async def test(database: SqliteEngine, number: int = number) -> None:
            await engine.save(database, "before")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(transactions, "_commit", harmful)
                saves = [engine.save(database, f"{number}") for number in range(number)]
                answers = await asyncio.gather(*saves, return_exceptions=True)
            assert [type(answer) for answer in answers] == [Unavailable] * number

        engine.run(path, test)


@pytest.mark.slow
def test_what_a_reader_keeps_from_being_rescued_is_rescued_after_it(path: Path) -> None:
    with surviving(path) as (program, http, contents):
        with closing(connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM memories").fetchone()
            contents.update(saved(http, 20))
            of(path, WAL).unlink()
            assert_refused(http, LOG_GONE)

        assert_refused(http, LOG_GONE)
        program.line("all commits were copied")  # which follows the refusal


@pytest.mark.slow
def test_what_was_saved_after_one_harm_is_rescued_from_the_next(path: Path) -> None:
    with surviving(path) as (program, http, contents):
        linked(path)
        refused = http.post("/observations", json=observation("This is refused."))
        assert (refused.status_code, refused.json()) == (503, {"error": LINKED})
        path.with_name("second").unlink()
        contents.add("And on.")
        assert http.post("/observations", json=observation("And on.")).status_code == 201
        of(path, WAL).unlink()

        assert_refused(http, LOG_GONE)
        program.line("all commits were copied")  # which follows the refusal


def test_a_second_name_that_goes_again_was_no_harm(service: Service) -> None:
    linked(service.path)
    assert_refused(service.http, LINKED)

    service.path.with_name("second").unlink()

    service.save("And on.")
    assert service.http.get("/health/ready").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SHM, WAL])
def test_a_commit_by_another_log_outlives_the_service(path: Path, kind: str) -> None:
    """Where SQLite's own end would write over it, or a page of a removed log."""
    with surviving(path, signal.SIGINT) as (_, http, _):
        if kind == WAL:  # so that the log may restart
            with closing(connect(path)) as other:
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        of(path, kind).unlink()
        with closing(connect(path)) as other:
            commit_by(other)
            if kind == WAL:
                assert_refused(http, LOG_GONE)
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

        if kind == SHM:
            assert_refused(http, LOG_GONE)
            answer = http.get("/stats")
            assert (answer.status_code, answer.json()) == (503, {"error": LOG_GONE})
    assert_commit(path)


@pytest.mark.slow
def test_a_commit_by_another_log_after_ours_was_rescued_is_kept_too(path: Path) -> None:
    with surviving(path, signal.SIGINT) as (program, http, contents):
        of(path, WAL).unlink()
        assert_refused(http, LOG_GONE)
        program.line("all commits were copied into the database file")
        contents.update(saved_by_another(path))
        assert http.get("/stats").json()["total_observations"] == len(contents)

        other = connect(path)
        commit_by(other)
        assert http.get("/stats").status_code == 503
    other.close()
    assert_commit(path)


def commit_by(other: sqlite3.Connection) -> None:
    other.execute("UPDATE sessions SET summary = 'By another.'")


def assert_commit(path: Path) -> None:
    """What was committed by another connection is there."""
    assert set(rows(path, "SELECT summary FROM sessions")) == {("By another.",)}


def saved_by_another(path: Path) -> set[str]:
    content = "What another process has learned"
    done = run("save", "Title", content, "--project", "demo", "--db", str(path))
    assert done.returncode == 0, done.stderr
    return {content}


@pytest.mark.slow
def test_whoever_opens_and_closes_the_file_meanwhile_is_no_alarm(
    service: Service, tmp_path: Path
) -> None:
    saved(service.http)
    commands = [
        ("doctor", "--thorough"), ("backup", "--to", str(tmp_path / "memory.zip")),
        ("save", "Title", "By another.", "--project", "demo"), ("stats", "--storage"),
        ("index", "--check"),
    ]  # fmt: skip
    for command in commands:
        assert run(*command, "--db", str(service.path)).returncode == 0, command
        service.save(f"after {command}")
    for mode in ("PASSIVE", "RESTART", "TRUNCATE"):
        with closing(connect(service.path)) as database:
            database.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        service.save(f"after {mode}")

    assert service.http.get("/health/ready").status_code == 200


@pytest.mark.slow
def test_the_log_of_one_tenant_concerns_that_tenant_alone(path: Path) -> None:
    with serving(path) as service:
        token, other = made_key(service.path), made_key(service.path, tenant="acme")
        file = tenant_file(service.path, TenantId("acme"))
        with calling(service, token) as default, calling(service, other) as acme:
            contents = saved(acme)
            of(file, WAL).unlink()

            refused = acme.post("/observations", json=observation("This is refused."))

            assert (refused.status_code, refused.json()) == (503, {"error": LOG_GONE})
            assert default.post("/observations", json=observation("And on.")).status_code == 201
    assert set(stored(file)) == contents


async def test_a_file_that_is_replaced_while_it_is_opened_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connection_to_another(*args: Any, **options: Any) -> Any:
        replaced(path)
        return connect(*args, **options)

    monkeypatch.setattr(transactions, "connect", connection_to_another)
    with pytest.raises(StartRefused, match="was replaced while it was opened"):
        async with SqliteEngine.opened(path, clock=lambda: START):
            pass


@pytest.mark.slow
async def test_a_file_that_has_taken_the_place_of_another_is_not_scrubbed(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"

    async with SqliteEngine.opened(path, clock=lambda: START) as old:
        await engine.save(old, "apple")
        remove(path)
        async with SqliteEngine.opened(path, clock=lambda: START) as new:
            await engine.save(new, "pear")
            before = path.read_bytes()
            assert not await old.scrub_file(OPERATOR)
            assert path.read_bytes() == before
            assert await new.scrub_file(OPERATOR)


@pytest.mark.slow
async def test_an_engine_that_has_scrubbed_and_ends_leaves_the_locks_of_another(path: Path) -> None:
    def is_locked() -> bool:
        code = (
            "import fcntl, sys\n"
            "fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)"
        )
        ran = subprocess.run([sys.executable, "-c", code, path], check=False, capture_output=True)
        assert ran.returncode == 0 or b"BlockingIOError" in ran.stderr
        return ran.returncode != 0

    async with SqliteEngine.opened(path, clock=lambda: START):
        async with SqliteEngine.opened(path, clock=lambda: START) as other:
            await engine.save(other, "apple")
            assert await other.scrub_file(OPERATOR)
        assert is_locked()
    assert not is_locked()
