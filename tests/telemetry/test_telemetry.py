"""Each operation is a span in its caller's trace, and says how it ended."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from opentelemetry.trace import INVALID_SPAN, NoOpTracer, get_current_span

from agentops_memory import __version__
from agentops_memory.engine.engine import Engine
from agentops_memory.errors import Busy, Conflict, Full, Invalid, InvalidFields, NotFound, Refusal
from agentops_memory.recall.recall import totals
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.telemetry import Telemetry, annotate, events, traced

from ..support.otlp import Collector, Event
from ..support.traced import (
    ADA,
    AGENT,
    NOW,
    TRACE,
    TRACEPARENT,
    collector,
    draft,
    each_collector,
    saved,
    trace,
)

__all__ = ["collector", "each_collector"]


def test_one_trace_leads_from_the_agent_to_each_step_in_the_database(
    each_collector: Collector, tmp_path: Path
) -> None:
    async def work(telemetry: Telemetry, engine: Engine) -> None:
        with telemetry.operation("add_observation", {"traceparent": TRACEPARENT}):
            await saved(engine, draft("a fact", key="a/key"))

    trace(each_collector, tmp_path, work)

    ours = each_collector.one("memory.add_observation")
    (stored,) = each_collector.children(ours)
    steps = each_collector.children(stored)
    assert (ours.trace, ours.parent, ours.is_server) == (TRACE, AGENT, True)
    assert (stored.name, stored.is_server) == ("store.add_observation", False)
    assert [s.name for s in steps] == ["store.dedup.topic_key", "store.dedup.hash", "store.insert"]
    assert {span.trace for span in each_collector.spans} == {TRACE}


def test_an_operation_says_what_its_handler_tells_it(
    each_collector: Collector, tmp_path: Path
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        with telemetry.operation("stats", {}):
            annotate({"memory.project": "demo", "memory.session.id": None})
            events("search.result", [{"memory.injected.rank": -1.5, "memory.injected.title": None}])

    trace(each_collector, tmp_path, work)

    span = each_collector.one("memory.stats")
    assert span.attributes == {"memory.operation": "stats", "memory.project": "demo"}
    assert span.events == (Event(name="search.result", attributes={"memory.injected.rank": -1.5}),)
    assert (span.parent, span.failed) == ("", False)


def test_spans_name_the_service_and_its_version(collector: Collector, tmp_path: Path) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        with telemetry.operation("stats", {}):
            pass

    trace(collector, tmp_path, work)

    resource = collector.one("memory.stats").resource
    assert resource["service.name"] == "agentops-memory"
    assert resource["service.version"] == __version__


@pytest.mark.representative(2)
@pytest.mark.parametrize(
    "malformed",
    [
        "", "nonsense", f"00-{TRACE}-{AGENT}", f"00-{'0' * 32}-{AGENT}-01",
        f"00-{TRACE.upper()}-{AGENT}-01", f"ff-{TRACE}-{AGENT}-01",
        f"00-{TRACE}-{AGENT}-01-{'x' * 1000}", "é\x00\ud800",
    ],
)  # fmt: skip
def test_a_malformed_traceparent_is_ignored(
    collector: Collector, tmp_path: Path, malformed: str
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        with telemetry.operation("stats", {"traceparent": malformed}):
            pass

    trace(collector, tmp_path, work)

    span = collector.one("memory.stats")
    assert span.parent == ""
    assert span.trace != TRACE


def test_a_caller_that_does_not_sample_is_not_traced(collector: Collector, tmp_path: Path) -> None:
    async def work(telemetry: Telemetry, engine: Engine) -> None:
        with telemetry.operation("stats", {"traceparent": f"00-{TRACE}-{AGENT}-00"}):
            await engine.read(ADA, totals, None)

    trace(collector, tmp_path, work)

    assert collector.spans == []


@pytest.mark.representative(2)
@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (NotFound("There is none."), "not_found"),
        (InvalidFields("title is required"), "validation_error"),
        (Invalid("No number."), "invalid_input"), (Busy("Locked."), "db_locked"),
        (Conflict("Taken."), "constraint_violation"), (Full("No space."), "error"),
        (sqlite3.OperationalError("no such table: nowhere"), "error"),
    ],
)  # fmt: skip
def test_an_error_is_recorded_with_its_type_and_goes_on(
    collector: Collector, tmp_path: Path, error: Exception, error_type: str
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        with telemetry.operation("stats", {}):
            raise error

    with pytest.raises(type(error)):
        trace(collector, tmp_path, work)

    span = collector.one("memory.stats")
    (exception,) = span.events
    assert (span.failed, span.attributes["error.type"]) == (True, error_type)
    assert span.status == f"{type(error).__name__}: {error}"
    assert exception.name == "exception"
    assert exception.attributes["exception.message"] == str(error)
    assert "raise error" in str(exception.attributes["exception.stacktrace"])


@pytest.mark.parametrize("behind", [None, sqlite3.OperationalError("near 'quoted'")])
def test_an_error_whose_message_may_quote_what_is_stored_is_recorded_without_it(
    collector: Collector, tmp_path: Path, behind: Exception | None
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        with telemetry.operation("stats", {}):
            raise KeyError("quoted") from behind

    with pytest.raises(KeyError):
        trace(collector, tmp_path, work)

    span = collector.one("memory.stats")
    (exception,) = span.events
    told = dict(exception.attributes)
    stack = str(told.pop("exception.stacktrace"))
    assert (span.status, told) == ("KeyError", {"exception.type": "builtins.KeyError"})
    assert stack.endswith('raise KeyError("quoted") from behind\nKeyError\n')
    assert ("sqlite3.OperationalError\n\nThe above exception" in stack) == (behind is not None)


def test_a_cancelled_operation_is_no_error(collector: Collector, tmp_path: Path) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        with telemetry.operation("stats", {}):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        trace(collector, tmp_path, work)

    span = collector.one("memory.stats")
    assert (span.failed, span.events) == (False, ())


def test_spans_carry_text_in_any_script_and_survive_broken_text(
    each_collector: Collector, tmp_path: Path
) -> None:
    async def work(telemetry: Telemetry, _: Engine) -> None:
        with telemetry.operation("search", {}):
            annotate({"memory.search.query": "naïve 検索 🐘", "memory.query": "half \ud83d"})
            events("search.result", [{"memory.injected.title": "\udfff"}])
            raise Refusal("broken \ud800")

    with pytest.raises(Refusal):
        trace(each_collector, tmp_path, work)

    span = each_collector.one("memory.search")
    assert span.attributes["memory.search.query"] == "naïve 検索 🐘"
    assert span.attributes["memory.query"] == "half ?"
    assert span.events[0].attributes == {"memory.injected.title": "?"}
    assert span.status == "Refusal: broken ?"


async def test_without_an_endpoint_nothing_is_traced(path: Path) -> None:
    telemetry = Telemetry.started(None)
    async with SqliteEngine.opened(path, clock=lambda: NOW) as engine:
        assert traced(engine, telemetry) is engine

    with telemetry.operation("stats", {"traceparent": TRACEPARENT}) as span:
        annotate({"memory.project": "demo"})
        events("search.result", [{}])
        assert (span, get_current_span()) == (INVALID_SPAN, INVALID_SPAN)
    assert isinstance(telemetry.tracer, NoOpTracer)
    telemetry.stop()
