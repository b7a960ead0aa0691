"""How the Memory Stores API refuses: one shape for every failure below its prefix."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from agentops_memory.http import bodies as plumbing
from agentops_memory.http import http_limits as limits
from agentops_memory.http.protocol import STATUS

from ..cli.test_start import starting
from ..sqlite.test_locking import TIMEOUT
from ..support.callers import calling, made_key
from ..support.engine import impatient, locked
from ..support.engines import filler, quota, rows
from ..support.original import filled
from ..support.process import until
from ..support.raw import Wire, request
from ..support.refusals import codes
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving
from ..support.service import lasting as service
from ..support.stores import (
    NEVER,
    PREFIX,
    STORES,
    at,
    entry,
    entry_at,
    fault,
    ok,
    redact,
    refusal,
    store,
    version_at,
    versions,
)

__all__ = ["service"]

INVALID = "invalid_request_error"
SECRET = "sk-ant-api03-" + "Zm9vYmFy" * 8
NOTHING_THERE = (404, "not_found_error", "There is nothing at this path.", None)


@requirement("stores:error:envelope", "stores:base")
@for_each("path", ["", "/", "/nothing", "/memory_stores/", "/memory_stores/a/b/c/d"])
@for_each("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_an_unknown_route_is_refused_as_all_else_is(
    service: Service, method: str, path: str
) -> None:
    assert refusal(service.http.request(method, PREFIX + path)) == NOTHING_THERE


@for_each(
    "method, path, allowed",
    [
        ("PUT", "", "GET, HEAD, POST"),
        ("POST", f"/memstore_{NEVER}", "DELETE, GET, HEAD"),
        ("PATCH", f"/memstore_{NEVER}", "DELETE, GET, HEAD"),
        ("DELETE", f"/memstore_{NEVER}/archive", "POST"),
        ("DELETE", f"/memstore_{NEVER}/memories", "GET, HEAD, POST"),
        ("PATCH", f"/memstore_{NEVER}/memories/mem_{NEVER}", "DELETE, GET, HEAD, PUT"),
        ("POST", f"/memstore_{NEVER}/memories/mem_{NEVER}", "DELETE, GET, HEAD, PUT"),
        ("POST", f"/memstore_{NEVER}/versions", "GET, HEAD"),
        ("DELETE", f"/memstore_{NEVER}/versions/memver_{NEVER}", "GET, HEAD"),
        ("GET", f"/memstore_{NEVER}/versions/memver_{NEVER}/redact", "POST"),
        ("OPTIONS", "", "GET, HEAD, POST"),
    ],
)
@requirement("stores:error:envelope", "stores:no-more-routes")
def test_a_method_that_a_route_does_not_take_is_refused(
    service: Service, method: str, path: str, allowed: str
) -> None:
    answer = service.http.request(method, STORES + path)

    assert refusal(answer) == (405, INVALID, "This path does not support this method.", None)
    assert answer.headers["allow"] == allowed


@requirement("stores:error:request-id")
@for_each("given", ["abc", "0123-x_Y.~!{}", "x" * 128])
def test_the_request_is_known_by_the_id_that_its_client_gave(service: Service, given: str) -> None:
    named = {"x-request-id": given}

    assert service.http.get(f"{STORES}/x", headers=named).json()["request_id"] == given
    for answer in (
        service.http.get(f"{STORES}/x", headers=named),
        service.http.get(STORES, headers=named),
        service.http.post(STORES, json={"name": "a"}, headers=named),
        service.http.post(STORES, json={"name": "a", "description": SECRET}, headers=named),
        service.http.delete(at(store(service.http)), headers=named),
    ):
        assert answer.headers.get_list("x-request-id") == [given]


@requirement("stores:error:request-id")
@for_each("given", [None, "", "a b", "x" * 129, "caf\u00e9", "a\tb"])
def test_a_request_without_a_sane_id_gets_one(service: Service, given: str | None) -> None:
    headers = {} if given is None else {b"x-request-id": given.encode("latin-1")}
    told = [service.http.get(f"{STORES}/x", headers=headers) for _ in range(2)]
    listed = service.http.get(STORES, headers=headers)

    identified = {answer.json()["request_id"] for answer in told}
    assert len(identified) == 2
    assert all(UUID(each).version == 4 for each in identified)
    assert UUID(listed.headers["x-request-id"]).version == 4


@requirement("stores:error:400", "stores:any-content-type")
@for_each("type_", [None, "text/plain", "application/json", "application/xml", "x"])
def test_a_body_is_read_whatever_its_type(service: Service, type_: str | None) -> None:
    headers = {} if type_ is None else {"content-type": type_}

    assert service.http.post(STORES, content=b'{"name": "a"}', headers=headers).status_code == 201
    broken = service.http.post(STORES, content=b'{"name": "a"', headers=headers)
    assert fault(broken) == (400, INVALID, None)


@for_each(
    "body", [b"", b" ", b"[]", b'"a"', b"null", b"1", b"{", b'{"name": "a"}}', b'{"name": NaN}',
             b"name=a", b'{"x":' + b"[" * 200 + b"]" * 200 + b',"name":"a"}']
)  # fmt: skip
@requirement("stores:error:400")
def test_what_is_no_json_object_is_refused(service: Service, body: bytes) -> None:
    home = store(service.http)
    made = entry(service.http, home, "a")

    for method, path in [("POST", STORES), ("POST", at(home, "memories")),
                         ("PUT", entry_at(home, made))]:  # fmt: skip
        told = refusal(service.http.request(method, path, content=body))
        assert told.message.startswith("invalid JSON")
        assert (told.status, told.type, told.param) == (400, INVALID, None)


@pytest.mark.slow
@requirement("stores:empty-bodies")
@for_each("body", [b"", b"{}", b"not json", b"\xff", b"x" * 5_000_000])
def test_what_needs_no_body_reads_none(service: Service, body: bytes) -> None:
    http, home = service.http, store(service.http)
    made = entry(http, home, "a")
    (version,) = versions(http, home)
    headers = {"content-type": "application/json"} if body == b"{}" else {}

    def asked(method: str, path: str) -> int:
        return http.request(method, path, content=body, headers=headers).status_code

    assert asked("POST", f"{version_at(home, version)}/redact") == 200
    assert asked("DELETE", entry_at(home, made)) == 204
    assert asked("POST", at(home, "archive")) == 200
    assert asked("DELETE", at(home)) == 204


@requirement("stores:empty-bodies")
def test_what_needs_no_body_reads_one_of_four_mebibytes_for_its_key(service: Service) -> None:
    path, key = at(store(service.http), "archive"), {"Idempotency-Key": "large"}

    taken, again = (
        service.http.post(path, content=b"." * (4 << 20), headers=key) for _ in range(2)
    )
    larger = service.http.post(path, content=b"." * ((4 << 20) + 1), headers=key)

    assert (taken.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert fault(larger) == (400, INVALID, None)
    assert "4,194,304" in refusal(larger).message


@requirement("stores:error:request-id")
def test_the_log_names_the_request(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    service.http.get(STORES, headers={"x-request-id": "abc"})
    service.http.get(f"{STORES}/x", headers={"x-request-id": "def"})

    def named() -> list[object]:
        ids = [getattr(record, "request_id", None) for record in caplog.records]
        return [id_ for id_ in ids if id_ in ("abc", "def")]  # one of the test before may come

    until(lambda: len(named()) == 2)  # a line follows its answer
    assert named() == ["abc", "def"]


@pytest.mark.parametrize("path", ["/api/v1/cloudX", "/api/v1/cloud2/memory_stores"])
def test_a_path_that_only_begins_alike_is_not_this_protocols(service: Service, path: str) -> None:
    plain = service.http.get(path)
    foreign = service.http.get(path, headers={"Origin": "https://evil.example"})

    assert (plain.status_code, plain.json()["error"]) == (404, {"code": "NOT_FOUND"})
    assert (foreign.status_code, foreign.json()["error"]) == (403, {"code": "ACCESS_DENIED"})


def test_every_kind_of_refusal_has_a_status_and_a_type() -> None:
    assert {"stale", "failed", "over_quota"} < codes() <= STATUS.keys()


# Who may come in


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[tuple[Service, str]]:
    """A service with keys, and one that opens it."""
    with serving(tmp_path / "memory.db", MEMORY_RATE_LIMIT="1000/s") as service:
        yield service, made_key(service.path)


@requirement("stores:auth:authorization", "stores:error:401")
def test_a_key_counts_in_authorization_alone(closed: tuple[Service, str]) -> None:
    service, token = closed
    path = f"{STORES}?limit=0"
    unknown = f"{PREFIX}/nothing"

    for headers in [
        {}, {"x-api-key": token}, {"authorization": token}, {"authorization": f"Basic {token}"},
        {"authorization": "Bearer wrong"}, {"authorization": "Bearer wrong", "x-api-key": token},
    ]:  # fmt: skip
        for answer in [
            service.http.get(path, headers=headers),
            service.http.get(unknown, headers=headers),
        ]:
            assert fault(answer) == (401, "authentication_error", None)
            assert answer.headers["www-authenticate"] == "Bearer"
    let_in = {"authorization": f"bearer {token}"}
    assert fault(service.http.get(path, headers=let_in)) == (400, INVALID, "limit")
    assert refusal(service.http.get(unknown, headers=let_in)) == NOTHING_THERE
    assert service.http.get("/stats", headers={"x-api-key": token}).status_code == 200


@requirement("stores:auth:open")
@pytest.mark.parametrize("headers", [{}, {"x-api-key": "x"}, {"authorization": "Bearer pt-abc"}])
def test_an_open_service_lets_anybody_in(service: Service, headers: dict[str, str]) -> None:
    assert service.http.get(STORES, headers=headers).status_code == 200


@requirement("stores:rate-limit")
def test_a_key_that_asks_too_often_is_told_to_wait(path: Path) -> None:
    with (
        serving(path, MEMORY_RATE_LIMIT="1/h") as service,
        calling(service, made_key(service.path)) as client,
    ):
        assert client.get(STORES).status_code == 200
        answer = client.get(STORES)

    assert fault(answer) == (429, "rate_limit_error", None)
    assert int(answer.headers["retry-after"]) > 0


@requirement("stores:error:envelope", "stores:error:403")
def test_a_page_from_elsewhere_is_refused_in_the_same_shape(service: Service) -> None:
    named = {"x-request-id": "abc"}
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        answer = service.http.get(STORES, headers=headers | named)
        assert fault(answer) == (403, "permission_error", None)
        assert answer.json()["request_id"] == "abc"


def test_an_allowed_page_reads_the_id_of_its_request(path: Path) -> None:
    page = "https://console.example"
    with serving(path, MEMORY_ALLOWED_ORIGINS=page) as service:
        answer = service.http.get(STORES, headers={"origin": page})

    assert "X-Request-Id" in answer.headers["access-control-expose-headers"]


# When the service cannot


@pytest.mark.sqlite_files
@requirement("stores:error:envelope")
def test_while_it_is_upgraded_all_is_to_be_tried_again(path: Path) -> None:
    with starting(filled(path)) as (_, http, _lock):
        answer = http.get(STORES)

    sentence = "The service is starting; try again."
    assert refusal(answer) == (503, "api_error", sentence, None)
    assert answer.headers["retry-after"] == "1"


@requirement("stores:error:envelope")
def test_a_database_that_another_holds_is_to_be_tried_again(service: Service) -> None:
    home = store(service.http)
    with locked(service.path), pytest.MonkeyPatch.context() as patch:
        impatient(patch, TIMEOUT)
        answer = service.http.post(at(home, "archive"))

    assert fault(answer) == (503, "api_error", None)
    assert answer.headers["retry-after"] == "1"
    assert ok(service.http.get(at(home)))["status"] == "active"


@pytest.mark.slow
@requirement("stores:error:envelope")
def test_a_full_tenant_is_told_so(path: Path) -> None:
    with serving(path, MEMORY_TENANT_QUOTA=quota(path, 1100)) as service:
        home = store(service.http)
        made = entry(service.http, home, "first")
        for number in range(100):
            body = {"path": str(number), "content": filler(50_000)}
            answer = service.http.post(at(home, "memories"), json=body)
            if answer.status_code != 201:
                break

        assert fault(answer) == (507, "api_error", None)
        assert fault(service.http.post(STORES, json={"name": "a"})) == (507, "api_error", None)
        refused = service.http.put(entry_at(home, made), json={"content": "other"})
        assert fault(refused) == (507, "api_error", None)
        assert ok(service.http.get(entry_at(home, made))) == made
        (version,) = versions(service.http, home, entry_id=made["id"])
        assert redact(service.http, home, version)["redacted"] is True
        assert service.http.delete(entry_at(home, made)).status_code == 204


@requirement("stores:error:envelope")
def test_a_body_that_stops_is_refused(client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plumbing, "BODY_IDLE", 0.2)
    monkeypatch.setattr(limits, "LINGER_TIME", 0.2)

    client.send(request("POST", STORES, content_length="9"), b"{")

    answer = client.answer()
    assert (answer.status, answer.json["error"]["type"]) == (408, INVALID)
    assert answer.json["request_id"] == answer.headers["x-request-id"]


@requirement("stores:error:500", "stores:error:envelope")
def test_a_failure_tells_nothing_but_that_it_is_one(service: Service) -> None:
    home = store(service.http)
    rows(service.path, "ALTER TABLE stores RENAME COLUMN name TO elsewhere")

    answer: httpx.Response = service.http.get(at(home), headers={"x-request-id": "abc"})

    sentence = "The service failed; the log has the reason."
    assert refusal(answer) == (500, "api_error", sentence, None)
    assert answer.json()["request_id"] == "abc"
