"""Runs: they are opened once, told of, ended once, and take no write afterwards."""

import re

import httpx

from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_looks import wire
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import START, Service

NEW = re.compile(r"run_[0-9a-f]{32}")


def opened(host: Host, **fields: object) -> httpx.Response:
    """The answer to the opening of a run."""
    return host.ask("POST", "/runs", fields)


def shown(host: Host, run: str) -> Json:
    found: Json = ok(host.ask("GET", f"/runs/{run}"))
    return found


@requirement("OW-54")
def test_a_run_is_opened_told_of_and_ended(service: Service, host: Host) -> None:
    fields = {"runId": "r1", "agentId": "ada", "workflowId": "triage"}
    made = ok(opened(host, **fields, memoryRefs=["mem://a", "user:42"]), 201)
    assert made == {"runId": "r1", "status": "running", "startedAt": wire(START)}
    assert shown(host, "r1") == made | fields | {"kind": "host"}
    service.clock.advance(minutes=1)

    ended = Host(host.http, run="r1").end("failed")

    assert ended == shown(host, "r1")
    assert ended == made | fields | {
        "kind": "host", "status": "failed", "endedAt": wire(service.clock.now)
    }  # fmt: skip


@requirement("OW-54", "OW-12")
def test_a_run_has_an_id_and_names_within_their_limits(host: Host) -> None:
    answer = opened(host, runId="r1", memoryRefs=["mem://a", "tenants/acme/notes"])

    assert refused(answer) == (403, "forbidden")
    assert refused(host.ask("GET", "/runs/r1")) == (404, "not_found")

    answer = opened(host, agentId="ab")

    told = {"field": "agentId", "problem": "has at least 3 characters"}
    assert answer.json()["details"] == {"fields": [told]}

    for id_ in ("r" * 128, "ö %2F?", "..", "conformance:run-1"):
        assert ok(opened(host, runId=id_, agentId="ada"), 201)["runId"] == id_
    refs = [f"mem://{it}" for it in range(32)]
    assert ok(opened(host, runId="r1", memoryRefs=refs, agentId="a" * 256), 201)

    ids = [ok(opened(host), 201)["runId"] for _ in range(2)]

    assert all(NEW.fullmatch(it) for it in ids)
    assert ids[0] < ids[1]
    assert shown(host, ids[0])["status"] == "running"
    assert not {"agentId", "workflowId", "endedAt", "sourceRunId"} & shown(host, ids[0]).keys()


@requirement("OW-54", "OW-57")
def test_a_run_that_is_opened_again_is_the_same_one(service: Service, host: Host) -> None:
    fields: Json = {"runId": "r1", "agentId": "ada", "memoryRefs": ["mem://a"]}
    first = ok(opened(host, **fields), 201)
    service.clock.advance(minutes=1)

    assert ok(opened(host, **fields), 200) == first

    assert [it["type"] for it in host.told("r1")] == ["run.started"]
    for other in (
        {"agentId": "bob"}, {"agentId": None}, {"workflowId": "w"}, {"memoryRefs": ["mem://b"]}
    ):  # fmt: skip
        assert refused(opened(host, **fields | other)) == (409, "run_conflict")
    Host(host.http, run="r1").end()
    assert refused(opened(host, **fields)) == (409, "run_conflict")


@requirement("OW-54", "OW-57")
@for_each("status", ["completed", "failed", "cancelled"])
def test_a_run_ends_once(service: Service, host: Host, status: str) -> None:
    run = host.in_run(status)
    first = run.end(status)
    service.clock.advance(minutes=1)

    assert run.end(status) == first

    for other in {"completed", "failed", "cancelled"} - {status}:
        answer = run.ask("POST", f"/runs/{status}/end", {"status": other})
        assert refused(answer) == (409, "run_terminal")
    assert [it["type"] for it in run.told()] == ["run.started", f"run.{status}"]
    assert shown(host, status) == first


@requirement("OW-54")
def test_an_ended_run_takes_no_write_and_is_read_on(host: Host) -> None:
    made = host.put()
    run = host.in_run("r1")
    run.end()
    told = run.told()

    for answer in (
        run.post("late"),
        run.delete(made["id"]),
        run.ask("POST", "/runs/r1/secrets", {"secretId": "s", "value": "hunter2-hunter2"}),
    ):
        assert refused(answer) == (409, "run_terminal")

    assert host.entries() == run.entries() == [made]
    assert ok(run.get(made["id"]))["entry"] == made
    assert run.told() == told
