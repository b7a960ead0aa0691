"""No failure quotes what was stored or sent: not in the log, a span, a measurement, or a message.

A text is planted wherever there is room for one; then things fail in every way there is.
"""

import json
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from agentops_memory.sqlite.connection import connect

from ..support import planted, unreadable
from ..support.files import disk
from ..support.otlp import Collector, http_collector
from ..support.planted import MARK
from ..support.process import Program, program, run, served
from ..support.service import serving
from ..support.terminal import Terminal

MANY = {
    ("memories", "content"), ("spaces", "scope"), ("sessions", "summary"),
    ("revisions", "content"), ("stores", "metadata"), ("done", "answer"), ("transcripts", "last"),
    ("agent_memories", "ttl"),
}  # fmt: skip
BUSY = {
    "MEMORY_DRAIN": "0", "MEMORY_LOG_LEVEL": "debug", "MEMORY_SWEEP_EVERY": "50ms",
    "MEMORY_KEEP_DELETED": "1h", "MEMORY_SESSION_IDLE": "1s", "MEMORY_TOOLS": "all",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A service that is stocked, whatever it tells, and what was planted."""

    program: Program
    http: httpx.Client
    collector: Collector
    path: Path
    stock: planted.Stock

    def send_all(self) -> list[int]:
        return [planted.send(self.http, sent) for sent in planted.requests(self.stock)]

    def end(self) -> None:
        """Let it end, and look through all that it has told."""
        measured = self.http.get("/metrics").text
        self.program.send(signal.SIGTERM)
        self.program.wait()
        assert "memory_requests_total" in measured
        assert MARK not in measured
        assert MARK not in repr(self.collector.labels)
        assert planted.quoted_in_lines(self.program.lines) == []
        assert MARK not in self.program.errors
        assert planted.quoted_in_spans(self.collector) == []


@contextmanager
def watching(path: Path) -> Iterator[Watched]:
    with (
        http_collector() as collector,
        served(path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint, **BUSY) as (running, http),
    ):
        yield Watched(
            program=running, http=http, collector=collector, path=path, stock=planted.stock(http)
        )


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_refused_request_and_a_value_that_cannot_be_read_are_quoted_nowhere(path: Path) -> None:
    with watching(path) as service:
        sound = service.send_all()
        statuses = [planted.send(service.http, it) for it in planted.refusable(service.stock)]
        planted.send_badly(str(service.http.base_url))
        assert {*unreadable.columns(service.path)} >= MANY
        for table, column in MANY:
            assert unreadable.broken(service.path, table, column), (table, column)
            service.send_all()
            unreadable.mended(service.path, table, column)
        service.end()

    assert not {0, 500} & {*sound, *statuses}
    assert statuses.count(400) > 10
    assert max(statuses) < 500


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_schema_of_garbage_is_quoted_nowhere(tmp_path: Path) -> None:
    with watching(tmp_path / "memory.db") as service:
        with closing(connect(service.path)) as database:
            database.execute("PRAGMA writable_schema = ON")
            garbage = f"CREATE TABLE memories (id INTEGER) {MARK}"  # SQLite says what it is near
            database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'memories'", (garbage,))
            ((version,),) = database.execute("PRAGMA schema_version")
            database.execute(f"PRAGMA schema_version = {version + 1}")
        statuses = service.send_all()
        service.end()
        to, listen = ("--to", str(tmp_path / "archive")), ("--listen", "127.0.0.1:0")
        for command in (("doctor",), ("migrate",), ("backup", *to), ("serve", *listen)):
            done = run(*command, "--db", str(service.path))
            assert done.returncode == 1
            assert "malformed database schema" in done.stdout + done.stderr
            assert MARK not in done.stdout + done.stderr

    assert 503 in statuses


@pytest.mark.sqlite_files
@pytest.mark.slow
def test_a_full_disk_and_a_lock_are_quoted_nowhere(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", size=4 << 20) as folder, watching(folder / "memory.db") as service:
        with closing(sqlite3.connect(service.path, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            locked = planted.send(service.http, ("POST", "/observations", planted.memory("busy")))
            database.execute("ROLLBACK")
        ballast = folder / "ballast"
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(bytes(8 << 20))
        statuses = service.send_all()
        for number in range(150):  # more than the disk has, with what its log had before
            large = planted.memory(f"large {number} " * 4_000)
            statuses.append(planted.send(service.http, ("POST", "/observations", large)))
            if statuses[-1] in {503, 507}:
                break
        ballast.unlink()
        service.end()

    assert locked == 503
    assert [line for line in service.program.lines if '"exception"' in line] == []
    assert {503, 507} & set(statuses)


COMMANDS = (
    ("doctor", "--thorough"), ("index", "--check"), ("scan",), ("search", MARK, "--project", ""),
    ("context", MARK, "--project", MARK), ("history", "2"), ("export", "{}/export.json"),
    ("backup", "--to", "{}/archive"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_command_that_fails_quotes_nothing(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        planted.stock(service.http)
    for folder, table in (("sound", ""), ("broken", "memories")):
        (tmp_path / folder).mkdir()
        if table:
            assert unreadable.broken(service.path, table, "content")
        for command in COMMANDS:
            arguments = [argument.format(tmp_path / folder) for argument in command]
            done = run(*arguments, "--db", str(service.path))
            assert done.returncode == 0 or table, command  # it fails by what is broken alone
            assert MARK not in done.stderr, command


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_command_that_meets_any_broken_value_quotes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path / "memory.db") as service:
        planted.stock(service.http)
    for table, column in unreadable.columns(service.path):
        assert unreadable.broken(service.path, table, column), (table, column)
        # Here, with the messages of its log: a process would show no others.
        errors = Terminal().run("index", "--check", "--db", service.path).stderr
        told = [errors, *(record.getMessage() for record in caplog.records)]
        assert MARK not in "\n".join(told).replace(str(tmp_path), ""), (table, column)
        unreadable.mended(service.path, table, column)


@pytest.mark.slow
def test_what_a_collector_answers_is_not_quoted(tmp_path: Path) -> None:
    refusing = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    answering = threading.Thread(target=refusing.serve_forever, args=(0.01,))
    answering.start()
    endpoint = f"http://127.0.0.1:{refusing.server_port}"
    with served(tmp_path / "other.db", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **BUSY) as (
        running,
        http,
    ):
        http.post("/observations", json=planted.memory("one"))
        running.send(signal.SIGTERM)  # at its end it exports what there is
        running.wait()
    refusing.shutdown()
    refusing.server_close()
    answering.join()

    (line, *_) = (line for line in running.lines if "Failed to export" in line)
    assert json.loads(line)["logger"].startswith("opentelemetry.exporter")
    assert planted.quoted_in_lines(running.lines) == []


class _Refusing(BaseHTTPRequestHandler):
    """A collector that quotes what it was sent."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(400, MARK)
        self.send_header("Content-Length", str(len(MARK)))
        self.end_headers()
        self.wfile.write(MARK.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - theirs
        """Say nothing."""


UNCAUGHT = f"""
import logging, threading, warnings
from agentops_memory.cli.program import loaded
from agentops_memory.cli.program import main

class Closing:
    def __del__(self):
        raise KeyError({MARK!r})

def fail():
    raise ValueError({MARK!r})

def failing(**_):
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    Closing()
    warnings.warn({MARK!r})
    logging.getLogger("a.library").error("%d bytes", {MARK!r})
    try:
        fail()
    except ValueError as error:
        error.add_note({MARK!r})
        raise ExceptionGroup({MARK!r}, [error, KeyError({MARK!r})]) from error

loaded("stats").callback = failing
main()
"""


def test_what_nothing_catches_is_told_without_its_message(path: Path) -> None:
    with program("stats", "--db", str(path), code=UNCAUGHT) as failed:
        code = failed.wait()

    assert code == 1
    assert MARK not in failed.output + failed.errors
    assert "UserWarning in " in failed.errors
    assert "%d bytes\n" in failed.errors
    assert failed.errors.count("uncaught exception\nTraceback") == 2
    assert failed.errors.count("exception ignored\nTraceback") == 1
    assert "in fail\n" in failed.errors
    assert failed.errors.rstrip().splitlines()[-1] == "ExceptionGroup"
