"""Runs: they are opened once, told of, ended once, and take no write afterwards."""

import re
from pathlib import Path

import httpx
import pytest

from ..secrets.test_redaction import GITHUB
from ..support.callers import calling, made_key
from ..support.openwop_hosts import Host, Json, faults, ok, refused
from ..support.openwop_looks import wire
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import START, Service, serving

NEW = re.compile(r"run_[0-9a-f]{32}")
REPLAYED = "openwop-idempotent-replay"


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
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_run_ends_once(service: Service, host: Host, status: str) -> None:
    run = host.in_run("r1")
    first = run.end(status)
    service.clock.advance(minutes=1)

    assert run.end(status) == first

    for other in {"completed", "failed", "cancelled"} - {status}:
        answer = run.ask("POST", "/runs/r1/end", {"status": other})
        assert refused(answer) == (409, "run_terminal")
    assert [it["type"] for it in run.told()] == ["run.started", f"run.{status}"]
    assert shown(host, "r1") == first


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


FAULTY: dict[str, tuple[Json, str]] = {
    "an empty id": ({"runId": ""}, "runId"), "a long id": ({"runId": "r" * 129}, "runId"),
    "a slash": ({"runId": "a/b"}, "runId"), "a control character": ({"runId": "a\x85b"}, "runId"),
    "a number": ({"runId": 7}, "runId"), "a secret in an id": ({"runId": GITHUB}, "runId"),
    "a secret in an agent": ({"agentId": GITHUB}, "agentId"),
    "a secret in a workflow": ({"workflowId": GITHUB}, "workflowId"),
    "a short agent": ({"agentId": "ab"}, "agentId"),
    "no list of refs": ({"memoryRefs": "mem://a"}, "memoryRefs"),
    "many refs": ({"memoryRefs": [f"mem://{it}" for it in range(33)]}, "memoryRefs"),
    "a malformed ref": ({"memoryRefs": ["mem://a", "../b"]}, "memoryRefs"),
    "a secret in a ref": ({"memoryRefs": [f"mem://{GITHUB}"]}, "memoryRefs"),
}  # fmt: skip


@requirement("OW-54", "OW-40")
@for_each("fault", FAULTY)
def test_what_no_run_may_be_called_is_refused_by_its_field(host: Host, fault: str) -> None:
    body, field = FAULTY[fault]
    answer = opened(host, **{"runId": "r1"} | body)

    assert [it.partition("[")[0] for it in faults(answer)] == [field]
    assert GITHUB not in answer.text
    assert refused(host.ask("GET", "/runs/r1")) == (404, "not_found")


@requirement("OW-10")
def test_the_start_and_the_end_of_runs_are_never_limited(path: Path) -> None:
    token = made_key(path, "writer")
    with serving(path, MEMORY_RATE_LIMIT="1/h") as service, calling(service, token) as http:
        host = Host(http)
        run = host.in_run("r1")
        ok(host.ask("GET", "/runs/r1"))
        late = host.ask("GET", "/runs/r1")
        assert refused(late) == (429, "rate_limited")
        wait = int(late.headers["retry-after"])
        details = late.json()["details"]
        assert (wait - 1) * 1000 < details["retryAfterMs"] <= wait * 1000
        assert details["scope"] == "key"
        for _ in range(5):
            ok(opened(host, runId="r1"), 200)
            ok(opened(host), 201)
        assert run.end()["status"] == "completed"
        assert refused(run.post()) == (429, "rate_limited")
        assert refused(run.fork()) == (429, "rate_limited")


PUT = {"memoryRef": "mem://notes", "content": "once", "runId": "r1"}
WRITES: dict[str, tuple[str, Json, Json]] = {
    "open": ("/runs", {"agentId": "ada"}, {"agentId": "bob"}),
    "put": ("/memory", PUT, PUT | {"content": "else"}),
    "replay": ("/runs/r1/fork", {"mode": "replay"}, {"mode": "replay", "fromSeq": 1}),
    "branch": (
        "/runs/r1/fork", {"mode": "branch", "fromSeq": 0}, {"mode": "branch", "fromSeq": 1}
    ),
    "end": ("/runs/r1/end", {"status": "completed"}, {"status": "failed"}),
}  # fmt: skip


@pytest.mark.representative(2)
@requirement("OW-13")
@pytest.mark.parametrize("name", WRITES)
def test_a_write_about_a_run_is_done_once_under_a_key(host: Host, name: str) -> None:
    host.in_run("r1")
    once = Host(host.http, headers={"Idempotency-Key": "one"})
    path, body, other = WRITES[name]

    first = once.ask("POST", path, body)
    done = told(host)
    again = once.ask("POST", path, body)

    assert first.is_success
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert [it.headers.get(REPLAYED) for it in (first, again)] == [None, "true"]
    assert refused(once.ask("POST", path, other)) == (409, "idempotency_key_mismatch")
    assert told(host) == done


@requirement("OW-13")
def test_a_key_of_one_operation_is_free_for_another(host: Host) -> None:
    keyed = Host(host.http, run="r1", headers={"Idempotency-Key": "one"})
    ok(keyed.ask("POST", "/runs", {"runId": "r1"}), 201)
    made = keyed.put()
    ok(keyed.fork(), 201)
    ok(keyed.delete(made["id"]))
    keyed.end()

    assert [it["type"] for it in host.told("r1")] == [
        "run.started", "memory.written", "agentops-memory.memory.deleted", "run.completed"
    ]  # fmt: skip
    assert ok(keyed.delete(made["id"]))["removed"] is True  # told again, not done again


def told(host: Host) -> list[Json]:
    """All events of the tenant."""
    found: list[Json] = ok(host.ask("GET", "/events", params={"limit": 1000}))["events"]
    return found


@requirement("OW-54")
def test_a_reader_reads_of_runs_and_changes_none(path: Path) -> None:
    with serving(path) as service:
        keys = [made_key(path, it) for it in ("writer", "reader")]
        with calling(service, keys[0]) as writing, calling(service, keys[1]) as reading:
            run = Host(writing).in_run("r1")
            made, reader = run.put(), Host(reading, run="r1")
            before = run.told()
            for answer in (
                reader.ask("POST", "/runs", {}), reader.post(), reader.delete(made["id"]),
                reader.ask("POST", "/runs/r1/end", {"status": "failed"}), reader.fork(),
                reader.ask("POST", "/runs/r1/secrets", {"secretId": "s", "value": "v" * 9}),
            ):  # fmt: skip
                assert refused(answer) == (403, "forbidden")
                assert "scopeRequired" in answer.json()["details"]
            assert reader.told() == run.told() == before
            assert (reader.entries(), shown(reader, "r1")["status"]) == ([], "running")
