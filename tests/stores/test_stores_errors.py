"""How memory stores refuse in either dialect: one shape for every failure below its prefix."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import anthropic
import pytest

from agentops_memory.errors import Busy, Full, Refusal, TimedOut, TooMany, Unavailable
from agentops_memory.http import bodies as plumbing, http_limits as limits
from agentops_memory.http.protocol import STATUS
from agentops_memory.stores.anthropic import REFUSALS, refused

from ..cli.test_start import starting
from ..sqlite.test_locking import TIMEOUT
from ..support import anthropic_sdk as sdks
from ..support.anthropic_sdk import ANY, NOWHERE, memory
from ..support.callers import calling, made_key
from ..support.engine import impatient, locked
from ..support.engines import filler, quota, rows
from ..support.original import filled
from ..support.process import until
from ..support.raw import request, wire
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, lasting as service, serving
from ..support.store_dialects import ANTHROPIC, CLOUD, Dialect, every_request, in_both, stocked
from ..support.stores import (
    NEVER,
    STORES,
    at,
    codes,
    entry,
    entry_at,
    fault,
    ok,
    redact,
    refusal,
    store,
    versions,
)

__all__ = ["service"]

INVALID = "invalid_request_error"
SECRET = "sk-ant-api03-" + "Zm9vYmFy" * 8
NOTHING_THERE = (404, "not_found_error", "There is nothing at this path.", None)
MIB = 1 << 20
EVIL = {"origin": "https://evil.example"}


@requirement("stores:error:envelope", "stores:base", "anthropic:sdk:envelope")
@for_each("path", ["", "/", "/nothing", "/memory_stores/", "/memory_stores/a/b/c/d"])
@for_each("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@in_both
def test_an_unknown_route_is_refused_as_all_else_is(
    service: Service, dialect: Dialect, method: str, path: str
) -> None:
    for below in (dialect.prefix, dialect.prefix.removesuffix("/v1")):
        told = dialect.refusal(service.http.request(method, below + path))
        assert told == NOTHING_THERE


@for_each(
    "dialect, method, path, allowed",
    [
        (CLOUD, "PUT", "", "GET, HEAD, POST"),
        (CLOUD, "PATCH", f"/memstore_{NEVER}", "DELETE, GET, HEAD"),
        (CLOUD, "DELETE", f"/memstore_{NEVER}/archive", "POST"),
        (CLOUD, "DELETE", f"/memstore_{NEVER}/memories", "GET, HEAD, POST"),
        (CLOUD, "POST", f"/memstore_{NEVER}/memories/mem_{NEVER}", "DELETE, GET, HEAD, PUT"),
        (CLOUD, "POST", f"/memstore_{NEVER}/versions", "GET, HEAD"),
        (CLOUD, "DELETE", f"/memstore_{NEVER}/versions/memver_{NEVER}", "GET, HEAD"),
        (CLOUD, "GET", f"/memstore_{NEVER}/versions/memver_{NEVER}/redact", "POST"),
        (CLOUD, "OPTIONS", "", "GET, HEAD, POST"),
        (ANTHROPIC, "PUT", "", "GET, HEAD, POST"),
        (ANTHROPIC, "PATCH", f"/{NOWHERE}", "DELETE, GET, HEAD, POST"),
        (ANTHROPIC, "POST", f"/{NOWHERE}/memory_versions", "GET, HEAD"),
    ],
)
@requirement("stores:error:envelope", "stores:no-more-routes", "anthropic:sdk:envelope")
def test_a_method_that_a_route_does_not_take_is_refused(
    service: Service, dialect: Dialect, method: str, path: str, allowed: str
) -> None:
    answer = service.http.request(method, dialect.stores + path)

    told = dialect.refusal(answer)
    assert told == (405, INVALID, "This path does not support this method.", None)
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


@requirement("stores:error:request-id", "anthropic:sdk:request-id")
def test_the_log_names_each_request(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for path, id_ in ((STORES, "abc"), (f"{STORES}/x", "def")):
        service.http.get(path, headers={"x-request-id": id_})
    stores = ANTHROPIC.stores
    asked = [service.http.get(stores), service.http.get(f"{stores}/x"), service.http.post(stores)]
    given = [it.headers["request-id"] for it in asked]

    def named() -> list[object]:
        ids = [getattr(record, "request_id", None) for record in caplog.records]
        return [id_ for id_ in ids if id_ in ("abc", "def", *given)]  # and none of another test

    until(lambda: len(named()) == 5)  # a line follows its answer
    assert named() == ["abc", "def", *given]
    assert all(re.fullmatch(r"req_[0-9a-f]{32}", it) for it in given)


@requirement("stores:error:400", "stores:any-content-type", "anthropic:body:lenient")
@for_each("type_", [None, "text/plain", "application/json", "image/png; x", "x", ""])
@in_both
def test_a_body_is_read_whatever_its_type_and_what_is_unknown_in_it_is_ignored(
    service: Service, dialect: Dialect, type_: str | None
) -> None:
    headers = {} if type_ is None else {"content-type": type_}
    body = b'\xef\xbb\xbf {"name": "a", "id": null, "x": {"a": 1}, "": []}'
    taken = service.http.post(dialect.stores, content=body, headers=headers)
    broken = service.http.post(dialect.stores, content=b'{"name": "a"', headers=headers)

    assert taken.status_code == (201 if dialect is CLOUD else 200)
    assert dialect.fault(broken) == (400, INVALID)


@pytest.mark.slow
@for_each(
    "body", [b"", b" ", b"[]", b'"a"', b"null", b"1", b"{", b'{"name": "a"}}', b'{"name": NaN}',
             b"name=a", b'{"x":' + b"[" * 200 + b"]" * 200 + b',"name":"a"}']
)  # fmt: skip
@requirement("stores:error:400", "anthropic:body:strict")
@in_both
def test_what_is_no_json_object_is_refused(service: Service, dialect: Dialect, body: bytes) -> None:
    ids = stocked(service.http)
    takes_body = ("create_store", "create_entry", "create_memory", "update_entry")
    for it in every_request(*ids, dialect):
        if it.name.removeprefix("anthropic_") in takes_body:
            told = dialect.refusal(it.send(service.http, json=None, content=body))
            assert told.message.startswith("invalid JSON"), it
            assert (told.status, told.type, told.param) == (400, INVALID, None)


@pytest.mark.slow
@requirement("stores:empty-bodies")
@for_each("body", [b"", b"{}", b"not json", b"\xff", b"x" * 5_000_000])
@in_both
def test_what_needs_no_body_reads_none(service: Service, dialect: Dialect, body: bytes) -> None:
    headers = {"content-type": "application/json"} if body == b"{}" else {}
    for it in every_request(*stocked(service.http), dialect):
        if it.method != "GET" and it.body is None:
            answer = it.send(service.http, json=None, content=body, headers=headers)
            assert answer.status_code == it.status, it


@requirement(
    "stores:empty-bodies", "stores:body-limit", "anthropic:body:limit", "anthropic:once",
)  # fmt: skip
@in_both
def test_a_body_has_four_mebibytes_also_where_it_is_read_for_a_key_alone(
    service: Service, dialect: Dialect
) -> None:
    home = store(service.http)
    frame = len(b'{"name": "a", "": ""}')
    most = b'{"name": "a", "": "%b"}' % (b"." * (4 * MIB - frame))
    chunks = [most[at_ : at_ + 65_536] for at_ in range(0, len(most), 65_536)]
    key = {"Idempotency-Key": f"large-{dialect.name}"}
    archive = dialect.at(home, "archive")
    taken = [
        service.http.post(dialect.stores, content=most),
        *(service.http.post(archive, content=b"." * (4 * MIB), headers=key) for _ in range(2)),
    ]
    larger = [
        service.http.post(dialect.stores, content=most + b" "),
        service.http.post(dialect.stores, content=iter([*chunks, b" "])),
        service.http.post(archive, content=b"." * (4 * MIB + 1), headers=key),
    ]

    assert [it.status_code for it in taken if it.is_error] == [], [it.text for it in taken]
    assert taken[-1].headers["idempotent-replayed"] == "true"
    sentence = "The body is larger than 4,194,304 bytes; nothing was stored."
    for answer in larger:
        assert dialect.refusal(answer) == (400, INVALID, sentence, None)


@requirement("stores:idempotency:other", "anthropic:once")
@in_both
def test_another_request_under_a_key_is_a_conflict_and_what_is_no_key_is_refused(
    service: Service, dialect: Dialect
) -> None:
    def sent(name: str, key: str) -> tuple[int, str, str, str | None]:
        headers = {"Idempotency-Key": key}
        answer = service.http.post(dialect.stores, json={"name": name}, headers=headers)
        return (200, "", "", None) if answer.is_success else dialect.refusal(answer)

    sentence = "Idempotency key reused with a different request body."
    assert sent("One", f"other-{dialect.name}")[0] == 200
    assert sent("Other", f"other-{dialect.name}") == (409, "conflict_error", sentence, None)
    assert sent("One", "k" * 256)[:2] == (400, INVALID)


@in_both
def test_a_path_that_only_begins_alike_is_not_this_dialects(
    service: Service, dialect: Dialect
) -> None:
    prefix = dialect.prefix.removesuffix("/v1")
    for path in (f"{prefix}X", f"{prefix}2/v1/memory_stores"):
        plain = service.http.get(path)
        foreign = service.http.get(path, headers=EVIL)
        assert (plain.status_code, foreign.status_code) == (404, 403)
        if dialect is CLOUD:  # it is OpenIntent's
            assert plain.json()["error"] == {"code": "NOT_FOUND"}
            assert foreign.json()["error"] == {"code": "ACCESS_DENIED"}
        else:
            assert plain.json() == {"error": NOTHING_THERE[2]}
            assert foreign.json().keys() == {"error"}


def test_every_kind_of_refusal_has_a_status_and_a_type() -> None:
    assert {"stale", "failed", "over_quota"} < codes() == STATUS.keys()
    assert {*REFUSALS.statuses, *REFUSALS.types} <= set(STATUS)


@for_each(
    "refusal_, status, type_, wait",
    [
        (Busy("It is locked."), 503, "overloaded_error", "1"),
        (TimedOut("It took too long."), 503, "overloaded_error", "1"),
        (Full("The disk is full."), 503, "api_error", "1"),
        (Unavailable("It is not there."), 503, "api_error", "1"),
        (TooMany("Too often.", 7), 429, "rate_limit_error", "7"),
    ],
)
def test_what_may_succeed_later_says_so(
    refusal_: Refusal, status: int, type_: str, wait: str
) -> None:
    answer = refused(refusal_, {})

    assert (answer.status_code, answer.headers["retry-after"]) == (status, wait)
    assert f'"type":"{type_}"'.encode() in bytes(answer.body)
    assert "x-should-retry" not in answer.headers


# What the package makes of refusals


@requirement("anthropic:sdk:retries")
def test_a_conflict_is_asked_once(service: Service) -> None:
    asked: list[Any] = []
    transport = anthropic.DefaultHttpxClient(event_hooks={"request": [asked.append]})
    with sdks.client(service, http_client=transport) as sdk:
        notes = sdks.store(sdk)
        held = memory(sdk, notes, "/a")
        memories = sdk.beta.memory_stores.memories
        asked.clear()

        for number, conflict in enumerate([
            lambda: memory(sdk, notes, "/a"),
            lambda: memories.delete(
                held.id, memory_store_id=notes.id, expected_content_sha256="0" * 64
            ),
        ], start=1):  # fmt: skip
            sdks.refusal(conflict, anthropic.ConflictError)
            assert len(asked) == number

    assert sdk.max_retries == 2


@requirement("anthropic:sdk:exceptions")
def test_each_refusal_is_the_exception_that_the_package_has_for_it(path: Path) -> None:
    with serving(path) as service:
        admin, reader = (made_key(service.path, role) for role in ("admin", "reader"))
        some = made_key(service.path, "admin", projects=("billing",))
        with (
            sdks.client(service, admin) as his, sdks.client(service, reader) as hers,
            sdks.client(service, some) as theirs, sdks.client(service, ANY) as nobodys,
        ):  # fmt: skip
            notes = sdks.store(his)
            memory(his, notes, "/a")
            stores = his.beta.memory_stores
            calls: list[tuple[Callable[[], object], Any, str]] = [
                (lambda: sdks.store(his, ""), anthropic.BadRequestError, INVALID),
                (lambda: sdks.store(nobodys), anthropic.AuthenticationError,
                 "authentication_error"),
                (lambda: sdks.store(hers), anthropic.PermissionDeniedError, "permission_error"),
                (theirs.beta.memory_stores.list, anthropic.PermissionDeniedError,
                 "permission_error"),
                (lambda: stores.retrieve(NOWHERE), anthropic.NotFoundError, "not_found_error"),
                (lambda: memory(his, notes, "/a"), anthropic.ConflictError,
                 "memory_path_conflict_error"),
            ]  # fmt: skip
            for call, kind, type_ in calls:
                assert sdks.refusal(call, kind)["type"] == type_


# Who may come in


@requirement("stores:auth:authorization", "stores:error:401")
def test_a_key_counts_in_authorization_alone(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="1000/s") as service:
        token, listed = made_key(service.path), f"{STORES}?limit=0"

        for headers in [
            {"x-api-key": token}, {"authorization": token}, {"authorization": f"Basic {token}"},
            {"authorization": "Bearer wrong", "x-api-key": token},
        ]:  # fmt: skip
            answer = service.http.get(listed, headers=headers)
            assert fault(answer) == (401, "authentication_error", None)
        let_in = {"authorization": f"bearer {token}"}
        assert fault(service.http.get(listed, headers=let_in)) == (400, INVALID, "limit")
        unknown = service.http.get(f"{CLOUD.prefix}/nothing", headers=let_in)
        assert refusal(unknown) == NOTHING_THERE
        assert service.http.get("/stats", headers={"x-api-key": token}).status_code == 200


@requirement("stores:auth:open")
@for_each("headers", [{}, {"x-api-key": "x"}, {"authorization": "Bearer pt-abc"}])
def test_an_open_service_lets_anybody_in(service: Service, headers: dict[str, str]) -> None:
    assert service.http.get(STORES, headers=headers).status_code == 200


@requirement("stores:rate-limit")
@in_both
def test_a_key_that_asks_too_often_is_told_to_wait(path: Path, dialect: Dialect) -> None:
    with (
        serving(path, MEMORY_RATE_LIMIT="1/h") as service,
        calling(service, made_key(service.path)) as client,
    ):
        assert client.get(dialect.stores).status_code == 200
        answer = client.get(dialect.stores)

    assert dialect.fault(answer) == (429, "rate_limit_error")
    assert 0 < int(answer.headers["retry-after"]) <= 3600


@requirement("stores:error:envelope", "stores:error:403", "anthropic:sdk:envelope")
@in_both
def test_a_page_from_elsewhere_is_refused_in_the_same_shape(
    service: Service, dialect: Dialect
) -> None:
    for headers in (EVIL, {"host": "evil.example"}):
        answer = service.http.get(dialect.stores, headers=headers | {"x-request-id": "abc"})
        assert dialect.fault(answer) == (403, "permission_error")
        assert (answer.json()["request_id"] == "abc") is (dialect is CLOUD)


def test_an_allowed_page_reads_the_id_of_its_request(path: Path) -> None:
    page = "https://console.example"
    with serving(path, MEMORY_ALLOWED_ORIGINS=page) as service:
        answer = service.http.get(STORES, headers={"origin": page})

    assert "X-Request-Id" in answer.headers["access-control-expose-headers"]


# When the service cannot


@pytest.mark.slow
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


@requirement("stores:error:envelope", "anthropic:limits")
def test_a_full_tenant_is_told_so_and_the_package_asks_once(path: Path) -> None:
    with (
        serving(path, MEMORY_TENANT_QUOTA=quota(path, 1024)) as service,
        sdks.client(service) as sdk,
    ):
        home = store(service.http)
        made = entry(service.http, home, "first")
        for number in range(100):
            body = {"path": str(number), "content": filler(60_000)}
            answer = service.http.post(at(home, "memories"), json=body)
            if answer.status_code != 201:
                break

        assert fault(answer) == (507, "api_error", None)
        assert fault(service.http.post(STORES, json={"name": "a"})) == (507, "api_error", None)
        stale = service.http.put(entry_at(home, made), json={"content": "other"})
        assert fault(stale) == (507, "api_error", None)
        with pytest.raises(anthropic.InternalServerError) as caught:
            sdks.store(sdk)
        theirs = caught.value.response
        assert (theirs.status_code, theirs.headers["x-should-retry"]) == (507, "false")
        assert caught.value.type == "api_error"
        assert theirs.request.headers["x-stainless-retry-count"] == "0"
        assert ok(service.http.get(entry_at(home, made))) == made
        (version,) = versions(service.http, home, entry_id=made["id"])
        assert redact(service.http, home, version)["redacted"] is True
        assert service.http.delete(entry_at(home, made)).status_code == 204


@requirement("stores:error:envelope")
@in_both
def test_a_body_that_stops_is_refused(
    service: Service, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plumbing, "BODY_IDLE", 0.05)
    monkeypatch.setattr(limits, "LINGER_TIME", 0.05)
    with wire(service.url) as connection:
        connection.send(request("POST", dialect.stores, content_length="9"), b"{")
        answer = connection.answer()

    type_ = INVALID if dialect is CLOUD else "timeout_error"
    assert (answer.status, answer.json["error"]["type"]) == (408, type_)
    assert answer.json["request_id"] == answer.headers[dialect.request_id]


@requirement("stores:error:500", "stores:error:envelope")
def test_a_failure_tells_nothing_but_that_it_is_one(path: Path) -> None:
    with serving(path) as service:
        home = store(service.http)
        rows(service.path, "ALTER TABLE stores RENAME COLUMN name TO elsewhere")
        for dialect in (CLOUD, ANTHROPIC):
            with calling(service, None) as http:
                told = dialect.refusal(http.get(dialect.at(home)))
            sentence = "The service failed; the log has the reason."
            assert told == (500, "api_error", sentence, None)
