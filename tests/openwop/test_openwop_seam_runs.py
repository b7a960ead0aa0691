"""Runs of fixtures: each finds what its scenario asks for, or fails and says why."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from ..support.callers import revoke
from ..support.openwop_hosts import Json, faults, ok, refused
from ..support.openwop_looks import wire
from ..support.openwop_seams import ACROSS, FIXTURES, OTHER, Suite, count_of, driven, let_in
from ..support.requirements import requirement
from ..support.service import START

MARKER = "[REDACTED:conformance-test-secret]"
PREFIX = "conformance-agent-memory"
VALUE = re.compile(r"[0-9a-f]{32}")


@pytest.fixture
def across(suite: Suite) -> Iterator[Suite]:
    """A suite whose service has the second tenant."""
    with let_in(suite, "reader", OTHER):
        yield suite


@requirement("OW-99")
def test_a_run_is_over_when_it_is_answered(suite: Suite) -> None:
    started = ok(
        suite.post("/runs", {"workflowId": "conformance-noop", "tenantId": OTHER, "inputs": {}}),
        201,
    )

    run = started["runId"]
    assert started == {
        "runId": run, "status": "completed", "eventsUrl": f"/v1/runs/{run}/events",
        "statusUrl": f"/v1/runs/{run}",
    }  # fmt: skip
    assert ok(suite.get(f"/runs/{run}")) == {
        "runId": run, "status": "completed", "startedAt": wire(START), "endedAt": wire(START),
        "workflowId": "conformance-noop", "kind": "host", "variables": {},
        "completedAt": wire(START), "eventLogSchemaVersion": 2,
    }  # fmt: skip
    assert ok(suite.host.ask("GET", f"/runs/{run}"))["workflowId"] == "conformance-noop"


@pytest.mark.slow
@requirement("OW-99", "OW-55", "OW-56")
def test_each_run_leaves_a_summary_before_it_ends(suite: Suite) -> None:
    run = suite.ran("conformance-noop")["runId"]

    events = suite.events(run)
    assert [it["type"] for it in events] == ["run.started", "memory.written", "run.completed"]
    (summary,) = ok(suite.get("/host/sample/memory"))["entries"]
    tags = ["run-summary", "workflow:conformance-noop"]
    assert summary["tags"] == tags
    assert events[1]["payload"] == {
        "memoryRef": "tenant-memory", "memoryId": summary["id"], "tags": tags
    }  # fmt: skip
    assert "nodeId" not in events[1]


@requirement("OW-100", "OW-37", "OW-40")
def test_redaction_shows_the_marker_and_nothing_keeps_the_value(suite: Suite) -> None:
    run = suite.ran(f"{PREFIX}-redaction")

    entry = run["variables"]["memoryReadback"]
    assert MARKER in entry["content"]
    assert not VALUE.search(entry["content"])


@pytest.mark.slow
@requirement("OW-100", "OW-45")
def test_ttl_shows_what_goes_on_and_not_what_has_ended(suite: Suite) -> None:
    variables = suite.ran(f"{PREFIX}-ttl")["variables"]

    (fresh,) = variables["memoryList"]
    assert fresh["id"] == variables["freshId"]
    assert datetime.fromisoformat(fresh["expiresAt"]) > suite.service.clock.now
    assert variables["expiredId"] != fresh["id"]
    assert count_of(suite.service.path, "ref_entries WHERE name LIKE 'expired:%'") == 1


@pytest.mark.heavy
@requirement("OW-100", "OW-48")
def test_injection_budget_cuts_redacts_and_stays_in_its_tenant(across: Suite) -> None:
    found = across.ran(f"{PREFIX}-injection-budget")["variables"]

    entries = found["budgetedEntries"]
    total = sum(len(it["content"]) for it in entries)
    assert 0 < total == found["budgetedTokenTotal"] <= found["tokenBudget"]
    assert found["tokenCounter"] == "chars"
    assert found["overBudgetEntryId"] not in [it["id"] for it in entries]
    assert found["overBudgetEntryOmitted"] is True
    assert MARKER in found["redactedContentSample"]
    assert found["crossTenantBudgetedProbe"] == []
    giant = ok(
        across.get(
            f"/host/sample/memory/{found['overBudgetEntryId']}",
            memoryRef=f"mem://{PREFIX}-injection-budget",
        )
    )["entry"]
    assert len(giant["content"]) > found["tokenBudget"]


@pytest.mark.heavy
@requirement("OW-100")
@pytest.mark.parametrize("workflow", ACROSS)
def test_what_is_written_in_the_other_tenant_is_gone_afterwards(
    across: Suite, workflow: str
) -> None:
    path = across.service.path
    across.ran(workflow)

    other = path.with_name(f"{path.name}.tenants") / f"{OTHER}.db"
    assert count_of(other, "ref_entries") == count_of(other, "memories") == 0
    assert count_of(other, "erasures WHERE kind = 'subject'") == 1
    with let_in(across, "reader", OTHER) as theirs:
        assert ok(theirs.host.ask("GET", "/refs"))["refs"] == []


@pytest.mark.heavy
@requirement("OW-100")
@pytest.mark.parametrize("workflow", ACROSS)
def test_without_the_other_tenant_its_fixtures_are_unknown(suite: Suite, workflow: str) -> None:
    body = {"workflowId": workflow}
    assert faults(suite.post("/runs", body)) == ["workflowId"]

    with let_in(suite, "writer", OTHER) as other:
        suite.ran(workflow)
        assert faults(other.post("/runs", body)) == ["workflowId"]  # it is no other tenant to it
        revoke(suite.service.path, other.http.headers["authorization"].removeprefix("Bearer "))
    assert faults(suite.post("/runs", body)) == ["workflowId"]


@pytest.mark.heavy
@requirement("OW-100")
@pytest.mark.parametrize("workflow", [it for it in FIXTURES if it != "conformance-noop"])
def test_a_run_fails_with_the_reason_and_sets_no_variable(path: Path, workflow: str) -> None:
    with driven(path, MEMORY_TENANT_QUOTA="100KiB") as suite:
        started = ok(suite.post("/runs", {"workflowId": workflow}), 201)
        assert started["status"] == "failed"
        assert started["error"]["code"] == "quota_exceeded"
        run = ok(suite.get(f"/runs/{started['runId']}"))
        assert run["status"] == "failed"
        assert run["error"] == started["error"]
        assert "variables" not in run
        assert suite.events(run["runId"])[-1]["type"] == "run.failed"


@pytest.mark.slow
@requirement("OW-99", "OW-13")
def test_a_run_is_done_once_for_an_idempotency_key(suite: Suite) -> None:
    once = {"headers": {"Idempotency-Key": "k1"}}
    body = {"workflowId": f"{PREFIX}-roundtrip"}
    first = suite.post("/runs", body, **once)

    again = suite.post("/runs", body, **once)

    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["openwop-idempotent-replay"] == "true"
    assert len(suite.listed(f"mem://{PREFIX}-roundtrip")) == 1
    other = suite.post("/runs", {"workflowId": "conformance-noop"}, **once)
    assert refused(other) == (409, "idempotency_key_mismatch")


@pytest.mark.slow
@requirement("OW-99")
def test_a_new_process_knows_the_run_and_not_what_it_found(path: Path) -> None:
    with driven(path) as suite:
        run = suite.ran(f"{PREFIX}-roundtrip")
        events = suite.events(run["runId"])
    with driven(path) as suite:
        known = {name: it for name, it in run.items() if name != "variables"}
        assert ok(suite.get(f"/runs/{run['runId']}")) == known
        assert suite.events(run["runId"]) == events


@pytest.mark.slow
@requirement("OW-99", "OW-57")
def test_events_are_polled_by_either_name_of_the_sequence(suite: Suite) -> None:
    run = suite.ran("conformance-noop")["runId"]
    told = suite.events(run)

    for query, events in (
        ({}, told), ({"after": 0}, told[1:]), ({"lastSequence": 0, "timeout": 1}, told[1:]),
        ({"lastSequence": 2}, []),
    ):  # fmt: skip
        polled = ok(suite.http.get(f"/v1/runs/{run}/events/poll", params=query))
        assert polled == {"events": events, "isComplete": True}
    part = ok(suite.get(f"/runs/{run}/events/poll", limit=1))
    assert part == {"events": told[:1], "isComplete": False}
    assert faults(suite.get(f"/runs/{run}/events/poll", lastSequence="x")) == ["lastSequence"]
    assert refused(suite.get("/runs/never/events/poll")) == (404, "not_found")


@pytest.mark.heavy
@requirement("OW-99", "OW-60", "OW-61", "OW-63")
def test_a_run_is_forked(suite: Suite) -> None:
    run = suite.ran(f"{PREFIX}-roundtrip")
    source = run["runId"]

    replay: Json = ok(suite.post(f"/runs/{source}:fork", {"mode": "replay", "fromSeq": 0}), 201)
    branch: Json = ok(
        suite.post(
            f"/runs/{source}:fork", {"mode": "branch", "fromSeq": 1, "runOptionsOverlay": {}}
        ),
        201,
    )

    assert replay == {
        "runId": replay["runId"], "sourceRunId": source, "fromSeq": 0, "mode": "replay",
        "status": "completed", "eventsUrl": f"/v1/runs/{replay['runId']}/events",
    }  # fmt: skip
    assert branch["status"] == "running"
    assert "completedAt" not in ok(suite.get(f"/runs/{branch['runId']}"))
    assert ok(suite.get(f"/runs/{replay['runId']}"))["variables"] == run["variables"]
    assert "variables" not in ok(suite.get(f"/runs/{branch['runId']}"))
    payloads = [it["payload"] for it in suite.events(replay["runId"])]
    assert payloads == [it["payload"] for it in suite.events(source)]
    beyond = suite.post(f"/runs/{source}:fork", {"mode": "replay", "fromSeq": 99_999})
    assert refused(beyond) == (422, "invalid_from_seq")
    assert faults(suite.post(f"/runs/{source}:fork", {"mode": "replay", "fromSeq": -1}))
    never = suite.post("/runs/never:fork", {"mode": "replay", "fromSeq": 0})
    assert refused(never) == (404, "not_found")
