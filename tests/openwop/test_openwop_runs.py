"""Runs: they are opened once, see memory as it was, are ended once, and take no write then."""

import re
from collections.abc import Callable

import httpx

from ..support.openwop_hosts import Host, Json, ok, refused, wire
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

    told = {"field": "agentId", "problem": "must have at least 3 characters"}
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


@requirement("OW-51", "OW-52", "OW-53")
def test_a_run_sees_what_was_there_at_its_start_whatever_is_done_since(
    service: Service, host: Host
) -> None:
    host.put("gone", ttlSeconds=1)
    first, second = host.put("first", tags=["x"]), host.put("second")
    brief = host.put("brief", tags=["x"], ttlSeconds=60)
    service.clock.advance(seconds=1)
    run = host.in_run("r1")
    service.clock.advance(seconds=1)
    late = run.put("late", tags=["x"], supersedes=[first["id"]])
    ok(run.delete(second["id"]))
    between = host.in_run("r2")
    ok(host.delete(late["id"]))

    def looks() -> list[list[Json]]:
        return [run.entries(), run.entries(tag="x"), run.entries(limit=1, before=brief["id"])]

    seen = [[brief, second, first], [brief, first], [second]]
    assert (looks(), between.entries(), host.entries()) == (seen, [late, brief], [brief, first])
    assert [ok(run.get(it["id"]))["entry"] for it in seen[0]] == seen[0]
    for unseen in (late["id"], "gone"):
        assert refused(run.get(unseen)) == (404, "not_found")
    run.end()
    assert looks() == seen
    service.clock.now = START  # which brings nothing into a snapshot
    assert looks() == seen
    service.clock.advance(minutes=1)
    assert run.entries() == [second, first]


UNKNOWN: dict[str, Callable[[Host], httpx.Response]] = {
    "list": lambda it: it.ask("GET", "/memory", params={"memoryRef": it.ref, "runId": "no"}),
    "get": lambda it: it.get("mem_" + "0" * 32, runId="no"),
    "put": lambda it: it.post(runId="no"),
    "delete": lambda it: it.delete("mem_" + "0" * 32, runId="no"),
    "run": lambda it: it.ask("GET", "/runs/no"),
    "events": lambda it: it.ask("GET", "/runs/no/events"),
    "end": lambda it: it.ask("POST", "/runs/no/end", {"status": "failed"}),
    "fork": lambda it: it.ask("POST", "/runs/no/fork", {"mode": "replay"}),
    "secret": lambda it: it.ask(
        "POST", "/runs/no/secrets", {"secretId": "s", "value": "hunter22"}
    ),
}  # fmt: skip


@requirement("OW-51", "OW-54")
@for_each("name", UNKNOWN)
def test_a_run_that_there_is_not_is_never_taken_for_none(host: Host, name: str) -> None:
    host.post(id="one")

    assert refused(UNKNOWN[name](host)) == (404, "not_found")
    assert len(host.entries()) == 1
