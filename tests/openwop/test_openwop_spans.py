"""What a request leaves in a trace, in the log, the measures and the audit, and no text of it."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest

from agentops_memory.jobs import schedule as gauges
from agentops_memory.telemetry import JsonFormatter

from ..support.callers import audit, calling, made_key
from ..support.measures import key, measured
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import DISCOVERY, REF, H, Host, ok, refused
from ..support.openwop_passes import passed
from ..support.openwop_tenants import SECRET, of_one, provenance
from ..support.requirements import requirement
from ..support.service import serving
from ..telemetry.test_tracing import traced

PREFIX = "memory.openwop_"
VALUE = "xylotomist+1"


@contextmanager
def logged() -> Iterator[StringIO]:
    """The lines of the log, each written when it is said."""
    lines, log = StringIO(), logging.getLogger("agentops_memory")
    handler, level = logging.StreamHandler(lines), log.level
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@pytest.mark.slow
@requirement("OW-101", "OW-40", "OW-14")
def test_each_operation_has_a_span_that_says_what_it_was_about_and_no_text(tmp_path: Path) -> None:
    with logged() as lines, traced(tmp_path) as (service, received):
        host = Host(service.http)
        host.put("hippopotamus, too", tags=["tagged"], id="too")
        run, intents = host.in_run("r1"), Intents(host)
        run.register("stripe", "saffron-saffron")
        made = run.put("hippopotamus saffron-saffron", id="plan", tags=["tagged"], nodeId="n1")
        assert len(host.entries(tag="tagged", tokenBudget=500)) == 2
        ok(run.get("too"))
        assert host.search("whales hippopotamus") != []
        ok(provenance(host, "plan"))
        ok(host.ask("GET", "/refs"))
        ok(service.http.get(DISCOVERY))
        armed = intents.on("plan", "awaited")
        ok(intents.get(armed["id"]))
        assert intents.listed(memoryRef=host.ref) == [armed]
        ok(intents.cancel(armed["id"]))
        passes = [host.consolidate(), host.distill(content="hippopotamus"), host.compact()]
        ok(host.undo(ok(passes[2])["runId"]))
        host.index()
        ok(run.delete("plan"))
        ok(run.fork(), 201)
        assert run.told()
        assert ok(host.ask("GET", "/events"))["events"]
        ok(run.ask("GET", "/runs/r1"))
        run.end()
        collector = received()

    ref: dict[str, object] = {"memory.ref": REF}
    of_run: dict[str, object] = {"openwop.run_id": "r1"}
    entry = ref | {"memory.entry.id": made["id"]}
    other: dict[str, object] = ref | {"memory.entry.id": "too"}
    used = passed(passes[1])["distillation"]["tokensUsed"]
    told: dict[str, list[dict[str, object]]] = {
        "put": [other | {"openwop.run_id": None}, entry | of_run | {"openwop.node_id": "n1"}],
        "list": [ref | {"memory.result_count": 2}], "get": [other | of_run],
        "search": [ref | {"memory.result_count": 2}], "provenance": [entry],
        "refs": [{"memory.result_count": 1}], "discover": [{}], "delete": [entry | of_run],
        "create_commitment": [entry], "list_commitments": [ref | {"memory.result_count": 1}],
        "get_commitment": [{}], "cancel_commitment": [{}],
        "consolidate": [{"memory.pass.input_count": 2, "memory.pass.output_count": 2}],
        "distill": [{"memory.pass.input_count": 2, "memory.pass.tokens_used": used,
                     "memory.pass.output_bytes": len("hippopotamus")}],
        "compact": [{"memory.pass.input_count": 2,
                     "memory.pass.output_bytes": passed(passes[2])["byteSize"]}],
        "undo": [{}], "index": [ref],
        "events": [{"memory.result_count": 19}],
        **{name: [of_run] for name in (
            "open_run", "get_run", "register_secret", "end_run", "fork_run", "run_events"
        )},
    }  # fmt: skip
    for name, wanted in told.items():
        spans = collector.all(PREFIX + name)
        pairs = zip(spans, wanted, strict=True)
        shown = [{key: span.attributes.get(key) for key in about} for span, about in pairs]
        assert shown == wanted, name
        assert {it.attributes["memory.operation"] for it in spans} == {f"openwop_{name}"}
        assert {(it.is_server, it.failed) for it in spans} == {(True, False)}, name
    assert "saffron" not in repr(collector.spans)
    spans = [span for span in collector.spans if "search" not in span.name]
    for word in ("hippopotamus", "saffron", "tagged", "awaited"):
        assert word not in repr(spans) + lines.getvalue(), word


@requirement("OW-101", "OW-5")
def test_every_operation_that_is_described_has_a_span_that_is_documented(path: Path) -> None:
    with serving(path) as service:
        paths = ok(service.http.get("/v1/openapi.json"))["paths"]
    names = {
        it["operationId"].removeprefix("openwop_")
        for methods in paths.values()
        for it in methods.values()
        if it["operationId"].startswith("openwop_")
    }
    docs = "".join(
        page.read_text("utf-8") for page in (Path(__file__).parents[2] / "docs").glob("*.md")
    )

    documented = {*re.findall(r"openwop_(\w+)", docs)}
    assert names <= documented
    for attribute in ("memory.ref", "openwop.run_id", "openwop.node_id", "memory_runs_open"):
        assert attribute in docs


@pytest.mark.slow
@requirement("OW-101", "OW-40", "OW-14")
def test_a_value_is_in_no_span_and_no_log_line_and_a_refusal_is_a_failed_span(
    tmp_path: Path,
) -> None:
    with logged() as lines, traced(tmp_path) as (service, received):
        host = Host(service.http).in_run("r1")
        host.register("s", VALUE)
        host.put(f"it is {VALUE}", tags=[VALUE])
        for secret in (VALUE, SECRET):
            host.search(secret)
            host.search(f"where is {secret}?")
            answers = [
                host.post(id=secret), host.post(memoryRef=secret), host.post(nodeId=secret),
                host.post(tags=[secret, "archive"]), host.post(runId=secret),
                *of_one(host, secret),
                host.ask("GET", "/memory", params={"memoryRef": secret, "tag": secret}),
                host.ask("GET", "/memory", params={"memoryRef": REF, "before": secret}),
                host.ask("GET", "/memory", params={"memoryRef": REF, "limit": secret}),
                host.ask("POST", f"/runs/{secret}/end", {"status": "completed"}),
            ]  # fmt: skip
            assert {it.status_code for it in answers} == {200, 400, 404}
        collector = received()

    assert len(collector.all(f"{PREFIX}search")) == 4
    failed = [it for it in collector.spans if it.failed and it.is_server]
    assert len(failed) == 2 * sum(it.is_error for it in answers)
    assert {it.name.removeprefix(PREFIX) for it in failed} == {
        "put", "get", "provenance", "delete", "list", "end_run"
    }  # fmt: skip
    assert all(it.attributes["error.type"] for it in failed)
    assert '"path": "/v1/host/' in lines.getvalue()
    for told in (repr(collector.spans), repr(collector.labels), lines.getvalue()):
        assert VALUE not in told
        assert SECRET not in told


@requirement("OW-101")
def test_a_long_ref_is_cut_in_a_span(tmp_path: Path) -> None:
    ref = "\U0001f332" * 256
    with traced(tmp_path) as (service, received):
        Host(service.http, ref).put()
        collector = received()

    told = collector.one(f"{PREFIX}put").attributes["memory.ref"]
    assert isinstance(told, str)
    assert told.rstrip("\u2026.") == ref[: len(told.rstrip("\u2026."))]
    assert 90 <= len(told) <= 103


@pytest.mark.slow
@requirement("OW-101")
def test_puts_reads_and_deletions_are_measured_and_leave_no_audit_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "COUNTED_FOR", timedelta(0))
    monkeypatch.setattr(gauges, "COUNT_PAUSE", 0)
    path = tmp_path / "memory.db"
    token = made_key(path, "admin")
    with serving(path) as service, calling(service, token) as http:
        host = Host(http)
        runs = host.in_run("r1")
        assert measured(service, http)[key("memory_runs_open")] == 1
        runs.put(f"it is {SECRET}")
        ok(host.delete(host.put()["id"]))
        assert host.ask("GET", "/memory", params={"limit": "x"}).status_code == 400
        runs.end()
        after = measured(service, http)

    assert after[key("memory_runs_open")] == 0
    assert after[key("memory_redactions_total")] == 1
    routes = {
        dict(labels)["route"] for name, labels in after if name == "memory_requests_total"
    }  # fmt: skip
    assert f"{H}/memory" in routes
    assert not [route for route in routes if "r1" in route or REF in route]
    assert [line["action"] for line in audit(path)] == ["key.created"]


PASSES = "memory_openwop_passes_total"


@requirement("OW-101")
def test_passes_are_counted_by_what_became_of_them(path: Path) -> None:
    token = made_key(path, "admin")
    with serving(path) as service, calling(service, token) as http:
        host = Host(http)
        assert refused(host.compact()) == (409, "nothing_to_compact")
        assert refused(host.distill()) == (409, "nothing_to_distill")
        for text in ("herons wade", "herons wade", "egrets fly"):
            host.put(text)
        ok(host.consolidate()), ok(host.consolidate())
        ok(host.distill()), ok(host.distill())
        once = Host(http, headers={"Idempotency-Key": "k1"})
        ok(once.compact()), ok(once.compact())
        found = measured(service, http)

    counts = {
        (dict(labels)["kind"], dict(labels)["outcome"]): value
        for (name, labels), value in found.items()
        if name == PASSES and value
    }
    assert counts == {
        ("compaction", "refused"): 1, ("distillation", "refused"): 1,
        ("consolidation", "done"): 1, ("consolidation", "unchanged"): 1,
        ("distillation", "done"): 1, ("distillation", "unchanged"): 1, ("compaction", "done"): 1,
    }  # fmt: skip
    routes = {dict(labels)["route"] for name, labels in found if name == "memory_requests_total"}
    assert f"{H}/compact" in routes
    assert key(PASSES, kind="compaction", outcome="done") in found
