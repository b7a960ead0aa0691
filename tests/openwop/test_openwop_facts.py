"""Every answer of every route fits what the published schemas say of it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator

from ..support.callers import calling, made_key
from ..support.engines import rows
from ..support.openwop_facts import ANSWERS, PROBLEM
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_proposals import moved, proposed
from ..support.openwop_seams import OTHER, driven
from ..support.openwop_walk import Walk, administered, go, route_of
from ..support.requirements import requirement
from ..support.service import Service

OPEN = {("GET", "/.well-known/openwop"), ("GET", "/v1/openapi.json")}
FACTS = {route: Draft202012Validator(schema) for route, schema in ANSWERS.items()}
REFUSED = Draft202012Validator(PROBLEM)
ADMINS = ("/forget", "/apply")


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    path = tmp_path / "memory.db"
    made_key(path, "writer", OTHER)
    with driven(path) as suite, administered(suite) as walking:
        yield walking


@requirement("OW-108", "OW-99", "OW-56", "OW-2")
def test_every_answer_of_every_route_fits_the_published_facts(walk: Walk) -> None:
    go(walk)

    routes = walk.routes
    for answer in walk.answers:
        FACTS[route_of(answer.request, routes)].validate(answer.json())
    gone = {route_of(it.request, routes) for it in walk.answers if it.is_success}
    assert gone == routes.keys() == FACTS.keys()
    types = {it["type"] for answer in walk.answers for it in _events(answer)}
    assert types >= {"run.started", "run.failed", "run.cancelled", "commitment.fired"}


@requirement("OW-108", "OW-6", "OW-7")
def test_every_refusal_of_every_route_fits_the_published_facts(walk: Walk) -> None:
    go(walk)
    service, routes = walk.suite.service, walk.routes
    requests = {route_of(it.request, routes): it.request for it in walk.answers}
    with calling(service, made_key(service.path, "reader")) as reader:
        for (method, template), request in requests.items():
            url, body = request.url.raw_path.decode(), request.content
            is_open = (method, template) in OPEN
            answers = {
                200 if is_open else 401: service.http.request(method, url, content=body),
                404: walk.http.request(method, "/v1/nothing", content=body),
            }
            if template.startswith("/v1"):  # elsewhere a path is refused as the whole service's
                answers[405] = walk.http.put(url, content=body)
            if method != "GET":
                answers[403] = reader.request(method, url, content=body)
                scope = "writer"
                if template.endswith(ADMINS):
                    scope = "admin" if template.endswith("/forget") else "packs:publish"
                assert answers[403].json()["details"]["scopeRequired"] == scope, template
            if body:
                answers[400] = walk.http.request(method, url, content=body[:-1])
                answers[413] = walk.http.request(method, url, content=b" " * 2_000_000)
            for status, answer in answers.items():
                assert answer.status_code == status, (method, template, answer.text)
                if status != 200:
                    REFUSED.validate(answer.json())
    run = Host(walk.http, run="r1")
    for answer in (run.fork(fromSeq=99), run.ask("POST", "/runs/r1/end", {"status": "failed"})):
        assert answer.status_code in (409, 422)
        REFUSED.validate(answer.json())


@requirement("OW-108", "OW-89")
def test_who_may_not_apply_is_told_the_scope(walk: Walk) -> None:
    made = proposed(Host(walk.http))["id"]
    with calling(walk.suite.service, made_key(walk.suite.service.path, "writer")) as writer:
        for answer in (
            moved(Host(writer), made, "apply"),
            writer.post(f"/v1/host/sample/proposals/{made}/apply", json={}),
        ):
            assert refused(answer) == (403, "forbidden")
            assert answer.json()["details"] == {"scopeRequired": "packs:publish"}
            assert answer.json()["message"] == "This needs a key with the role admin."
    assert ok(moved(Host(walk.http), made, "apply"))


@requirement("OW-99")
def test_replay_is_claimed_where_the_path_of_the_protocol_forks_runs(walk: Walk) -> None:
    replay = {"supported": True, "modes": ["replay"]}

    found = walk.suite.discovered()

    assert found["replay"] == found["capabilities"]["replay"] == replay
    source = walk.suite.ran("conformance-idempotent")["runId"]
    told = ok(walk.suite.post(f"/runs/{source}:fork", {"mode": "replay"}), 201)
    assert told["eventsUrl"] == f"/v1/runs/{told['runId']}/events"
    assert [it["payload"] for it in walk.suite.events(told["runId"])] == [
        it["payload"] for it in walk.suite.events(source)
    ]


@requirement("OW-99", "OW-13")
def test_the_idempotent_workflow_is_run_once_for_a_key(walk: Walk) -> None:
    headers = {"Idempotency-Key": "k"}
    body = {"workflowId": "conformance-idempotent", "inputs": {"nonce": "first"}}

    first, again = (walk.suite.post("/runs", body, headers=headers) for _ in range(2))
    other = walk.suite.post("/runs", {**body, "inputs": {"nonce": "other"}}, headers=headers)

    assert ok(first, 201) == ok(again, 201)
    assert again.headers["openwop-idempotent-replay"] == "true"
    assert refused(other) == (409, "idempotency_key_mismatch")
    assert "runId" not in other.json()


@requirement("OW-57", "OW-60")
def test_the_start_of_a_run_tells_its_workflow_or_else_its_kind(service: Service) -> None:
    host = Host(service.http)
    _runs(host)

    assert _started(host) == {
        "named": "refund", "unnamed": "host", "replay of named": "refund",
        "replay of unnamed": "host", "branch of named": "refund", "branch of unnamed": "branch",
        "pass": "pass",
    }  # fmt: skip
    _assert_failures(host)


@requirement("OW-57", "OW-102")
def test_runs_of_an_older_version_are_told_as_those_of_today(service: Service) -> None:
    host = Host(service.http)
    _runs(host)
    before = _started(host)
    rows(service.path, "UPDATE run_events SET payload = '{}' WHERE type LIKE 'run.%'")

    assert _started(host) == before
    _assert_failures(host)
    for replay in ("replay of named", "replay of unnamed"):
        assert host.told(_ids(host)[replay])[0]["payload"].keys() == {"workflowId"}


def _events(answer: httpx.Response) -> list[Json]:
    found: list[Json] = answer.json().get("events", [])
    return found


def _runs(host: Host) -> None:
    """Runs with and without a workflow that have failed, copies and branches of them, a pass."""
    for name, fields in (("named", {"workflowId": "refund"}), ("unnamed", {})):
        run = host.in_run(name, **fields)
        run.end("failed")
        for mode in ("replay", "branch"):
            ok(run.fork(mode, fromSeq=0), 201)
    host.put("It ends. It waits.")
    host.put("It ends. It goes on.")
    ok(host.compact())


def _ids(host: Host) -> dict[str, str]:
    """The runs by what they are."""
    events = ok(host.ask("GET", "/events", params={"type": "run.started"}))["events"]
    found = {}
    for id_ in (it["runId"] for it in events):
        run = ok(host.ask("GET", f"/runs/{id_}"))
        of = f" of {run['sourceRunId']}" if "sourceRunId" in run else ""
        found[id_ if run["kind"] == "host" else run["kind"] + of] = id_
    return found


def _started(host: Host) -> dict[str, str]:
    """What the start of each run tells, by what the run is."""
    return {name: host.told(id_)[0]["payload"]["workflowId"] for name, id_ in _ids(host).items()}


def _assert_failures(host: Host) -> None:
    failed = ok(host.ask("GET", "/events", params={"type": "run.failed"}))["events"]
    assert len(failed) == 4
    for it in failed:
        assert it["payload"] == {"error": {"code": "run_failed", "message": "The run has failed."}}
