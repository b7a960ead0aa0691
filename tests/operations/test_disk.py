"""A disk that is full, failing, read-only, or hardly there: refusals, never a loss or a lie."""

import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from agentops_memory.errors import Full
from agentops_memory.memory.imports import CHUNK
from agentops_memory.sqlite import SqliteEngine, transaction

from ..support import engine
from ..support.files import assert_sound, beside, disk
from ..support.losses import Losses, found_again
from ..support.process import Load, Program, run, served, stored
from ..support.service import observation

MEBIBYTE = 1 << 20
LARGE = "what fills a disk " * 2000  # 36 KB

FULL = "The disk is full; nothing was stored."
FAILED = "The disk failed; nothing was stored."


def test_a_full_disk_refuses_saves_until_there_is_space_again_and_a_crash_loses_none(
    tmp_path: Path, lost: Losses
) -> None:
    with disk(tmp_path / "disk", size=4 * MEBIBYTE) as folder:
        path, ballast = folder / "memory.db", folder / "ballast"
        ballast.write_bytes(bytes(2 * MEBIBYTE))
        with served(path) as (program, http):
            saved = save_until_refused(http, FULL)
            assert_reads_go_on(http, saved)
            ballast.unlink()
            saved |= save(http, "after the disk was full")
            assert_reads_go_on(http, saved)
            saved |= save_until_refused(http, FULL, about="again")
            program.send(signal.SIGKILL)
            program.wait()
        shutil.copytree(folder, tmp_path / "rescued")

    path = tmp_path / "rescued" / "memory.db"
    lost("a full disk, emptied again", acknowledged=saved.items(), found=stored(path).items())
    assert stored(path) == saved
    assert_sound(path, live=len(saved))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "is_restarted"),
    [
        ("fdatasync:error=EIO", "SQLITE_IOERR_FSYNC", True),
        ("pwrite64:error=EIO", "SQLITE_IOERR_WRITE", False),
        ("no file may grow", "", False),
    ],
)
def test_a_failing_disk_is_never_acknowledged_and_used_again_when_it_works(
    fault: str, code: str, is_restarted: bool, path: Path
) -> None:
    with ExitStack() as stack:
        program, http = stack.enter_context(served(path))
        saved = save(http, "before")
        with failing(program, fault) if code else no_growth(program):
            if not code:
                saved |= save_until_refused(http, FAILED)
            assert_refused(http, FAILED)
            assert_refused(http, FAILED)
            assert_reads_go_on(http, saved)
        line = json.loads(program.line("the database refused"))
        assert line["level"] == "WARNING"
        assert line["code"] == code or not code
        if is_restarted:
            program.send(signal.SIGKILL)  # with the log as the failure left it
            program.wait()
            program, http = stack.enter_context(served(path))
            assert_reads_go_on(http, saved)
        saved |= save(http, "after")
        assert_reads_go_on(http, saved)
        program.send(signal.SIGKILL)
        program.wait()

    assert stored(path) == saved
    assert_sound(path, live=len(saved))


@contextmanager
def no_growth(program: Program) -> Iterator[None]:
    """Inside, no file of the program may be larger than a mebibyte."""
    _, most = resource.prlimit(program.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (MEBIBYTE, most))
    yield
    resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (most, most))


@pytest.mark.slow
def test_the_rows_of_a_long_import_are_on_disk_once_it_is_answered(path: Path) -> None:
    rows = [
        observation(f"Row {number}.", created_at="2029-01-01T00:00:00Z")
        for number in range(CHUNK + 500)
    ]
    calls, named = path.with_name("calls"), ("-y", "-s", "400")  # with the files' names
    with served(path) as (program, http):
        with traced(program, "pwrite64,fdatasync,write,sendto", *named, into=calls):
            http.post("/import", json={"observations": rows}).raise_for_status()
        program.send(signal.SIGKILL)
        program.wait()

    lines = calls.read_text("utf-8", errors="replace").splitlines()
    (answer,) = (n for n, line in enumerate(lines) if "imported_observations" in line)
    log = [line for line in lines[:answer] if "memory.db-wal>" in line]
    assert "pwrite64" in log[0]
    synced = [number for number, call in enumerate(log) if "fdatasync" in call]
    assert synced[-1] == len(log) - 1  # no transaction of the import has written since
    assert len(synced) <= 2  # with the one of a log's first page
    assert len(stored(path)) == len(rows)


@pytest.mark.slow
def test_a_disk_that_fails_now_and_then_loses_nothing_that_was_acknowledged(
    path: Path, lost: Losses
) -> None:
    with served(path) as (program, http):
        with failing(program, "fdatasync:error=EIO:when=5+4"):
            load = Load(str(http.base_url), saves=300).start()
            load.join()
        program.send(signal.SIGKILL)  # with the log as the failures left it
        program.wait()

    remark = f"{len(load.refused)} saves were refused, and none of them is there"
    assert found_again(lost, "failing fsync", path, load.acknowledged, remark) == load.acknowledged
    assert set(load.refused.values()) == {503}


@pytest.mark.slow
@pytest.mark.parametrize("saves", [12, 60], ids=["at its commit", "before it ends"])
def test_a_disk_that_fills_in_a_batch_refuses_only_what_found_no_room(
    saves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LONGEST", timedelta(seconds=engine.SOON))
    works = [engine.saving(f"{number} {LARGE}") for number in range(saves)]
    with disk(tmp_path / "disk", size=16 * MEBIBYTE) as folder:
        path, ballast = folder / "memory.db", folder / "ballast"

        async def test(database: SqliteEngine) -> None:
            await engine.save(database, "before")
            ballast.write_bytes(bytes(shutil.disk_usage(folder).free - MEBIBYTE // 2))
            answers = await engine.together(database, works)
            done = [answer for answer in answers if isinstance(answer, str)]
            assert 0 < len(done) < saves
            assert all(isinstance(answer, str | Full) for answer in answers)
            assert engine.contents(path) == ["before", *done]
            ballast.unlink()
            again = await engine.together(database, works)
            assert again == [f"{number} {LARGE}" for number in range(saves)]
            assert engine.contents(path) == ["before", *done, *again]

        engine.run(path, test)
        assert_sound(path, live=len(engine.contents(path)))


@pytest.mark.slow
@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_disk_that_cannot_be_written_at_the_start_ends_it_with_a_sentence(
    state: str, tmp_path: Path
) -> None:
    with disk(tmp_path / "disk", size=MEBIBYTE) as folder:
        path = folder / "memory.db"
        with served(path) as (program, http):
            saved = save(http, "before")
            program.send(signal.SIGINT)
            program.wait()
        if state == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        else:
            with pytest.raises(OSError, match="No space left"):
                (folder / "ballast").write_bytes(bytes(2 * MEBIBYTE))

        variables = {"MEMORY_LISTEN": "127.0.0.1:0", "MEMORY_DB_PATH": str(path)}
        done = run(variables=variables)

        shutil.copy(path, tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(rf"agentops-memory: [^\n]*{path}[^\n]*\.\nHint: [^\n]*\.\n", done.stderr), (
        done.stderr
    )
    assert stored(tmp_path / "memory.db") == saved


@pytest.mark.slow
def test_everything_works_with_a_read_only_root_and_no_temporary_folder(tmp_path: Path) -> None:
    within = read_only_but_for(tmp_path)
    path = tmp_path / "memory.db"
    rows = [observation(f"row {number} " + "word " * 100) for number in range(1200)]
    transcript = [{"role": "user", "content": "x" * 5000}] * 500

    with served(path, within=within, TMPDIR="/nonexistent") as (_, http):
        imported = http.post("/import", json={"observations": rows})
        ended = http.post("/sessions/s1/end", json={"messages": transcript})
        listed = http.get("/observations/recent", params={"limit": 1000})
        found = http.get("/search", params={"q": "word row", "limit": 1000})
        exported = http.get("/export")

    assert imported.json() == {"imported_sessions": 0, "imported_observations": 1200}
    assert ended.json()["message_count"] == 500
    assert len(listed.json()) == 1000
    assert len(found.json()) == 1000
    assert len(exported.json()["observations"]) == 1200
    assert beside(path) == []


def save(http: httpx.Client, content: str) -> dict[str, int]:
    """An acknowledged save: its id by its content."""
    answer = http.post("/observations", json=observation(content))
    assert answer.status_code == 201, answer.text
    return {content: answer.json()["id"]}


def save_until_refused(http: httpx.Client, sentence: str, about: str = "first") -> dict[str, int]:
    """The saves that were acknowledged before one was refused with the sentence."""
    saved: dict[str, int] = {}
    for number in range(1000):
        content = f"{about} {number} {LARGE}"
        answer = http.post("/observations", json=observation(content))
        if answer.status_code != 201:
            assert (answer.status_code, answer.json()) == (503, {"error": sentence})
            assert answer.headers["Retry-After"] == "1"
            return saved
        saved[content] = answer.json()["id"]
    raise AssertionError("The disk was never full.")


def assert_refused(http: httpx.Client, sentence: str) -> None:
    answer = http.post("/observations", json=observation("refused"))
    assert (answer.status_code, answer.json()) == (503, {"error": sentence})
    assert answer.headers["Retry-After"] == "1"


def assert_reads_go_on(http: httpx.Client, saved: dict[str, int]) -> None:
    answer = http.get("/export")
    assert {row["content"]: row["id"] for row in answer.json()["observations"]} == saved
    for path in ("/health", "/observations/1", "/search?q=disk", "/context?project=demo"):
        assert http.get(path).status_code == 200


def failing(program: Program, fault: str) -> AbstractContextManager[None]:
    """A system call of the running program that fails, for a while."""
    return traced(program, fault.partition(":")[0], "-e", f"inject={fault}")


@contextmanager
def traced(
    program: Program, calls: str, *options: str, into: str | Path = os.devnull
) -> Iterator[None]:
    """Inside, some system calls of the running program are written into a file."""
    if shutil.which("strace") is None:
        pytest.skip("to trace system calls needs strace")
    strace = subprocess.Popen(
        ["strace", "-f", "-o", into, "-p", str(program.pid), "-e", f"trace={calls}", *options],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert strace.stderr is not None
    if "attached" not in (said := strace.stderr.readline()):
        pytest.skip(f"strace may not attach here: {said}")
    try:
        yield
    finally:
        strace.send_signal(signal.SIGINT)
        strace.communicate()


def read_only_but_for(folder: Path) -> tuple[str, ...]:
    """A command that runs another where nothing but the folder can be written."""
    script = f"""
        mount --bind {shlex.quote(str(folder))} {shlex.quote(str(folder))}
        for place in / /tmp /var/tmp /dev/shm /run; do
            mountpoint -q $place && mount -o remount,ro,bind $place
        done
        cd / && ! touch /written /tmp/written 2>/dev/null && exec "$@"
    """
    within = ("unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh")
    tried = subprocess.run([*within, "touch", folder / "written"], check=False, capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"a read-only root needs a namespace of its own: {tried.stderr.decode()}")
    (folder / "written").unlink()
    return within
