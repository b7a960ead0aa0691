"""What a request of OpenWOP leaves in a trace, in the log, the measures and the audit.

Words that none of them may tell: `saffron` stands in contents, `tagged` in tags.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest

from agentops_memory.jobs import schedule as gauges
from agentops_memory.telemetry.logs import JsonFormatter

from ..support.callers import audit, calling, made_key
from ..support.measures import key, measured
from ..support.openwop_hosts import DISCOVERY, REF, H, Host, ok, refused
from ..support.openwop_tenants import NEVER, SECRET, of_one, provenance
from ..support.requirements import requirement
from ..support.service import serving
from ..telemetry.test_tracing import traced

PREFIX = "memory.openwop_"
HIDDEN = ("saffron", "tagged", "xylotomist")
VALUE = "xylotomist+1"
NAMES = """discover list get put delete search provenance refs open_run get_run register_secret
    end_run fork_run run_events events compact distill consolidate undo index forget get_erasure
    create_commitment list_commitments get_commitment cancel_commitment create_proposal
    list_proposals get_proposal revise_proposal apply_proposal reject_proposal archive_proposal
    list_artifacts get_artifact seam""".split()
ADAPTER = ("discover", "list", "get", "put", "delete", "search", "provenance", "refs")


@requirement("OW-101", "OW-40")
def test_each_operation_of_the_adapter_says_what_it_was_about(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        host = Host(service.http)
        plain = host.put("saffron", tags=["tagged"])
        assert host.entries(tag="tagged", tokenBudget=50) == [plain]
        ok(host.get(plain["id"]))
        assert host.search("whales saffron") == [plain]
        ok(provenance(host, plain["id"]))
        ok(host.ask("GET", "/refs"))
        ok(service.http.get(DISCOVERY))
        ok(host.delete(plain["id"]))
        bound = host.in_run("r1").put("saffron", nodeId="n1", agentId="ada", tags=["tagged"])
        collector = received()

    about: dict[str, object] = {"memory.ref": REF}
    one = about | {"memory.entry.id": plain["id"]}
    told: dict[str, dict[str, object]] = {
        "list": about | {"memory.result_count": 1}, "get": one,
        "search": about | {"memory.result_count": 1}, "provenance": one,
        "refs": {"memory.result_count": 1}, "discover": {}, "delete": one,
    }  # fmt: skip
    for name, attributes in told.items():
        span = collector.one(PREFIX + name)
        wanted = {"memory.operation": f"openwop_{name}", **attributes}
        assert {it: span.attributes.get(it) for it in wanted} == wanted, name
        assert (span.is_server, span.failed) == (True, False)
    first, second = collector.all(f"{PREFIX}put")
    assert first.attributes["memory.entry.id"] == plain["id"]
    assert "openwop.run_id" not in first.attributes
    of_run = {"memory.entry.id": bound["id"], "openwop.run_id": "r1", "openwop.node_id": "n1"}
    assert {it: second.attributes[it] for it in of_run} == of_run
    spans = [span for span in collector.spans if "search" not in span.name]
    assert not [word for word in HIDDEN if word in repr(spans)]


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

    assert {*ADAPTER} - {"discover"} <= names
    assert names <= {*NAMES} | {"openapi"}
    documented = {*re.findall(r"openwop_(\w+)", docs)}
    assert {*ADAPTER} <= documented
    for attribute in ("memory.ref", "openwop.run_id", "openwop.node_id", "memory_runs_open"):
        assert attribute in docs


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
def test_a_value_is_in_no_span_and_no_log_line(tmp_path: Path) -> None:
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
    assert '"path": "/v1/host/' in lines.getvalue()
    for told in (repr(collector.spans), repr(collector.labels), lines.getvalue()):
        assert VALUE not in told
        assert SECRET not in told


@requirement("OW-101", "OW-14")
def test_a_refusal_is_a_failed_span_that_quotes_nothing(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        host = Host(service.http)
        host.put("saffron", id="plan", tags=["tagged"])
        answers = [
            host.post("saffron!", id="plan"), host.post("saffron", tags=["tagged", "archive"]),
            host.post("saffron", memoryRef="tenants/acme/x"), host.get(NEVER), host.delete(NEVER),
            provenance(host, NEVER),
            host.ask("GET", "/memory", params={"memoryRef": REF, "limit": "saffron"}),
        ]  # fmt: skip
        collector = received()

    assert [refused(it)[0] for it in answers] == [409, 400, 403, 404, 404, 404, 400]
    failed = [
        span.name.removeprefix(PREFIX) for span in collector.spans
        if span.failed and span.is_server
    ]  # fmt: skip
    assert sorted(failed) == ["delete", "get", "list", "provenance", "put", "put", "put"]
    assert all(
        span.attributes["error.type"] for span in collector.spans if span.failed and span.is_server
    )
    assert not [word for word in HIDDEN if word in repr(collector.spans)]


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
