"""Every log line is one JSON object, whatever is in it."""

import asyncio
import gc
import io
import json
import logging
import re
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from select import PIPE_BUF
from types import ModuleType
from typing import Any

import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message, Scope

from agentops_memory.compose import PROTOCOLS
from agentops_memory.engine.engine import Engine
from agentops_memory.errors import Unavailable
from agentops_memory.http.app import HttpService
from agentops_memory.http.protocol import Handler
from agentops_memory.settings import settings
from agentops_memory.telemetry import (
    JsonFormatter,
    Metrics,
    Telemetry,
    configure_logging,
    write,
)

from ..support.otlp import Collector, collector, trace
from ..support.process import served
from ..support.terminal import Terminal

__all__ = ["collector"]

OURS = "agentops_memory.a.logger"
log = logging.getLogger(OURS)


class Lines(io.StringIO):
    """A stream of log lines."""

    def all(self) -> list[dict[str, Any]]:
        """The lines so far."""
        return [json.loads(line) for line in self.getvalue().splitlines()]

    def one(self) -> dict[str, Any]:
        """The only line so far."""
        (line,) = self.all()
        return line


@pytest.fixture
def lines() -> Iterator[Lines]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = Lines()
    configure_logging("INFO", stream)
    yield stream
    root.handlers = handlers
    root.setLevel(level)


def test_a_line_is_written_while_opentelemetry_is_being_imported(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "opentelemetry.trace"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))

    log.info("a context is missing")

    assert lines.one()["message"] == "a context is missing"


def test_a_line_has_its_time_its_level_its_logger_its_words_and_its_fields() -> None:
    def line(**fields: object) -> dict[str, Any]:
        record = logging.makeLogRecord({"name": OURS, "msg": "swept", **fields})
        text = JsonFormatter().format(record)
        assert (text.isascii(), text.isprintable()) == (True, True)
        told: dict[str, Any] = json.loads(text)
        return told

    fields = {"created": 1893456000.1239, "expired": 3, "project": "検索", "level": "mine"}
    assert line(levelname="INFO", msg="swept %s", args=("it",), **fields) == {
        "time": "2030-01-01T00:00:00.123Z", "level": "INFO", "logger": OURS, "message": "swept it",
        "expired": 3, "project": "検索",
    }  # fmt: skip
    for at in (0.0, 1893456000.0004, 1893456000.9994, 1893456000.9999999):
        shown = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        assert line(created=at)["time"] == shown.replace("+00:00", "Z")
    forged = 'a\n{"level": "ERROR"}\r\u2028\x1b[31m\x85\ud800'
    told = line(msg=forged, path=forged)
    assert told["message"] == told["path"] == forged
    for name in (OURS, "a.library"):  # wrong arguments lose no line
        assert line(name=name, msg="%d of %d", args=("one",))["message"] == "%d of %d"


class Broken:
    def __str__(self) -> str:
        raise ValueError("no text")


def circle() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made


def test_any_value_can_be_a_field(lines: Lines) -> None:
    values: list[tuple[object, object]] = [
        (Path("a/file"), "a/file"), (Broken(), "<Broken>"), (circle(), "[[...]]"),
        (float("nan"), "nan"), ({(1, 2): 3}, "{(1, 2): 3}"),
        ({"deep": [Path("a")]}, {"deep": ["a"]}),
    ]  # fmt: skip
    for value, _ in values:
        log.info("odd", extra={"value": value})

    assert [line["value"] for line in lines.all()] == [shown for _, shown in values]


QUOTED = "qzxquoted"


def decode() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(
            "SELECT CAST(? AS TEXT) AS content", (QUOTED.encode() + b"\xff",)
        ).fetchall()


def from_query() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE words USING fts5 (word)")
        database.execute("SELECT * FROM words WHERE words MATCH ?", (f"{QUOTED}: x",)).fetchall()


def group() -> None:
    error = ValueError(QUOTED)
    error.add_note(QUOTED)
    raise ExceptionGroup(QUOTED, [error, ExceptionGroup(QUOTED, [KeyError(QUOTED), error])])


def chain() -> None:
    try:
        decode()
    except sqlite3.Error as error:
        try:
            dict[str, int]()[QUOTED]
        except KeyError:
            raise Unavailable("It is away.") from error


def again_and_again() -> None:
    try:
        raise ValueError(QUOTED)
    except ValueError as error:
        error.__cause__ = error
        raise


FAILURES: dict[Callable[[], object], list[str]] = {
    decode: ["sqlite3.OperationalError: Could not decode to UTF-8"],
    from_query: ["sqlite3.OperationalError: no such column (SQLITE_ERROR)"],
    lambda: QUOTED.encode("utf-16").decode(): ["UnicodeDecodeError"],
    lambda: json.loads(f'["{QUOTED}'): ["json.decoder.JSONDecodeError"],
    lambda: re.compile(f"(?P<{QUOTED}"): [f"re.{re.error.__qualname__}"],
    lambda: Path(f"/{QUOTED}/x").read_text(): ["FileNotFoundError: No such file or directory"],
    lambda: compile(QUOTED + " x", QUOTED, "exec"): ["SyntaxError"],
    group: ["ExceptionGroup"],
    chain: [
        "sqlite3.OperationalError: Could not decode to UTF-8",
        "agentops_memory.errors.Unavailable: It is away.",
    ],
    again_and_again: ["ValueError"],
}


@pytest.mark.parametrize("fail", FAILURES)
def test_an_exception_is_told_with_its_stack_and_nothing_that_it_quotes(
    fail: Callable[[], object], lines: Lines
) -> None:
    try:
        fail()
    except Exception as error:
        log.exception("a %s: %s", "failure", error, extra={"error": error, "all": [error]})

    told = lines.one()
    *_, last = heads = re.findall(
        r"^[\w.]+(?:Error|error|Group|Unavailable)\b.*", told["exception"], re.MULTILINE
    )
    if fail is not group:
        assert (told["message"], told["error"], told["all"]) == (f"a failure: {last}", last, [last])
    assert heads == FAILURES[fail]
    assert ", in test_an_exception_is_told_with_its_stack" in told["exception"]
    assert QUOTED not in json.dumps(told)


def test_a_chain_of_exceptions_is_told_up_to_a_bound(lines: Lines) -> None:
    error = None
    for number in range(5000):
        error, before = ValueError(number), error
        error.__cause__ = before

    log.error("it failed", exc_info=error)

    assert 10 < lines.one()["exception"].count("ValueError") < 100


def test_a_library_may_say_what_it_likes_but_no_text_that_it_was_given(lines: Lines) -> None:
    theirs = logging.getLogger("a.library")
    for message, arguments in {
        "Failed to export %s after %d tries: %s": ("spans", 3, KeyError(QUOTED)),
        "%(what)s failed": ({"what": QUOTED},), "%d bytes": (7,),
        f"Task exception was never retrieved\nfuture: <Task {QUOTED}>": (),
        f"Exception in callback connect({QUOTED!r})": (), f"Failed to parse: {QUOTED}": (),
        "Exception in ASGI application\n": (),
    }.items():  # fmt: skip
        theirs.error(message, *arguments, extra={"body": QUOTED})
    theirs.error(ValueError(QUOTED))

    assert [line["message"] for line in lines.all()] == [
        "Failed to export ... after 3 tries: KeyError", "... failed", "7 bytes",
        "Task exception was never retrieved", "Exception in callback connect", "Failed to parse",
        "Exception in ASGI application", "ValueError",
    ]  # fmt: skip
    assert all(line["source"].startswith("test_logs.py:") for line in lines.all())
    assert QUOTED not in lines.getvalue()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_an_event_loop_tells_of_quotes_nothing(
    factory: Callable[[], asyncio.AbstractEventLoop], lines: Lines
) -> None:
    async def fail(what: str) -> None:
        raise KeyError(what)

    def call(what: str) -> None:
        raise KeyError(what)

    async def main() -> None:
        task = asyncio.create_task(fail(QUOTED), name=QUOTED)
        asyncio.get_running_loop().call_soon(call, QUOTED)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())

    told = [(line["message"], line["exception"].splitlines()[-1]) for line in lines.all()]
    assert ("Task exception was never retrieved", "KeyError") in told
    assert any(message.startswith("Exception in callback") for message, _ in told)
    assert QUOTED not in lines.getvalue()


def test_lines_below_the_level_are_left_out_and_the_server_speaks_the_same_way(
    lines: Lines,
) -> None:
    log.debug("unseen")
    for name in ("httpx", "httpcore.http11"):  # which tell of each request
        logging.getLogger(name).info("GET http://127.0.0.1:7437/search?q=private")
    logging.getLogger("uvicorn.error").warning("cut", extra={"color_message": "\x1b[1mcut"})

    line = lines.one()
    assert (line["logger"], line["message"]) == ("uvicorn.error", "cut")
    assert "color_message" not in line


async def answer(request: Request) -> PlainTextResponse:
    if request.url.path == "/fails":
        raise ZeroDivisionError
    return PlainTextResponse("", 204)


async def get(app: HttpService, path: str) -> None:
    scope: Scope = {
        "type": "http", "method": "GET", "path": path, "query_string": b"q=secret",
        "headers": [], "server": ("localhost", 80), "scheme": "http", "root_path": "",
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        assert message["type"].startswith("http.response.")

    await app(scope, receive, send)


def watched(path: str, handler: Handler) -> HttpService:
    service = HttpService(lambda: PROTOCOLS, Metrics(), settings({}))
    service.open(Starlette(routes=[Route(path, handler)]))
    return service


APPLICATION = watched("/{path:path}", answer)


def test_each_request_is_a_line_without_its_query_also_one_that_fails(lines: Lines) -> None:
    asyncio.run(get(APPLICATION, "/a\tpath"))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(get(APPLICATION, "/fails"))
    paths = ["/health", "/health/live", "/health/ready", "/health/startup", "/metrics"]
    for path in paths:  # what machines ask again and again is logged at DEBUG only
        asyncio.run(get(APPLICATION, path))

    line, failed = lines.all()
    assert line.pop("time")
    assert line.pop("duration_ms") >= 0
    assert line == {
        "level": "INFO", "logger": "agentops_memory.telemetry.requests", "message": "request",
        "method": "GET", "path": "/a\tpath", "status": 204,
    }  # fmt: skip
    assert failed["status"] == 500
    logging.getLogger().setLevel("DEBUG")
    for path in paths:
        asyncio.run(get(APPLICATION, path))
    assert [it["path"] for it in lines.all()[2:] if it["message"] == "request"] == paths


def test_lines_inside_an_operation_and_that_of_its_request_name_its_span(
    lines: Lines, collector: Collector, tmp_path: Path
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        async def stats(_: Request) -> PlainTextResponse:
            log.info("outside")
            with telemetry.operation("stats", {}):
                log.info("inside")
                return PlainTextResponse("")

        await get(watched("/stats", stats), "/stats")

    trace(collector, tmp_path, work)

    span = collector.one("memory.stats")
    told = {line["message"]: line for line in lines.all()}
    for message in ("inside", "request"):
        assert (told[message]["trace_id"], told[message]["span_id"]) == (span.trace, span.id)
    assert "trace_id" not in told["outside"]


@pytest.mark.slow
def test_the_line_of_a_request_names_the_key_the_tenant_and_the_client(path: Path) -> None:
    name = 'ci "1"'
    token = Terminal().say("keys", "create", "--name", name, "--role", "reader", "--db", path)
    with served(path) as (process, http):
        for headers in ({"authorization": f"Bearer {token.strip()}"}, {}):
            http.get("/context?project=p&query=word", headers=headers)
            http.get("/context?project=p&query=word", headers=headers)  # from memory, by now
            http.delete("/observations/1", headers=headers)
        process.send(signal.SIGINT)
        process.wait()
        lines = [json.loads(line) for line in process.lines]

    told = [it for it in lines if it["message"] == "request"]
    assert [(it["status"], it["client"], it.get("tenant"), it.get("key")) for it in told] == [
        *[(status, "127.0.0.1", "default", name) for status in (200, 200, 403)],
        *[(401, "127.0.0.1", None, None)] * 3,
    ]


@pytest.mark.slow
def test_a_path_that_ends_in_a_line_feed_is_logged_in_one_line(path: Path) -> None:
    pages = ["/docs", "/openapi.json"]  # found by their paths, even with a line feed at the end
    with served(path) as (process, http):
        assert [http.get(f"{it}%0A").status_code for it in pages] == [200, 200]
        measured = http.get("/metrics").text
        process.send(signal.SIGINT)
        process.wait()
        lines = [json.loads(line) for line in process.lines]

    told = [it["path"] for it in lines if it["message"] == "request"]
    assert told == [f"{it}\n" for it in pages]
    assert re.findall(r'memory_requests_total\{method="GET",route="(.*?)"', measured) == ["none"]


def test_lines_of_requests_are_written_in_whole_lines_that_a_shared_pipe_keeps_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Written(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

    pieces: list[str] = []
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(Written())])
    lines = [f"{it} {'x' * 230}\n" for it in range(40)]
    lines.insert(7, "y" * (PIPE_BUF + 1) + "\n")
    write("".join(lines))
    assert "".join(pieces) == "".join(lines)
    assert len(pieces) <= 6
    for it in pieces:
        assert it.endswith("\n")
        assert len(it) <= PIPE_BUF or it == lines[7]
