"""What the service measures of itself, as Prometheus and a collector see it."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Receive, Scope, Send

from agentops_memory import __version__
from agentops_memory.compose import PROTOCOLS
from agentops_memory.http.app import HttpService
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry, metrics as m
from agentops_memory.telemetry.metrics import MEASURES, Kind

from ..support.callers import calling, made_key
from ..support.engine import locked, slow_words
from ..support.measures import key, measured
from ..support.otlp import TRACE, TRACEPARENT, Collector, collector, each_collector
from ..support.process import until
from ..support.raw import request, wire
from ..support.samples import for_each
from ..support.service import Service, serving

__all__ = ["collector", "each_collector"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "telemetry.md"
SECRET = "AKIA" + "QZXV7RARE" + "K3YQ9AB"
OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@pytest.mark.slow
def test_a_scrape_has_each_measure_as_it_is_declared(service: Service) -> None:
    service.http.get("/stats")

    answer = service.http.get("/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {it.name: it for it in text_string_to_metric_families(answer.text)}
    own = {name for name in families if not name.startswith("process_")}
    assert own == {measure.name.removesuffix("_total") for measure in MEASURES}
    for measure in MEASURES:
        family = families[measure.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (measure.kind, measure.help)
        bounds = {"le"} if measure.kind is Kind.HISTOGRAM else set()
        for sample in family.samples:
            assert set(sample.labels) - bounds == set(measure.labels), sample
    assert measured(service)[key("memory_info", version=__version__)] == 1


def test_requests_are_counted_and_timed_by_route_and_status(service: Service) -> None:
    began = time.monotonic()
    for id_ in ("1", "2"):
        service.http.get(f"/observations/{id_}")
    service.http.post("/sessions/a%2Fb/end")
    service.save("apple")
    probes = ["/health", "/health/live", "/health/ready", "/health/startup"]
    for probe in probes:
        service.http.get(probe)
    service.http.get("/health/more")
    with wire(service.url) as client:
        client.send(request("BREW", "/stats"))  # a label of its own would cost memory for ever
        client.answer()

    seen = measured(service)

    for method, route, status, count in [
        ("GET", "/observations/{id}", "404", 2),
        ("POST", "/sessions/{id}/end", "200", 1),
        ("POST", "/observations", "201", 1), ("GET", "none", "404", 1),
        *[("GET", probe, "200", 1) for probe in probes],
    ]:  # fmt: skip
        labels = {"method": method, "route": route}
        assert seen[key("memory_requests_total", status=status, **labels)] == count
        assert seen[key("memory_request_seconds_count", **labels)] == count
        lasted = seen[key("memory_request_seconds_sum", **labels)]
        assert lasted < time.monotonic() - began
        assert lasted > 0 or route in probes  # those are answered in front of all else
    assert seen[key("memory_requests_in_flight")] == 1
    counted = [dict(pairs) for name, pairs in seen if name == "memory_requests_total"]
    assert {of["method"] for of in counted} <= {"GET", "POST", "other"}


async def test_a_request_that_ends_without_an_answer_has_failed() -> None:
    async def broken(_: Scope, __: Receive, ___: Send) -> None:
        raise RuntimeError

    telemetry = Telemetry.started(None)
    value_of = telemetry.exposition()
    application = HttpService(lambda: PROTOCOLS, telemetry.metrics, settings({}))
    application.open(broken)
    transport = httpx.ASGITransport(application)

    with pytest.raises(RuntimeError):
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            await http.get("/")
    telemetry.metrics.settle()
    assert 'route="none",status="500"} 1.0\n' in value_of("")[0].decode()


def test_what_became_of_saves_is_counted_once_each(service: Service) -> None:
    service.save("apple")
    service.save("apple")
    service.save("banana", topic_key="a/key")
    service.save("cherry", topic_key="a/key")
    once = {"Idempotency-Key": "one"}
    body = {"session_id": "s", "type": "t", "title": "T", "content": "date", "project": "demo"}
    for _ in range(3):
        assert service.http.post("/observations", json=body, headers=once).status_code == 201
    assert service.http.post("/observations", json={}).status_code == 400

    seen = measured(service)

    actions = {"created": 3, "deduplicated": 1, "updated": 1}
    assert {a: seen[key("memory_dedup_total", action=a)] for a in actions} == actions


def test_contexts_are_counted_by_what_they_gave(service: Service) -> None:
    service.http.get("/context", params={"project": "demo", "query": "anything"})
    service.save("a pangolin sleeps")
    service.save("an unrelated remark", session_id="another")
    service.http.get("/context", params={"project": "demo", "query": "pangolin"})
    service.http.get("/context", params={"project": "demo"})

    seen = measured(service)

    outcomes = {"empty": 1, "found": 1, "recency": 1, "degraded": 0}
    value_of = {it: seen[key("memory_context_answers_total", outcome=it)] for it in outcomes}
    assert value_of == outcomes
    methods = {"fts5_bm25": 1, "recency": 3}
    assert {m: seen[key("memory_context_method_total", method=m)] for m in methods} == methods


def test_a_context_that_took_too_long_is_counted_as_degraded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_words(path, monkeypatch)
    with serving(path, MEMORY_RECALL_LIMIT="0", MEMORY_INDEX_CACHE="0") as service:
        service.save("a pangolin sleeps")
        service.http.get("/context", params={"project": "demo", "query": "pangolin"})

        assert measured(service)[key("memory_context_answers_total", outcome="degraded")] == 1


@pytest.mark.slow
def test_secrets_are_counted_once_by_whatever_way_they_came(service: Service) -> None:
    id_ = service.save("apple")["id"]
    stores = "/anthropic/v1/memory_stores"
    store = service.http.post(stores, json={"name": "one"}).json()["id"]
    row = {"session_id": "s", "type": "t", "title": "T", "content": SECRET, "project": "p"}
    call = {"name": "mem_save", "arguments": {"title": "T", "content": f"An agent saw {SECRET}"}}
    ways: list[tuple[str, str, object, int]] = [
        ("POST", "/observations", row, 1),
        ("PATCH", f"/observations/{id_}", {"content": SECRET}, 2),
        ("POST", "/sessions/s/messages", {"messages": [{"role": "user", "content": SECRET}]}, 3),
        ("POST", "/import?dry_run=true", {"observations": [row | {"title": "another"}]}, 3),
        ("POST", "/import", {"observations": [row | {"title": "another"}]}, 4),
        *[("POST", f"{stores}/{store}/memories", {"path": "/a.md", "content": SECRET}, 5)] * 2,
        ("POST", "/mcp/p", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, 6),
        ("POST", "/observations", row | {"content": f"{SECRET} and {SECRET}"}, 8),
    ]  # fmt: skip
    for method, path, body, count in ways:
        accept = "application/json, text/event-stream" if path == "/mcp/p" else "*/*"
        headers = {"Accept": accept} | ({"Idempotency-Key": "1"} if "/memories" in path else {})
        answer = service.http.request(method, path, json=body, headers=headers)
        assert answer.is_success, answer.text

        assert measured(service)[key("memory_redactions_total")] == count, path
    commits = measured(service)[key("memory_commit_batch_size_count")]
    assert service.http.patch("/observations/99", json={"title": "T"}).status_code == 404
    assert measured(service)[key("memory_commit_batch_size_count")] == commits


@pytest.mark.sqlite_files
def test_writes_that_share_a_commit_are_counted_once_each_and_refused_ones_are_not(
    service: Service,
) -> None:
    contents = [f"apple {number}" for number in range(8)]
    with ThreadPoolExecutor(len(contents) + 1) as pool:
        with locked(service.path):
            saved = pool.map(service.save, contents)
            refused = pool.submit(service.http.patch, "/observations/99", json={"title": "T"})
            until(lambda: measured(service)[key("memory_write_queue_depth")] == 9)
        assert len(list(saved)) == 8
        assert refused.result().status_code == 404

    seen = measured(service)

    assert seen[key("memory_commit_batch_size_sum")] == 8
    assert seen[key("memory_dedup_total", action="created")] == 8
    assert seen[key("memory_write_queue_depth")] == 0


@pytest.mark.slow
def test_an_exemplar_names_the_trace_of_a_request(path: Path, collector: Collector) -> None:
    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    with serving(path, telemetry=telemetry) as service:
        traced = service.http.get("/stats", headers={"traceparent": TRACEPARENT})
        assert traced.status_code == 200
        unsampled = TRACEPARENT.replace(TRACE, TRACE[::-1]).removesuffix("01") + "00"
        service.http.get("/stats", headers={"traceparent": unsampled})
        answer = service.http.get("/metrics", headers=OPEN_METRICS)
    telemetry.stop()

    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    exemplars = {
        (family.name, sample.exemplar.labels["trace_id"])
        for family in open_metrics_families(answer.text)  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar and sample.labels.get("route") == "/stats"
    }
    assert exemplars == {("memory_requests", TRACE), ("memory_request_seconds", TRACE)}
    for name in ("memory_requests_total", "memory_request_seconds"):
        assert collector.exemplars[name] == {TRACE}


@pytest.mark.slow
def test_a_collector_gets_each_measure_too(path: Path, each_collector: Collector) -> None:
    collector = each_collector
    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    with serving(path, telemetry=telemetry) as service:
        until(lambda: telemetry.metrics.value_of(m.TENANTS_OPEN))  # looked up from the start
        service.save(f"apple {SECRET}")
        service.http.get("/context", params={"project": "demo", "query": "apple"})
        service.http.get("/metrics")
        for gauge in (
            m.INDEX_DRIFT, m.DAMAGED_ROWS, m.INDEX_PARTITIONS, m.DISK_FREE_BYTES, m.BACKUP_INTERVAL,
            m.BACKUP_LAST_SUCCESS, m.BACKUP_BYTES,
        ):  # fmt: skip
            telemetry.metrics.show(gauge, 1)
        for counter, *labels in (
            (m.SWEPT_ROWS, "audit"), (m.EXPIRED,), (m.SUPERSEDED,), (m.AGENT_EVICTIONS,),
            (m.AGENT_ARCHIVED,), (m.COMMITMENTS_FIRED, "time"), (m.PASSES, "compaction", "done"),
            (m.CAPACITY_REFUSALS, "working"), (m.BACKUPS, "made"),
        ):  # fmt: skip
            telemetry.metrics.count(counter, *labels)
        telemetry.metrics.observe(m.EVENT_LOOP_LAG, 0)
    telemetry.stop()

    assert collector.units == {measure.name: measure.unit for measure in MEASURES}
    bounds = {name: it.data_points[0].explicit_bounds for name, it in collector.spreads.items()}
    assert bounds == {it.name: list(it.buckets) for it in MEASURES if it.buckets}
    assert collector.gauges["memory_tenants_open"] == 1


def test_whatever_is_accepted_the_answer_is_one_of_two_and_no_scrape_is_limited(
    path: Path,
) -> None:
    with serving(path, MEMORY_RATE_LIMIT="1/h") as service:
        assert [service.http.get("/stats").status_code for _ in range(2)] == [200, 429]
        for accept in (
            "*/*", "", "text/plain; version=zero", "application/openmetrics-text; version=what",
            "application/openmetrics-text;escaping=\u00ff", ",;,=;", "text/html",
        ):  # fmt: skip
            headers = [(b"Accept", accept.encode("latin-1"))]
            answer = service.http.get("/metrics", headers=headers)

            assert answer.status_code == 200
            ends = "# EOF\n" if "openmetrics" in accept else "\n"
            assert answer.text.endswith(ends)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "expected"), [("keys", [401, 200, 403, 403]), ("open", [200] * 4), ("off", [404])]
)
def test_who_may_read_what_is_measured(path: Path, mode: str, expected: list[int]) -> None:
    with serving(path, MEMORY_METRICS=mode) as service:
        described = service.http.get("/openapi.json").json()["paths"].get("/metrics", {})
        if mode == "off":
            assert service.http.get("/metrics").status_code == 404
            assert described == {}
            return
        assert service.http.get("/metrics").status_code == 200  # there is no key yet
        assert ("401" in described["get"]["responses"]) == (mode == "keys")
        tokens = [
            None, made_key(path, "reader"), made_key(path, "admin", projects=("billing-*",)),
            made_key(path, "admin", "acme"),
        ]  # fmt: skip
        statuses = []
        for token in tokens:
            with calling(service, token) as client:
                statuses.append(client.get("/metrics").status_code)
        assert statuses == expected


@for_each("measure", MEASURES)
def test_every_measure_is_documented_as_it_is(measure: m.Measure) -> None:
    cells = [line.split("|") for line in DOCUMENT.read_text("utf-8").splitlines()]
    (row,) = [row for row in cells if row[1:2] == [f" `{measure.name}` "]]

    assert row[2].strip() == measure.kind
    told = {name for label in measure.labels.items() for name in (label[0], *label[1])}
    assert set(re.findall(r"`([^`]+)`", row[3])) == told - {__version__}


def test_a_histogram_is_counted_anew_for_each_message_where_that_is_set(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    telemetry.metrics.observe(m.COMMIT_SECONDS, 1)
    telemetry.stop()

    spread = collector.spreads["memory_commit_seconds"]
    assert spread.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA
