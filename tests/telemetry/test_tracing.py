"""What a request leaves in the trace of its caller, seen by a real collector."""

import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from agentops_memory.telemetry import Telemetry

from ..docs.test_docs import WITHOUT_SPAN
from ..support import process
from ..support.erasing import erased
from ..support.otlp import Collector, ReceivedSpan, grpc_collector, http_collector
from ..support.service import Protocols, Service, observation, own_protocols, speaking
from .test_collector import MOST, PATIENT

TRACE, AGENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
FROM_AGENT = {"traceparent": f"00-{TRACE}-{AGENT}-01"}

TRANSCRIPT = {"messages": [{"role": "user", "content": "Go on"}]}

# operation -> the request that runs it, and attributes that its span has besides its name
OPERATIONS: dict[str, tuple[str, str, object, dict[str, object]]] = {
    "create_session": ("POST", "/sessions", {"id": "s9", "project": "Demo "}, {
        "memory.project": "demo", "memory.session.id": "s9", "memory.session.message_count": 0}),
    "append_messages": ("POST", "/sessions/s1/messages", TRANSCRIPT, {
        "memory.project": "demo", "memory.session.id": "s1", "memory.session.message_count": 1}),
    "end_session": ("POST", "/sessions/s1/end", TRANSCRIPT, {
        "memory.project": "demo", "memory.session.id": "s1", "memory.session.message_count": 1}),
    "recent_sessions": ("GET", "/sessions/recent?project=demo", None, {"memory.project": "demo"}),
    "add_observation": ("POST", "/observations", observation("blue whales sing"), {
        "memory.project": "demo", "memory.session.id": "s1", "memory.observation.id": 2,
        "memory.observation.type": "discovery", "memory.observation.action": "created"}),
    "recent_observations": ("GET", "/observations/recent?project=demo", None, {
        "memory.project": "demo"}),
    "get_observation": ("GET", "/observations/1", None, {
        "memory.project": "demo", "memory.observation.id": 1,
        "memory.observation.type": "discovery"}),
    "observation_history": ("GET", "/observations/1/history", None, {"memory.observation.id": 1}),
    "update_observation": ("PATCH", "/observations/1", {"title": "whales"}, {
        "memory.project": "demo", "memory.observation.id": 1,
        "memory.observation.type": "discovery"}),
    "confirm_observation": ("POST", "/observations/1/confirm", None, {
        "memory.project": "demo", "memory.observation.id": 1}),
    "review": ("GET", "/review?project=demo", None, {
        "memory.project": "demo", "memory.review.count": 0}),
    "restore_observation": ("POST", "/observations/1/restore", {"revision": 1}, {
        "memory.project": "demo", "memory.observation.id": 1}),
    "delete_observation": ("DELETE", "/observations/1?hard=true", None, {
        "memory.observation.id": 1, "memory.observation.hard_delete": True}),
    "delete_project": ("DELETE", "/projects/Demo?hard=true", None, {"memory.project": "demo"}),
    "search": ("GET", "/search?q=whales&project=demo", None, {
        "memory.project": "demo", "memory.search.query": "whales",
        "memory.search.result_count": 1}),
    "fetch_context": ("GET", "/context?query=whales&project=demo", None, {
        "memory.project": "demo", "memory.query": "whales", "memory.context.query_used": True,
        "memory.context.method": "fts5_bm25", "memory.context.result_count": 1,
        "gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": "whales",
        "gen_ai.retrieval.document_count": 1}),
    "timeline": ("GET", "/timeline?observation_id=1", None, {"memory.observation.id": 1}),
    "stats": ("GET", "/stats?project=demo", None, {"memory.project": "demo"}),
    "export": ("GET", "/export?project=demo", None, {"memory.project": "demo"}),
    "import": ("POST", "/import", {"sessions": [{"id": "i", "project": "p"}]}, {
        "memory.import.sessions": 1, "memory.import.observations": 0}),
}  # fmt: skip


@contextmanager
def traced(
    path: Path, protocols: Protocols = own_protocols, /, **variables: str
) -> Iterator[tuple[Service, Callable[[], Collector]]]:
    """A traced service, and a way to end it and see what its collector has received."""
    with grpc_collector() as collector, ExitStack() as running:
        telemetry = Telemetry.started(collector.endpoint)

        def received() -> Collector:
            running.close()  # a span ends when its answer is sent, which the client may see first
            telemetry.stop()
            return collector

        service = running.enter_context(
            speaking(protocols, path / "memory.db", variables, telemetry=telemetry)
        )
        yield service, received


def spans_of(
    path: Path, *requests: tuple[str, str, object], headers: dict[str, str] | None = None
) -> Collector:
    """What the collector received of some requests to a service with one observation."""
    with traced(path) as (service, received):
        service.save("the song of whales")
        for method, target, body in requests:
            service.http.request(method, target, json=body, headers=headers)
        return received()


def is_within(given: dict[str, object], span: ReceivedSpan) -> dict[str, object]:
    return {name: span.attributes.get(name) for name in given}


@pytest.mark.heavy
@pytest.mark.representative(7)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_request_is_a_span_in_the_trace_of_its_caller(operation: str, tmp_path: Path) -> None:
    method, target, body, attributes = OPERATIONS[operation]

    collector = spans_of(tmp_path, (method, target, body), headers=FROM_AGENT)

    name = f"memory.{operation}"
    (span,) = [span for span in collector.all(name) if span.trace == TRACE]
    assert (span.parent, span.is_server, span.failed) == (AGENT, True, False)
    wanted = {"memory.operation": operation, **attributes}
    assert is_within(wanted, span) == wanted


OF_OTHERS = ("/api/", "/anthropic/", "/v1/", "/.well-known/")  # which have tests of their own


@pytest.mark.slow
def test_every_operation_of_the_api_is_traced_here(service: Service) -> None:
    paths = service.http.get("/openapi.json").json()["paths"]

    served = {
        operation["operationId"]
        for path, methods in paths.items()
        for operation in methods.values()
        if not path.startswith(OF_OTHERS)
    }
    assert served - WITHOUT_SPAN - {"get_erasure"} == set(OPERATIONS)


def test_a_look_at_a_receipt_is_a_span_that_names_its_project(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        erasure = erased(service.http, service.save("the song of whales")["id"])
        service.http.get(f"/erasures/{erasure}")
        collector = received()

    (span,) = collector.all("memory.get_erasure")
    assert (span.attributes["memory.project"], span.failed) == ("demo", False)


def test_the_span_of_a_plan_says_what_would_be_imported(tmp_path: Path) -> None:
    rows = [{"session_id": "i", "project": "p", "type": "t", "title": "t", "content": "c"}] * 2
    document = {"sessions": [{"id": "i", "project": "p"}], "observations": rows}

    collector = spans_of(tmp_path, ("POST", "/import?dry_run=true", document))

    assert collector.one("memory.import").attributes.items() >= {
        "memory.import.dry_run": True,
        "memory.import.sessions": 1,
        "memory.import.observations": 1,
    }.items()  # fmt: skip


def test_each_injected_memory_is_an_event_with_its_rank_and_method(tmp_path: Path) -> None:
    title = "🐳" * 120
    with traced(tmp_path) as (service, received):
        found = service.save("the song of whales", title=title)["id"]
        recent = service.save("nothing of the kind", session_id="another")["id"]
        service.http.get("/context", params={"project": "demo", "query": "whales"})
        collector = received()

    events = collector.one("memory.fetch_context").events
    assert [event.name for event in events] == ["context.injected"] * 2
    first, second = (event.attributes for event in events)
    rank = first.pop("memory.injected.rank")
    assert isinstance(rank, float)
    assert rank < 0
    assert first == {
        "memory.injected.observation_id": found, "memory.injected.type": "discovery",
        "memory.injected.title": title[:100], "memory.injected.method": "fts5_bm25",
    }  # fmt: skip
    assert second["memory.injected.observation_id"] == recent
    assert second["memory.injected.method"] == "recency"


def test_each_search_result_is_an_event(tmp_path: Path) -> None:
    collector = spans_of(tmp_path, ("GET", "/search?q=" + "whales " * 60, None))

    span = collector.one("memory.search")
    assert span.attributes["memory.search.query"] == ("whales " * 60).strip()[:200]
    assert [event.name for event in span.events] == ["search.result"]
    assert span.events[0].attributes["memory.injected.method"] == "fts5_bm25"


def test_a_context_without_a_query_says_that_it_is_by_recency(tmp_path: Path) -> None:
    collector = spans_of(tmp_path, ("GET", "/context?project=demo", None))

    attributes = collector.one("memory.fetch_context").attributes
    assert attributes["memory.context.query_used"] is False
    assert attributes["memory.context.method"] == "recency"
    assert attributes["memory.context.result_count"] == 1


def test_a_save_shows_each_step_it_took(tmp_path: Path) -> None:
    save = ("POST", "/observations", observation("blue", topic_key="k"))

    collector = spans_of(tmp_path, save, headers=FROM_AGENT)

    (operation,) = [s for s in collector.all("memory.add_observation") if s.trace == TRACE]
    (store,) = collector.children(operation)
    assert store.name == "store.add_observation"
    steps = [step.name for step in collector.children(store)]
    assert steps == ["store.dedup.topic_key", "store.dedup.hash", "store.insert"]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("method", "target", "body", "operation", "error"),
    [
        ("GET", "/observations/77", None, "get_observation", "not_found"),
        ("GET", "/observations/x", None, "get_observation", "invalid_input"),
        ("POST", "/sessions", {"id": 1}, "create_session", "validation_error"),
    ],
)
def test_a_refusal_is_an_error_with_its_type(
    method: str, target: str, body: object, operation: str, error: str, tmp_path: Path
) -> None:
    span = spans_of(tmp_path, (method, target, body)).one(f"memory.{operation}")

    assert span.failed
    assert span.attributes["error.type"] == error
    assert [event.name for event in span.events] == ["exception"]


@pytest.mark.slow
def test_a_malformed_traceparent_is_ignored(tmp_path: Path) -> None:
    for header in ("", "00-zz-zz-01", "x" * 5000, f"00-{'0' * 32}-{'0' * 16}-01"):
        with traced(tmp_path) as (service, received):
            answer = service.http.get("/stats", headers={"traceparent": header})
            collector = received()

        assert answer.status_code == 200
        assert collector.one("memory.stats").parent == ""


def test_a_log_line_names_the_trace_and_no_query(path: Path) -> None:
    with (
        http_collector() as collector,
        process.served(
            path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf", MEMORY_DRAIN="0",
        ) as (program, http),
    ):  # fmt: skip
        http.get("/search", params={"q": "topsecret"}, headers=FROM_AGENT)
        line = json.loads(program.line('"path": "/search"'))
        program.send(signal.SIGTERM)
        code = program.wait()

        span = collector.await_span("memory.search")
    assert code == 0
    assert (line["trace_id"], line["span_id"]) == (TRACE, span.id)
    assert not [printed for printed in program.lines if "topsecret" in printed]


@pytest.mark.heavy
def test_a_dead_collector_loses_no_request_and_delays_no_exit(path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        process.served(
            path,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"127.0.0.1:{silent.getsockname()[1]}",
            MEMORY_DRAIN="0",
            **PATIENT,
        ) as (program, http),
    ):
        # More spans than the exporter's queue holds.
        statuses = {save(http, n) for n in range(600)}
        stored = http.get("/stats").json()["total_observations"]
        program.send(signal.SIGTERM)
        code = program.wait(timeout=MOST)

    assert (statuses, stored, code) == ({201}, 600, 0)
    assert not [line for line in program.lines if re.search("Traceback", line)]


def save(http: httpx.Client, number: int) -> int:
    return http.post("/observations", json=observation(f"note {number}")).status_code


def test_the_span_of_an_export_holds_every_page_that_is_read(tmp_path: Path) -> None:
    collector = spans_of(tmp_path, ("GET", "/export", None), headers=FROM_AGENT)

    (operation,) = [span for span in collector.all("memory.export") if span.trace == TRACE]
    below = [span.name for span in collector.children(operation)]
    assert below == ["store.session_page"] * 2 + ["store.memory_page"] * 2


def test_a_long_prompt_is_cut_in_its_span(tmp_path: Path) -> None:
    collector = spans_of(tmp_path, ("GET", "/context?project=demo&query=" + "é" * 600, None))

    attributes = collector.one("memory.fetch_context").attributes
    assert attributes["memory.query"] == "é" * 500
    assert attributes["gen_ai.retrieval.query.text"] == "é" * 500


@pytest.mark.heavy
def test_an_export_reads_long_contents_in_shorter_pages(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        for number in range(30):
            service.save(f"{number} {'x' * 49_000}")
        exported = service.http.get("/export").json()["observations"]
        collector = received()

    # One page holds 500 short observations, or 256 Ki characters; these are 1.5 million.
    assert len(exported) == 30
    assert len(collector.all("store.memory_page")) == 6
