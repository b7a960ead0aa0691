"""Every log line is one JSON object, whatever is in it."""

import asyncio
import gc
import io
import json
import logging
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message, Scope

from agentops_memory.engine.engine import Engine
from agentops_memory.errors import Unavailable
from agentops_memory.http.protocol import Handler
from agentops_memory.telemetry import Metrics, Requests, Telemetry, configure_logging
from agentops_memory.telemetry.logs import JsonFormatter

from ..support.otlp import Collector
from ..support.process import run, served
from ..support.samples import for_each
from ..support.traced import collector, trace

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


def test_a_line_has_its_time_its_level_its_logger_its_words_and_its_fields() -> None:
    record = logging.makeLogRecord(
        {"name": OURS, "levelname": "INFO", "msg": "swept %s", "args": ("it",)}
        | {"created": 1893456000.1239, "expired": 3, "project": "検索", "level": "mine"}
    )

    assert json.loads(JsonFormatter().format(record)) == {
        "time": "2030-01-01T00:00:00.123Z", "level": "INFO", "logger": OURS, "message": "swept it",
        "expired": 3, "project": "検索",
    }  # fmt: skip


@for_each("at", [0.0, 1893456000.0004, 1893456000.9994, 1893456000.9999999])
def test_the_time_of_a_line_is_that_of_its_record_in_whole_milliseconds(at: float) -> None:
    record = logging.makeLogRecord({"name": OURS, "msg": "swept", "created": at})

    told = json.loads(JsonFormatter().format(record))["time"]

    shown = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    assert told == shown.replace("+00:00", "Z")


def test_libraries_that_tell_of_each_request_are_heard_from_warnings_on(lines: Lines) -> None:
    for name in ("httpx", "httpcore.http11"):
        logging.getLogger(name).info("GET http://127.0.0.1:7437/search?q=private")
    logging.getLogger("httpx").warning("something is wrong")

    assert lines.one()["message"] == "something is wrong"


def test_no_text_can_forge_a_line() -> None:
    forged = 'a\n{"level": "ERROR"}\r\u2028\x1b[31m\x85\ud800'
    record = logging.makeLogRecord({"name": OURS, "msg": forged, "path": forged})

    line = JsonFormatter().format(record)

    assert (line.isascii(), line.isprintable()) == (True, True)
    assert json.loads(line)["message"] == json.loads(line)["path"] == forged


class Broken:
    def __str__(self) -> str:
        raise ValueError("no text")


def circle() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Path("a/file"), "a/file"), (Broken(), "<Broken>"), (circle(), "[[...]]"),
        (float("nan"), "nan"), ({(1, 2): 3}, "{(1, 2): 3}"),
        ({"deep": [Path("a")]}, {"deep": ["a"]}),
    ],
)  # fmt: skip
def test_any_value_can_be_a_field(lines: Lines, value: object, shown: object) -> None:
    log.info("odd", extra={"value": value})

    assert lines.one()["value"] == shown


@pytest.mark.parametrize("name", [OURS, "a.library"])
def test_wrong_arguments_do_not_lose_a_line(name: str) -> None:
    record = logging.makeLogRecord({"name": name, "msg": "%d of %d", "args": ("one",)})

    assert json.loads(JsonFormatter().format(record))["message"] == "%d of %d"


def test_an_exception_is_a_field_of_its_line(lines: Lines) -> None:
    try:
        raise KeyError("gone")
    except KeyError:
        log.exception("it failed")

    assert lines.one()["exception"].startswith("Traceback")
    assert lines.one()["exception"].endswith("KeyError\n")


QUOTED = "qzxquoted"


class Model(pydantic.BaseModel):
    number: int


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


def without_context() -> None:
    try:
        decode()
    except sqlite3.Error:
        raise ValueError(QUOTED) from None


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
    f"{QUOTED}\ud800".encode: ["UnicodeEncodeError"],
    lambda: json.loads(f'["{QUOTED}'): ["json.decoder.JSONDecodeError"],
    lambda: Model(number=QUOTED): ["pydantic_core._pydantic_core.ValidationError"],  # type: ignore[arg-type]
    lambda: re.compile(f"(?P<{QUOTED}"): [f"re.{re.error.__qualname__}"],
    lambda: int(QUOTED): ["ValueError"],
    lambda: getattr(None, QUOTED): ["AttributeError"],
    lambda: Path(f"/{QUOTED}/x").read_text(): ["FileNotFoundError: No such file or directory"],
    lambda: compile(QUOTED + " x", QUOTED, "exec"): ["SyntaxError"],
    lambda: [][QUOTED]: ["TypeError"],  # type: ignore[call-overload]
    group: ["ExceptionGroup", "ValueError", "ExceptionGroup", "KeyError"],
    chain: [
        "sqlite3.OperationalError: Could not decode to UTF-8",
        "agentops_memory.errors.Unavailable: It is away.",
    ],
    without_context: ["ValueError"],
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
    logging.getLogger("uvicorn.error").warning("cut", extra={"color_message": "\x1b[1mcut"})

    line = lines.one()
    assert (line["logger"], line["message"]) == ("uvicorn.error", "cut")
    assert "color_message" not in line


def test_lines_inside_an_operation_name_its_span(
    lines: Lines, collector: Collector, tmp_path: Path
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        log.info("outside")
        with telemetry.operation("stats", {}):
            log.info("inside")

    trace(collector, tmp_path, work)

    outside, inside = (line for line in lines.all() if line["logger"] == OURS)
    span = collector.one("memory.stats")
    assert (inside["trace_id"], inside["span_id"]) == (span.trace, span.id)
    assert "trace_id" not in outside


async def answer(request: Request) -> PlainTextResponse:
    if request.url.path == "/fails":
        raise ZeroDivisionError
    return PlainTextResponse("", 204)


async def get(app: Requests, path: str) -> None:
    scope: Scope = {
        "type": "http", "method": "GET", "path": path, "query_string": b"q=secret",
        "headers": [], "server": ("localhost", 80), "scheme": "http", "root_path": "",
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        assert message["type"].startswith("http.response.")

    await app(scope, receive, send)


def watched(path: str, handler: Handler) -> Requests:
    return Requests(
        Starlette(routes=[Route(path, handler)]), Metrics(), lambda scope: str(scope["path"])
    )


APPLICATION = watched("/{path:path}", answer)


def test_each_request_is_a_line_without_its_query(lines: Lines) -> None:
    asyncio.run(get(APPLICATION, "/a\tpath"))

    line = lines.one()
    assert line.pop("time")
    assert line.pop("duration_ms") >= 0
    assert line == {
        "level": "INFO", "logger": "agentops_memory.telemetry.requests", "message": "request",
        "method": "GET", "path": "/a\tpath", "status": 204,
    }  # fmt: skip


def test_a_request_that_fails_is_a_line_too(lines: Lines) -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(get(APPLICATION, "/fails"))

    assert lines.one()["status"] == 500


def test_what_machines_ask_again_and_again_is_logged_at_debug_only(lines: Lines) -> None:
    paths = ["/health", "/health/live", "/health/ready", "/health/startup", "/metrics"]
    for path in paths:
        asyncio.run(get(APPLICATION, path))
    assert lines.all() == []

    logging.getLogger().setLevel("DEBUG")
    for path in paths:
        asyncio.run(get(APPLICATION, path))
    assert [line["path"] for line in lines.all() if line["message"] == "request"] == paths


def test_the_line_of_a_request_names_the_span_of_its_operation(
    lines: Lines, collector: Collector, tmp_path: Path
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        async def stats(_: Request) -> PlainTextResponse:
            with telemetry.operation("stats", {}):
                return PlainTextResponse("")

        await get(watched("/stats", stats), "/stats")

    trace(collector, tmp_path, work)

    span = collector.one("memory.stats")
    (line,) = (line for line in lines.all() if line["message"] == "request")
    assert (line["trace_id"], line["span_id"]) == (span.trace, span.id)


def test_the_line_of_a_request_names_the_key_the_tenant_and_the_client(path: Path) -> None:
    name = 'ci "1"'
    made = run("keys", "create", "--name", name, "--role", "reader", "--db", str(path))
    with served(path) as (process, http):
        for headers in ({"authorization": f"Bearer {made.stdout.strip()}"}, {}):
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
