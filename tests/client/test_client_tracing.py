"""What a client or the kit asks belongs to the trace it is asked in, and the work lies below it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TraceState,
    format_span_id,
    format_trace_id,
    use_span,
)

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.runtime import (
    ChatMessage,
    MemorySession,
    ToolCall,
    ToolHooks,
    WorkingMemory,
)

from ..support.agent_memory import Way, agent, one_turn, settled, until
from ..support.asking import KINDS, Road, answering, asking
from ..support.service import serving
from ..telemetry.test_tracing import AGENT, TRACE, traced

BASH = ToolCall(id="1", name="bash", arguments={"command": "make wheel"})
CALLER = NonRecordingSpan(
    SpanContext(
        int(TRACE, 16), int(AGENT, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=TraceState([("vendor", "blue")]),
    )
)  # fmt: skip
HOOKS = ToolHooks.from_yaml("contextInjectTools: [{tool: bash, query: from_tool_args, limit: 3}]")


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of a program that has a provider."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.mark.slow
def test_the_services_spans_join_those_of_the_agent(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    async def run(url: str) -> None:
        async with (
            AsyncMemoryClient(url) as client,
            MemorySession(client, WorkingMemory(session_id="ada"), project="demo") as memory,
        ):
            with trace.get_tracer("agent").start_as_current_span("agent.turn"):
                await one_turn(memory, "Build the wheel.")
            await settled(memory)

    with traced(tmp_path) as (service, received):
        asyncio.run(run(service.url))
        collector = received()

    turn = spans(exported, "agent.turn")[0]
    fetch = spans(exported, "runtime.fetch_context")[0]
    start, messages, end = spans(exported, "runtime.deliver")
    assert below(turn) == below(fetch, "parent") == below(messages, "parent")
    assert messages.end_time is not None
    assert dict(fetch.attributes or {}) == {
        "memory.project": "demo", "memory.session.id": "ada", "memory.turn": 1,
        "memory.context.result_count": 0,
    }  # fmt: skip
    for ours, theirs in (
        (fetch, "memory.fetch_context"), (start, "memory.create_session"),
        (messages, "memory.append_messages"), (end, "memory.end_session"),
    ):  # fmt: skip
        span = collector.one(theirs)
        assert (span.trace, span.parent) == below(ours)


def test_what_a_hook_looks_up_is_in_the_trace_and_not_in_the_prompt(
    path: Path, exported: InMemorySpanExporter
) -> None:
    async def run(way: Way) -> str:
        async def made() -> str:
            return "made"

        async with agent(way, hooks=HOOKS) as memory, memory.turn("Do it.") as remembered:
            assert await memory.run_tool(BASH, made) == "made"
            await until(lambda: spans(exported, "runtime.search"))
            memory.working.add(ChatMessage.tool("1", "made"))
        return remembered

    with serving(path) as service:
        id_ = service.save("Use hatchling to make the wheel.", title="Packaging" * 20)["id"]
        asyncio.run(run(way := Way(service)))

    (request,) = way.taken("/search")
    assert dict(request.url.params) == {"q": "make wheel", "project": "demo", "limit": "3"}
    (span,) = spans(exported, "runtime.search")
    attributes = dict(span.attributes or {})
    assert (attributes["gen_ai.tool.name"], attributes["memory.search.result_count"]) == ("bash", 1)
    (event,) = span.events
    told = dict(event.attributes or {})
    assert told.pop("memory.injected.rank")
    assert (event.name, told) == (
        "search.result",
        {
            "memory.injected.observation_id": id_,
            "memory.injected.type": "discovery",
            "memory.injected.title": ("Packaging" * 20)[:100],
        },
    )


async def test_a_service_that_is_away_is_an_error_of_the_spans(
    path: Path, exported: InMemorySpanExporter
) -> None:
    with serving(path) as service:
        way = Way(service, is_open=False)
        async with agent(way) as memory:
            await one_turn(memory, "Do it.")

    for name in ("runtime.fetch_context", "runtime.deliver"):
        for span in spans(exported, name):
            assert (span.status.is_ok, span.status.description) == (False, "Unreachable")
            (event,) = span.events
            told = {"exception.type": "agentops_memory_client.contract.models.Unreachable"}
            assert (event.name, dict(event.attributes or {})) == ("exception", told)


def spans(exported: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exported.get_finished_spans() if span.name == name]


def below(span: ReadableSpan, whose: str = "context") -> tuple[str, str]:
    """The trace and the id of a span, or of its parent."""
    context = getattr(span, whose)
    return format_trace_id(context.trace_id), format_span_id(context.span_id)


def test_every_attempt_tells_of_the_trace_if_there_is_one() -> None:
    for kind in KINDS:
        busy = answering(503, {"error": "Busy."})
        road = Road([busy, busy, answering(json=[])])
        with asking(kind, road=road) as client:
            with use_span(CALLER):
                client.sessions()
            client.sessions()

        assert [it.headers.get("traceparent") for it in road.requests] == [
            *[f"00-{TRACE}-{AGENT}-01"] * 3,
            None,
        ]
        assert [it.headers.get("tracestate") for it in road.requests] == [
            *["vendor=blue"] * 3,
            None,
        ]
