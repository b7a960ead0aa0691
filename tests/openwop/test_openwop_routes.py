"""Every route, by one walk over all of them: published shapes, refusals, keys, repetitions."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator

from ..support.callers import calling, made_key, revoke
from ..support.openwop_facts import ANSWERS, PROBLEM
from ..support.openwop_hosts import DISCOVERY, H, Host, Json, ok, refused
from ..support.openwop_proposals import moved, proposed
from ..support.openwop_seams import OTHER, driven
from ..support.openwop_tenants import keyed
from ..support.openwop_walk import Route, Walk, administered, go, route_of
from ..support.requirements import requirement
from ..support.service import Service, serving

OPEN = {("GET", DISCOVERY), ("GET", "/v1/openapi.json")}
FACTS = {route: Draft202012Validator(schema) for route, schema in ANSWERS.items()}
REFUSED = Draft202012Validator(PROBLEM)
ADMINS = ("/forget", "/apply")
CONSOLE = "https://console.example"
FORBIDDEN = (403, "forbidden")
REPLAYED = ("openwop-idempotent-replay", "idempotent-replayed")
# What a reader's request changes, or finds changed: a draft is there for writers alone.
UNSTEADY = {("GET", "/v1/host/sample/proposals")}


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    path = tmp_path / "memory.db"
    made_key(path, "writer", OTHER)
    with driven(path) as suite, administered(suite) as walking:
        yield walking


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """A walk that is over, for tests that do not hinder each other."""
    path = tmp_path_factory.mktemp("walked") / "memory.db"
    made_key(path, "writer", OTHER)
    with driven(path) as suite, administered(suite) as walk:
        go(walk)
        walk.http.event_hooks = {}
        yield walk


def last_requests(walk: Walk) -> dict[Route, httpx.Request]:
    """The last request of the walk to each route."""
    routes = walk.routes
    return {route_of(it.request, routes): it.request for it in walk.answers}


@requirement("OW-108", "OW-99", "OW-56", "OW-2")
def test_every_answer_of_every_route_fits_the_published_facts(walked: Walk) -> None:
    routes = walked.routes
    for answer in walked.answers:
        FACTS[route_of(answer.request, routes)].validate(answer.json())
    gone = {route_of(it.request, routes) for it in walked.answers if it.is_success}
    assert gone == routes.keys() == FACTS.keys()
    events: list[Json] = [it for answer in walked.answers for it in answer.json().get("events", [])]
    types = {it["type"] for it in events}
    assert types >= {"run.started", "run.failed", "run.cancelled", "commitment.fired"}


@requirement("OW-108", "OW-6", "OW-7", "OW-8", "OW-11")
def test_every_refusal_of_every_route_fits_the_published_facts(walked: Walk) -> None:
    service = walked.suite.service
    with calling(service, made_key(service.path, "reader")) as reader:
        for (method, template), request in last_requests(walked).items():
            url, body = request.url.raw_path.decode(), request.content
            is_open = (method, template) in OPEN
            answers = [
                (200 if is_open else 401, service.http.request(method, url, content=body)),
                (404, walked.http.request(method, "/v1/nothing", content=body)),
            ]
            if template.startswith("/v1"):  # elsewhere a path is refused as the whole service's
                answers.append((405, walked.http.put(url, content=body)))
            if method != "GET":
                denied = reader.request(method, url, content=body)
                answers.append((403, denied))
                scope = "writer"
                if template.endswith(ADMINS):
                    scope = "admin" if template.endswith("/forget") else "packs:publish"
                assert denied.json()["details"]["scopeRequired"] == scope, template
            elif (method, template) not in UNSTEADY:
                assert reader.get(url).content == walked.http.get(url).content, template
            for status, answer in answers:
                assert answer.status_code == status, (method, template, answer.request.content)
                if status != 200:
                    REFUSED.validate(answer.json())
    run = Host(walked.http, run="r1")
    for answer in (run.fork(fromSeq=99), run.ask("POST", "/runs/r1/end", {"status": "failed"})):
        assert answer.status_code in (409, 422)
        REFUSED.validate(answer.json())


@pytest.mark.slow
@requirement("OW-11", "OW-12", "OW-6")
def test_what_is_no_body_is_refused_by_every_route_that_has_one(walked: Walk) -> None:
    for (method, template), request in last_requests(walked).items():
        url = request.url.raw_path.decode()
        for body in wrong_bodies(request.content) if request.content else ():
            answer = walked.http.request(method, url, content=body)
            assert answer.status_code == (413 if len(body) > 1_000_000 else 400), (template, body)
            REFUSED.validate(answer.json())


def wrong_bodies(body: bytes) -> Iterator[bytes]:
    """Bodies that are too long, no exact JSON, no object, or have a text that none may be."""
    yield from (b" " * 2_000_000, body[:-1], b"[]", b"7", b"\xff" + body, body + b"}", b"null")
    yield from (b"nul", b'"a"', b"\0", body[:-1] + b",", body + b",", b'{"a":' + b"[" * 9_000)
    yield from (body.decode().encode("utf-16"), body[:-1] + b',"a":"\xed\xa0\x80"}')
    fields = json.loads(body)
    yield json.dumps({**fields, "more": float("nan")}).encode()
    for name, value in fields.items():
        if isinstance(value, str):
            for text in ("a\0b", "\ud800", "\udc00x"):
                yield json.dumps({**fields, name: text}).encode()


@pytest.mark.slow
@requirement("OW-40", "OW-14", "OW-96")
def test_no_route_echoes_a_registered_value(walked: Walk) -> None:
    value = "zanzibar-hunter2-quokka"
    keeper = Host(walked.http).in_run("keeper")
    keeper.register("stripe-key", value)
    names = "X-Request-Id Idempotency-Key traceparent baggage User-Agent If-None-Match".split()
    for (method, _), request in last_requests(walked).items():
        url, body = request.url.raw_path.decode(), request.content
        path, _, query = url.partition("?")
        fields: Json = json.loads(body) if body else {}
        sent: list[tuple[str, object, dict[str, str]]] = [
            (url, fields, dict.fromkeys(names, value)),
            (f"{path.rpartition('/')[0]}/{value}", {}, {}),
            (f"{path}?{query}&{value}={value}", fields, {}),
            *((f"{path}?{name}={value}", {}, {}) for name in request.url.params),
            *((url, {**fields, name: it}, {}) for name in (*fields, value)
              for it in (value, [value], {value: value})),
        ]  # fmt: skip
        for at, document, headers in sent:
            content = json.dumps(document).encode() if body else b""
            answer = walked.http.request(method, at, content=content, headers=headers)
            assert value not in repr(answer.headers.raw) + answer.text, (method, at, document)
            assert answer.status_code < 500, (method, at, document)
    keeper.end()


@requirement("OW-7", "OW-9", "OW-33")
def test_whoever_may_not_ask_is_told_the_same_by_every_route(walked: Walk) -> None:
    service = walked.suite.service
    ended = made_key(service.path, "admin")
    revoke(service.path, ended)
    partial = made_key(service.path, "admin", "default", ("a-*", "b"))
    keys: list[tuple[tuple[int, str], dict[str, str]]] = [
        (FORBIDDEN, {"Authorization": f"Bearer {partial}"}),
        *(((401, "unauthenticated"), it) for it in (
            {}, {"Authorization": "Bearer nonsense"}, {"Authorization": f"Bearer {ended}"},
            {"X-API-Key": "nonsense"}, {"X-API-Key": ended}, {"Authorization": "Bearer"},
            {"Authorization": f"Bearer {partial[:-1]}"},
        )),
    ]  # fmt: skip
    asked = [
        (method, it.url.raw_path.decode(), it.content)
        for (method, path), it in last_requests(walked).items()
        if (method, path) not in OPEN
    ]
    asked += [
        ("GET", "/v1/nothing", b""), ("GET", H, b""), ("GET", f"{H}/memory?limit=x", b""),
        ("POST", f"{H}/memory", b"{}"), ("GET", f"{H}/memory/never", b""),
        ("GET", f"{H}/memory?memoryRef=tenants/acme/x", b""),
    ]  # fmt: skip
    before = Host(walked.http).entries()

    for status, headers in keys:
        answers = [
            service.http.request(method, url, content=body, headers=headers)
            for method, url, body in asked
        ]
        assert {refused(it) for it in answers} == {status}
        assert len({it.content for it in answers}) == 1

    assert Host(walked.http).entries() == before


@pytest.mark.slow
@requirement("OW-13")
def test_every_write_under_a_key_is_done_once_and_answered_alike(walk: Walk) -> None:
    numbers, repeated = count(), dict[Route, bool]()
    with httpx.Client(base_url=walk.http.base_url, headers=walk.http.headers) as plain:
        routes = walk.routes

        def give_key(request: httpx.Request) -> None:
            if request.method != "GET":
                request.headers["Idempotency-Key"] = f"k{next(numbers)}"

        def repeat(answer: httpx.Response) -> None:
            answer.read()
            request, route = answer.request, route_of(answer.request, routes)
            if request.method == "GET" or route in repeated or b"dryRun" in request.content:
                return
            names = {it["name"] for it in routes[route].get("parameters", ())}
            repeated[route] = "Idempotency-Key" in names
            assert not {*REPLAYED} & {*answer.headers}
            if not repeated[route]:
                return
            events = plain.get(f"{H}/events", params={"limit": 1000}).content
            again = plain.send(request)
            assert (again.status_code, again.content) == (answer.status_code, answer.content)
            assert [again.headers.get(it) for it in REPLAYED] == ["true", "true"]
            other = plain.request(
                request.method, request.url, content=request.content + b" ",
                headers={"Idempotency-Key": request.headers["Idempotency-Key"]},
            )  # fmt: skip
            assert refused(other) == (409, "idempotency_key_mismatch"), route
            assert plain.get(f"{H}/events", params={"limit": 1000}).content == events, route

        walk.http.event_hooks = {
            "request": [give_key], "response": [*walk.http.event_hooks["response"], repeat]
        }  # fmt: skip
        go(walk)

    assert sum(repeated.values()) > 20
    assert {it for it in routes if it[0] != "GET"} == repeated.keys()


@pytest.mark.slow
@requirement("OW-108", "OW-8", "OW-89")
def test_a_writer_writes_by_every_route_but_those_of_administrators(walked: Walk) -> None:
    made = proposed(Host(walked.http))["id"]
    with calling(walked.suite.service, made_key(walked.suite.service.path, "writer")) as writer:
        for (method, template), request in last_requests(walked).items():
            if method != "GET":
                url, body = request.url.raw_path.decode(), request.content
                answer = writer.request(method, url, content=body)
                assert (answer.status_code == 403) is template.endswith(ADMINS), template
        for answer in (
            moved(Host(writer), made, "apply"),
            writer.post(f"/v1/host/sample/proposals/{made}/apply", json={}),
        ):
            assert refused(answer) == FORBIDDEN
            assert answer.json()["details"] == {"scopeRequired": "packs:publish"}
            assert answer.json()["message"] == "This needs a key with the role admin."
    assert ok(moved(Host(walked.http), made, "apply"))


@requirement("OW-57", "OW-60", "OW-102")
def test_the_start_of_a_run_tells_its_workflow_or_else_its_kind(service: Service) -> None:
    host = Host(service.http)
    for name, fields in (("named", {"workflowId": "refund"}), ("unnamed", {})):
        run = host.in_run(name, **fields)
        run.end("failed")
        for mode in ("replay", "branch"):
            ok(run.fork(mode, fromSeq=0), 201)
    host.put("It ends. It waits.")
    host.put("It ends. It goes on.")
    ok(host.compact())

    found = {}  # the workflow that the start of each run tells, by what the run is
    for event in ok(host.ask("GET", "/events", params={"type": "run.started"}))["events"]:
        run = ok(host.ask("GET", f"/runs/{event['runId']}"))
        of = f" of {run['sourceRunId']}" if "sourceRunId" in run else ""
        name = run["runId"] if run["kind"] == "host" else run["kind"] + of
        found[name] = host.told(run["runId"])[0]["payload"]["workflowId"]
    assert found == {
        "named": "refund", "unnamed": "host", "replay of named": "refund",
        "replay of unnamed": "host", "branch of named": "refund", "branch of unnamed": "branch",
        "pass": "pass",
    }  # fmt: skip
    failed = ok(host.ask("GET", "/events", params={"type": "run.failed"}))["events"]
    assert [it["payload"] for it in failed] == [
        {"error": {"code": "run_failed", "message": "The run has failed."}}
    ] * 4


@requirement("OW-7")
def test_a_key_comes_in_either_header(service: Service) -> None:
    token = made_key(service.path, "writer")
    for headers in ({"Authorization": f"Bearer {token}"}, {"X-API-Key": token}):
        answer = service.http.get(f"{H}/memory", headers=headers)
        assert ok(answer)["entries"] == []


@requirement("OW-10")
def test_a_key_that_asks_too_often_is_told_when_to_come_again(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="3/h") as service:
        token = made_key(service.path, "writer")
        with calling(service, token) as http, keyed(service) as other:
            host = Host(http).in_run("r1")
            asked = [host.ask("GET", "/memory") for _ in range(5)]
            assert [it.status_code for it in asked] == [200, 200, 200, 429, 429]
            for answer in (asked[-1], host.post(), http.get("/v1/nothing"), host.compact()):
                assert refused(answer) == (429, "rate_limited")
                seconds = int(answer.headers["retry-after"])
                details = answer.json()["details"]
                assert details.keys() == {"retryAfterMs", "scope"}
                assert 1_190_000 <= details["retryAfterMs"] <= seconds * 1000
                assert seconds <= 1200
                assert details["scope"] == "key"
            for number in range(5):  # the start and the end are never refused
                more = host.in_run(f"more {number}")
                body = {"secretId": "s", "value": "12345678"}
                limited = more.ask("POST", f"/runs/{more.run}/secrets", body)
                assert refused(limited) == (429, "rate_limited")
                more.end()
            assert other.put()["content"] == "green apples"
            assert http.get(DISCOVERY).status_code == 200


@requirement("OW-10", "OW-7")
def test_the_rate_comes_before_the_role(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="2/h") as service, keyed(service, "reader") as reader:
        told = [refused(reader.post())[0] for _ in range(3)]
        assert told == [403, 403, 429]


@requirement("OW-4", "OW-13")
def test_an_allowed_page_asks_and_reads_what_the_protocol_needs(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db", MEMORY_ALLOWED_ORIGINS=CONSOLE) as service:
        for name in ("If-None-Match", "OpenWOP-Version", "Idempotency-Key", "Authorization"):
            asked = {
                "Origin": CONSOLE, "Access-Control-Request-Method": "GET",
                "Access-Control-Request-Headers": name.lower(),
            }  # fmt: skip
            for path in (DISCOVERY, f"{H}/memory"):
                answer = service.http.options(path, headers=asked)
                assert answer.is_success
                assert answer.headers["access-control-allow-origin"] == CONSOLE
                allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
                assert name.lower() in allowed, (name, path)
        read = service.http.get(f"{H}/memory", headers={"Origin": CONSOLE})
        exposed = read.headers["access-control-expose-headers"].lower().split(", ")
        assert {"etag", "openwop-idempotent-replay", "x-redacted"} <= {*exposed}
        foreign = service.http.get(f"{H}/memory", headers={"Origin": "https://evil.example"})
        assert refused(foreign) == FORBIDDEN


def is_replay(answer: httpx.Response) -> bool:
    assert (REPLAYED[1] in answer.headers) == (REPLAYED[0] in answer.headers)
    return (answer.headers.get(REPLAYED[0]), answer.headers.get(REPLAYED[1])) == ("true", "true")


def under(host: Host, key: str) -> Host:
    return replace(host, headers={"Idempotency-Key": key})


@pytest.mark.slow
@requirement("OW-13")
def test_a_key_is_of_one_caller(path: Path) -> None:
    with serving(path) as service:
        tokens = [made_key(service.path, "writer") for _ in range(2)]
        with (
            calling(service, tokens[0]) as first,
            calling(service, tokens[1]) as second,
            keyed(service, "writer", "acme") as acme,
        ):
            hosts = [under(host, "k1") for host in (Host(first), Host(second), acme)]
            made = [host.put(str(number)) for number, host in enumerate(hosts)]
            assert len({it["id"] for it in made}) == 3
            assert hosts[0].contents() == ["1", "0"]
            assert acme.contents() == ["2"]
            assert is_replay(hosts[0].post("0"))


@requirement("OW-13")
def test_a_refusal_is_not_kept_so_a_later_attempt_is_one(host: Host) -> None:
    once = under(host, "k1")
    assert refused(once.delete("plan")) == (404, "not_found")
    put = under(host, "k2")
    assert refused(put.post("one", supersedes=["plan"])) == (409, "memory_changed")
    assert refused(put.post("one", tags=["archive"])) == (400, "validation_error")
    host.put("old", id="plan")

    assert ok(put.post("one", supersedes=["plan"]), 201)
    deleted = once.delete("plan")

    assert ok(deleted)["removed"] is True
    assert not is_replay(deleted)
    assert host.contents() == ["one"]


@requirement("OW-13")
def test_reads_take_no_key_and_neither_do_secrets(host: Host) -> None:
    once = under(host, "k1")
    host.put("one")
    assert [it["content"] for it in once.entries()] == ["one"]
    host.put("two")
    answer = once.ask("GET", "/memory", params={"memoryRef": host.ref})
    assert (len(ok(answer)["entries"]), is_replay(answer)) == (2, False)
    run = under(host.in_run("r1"), "k1")
    for value in ("12345678", "12345678", "87654321"):
        assert run.register("s", value)["registered"] is True
