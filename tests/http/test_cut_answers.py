"""An answer that cannot go on, and a command that is told to end: a line, and no half file."""

import fcntl
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from agentops_memory import server
from agentops_memory.cli import program as terminating

from ..support.engine import locked
from ..support.engines import storage_at
from ..support.process import environment, until
from ..support.raw import request, wire
from ..support.service import Service, observation, serving
from ..support.terminal import Terminal

MARK = "an apple a day "
LAST_CHUNK = b"0\r\n\r\n"
PAGE = 4096  # bytes, as few as a pipe can hold


def damaged(path: Path) -> Path:
    """A file whose sessions can be read, and whose memories cannot."""
    with serving(path) as service:
        service.save(MARK * 2000)
    with closing(sqlite3.connect(path)) as database:
        ((size,),) = database.execute("PRAGMA page_size")
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), size):
        if data[at : at + size].count(MARK.encode()) > 10:
            data[at : at + size] = b"\xff" * size
    path.write_bytes(data)
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Service]:
    with serving(damaged(tmp_path / "memory.db")) as service:
        yield service


@pytest.mark.sqlite_files
def test_damage_in_an_export_is_a_line_of_the_log_and_an_answer_without_an_end(
    broken: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with wire(broken.url) as client:
        client.send(request("GET", "/export"))
        told = client.rest()

    assert told.startswith(b"HTTP/1.1 200 ")
    assert b'"sessions":[{"id":"s1"' in told
    assert not told.endswith(LAST_CHUNK)
    lines = [it for it in caplog.records if it.message == "response incomplete"]
    assert [(it.operation, it.reason) for it in lines] == [  # type: ignore[attr-defined]
        ("export", "The database file is damaged.")
    ]
    assert [it.message for it in caplog.records if it.exc_info or (it.name == "uvicorn.error"
            and it.levelno >= logging.WARNING)] == []  # fmt: skip


@pytest.mark.slow
def test_a_save_that_is_cut_off_in_the_end_leaves_no_stack_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "GRACE", timedelta(milliseconds=50))
    path, body = tmp_path / "memory.db", json.dumps(observation("apple")).encode()
    with ExitStack() as clients:
        with serving(path) as service:
            clients.enter_context(locked(path))
            client = clients.enter_context(wire(service.url))
            client.send(request("POST", "/observations", body))
            assert service.http.get("/health").status_code == 200

        assert client.rest() == b""

    errors = [it for it in caplog.records if it.levelno >= logging.ERROR]
    assert [(it.message, it.exc_info) for it in errors] == [
        ("unfinished requests were cut off", None)
    ]


@pytest.mark.slow
@pytest.mark.sqlite_files
@pytest.mark.parametrize("reach", ["over HTTP", "on the file"])
def test_an_export_that_breaks_off_says_so_and_leaves_the_file_as_it_was(
    broken: Service, tmp_path: Path, reach: str, caplog: pytest.LogCaptureFixture
) -> None:
    over_http = reach == "over HTTP"
    where = {"MEMORY_URL": broken.url} if over_http else {"MEMORY_DB_PATH": str(broken.path)}
    file = tmp_path / "all.json"
    file.write_text("as it was")
    before = set(tmp_path.iterdir())

    done = Terminal(where).run("export", file, "--force")
    sentence, hint = done.stderr.splitlines()

    assert (done.exit_code, done.stdout) == (3 if over_http else 1, "")
    assert sentence == "agentops-memory: The export is incomplete: " + (
        f"{broken.url} closed the connection before it answered."
        if over_http
        else "The database file is damaged."
    )
    assert hint.startswith("Hint: Try again" if over_http else "Hint: `agentops-memory doctor`")
    assert over_http or "damaged" not in caplog.text
    assert file.read_text() == "as it was"
    assert set(tmp_path.iterdir()) == before


def test_a_command_that_is_told_to_end_tidies_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, file = Terminal({"MEMORY_DB_PATH": str(tmp_path / "memory.db")}), tmp_path / "x.json"
    terminal.say("save", "T", "C", "--project", "p")
    before, made = {it.name for it in tmp_path.iterdir()}, list[str]()

    def made_and_told(**where: Any) -> str:
        made.append(mkdtemp(**where))
        os.kill(os.getpid(), signal.SIGTERM)
        return made[0]

    monkeypatch.setattr("tempfile.mkdtemp", made_and_told)

    done = terminal.run("export", file)

    assert (done.exit_code, done.stderr) == (143, "agentops-memory: Stopped.\n")
    assert made
    assert {it.name for it in tmp_path.iterdir()} <= before
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with terminating.terminable():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
def test_a_command_whose_output_is_not_read_ends_all_the_same(path: Path) -> None:
    with serving(path) as service:
        service.save("x" * 50_000)
        for number in range(9):
            service.save(f"{number}" * 50_000)
    hasty = "from agentops_memory.cli import main, program; program.TIMEOUT = 1; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", hasty, "export"],
        env=environment({**storage_at(path), "PYTHONUNBUFFERED": ""}),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pipesize=PAGE,
    )  # fmt: skip
    assert process.stdout is not None
    output = process.stdout.fileno()
    until(lambda: _waiting(output) > 0)  # the rest is more than a pipe of a page holds

    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 143
    process.stdout.close()


def _waiting(pipe: int) -> int:
    """The bytes that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
