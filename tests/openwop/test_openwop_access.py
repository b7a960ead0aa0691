"""Who may ask: keys, roles, rates, and whose tenant it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.callers import calling, made_key, revoke
from ..support.openwop_hosts import DISCOVERY, REF, H, Host, Json, ok, refused
from ..support.openwop_tenants import NEVER, counted, keyed, named
from ..support.requirements import requirement
from ..support.service import Service, serving

FORBIDDEN = (403, "forbidden")
CONSOLE = "https://console.example"

Asked = tuple[str, str, Json | None]


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "memory.db") as running:
        yield running


def reads(memory: str) -> list[Asked]:
    at = f"memoryRef={REF}"
    return [
        ("GET", f"{H}/memory?{at}", None), ("GET", f"{H}/memory/{memory}?{at}", None),
        ("GET", f"{H}/search?{at}&q=apples", None), ("GET", f"{H}/refs", None),
        ("GET", f"{H}/provenance/{memory}?{at}", None), ("GET", f"{H}/runs/r1", None),
        ("GET", f"{H}/runs/r1/events", None), ("GET", f"{H}/events", None),
    ]  # fmt: skip


def writes(memory: str) -> list[Asked]:
    return [
        ("POST", f"{H}/memory", {"memoryRef": REF, "content": "pears"}),
        ("POST", f"{H}/runs", {"runId": "r2"}),
        ("POST", f"{H}/runs/r1/secrets", {"secretId": "s", "value": "12345678"}),
        ("POST", f"{H}/runs/r1/fork", {"mode": "replay"}),
        ("POST", f"{H}/runs/r1/end", {"status": "completed"}),
        ("DELETE", f"{H}/memory/{memory}?memoryRef={REF}", None),
    ]


@requirement("OW-8", "OW-7")
def test_readers_read_and_writers_write(closed: Service) -> None:
    with (
        keyed(closed, "reader") as reader,
        keyed(closed, "writer") as writer,
        keyed(closed, "admin") as admin,
    ):
        made = writer.put()
        writer.in_run("r1")
        for method, path, body in writes(made["id"]):
            answer = reader.http.request(method, path, json=body)
            assert refused(answer) == FORBIDDEN, path
            assert isinstance(answer.json()["details"]["scopeRequired"], str)
            assert answer.json()["details"]["scopeRequired"]
        assert reader.entries() == [made]
        for host in (reader, writer, admin):
            for method, path, body in reads(made["id"]):
                assert host.http.request(method, path, json=body).status_code == 200, path
        for method, path, body in writes(made["id"]):
            assert writer.http.request(method, path, json=body).is_success, path
        assert writer.contents() == ["pears"]
        ok(admin.delete(admin.put()["id"]))
        assert refused(reader.http.get("/v1/nothing")) == (404, "not_found")


@pytest.mark.slow
@requirement("OW-7")
def test_without_a_working_key_nothing_is_told_and_always_alike(closed: Service) -> None:
    with keyed(closed) as host:
        made = host.put()
    token = made_key(closed.path, "admin")
    revoke(closed.path, token)
    brought: list[dict[str, str]] = [
        {}, {"Authorization": "Bearer nonsense"}, {"Authorization": f"Bearer {token}"},
        {"X-API-Key": "nonsense"}, {"X-API-Key": token}, {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {token[:-1]}"},
    ]  # fmt: skip

    asked: list[Asked] = [
        *reads(made["id"]), *writes(NEVER), ("GET", "/v1/nothing", None), ("GET", H, None),
        ("PUT", f"{H}/memory", {}), ("GET", f"{H}/memory?limit=x", None),
    ]  # fmt: skip

    answers = [
        closed.http.request(method, path, json=body, headers=headers)
        for headers in brought
        for method, path, body in asked
    ]

    assert {refused(it) for it in answers} == {(401, "unauthenticated")}
    assert len({it.content for it in answers}) == 1
    assert closed.http.get(DISCOVERY).status_code == 200


@requirement("OW-7")
def test_a_key_comes_in_either_header(closed: Service) -> None:
    token = made_key(closed.path, "writer")
    for headers in ({"Authorization": f"Bearer {token}"}, {"X-API-Key": token}):
        answer = closed.http.get(f"{H}/memory", headers=headers)
        assert ok(answer)["entries"] == []


@requirement("OW-9")
def test_a_key_for_some_projects_is_refused_everywhere_whether_a_thing_exists_or_not(
    closed: Service,
) -> None:
    with keyed(closed) as whole, keyed(closed, "admin", "default", "a-*", "b") as part:
        made = whole.put()
        whole.in_run("r1")
        before = counted(whole)
        bodies = set[bytes]()
        for memory in (made["id"], NEVER):
            for method, path, body in [
                *reads(memory), *writes(memory), ("GET", f"{H}/memory?limit=x", None),
                ("POST", f"{H}/memory", {}), ("GET", "/v1/nothing", None), ("GET", f"{H}/x", None),
                ("GET", f"{H}/memory?memoryRef=tenants/acme/x", None),
            ]:  # fmt: skip
                answer = part.http.request(method, path, json=body)
                assert refused(answer) == FORBIDDEN, (method, path)
                bodies.add(answer.content)
        assert len(bodies) == 1
        assert whole.entries() == [made]
        assert counted(whole) == before


@requirement("OW-10")
def test_a_key_that_asks_too_often_is_told_when_to_come_again(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="3/h") as service:
        token = made_key(service.path, "writer")
        with calling(service, token) as http, keyed(service) as other:
            host = Host(http).in_run("r1")
            asked = [host.ask("GET", "/memory") for _ in range(5)]
            assert [it.status_code for it in asked] == [200, 200, 200, 429, 429]
            for answer in (asked[-1], host.post(), http.get("/v1/nothing"), http.get(f"{H}/refs")):
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


@requirement("OW-8", "OW-26")
def test_a_reader_of_an_odd_id_reads_it(closed: Service) -> None:
    with keyed(closed) as writer, keyed(closed, "reader") as reader:
        made = writer.put(id="a/b c")
        assert ok(reader.get(named("a/b c")))["entry"] == made
