"""A registered value is in no answer to a request that holds it, wherever it stands in it.

Each request of a walk over every route is sent again with the value in a part of its path, in a
parameter, in a text of its body, in a name, and in headers.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import httpx
import pytest

from ..support.callers import audit, made_key
from ..support.erasing import remains
from ..support.openwop_hosts import Host, faults, ok, refused
from ..support.openwop_seams import OTHER, Suite
from ..support.openwop_walk import Route, administered, go, route_of
from ..support.requirements import requirement
from ..support.service import Service
from ..telemetry.test_tracing import traced
from .seams.application import with_seams
from .test_openwop_spans import logged

VALUE = "zanzibar-hunter2-quokka"
MARK = "[REDACTED:stripe-key]"
HEADERS = {
    "X-Request-Id": VALUE, "Idempotency-Key": VALUE, "traceparent": VALUE,
    "tracestate": f"a={VALUE}", "baggage": f"a={VALUE}", "User-Agent": VALUE,
    "If-None-Match": VALUE, "OpenWOP-Version": VALUE,
}  # fmt: skip

Sent = tuple[str, str, bytes, Mapping[str, str]]


def variants(request: httpx.Request, run: str) -> Iterator[Sent]:
    """The request with the value in one place after the other, of an open run."""
    path, _, asked = request.url.raw_path.decode().partition("?")
    path, body = path.replace("/r1", f"/{run}"), request.content
    yield request.method, f"{path}?{asked}", body, HEADERS
    yield request.method, f"{path}?{asked}&{VALUE}={VALUE}", body, {}
    yield "PUT", path, body, {}
    parts = path.split("/")
    for at in range(2, len(parts)):
        for part in (VALUE, f"{VALUE}:fork"):
            yield request.method, "/".join([*parts[:at], part, *parts[at + 1 :]]), body, {}
    query = parse_qsl(asked)
    for at, (name, _) in enumerate(query):
        for told in (VALUE, f"mem://{VALUE}"):
            changed = [*query[:at], (name, told), *query[at + 1 :]]
            params = "&".join(f"{each}={quote(it, safe='')}" for each, it in changed)
            yield request.method, f"{path}?{params}", body, {}
    yield request.method, path, f'{{"{VALUE}": "{VALUE}'.encode(), {}
    if body and isinstance(found := json.loads(body), dict):
        found = json.loads(body.decode().replace('"r1"', f'"{run}"'))
        for each in ({**found, VALUE: VALUE}, *replaced(found)):
            yield request.method, f"{path}?{asked}", json.dumps(each).encode(), {}


def replaced(value: Any) -> Iterator[Any]:
    """The JSON with the value in place of each text, and of each name of an object."""
    if isinstance(value, str):
        yield from (VALUE, f"it is {VALUE}.", [VALUE], {VALUE: VALUE})
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from ([*value[:at], each, *value[at + 1 :]] for each in replaced(item))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield {**value, name: VALUE}
            rest = {other: it for other, it in value.items() if other != name}
            yield {**rest, VALUE: item}
            yield from ({**value, name: each} for each in replaced(item))


def told(answer: httpx.Response) -> str:
    return repr(answer.headers.raw) + answer.text


@pytest.mark.heavy
@requirement("OW-40", "OW-14", "OW-96")
def test_no_route_echoes_a_registered_value(tmp_path: Path) -> None:
    path, succeeded = tmp_path / "memory.db", defaultdict[Route, int](int)
    made_key(path, "writer", OTHER)
    with logged() as lines, traced(tmp_path, with_seams) as (service, received):
        with administered(Suite(service=service, http=service.http)) as walk:
            go(walk)
            routes = walk.routes
            requests = {route_of(it.request, routes): it.request for it in walk.answers}
            keeper = Host(walk.http).in_run("keeper")
            keeper.register("stripe-key", VALUE)
            for number, (route, request) in enumerate(requests.items()):
                run = keeper.in_run(f"open-{number}").run
                for method, url, body, headers in variants(request, str(run)):
                    answer = walk.http.request(method, url, content=body, headers=headers)
                    assert VALUE not in told(answer), (method, url, body, answer.text)
                    assert answer.status_code < 500, (method, url, body, answer.text)
                    succeeded[route] += answer.is_success
        assert VALUE not in service.http.get("/metrics").text
        collector = received()

    assert requests.keys() == routes.keys()
    assert sum(map(bool, succeeded.values())) > len(routes) * 3 // 4
    assert VALUE not in lines.getvalue() + repr(collector.spans) + repr(collector.labels)
    assert VALUE not in repr(audit(path))
    assert remains(tmp_path, VALUE) == set()


@pytest.fixture
def host(service: Service) -> Host:
    made = Host(service.http).in_run("r1")
    made.register("stripe-key", VALUE)
    return made


@requirement("OW-40", "OW-96")
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_subject_is_answered_without_a_registered_value_and_still_forgotten(
    service: Service, dry_run: bool
) -> None:
    host = Host(service.http)
    host.put("About her.", tags=[f"subject:{VALUE}"])  # before it was a secret
    host.in_run("r1").register("stripe-key", VALUE)

    answer = host.forget(VALUE, dryRun=dry_run)

    assert VALUE not in told(answer)
    assert (ok(answer)["subject"], answer.json()["entries"]) == (MARK, 1)
    assert len(host.entries()) == int(dry_run)
    again = Host(host.http, headers={"Idempotency-Key": "k"})
    assert {again.forget(VALUE).content for _ in range(2)} == {again.forget(VALUE).content}
    assert VALUE not in again.forget(VALUE).text


@requirement("OW-40")
def test_a_ref_is_answered_without_a_registered_value(host: Host) -> None:
    for path, more in (("/memory", {}), ("/search", {"q": "apples"})):
        answer = host.ask("GET", path, params={"memoryRef": f"mem://{VALUE}", **more})
        assert ok(answer)["memoryRef"] == f"mem://{MARK}"
        assert answer.json()["entries"] == []


@requirement("OW-40")
def test_an_id_that_was_no_secret_is_deleted_and_not_echoed(service: Service) -> None:
    host = Host(service.http)
    host.put(id=f"of {VALUE}")
    host.in_run("r1").register("stripe-key", VALUE)

    answer = host.delete(f"of {VALUE}")

    assert ok(answer) == {"memoryRef": host.ref, "memoryId": f"of {MARK}", "removed": True}
    assert host.entries() == []


@requirement("OW-40", "OW-44")
@pytest.mark.parametrize("value", ["short", "wombat-wombat"])
def test_an_id_of_a_secret_that_holds_another_runs_value_is_400_and_not_stored(
    service: Service, host: Host, value: str
) -> None:
    other = host.in_run("r2")

    answer = other.ask("POST", "/runs/r2/secrets", {"secretId": f"of {VALUE}", "value": value})

    assert faults(answer) == ["secretId"]
    assert VALUE not in told(answer)
    assert other.put("plain")["content"] == "plain"
    assert remains(service.path.parent, VALUE) == set()


@requirement("OW-40")
def test_an_id_of_a_request_that_holds_a_registered_value_is_another_one(host: Host) -> None:
    for given, is_kept in ((f"id-{VALUE}", False), ("id-7", True)):
        headers = {"X-Request-Id": given}
        for answer in (
            host.ask("GET", "/memory/x", headers=headers),
            host.http.get("/api/v1/cloud/memory_stores/x", headers=headers),
        ):
            assert answer.status_code == 404
            assert (answer.headers["x-request-id"] == given) is is_kept
    assert refused(host.ask("GET", "/memory/x")) == (404, "not_found")


@requirement("OW-40")
def test_a_refused_import_does_not_name_a_member_that_is_a_registered_value(host: Host) -> None:
    value = VALUE.replace("-", "_")  # as a member of a format is called
    Host(host.http, run="r1").register("stripe-key", value)

    answer = host.http.post("/import", json={value: 1, "b": 2})

    assert answer.status_code == 400
    assert answer.json()["error"].endswith("; this one has b, 1 more.")
