"""A read that memory answers leaves the spans, measurements and log line of the long way."""

import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from agentops_memory.telemetry import JsonFormatter

from ..support.fast_reads import LONG_WAY, Counted, counted, held
from ..support.openwop_hosts import Host
from ..support.otlp import Collector, ReceivedSpan
from ..support.service import Service
from ..telemetry.test_logs import Lines, lines
from ..telemetry.test_tracing import traced

__all__ = ["counted", "lines"]

KEY = "AKIA" + "QZXV7RARE" + "K3YQ9AB"
OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
ATTEMPTS = 200  # another reader may be in memory
LONG_WAYS = 0xF067AA0BA902B7  # the span that a caller has whom the long way answers

READS: dict[str, tuple[str, dict[str, str]]] = {
    "matches": ("/context", {"query": "rollback worker", "limit": "2"}),
    "the newest of all projects, too": ("/context", {"query": "rollback", "limit": "40"}),
    "no word to look for": ("/context", {"query": "?!"}),
    "words corrected": ("/context", {"query": "rolback of the migratoin"}),
    "a secret": ("/context", {"query": f"rollback {KEY}"}),
    "a search with every word": ("/search", {"q": "rollback", "limit": "2"}),
    "a search with any word": ("/search", {"q": "rollback migration zanzibar"}),
    "a search with corrections": ("/search", {"q": "rolback worker"}),
}


def print_from_now_on(lines: Lines) -> None:
    """Let the root logger have the one handler that it has in a service."""
    root = logging.getLogger()
    root.handlers = [it for it in root.handlers if isinstance(it.formatter, JsonFormatter)]
    lines.seek(0)
    lines.truncate()


def fill(service: Service) -> None:
    for number in range(6):
        service.clock.advance(seconds=1)
        service.save(f"rollback worker {number} 🐳 {'queue ' * number}", project="heron")
    service.save("retry the migration", title="é" * 150, project="heron", session_id="s2")
    service.save("everywhere", project="heron", scope="global", session_id="s2")
    service.save("elsewhere", project="stork", scope="global", session_id="s3")
    said = {"messages": [{"role": "user", "content": "Deploy the worker."}]}
    service.http.post("/sessions/s1/end", json=said).raise_for_status()


def url(path: str, params: dict[str, str]) -> str:
    return f"{path}?{urlencode({'project': 'Heron ', **params})}"


def parent(trace: str, span: int, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{span:016x}-{flags}", "tracestate": "a=1,b=2"}


def answered(service: Service, counted: Counted, asked: str, trace: str, flags: str = "01") -> str:
    """Let memory, and then the long way, answer in one trace; the parent of memory's span."""
    for attempt in range(1, ATTEMPTS):
        before = counted.answered
        service.http.get(asked, headers=parent(trace, attempt, flags)).raise_for_status()
        if counted.answered > before:
            break
    else:
        raise AssertionError("memory never answered")
    service.http.get(asked, headers=LONG_WAY | parent(trace, LONG_WAYS, flags)).raise_for_status()
    return f"{attempt:016x}"


def trees(collector: Collector, trace: str, memory: str) -> tuple[Any, Any]:
    """The spans of memory's answer and of the long way's, without ids and times."""
    spans = [it for it in collector.spans if it.trace == trace]
    (one,) = (it for it in spans if it.parent == memory)
    (other,) = (it for it in spans if it.parent == f"{LONG_WAYS:016x}")
    return _tree(spans, one), _tree(spans, other)


def _tree(spans: list[ReceivedSpan], root: ReceivedSpan) -> Any:
    below = [it for it in spans if it.parent == root.id]
    for it in below:
        assert root.began <= it.began <= it.ended <= root.ended
    told = (root.name, root.is_server, root.failed, root.attributes, root.events, root.resource)
    return (*told, root.state, [_tree(spans, it) for it in below])


@pytest.mark.slow
def test_memory_leaves_the_spans_of_the_long_way(tmp_path: Path, counted: Counted) -> None:
    with traced(tmp_path) as (service, received):
        fill(service)
        asked: dict[str, tuple[str, str]] = {}  # a trace, and the parent of memory's span
        for number, (name, read) in enumerate([*READS.items()] * 2):
            if number == len(READS):
                for pinned in (1, 8):
                    service.http.patch(f"/observations/{pinned}", json={"pinned": True})
            trace = f"{number + 1:032x}"
            memory = answered(service, counted, url(*read), trace)
            asked[name if number < len(READS) else f"{name}, with pins"] = trace, memory
        collector = received()

    seen: dict[str, Any] = {}
    for name, told in asked.items():
        seen[name], other = trees(collector, *told)
        assert seen[name] == other, name
    names = {name: [step[0] for step in tree[-1][0][-1]] for name, tree in seen.items()}
    fts, backfill, pins = "store.fts", "store.backfill", "store.pins"
    assert names["matches"] == [fts, pins]
    assert names["the newest of all projects, too"] == [fts, backfill, backfill, pins]
    assert names["no word to look for"] == [backfill, pins]
    assert names["a search with every word"] == [fts]
    assert names["a search with any word"] == [fts, fts]
    assert seen["words corrected"][3]["memory.context.corrected_count"] == 1
    methods = [it.attributes["memory.injected.method"] for it in seen["matches, with pins"][4]]
    assert methods == ["pinned", "fts5_bm25"]
    assert KEY not in str(collector.spans)


def test_what_is_remembered_of_events_is_forgotten_with_the_rules(
    tmp_path: Path, counted: Counted
) -> None:
    allowed = tmp_path / "memory.db.redaction"
    allowed.write_text('{"default": {"allow_kinds": ["aws-key-id"]}}')
    with traced(tmp_path) as (service, received):
        service.save("rollback", title=KEY, project="heron", scope="global")
        service.save("rollback", title=f"of {KEY}", project="heron")
        asked = url(*READS["a secret"])
        before = answered(service, counted, asked, "7" * 32)
        Host(service.http).in_run("r1").register("key", KEY)
        after = answered(service, counted, asked, "8" * 32)
        collector = received()

    one, other = trees(collector, "7" * 32, before)
    assert one == other
    assert KEY in one[3]["memory.query"]
    assert str(one[4]).count(KEY) == 2
    one, other = trees(collector, "8" * 32, after)
    assert one == other
    assert len(one[4]) == 2
    assert KEY not in str(one)


@pytest.mark.slow
def test_the_sampler_of_the_environment_and_the_caller_decide(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    with traced(tmp_path) as (service, received):
        fill(service)
        asked = url("/context", {"query": "rollback"})
        held(service, counted, asked)
        memory = answered(service, counted, asked, "9" * 32)
        print_from_now_on(lines)
        answered(service, counted, asked, "4" * 32, flags="00")
        collector = received()

    one, other = trees(collector, "9" * 32, memory)
    assert one == other
    assert {it.trace for it in collector.spans} == {"9" * 32}
    # The line of the request before may be printed late.
    assert {it["trace_id"] for it in _requests(lines)} - {"9" * 32} == {"4" * 32}


@pytest.mark.slow
def test_a_disabled_sdk_sends_no_span_of_memory_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with traced(tmp_path) as (service, received):
        fill(service)
        for _ in range(3):
            service.http.get(url("/context", {"query": "rollback"})).raise_for_status()
        assert received().spans == []


def test_an_empty_context_from_memory_is_a_span(tmp_path: Path, counted: Counted) -> None:
    with traced(tmp_path) as (service, received):
        service.save("rollback worker", project="heron")
        asked = url("/context", {"query": "rollback"})
        held(service, counted, asked)
        service.http.delete("/observations/1").raise_for_status()
        held(service, counted, asked)
        memory = answered(service, counted, asked, "3" * 32)
        one, other = trees(received(), "3" * 32, memory)

    assert one == other
    assert one[3]["memory.context.result_count"] == 0
    assert one[6] == "a=1,b=2"


@pytest.mark.slow
def test_log_lines_and_measurements_name_the_trace(
    tmp_path: Path, counted: Counted, lines: Lines
) -> None:
    with traced(tmp_path) as (service, received):
        fill(service)
        asked = url("/context", {"query": "rollback", "limit": "20"})
        print_from_now_on(lines)
        for attempt in range(1, ATTEMPTS):
            one = _measured(service, asked, parent(f"{attempt:032x}", 1))
            if counted.answered:
                break
        memory, long_way = f"{attempt:032x}", "5" * 32
        other = _measured(service, asked, LONG_WAY | parent(long_way, 1))
        collector = received()

    assert {name: by for name, (by, _) in one.items()} == {n: by for n, (by, _) in other.items()}
    assert len(one) == 4  # requests, answers, and memories by two methods
    assert {trace for _, trace in one.values()} == {memory}
    assert {trace for _, trace in other.values()} == {long_way}
    spans = {it.trace: it.id for it in collector.all("memory.fetch_context")}
    told = {it["trace_id"]: it for it in _requests(lines)}
    assert {trace: it["span_id"] for trace, it in told.items()} == spans
    assert list(told[memory]) == list(told[long_way])


def _requests(lines: Lines) -> list[dict[str, Any]]:
    return [it for it in lines.all() if it.get("path") == "/context"]


def _measured(
    service: Service, asked: str, headers: dict[str, str]
) -> dict[str, tuple[float, str | None]]:
    """By how much each counter grows with a context, and the trace that its exemplar names."""
    before = _counters(service)
    service.http.get(asked, headers=headers).raise_for_status()
    return {
        name: (value - before.get(name, (0.0, None))[0], trace)
        for name, (value, trace) in _counters(service).items()
        if value != before.get(name, (0.0, None))[0]
    }


def _counters(service: Service) -> dict[str, tuple[float, str | None]]:
    text = service.http.get("/metrics", headers=OPEN_METRICS).text
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {
        f"{it.name} {it.labels}": (it.value, it.exemplar and it.exemplar.labels["trace_id"])
        for family in families
        if family.name in ("memory_requests", "memory_context_answers", "memory_context_method")
        for it in family.samples
        if it.labels.get("route") != "/metrics"
    }
