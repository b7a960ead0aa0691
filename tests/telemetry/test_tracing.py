"""What a request leaves in the trace of its caller, seen by a real collector."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agentops_memory.telemetry import Telemetry

from ..docs.test_docs import WITHOUT_SPAN
from ..support.erasing import erased
from ..support.otlp import Collector, grpc_collector
from ..support.samples import for_each
from ..support.service import Protocols, Service, observation, own_protocols, speaking

TRACE, AGENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRANSCRIPT = {"messages": [{"role": "user", "content": "Go on"}]}

# operation -> the request that runs it, and attributes that its span has besides its name
OPERATIONS: dict[str, tuple[str, str, object, dict[str, object]]] = {
    "create_session": ("POST", "/sessions", {"id": "s9", "project": "Demo "}, {
        "memory.project": "demo", "memory.session.id": "s9", "memory.session.message_count": 0}),
    "append_messages": ("POST", "/sessions/s7/messages?project=demo", TRANSCRIPT, {
        "memory.project": "demo", "memory.session.id": "s7", "memory.session.message_count": 1}),
    "end_session": ("POST", "/sessions/s1/end", TRANSCRIPT, {
        "memory.project": "demo", "memory.session.id": "s1", "memory.session.message_count": 1}),
    "recent_sessions": ("GET", "/sessions/recent?project=demo", None, {"memory.project": "demo"}),
    "search": ("GET", "/search?project=demo&q=" + "whales " * 60, None, {
        "memory.project": "demo", "memory.search.query": ("whales " * 60).strip()[:200],
        "memory.search.result_count": 1}),
    "fetch_context": ("GET", "/context?query=whales&project=demo", None, {
        "memory.project": "demo", "memory.query": "whales", "memory.context.query_used": True,
        "memory.context.method": "fts5_bm25", "memory.context.result_count": 1,
        "gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": "whales",
        "gen_ai.retrieval.document_count": 1}),
    "add_observation": ("POST", "/observations", observation("blue whales sing", topic_key="k"), {
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
    "timeline": ("GET", "/timeline?observation_id=1", None, {"memory.observation.id": 1}),
    "stats": ("GET", "/stats?project=demo", None, {"memory.project": "demo"}),
    "export": ("GET", "/export?project=demo", None, {"memory.project": "demo"}),
    "import": ("POST", "/import", {"sessions": [{"id": "i", "project": "p"}]}, {
        "memory.import.sessions": 1, "memory.import.observations": 0}),
    "delete_observation": ("DELETE", "/observations/1?hard=true", None, {
        "memory.observation.id": 1, "memory.observation.hard_delete": True}),
    "delete_project": ("DELETE", "/projects/Demo?hard=true", None, {"memory.project": "demo"}),
}  # fmt: skip
ROW = {"session_id": "j", "project": "p", "type": "t", "title": "t", "content": "c"}
# what is special about a request -> the same, with the operation
OTHERS: dict[str, tuple[str, str, str, object, dict[str, object]]] = {
    "a plan": ("import", "POST", "/import?dry_run=true", {
        "sessions": [{"id": "j", "project": "p"}], "observations": [ROW] * 2}, {
        "memory.import.dry_run": True, "memory.import.sessions": 1,
        "memory.import.observations": 1}),
    "no query": ("fetch_context", "GET", "/context?project=none", None, {
        "memory.context.query_used": False, "memory.context.method": "recency",
        "memory.context.result_count": 0}),
    "a long prompt": ("fetch_context", "GET", "/context?project=demo&query=" + "é" * 600, None, {
        "memory.query": "é" * 500, "gen_ai.retrieval.query.text": "é" * 500}),
    "not found": ("get_observation", "GET", "/observations/77", None, {"error.type": "not_found"}),
    "no id": ("get_observation", "GET", "/observations/x", None, {"error.type": "invalid_input"}),
    "no text": ("create_session", "POST", "/sessions", {"id": 1}, {
        "error.type": "validation_error"}),
}  # fmt: skip
Spans = Callable[[str], Collector]


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


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Spans:
    """What a collector received of each request, which came in a trace of its own."""
    requests = {name: (method, path, body) for name, (method, path, body, _) in OPERATIONS.items()}
    requests |= {name: (method, path, body) for name, (_, method, path, body, _) in OTHERS.items()}
    traces = {name: f"{number:032x}" for number, name in enumerate(requests, 1)}
    with traced(tmp_path_factory.mktemp("traced")) as (service, received):
        service.save("the song of whales")
        for name, (method, path, body) in requests.items():
            headers = {"traceparent": f"00-{traces[name]}-{AGENT}-01"}
            service.http.request(method, path, json=body, headers=headers)
        paths = service.http.get("/openapi.json").json()["paths"]
        collector = received()
    described = {
        operation["operationId"]
        for path, methods in paths.items()
        for operation in methods.values()
        if not path.startswith(OF_OTHERS)
    }
    assert described - WITHOUT_SPAN - {"get_erasure"} == set(OPERATIONS)

    def of(name: str) -> Collector:
        found = [span for span in collector.spans if span.trace == traces[name]]
        return replace(collector, spans=found)

    return of


@pytest.mark.slow
@for_each("name", [*OPERATIONS, *OTHERS])
def test_a_request_is_a_span_in_the_trace_of_its_caller(name: str, spans: Spans) -> None:
    operation, *_, attributes = OTHERS.get(name) or (name, *OPERATIONS[name])
    span = spans(name).one(f"memory.{operation}")
    assert (span.parent, span.is_server) == (AGENT, True)
    expected = {"memory.operation": operation, **attributes}
    assert {name: span.attributes.get(name) for name in expected} == expected
    assert span.failed is ("error.type" in attributes)
    if name in OTHERS:
        assert [event.name for event in span.events] == (["exception"] if span.failed else [])


@pytest.mark.slow
def test_below_an_operation_are_the_steps_that_it_took(spans: Spans) -> None:
    def below(operation: str) -> list[str]:
        collector = spans(operation)
        return [it.name for it in collector.children(collector.one(f"memory.{operation}"))]

    saved = spans("add_observation")
    steps = [it.name for it in saved.children(saved.one("store.add_observation"))]
    assert below("add_observation") == ["store.add_observation"]
    assert steps == ["store.dedup.topic_key", "store.dedup.hash", "store.insert"]
    assert below("export") == ["store.session_page"] * 2 + ["store.memory_page"] * 2
    (event,) = spans("search").one("memory.search").events
    assert (event.name, event.attributes["memory.injected.method"]) == (
        "search.result", "fts5_bm25",
    )  # fmt: skip


OF_OTHERS = ("/api/", "/anthropic/", "/v1/", "/.well-known/")  # which have tests of their own


def test_each_injected_memory_is_an_event_with_its_rank_and_method(tmp_path: Path) -> None:
    title = "🐳" * 120
    with traced(tmp_path) as (service, received):
        erasure = erased(service.http, service.save("to be gone")["id"])
        service.http.get(f"/erasures/{erasure}")
        found = service.save("the song of whales", title=title)["id"]
        recent = service.save("nothing of the kind", session_id="another")["id"]
        service.http.get("/context", params={"project": "demo", "query": "whales"})
        collector = received()

    looked = collector.one("memory.get_erasure")
    assert (looked.attributes["memory.project"], looked.failed) == ("demo", False)
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
