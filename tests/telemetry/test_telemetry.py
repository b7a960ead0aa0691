"""Each operation is a span in its caller's trace, and says how it ended."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from opentelemetry.trace import INVALID_SPAN, get_current_span

from agentops_memory import __version__
from agentops_memory.engine.engine import Engine
from agentops_memory.errors import Busy, Conflict, Full, Invalid, InvalidFields, NotFound, Refusal
from agentops_memory.recall.recall import totals
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.telemetry import Telemetry, annotate, events, traced

from ..support.otlp import (
    ADA,
    AGENT,
    NOW,
    TRACE,
    TRACEPARENT,
    Collector,
    Event,
    collector,
    each_collector,
    trace,
)

__all__ = ["collector", "each_collector"]


@pytest.mark.slow
def test_an_operation_says_what_its_handler_tells_it_in_any_script_also_broken_text(
    each_collector: Collector, tmp_path: Path
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        with telemetry.operation("stats", {}):
            annotate({"memory.project": "demo", "memory.session.id": None})
            events("search.result", [{"memory.injected.rank": -1.5, "memory.injected.title": None}])
        with telemetry.operation("search", {}):
            annotate({"memory.search.query": "naïve 検索 🐘", "memory.query": "half \ud83d"})
            events("search.result", [{"memory.injected.title": "\udfff"}])
            raise Refusal("broken \ud800")

    with pytest.raises(Refusal):
        trace(each_collector, tmp_path, work)

    span = each_collector.one("memory.stats")
    assert span.attributes == {"memory.operation": "stats", "memory.project": "demo"}
    assert span.events == (Event(name="search.result", attributes={"memory.injected.rank": -1.5}),)
    assert (span.parent, span.failed) == ("", False)
    span = each_collector.one("memory.search")
    assert span.attributes["memory.search.query"] == "naïve 検索 🐘"
    assert span.attributes["memory.query"] == "half ?"
    assert span.events[0].attributes == {"memory.injected.title": "?"}
    assert span.status == "Refusal: broken ?"


def test_a_malformed_traceparent_is_ignored_and_a_caller_that_does_not_sample_is_not_traced(
    collector: Collector, tmp_path: Path
) -> None:
    malformed = [
        "", "nonsense", f"00-{TRACE}-{AGENT}", f"00-{'0' * 32}-{AGENT}-01",
        f"00-{TRACE.upper()}-{AGENT}-01", f"ff-{TRACE}-{AGENT}-01",
        f"00-{TRACE}-{AGENT}-01-{'x' * 1000}", "é\x00\ud800",
    ]  # fmt: skip

    async def work(telemetry: Telemetry, engine: Engine) -> None:
        for header in malformed:
            with telemetry.operation("stats", {"traceparent": header}):
                pass
        with telemetry.operation("export", {"traceparent": f"00-{TRACE}-{AGENT}-00"}):
            await engine.read(ADA, totals, None)

    trace(collector, tmp_path, work)

    spans = collector.all("memory.stats")
    assert len(spans) == len(collector.spans) == len(malformed)
    assert {span.parent for span in spans} == {""}
    assert TRACE not in {span.trace for span in spans}
    resource = spans[0].resource
    assert (resource["service.name"], resource["service.version"]) == (
        "agentops-memory", __version__,
    )  # fmt: skip


def quoting(behind: Exception | None) -> Exception:
    error = KeyError("quoted")
    error.__cause__ = behind
    return error


def test_an_error_is_recorded_with_its_type_and_what_it_may_quote_is_not(
    collector: Collector, tmp_path: Path
) -> None:
    errors: dict[BaseException, str | None] = {
        NotFound("There is none."): "not_found",
        InvalidFields("title is required"): "validation_error",
        Invalid("No number."): "invalid_input", Busy("Locked."): "db_locked",
        Conflict("Taken."): "constraint_violation", Full("No space."): "error",
        sqlite3.OperationalError("no such table: nowhere"): "error", quoting(None): "error",
        quoting(sqlite3.OperationalError("near 'quoted'")): "error",
        asyncio.CancelledError(): None,  # no error
    }  # fmt: skip

    async def work(telemetry: Telemetry, _: Engine) -> None:
        for error in errors:
            with pytest.raises(type(error)), telemetry.operation("stats", {}):
                raise error

    trace(collector, tmp_path, work)

    for span, (error, kind) in zip(collector.all("memory.stats"), errors.items(), strict=True):
        assert (span.failed, span.attributes.get("error.type")) == (kind is not None, kind)
        if kind is None:
            assert span.events == ()
            continue
        (exception,) = span.events
        assert exception.name == "exception"
        stack = str(exception.attributes["exception.stacktrace"])
        assert "raise error" in stack
        if isinstance(error, KeyError):
            told = {**exception.attributes}
            del told["exception.stacktrace"]
            assert (span.status, told) == ("KeyError", {"exception.type": "builtins.KeyError"})
            assert stack.endswith("raise error\nKeyError\n")
            cause = "sqlite3.OperationalError\n\nThe above exception"
            assert (cause in stack) == (error.__cause__ is not None)
        else:
            assert span.status == f"{type(error).__name__}: {error}"
            assert exception.attributes["exception.message"] == str(error)


async def test_without_an_endpoint_nothing_is_traced(path: Path) -> None:
    telemetry = Telemetry.started(None)
    async with SqliteEngine.opened(path, clock=lambda: NOW) as engine:
        assert traced(engine, telemetry) is engine

    with telemetry.operation("stats", {"traceparent": TRACEPARENT}) as span:
        annotate({"memory.project": "demo"})
        events("search.result", [{}])
        assert (span, get_current_span()) == (None, INVALID_SPAN)
    telemetry.stop()
