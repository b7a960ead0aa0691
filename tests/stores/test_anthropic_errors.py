"""Refusals and request ids of the Anthropic dialect, as the package sees them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from agentops_memory.errors import Busy, Full, Refusal, TimedOut, TooMany, Unavailable
from agentops_memory.http import bodies as http
from agentops_memory.http.protocol import STATUS
from agentops_memory.stores import store as stores
from agentops_memory.stores.anthropic import REFUSALS, refused

from ..support.anthropic_sdk import ANY, NOWHERE, STORES, client, memory, refusal, sdk, store
from ..support.callers import calling, made_key
from ..support.engines import filler, quota
from ..support.raw import request, wire
from ..support.refusals import codes
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving
from ..support.service import lasting as service

__all__ = ["sdk", "service"]

REQUEST_ID = re.compile(r"req_[0-9a-f]{32}")
MEBIBYTE = 1 << 20


def envelope(type_: str, message: str, request_id: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": type_, "message": message}, "request_id": request_id}


@for_each(
    "method, path, status, type_, message",
    [
        ("GET", "/anthropic", 404, "not_found_error", "There is nothing at this path."),
        ("GET", "/anthropic/", 404, "not_found_error", "There is nothing at this path."),
        ("POST", "/anthropic/v1/messages", 404, "not_found_error",
         "There is nothing at this path."),
        ("GET", f"{STORES}/", 404, "not_found_error", "There is nothing at this path."),
        ("GET", f"{STORES}/{NOWHERE}", 404, "not_found_error", "No such memory store."),
        ("PUT", STORES, 405, "invalid_request_error", "This path does not support this method."),
        ("GET", f"{STORES}?limit=0", 400, "invalid_request_error",
         "limit: it must be a whole number from 1 to 100."),
        ("POST", STORES, 400, "invalid_request_error",
         "invalid JSON: Expecting value at character 0."),
    ],
)  # fmt: skip
@requirement("anthropic:sdk:envelope", "anthropic:sdk:request-id")
def test_every_refusal_has_the_envelope(
    service: Service, method: str, path: str, status: int, type_: str, message: str
) -> None:
    answer = service.http.request(method, path)

    assert answer.status_code == status
    assert answer.json() == envelope(type_, message, answer.headers["request-id"])
    assert REQUEST_ID.fullmatch(answer.headers["request-id"])


@for_each(
    "method, path, allowed",
    [
        ("PUT", STORES, "GET, HEAD, POST"),
        ("PATCH", f"{STORES}/{NOWHERE}", "DELETE, GET, HEAD, POST"),
        ("GET", f"{STORES}/{NOWHERE}/archive", "POST"),
        ("POST", f"{STORES}/{NOWHERE}/memory_versions", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(
    service: Service, method: str, path: str, allowed: str
) -> None:
    answer = service.http.request(method, path)

    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@requirement("anthropic:sdk:request-id")
def test_each_answer_has_an_id_of_its_own_that_the_log_names(
    sdk: anthropic.Anthropic, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    answers = [store(sdk), sdk.beta.memory_stores.list()]
    ids = [answer._request_id for answer in answers]  # noqa: SLF001 - public in all but its name
    with pytest.raises(anthropic.NotFoundError) as missing:
        sdk.beta.memory_stores.retrieve(NOWHERE)
    ids.append(missing.value.request_id)
    sdk.beta.memory_stores.list()  # an answer may be here before its line, but not the next one's

    assert all(REQUEST_ID.fullmatch(id_ or "") for id_ in ids)
    told = [getattr(record, "request_id", None) for record in caplog.records]
    assert [id_ for id_ in told if id_ in ids] == ids


@requirement("anthropic:sdk:retries")
def test_a_conflict_is_asked_once(service: Service) -> None:
    asked: list[Any] = []
    transport = anthropic.DefaultHttpxClient(event_hooks={"request": [asked.append]})
    with client(service, http_client=transport) as sdk:
        notes = store(sdk)
        held = memory(sdk, notes, "/a")
        memories = sdk.beta.memory_stores.memories
        asked.clear()

        refusal(lambda: memory(sdk, notes, "/a"), anthropic.ConflictError)
        assert len(asked) == 1
        refusal(
            lambda: memories.delete(
                held.id, memory_store_id=notes.id, expected_content_sha256="0" * 64
            ),
            anthropic.ConflictError,
        )

    assert sdk.max_retries == 2
    assert len(asked) == 2


@requirement("anthropic:sdk:exceptions")
def test_each_refusal_is_the_exception_that_the_package_has_for_it(path: Path) -> None:
    with serving(path) as service:
        admin, reader = (made_key(service.path, role) for role in ("admin", "reader"))
        some = made_key(service.path, "admin", projects=("billing",))
        with (
            client(service, admin) as his, client(service, reader) as hers,
            client(service, some) as theirs, client(service, ANY) as nobodys,
        ):  # fmt: skip
            notes = store(his)
            memory(his, notes, "/a")
            errors = [
                refusal(lambda: store(his, "")),
                refusal(lambda: store(nobodys), anthropic.AuthenticationError),
                refusal(lambda: store(hers), anthropic.PermissionDeniedError),
                refusal(theirs.beta.memory_stores.list, anthropic.PermissionDeniedError),
                refusal(lambda: his.beta.memory_stores.retrieve(NOWHERE), anthropic.NotFoundError),
                refusal(lambda: memory(his, notes, "/a"), anthropic.ConflictError),
            ]

    assert [error["type"] for error in errors] == [
        "invalid_request_error", "authentication_error", "permission_error", "permission_error",
        "not_found_error", "memory_path_conflict_error",
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["/anthropicX", "/anthropic2/v1/memory_stores"])
def test_a_path_that_only_begins_alike_is_not_this_dialects(service: Service, path: str) -> None:
    plain = service.http.get(path)
    foreign = service.http.get(path, headers={"Origin": "https://evil.example"})

    assert (plain.status_code, plain.json()) == (404, {"error": "There is nothing at this path."})
    assert (foreign.status_code, foreign.json().keys()) == (403, {"error"})


@requirement("anthropic:body:limit", "anthropic:once")
def test_what_needs_no_body_reads_one_of_four_mebibytes_for_its_key(
    service: Service, sdk: anthropic.Anthropic
) -> None:
    url, key = f"{STORES}/{store(sdk).id}/archive", {"Idempotency-Key": "large"}

    taken, again = (
        service.http.post(url, content=b"." * (4 * MEBIBYTE), headers=key) for _ in range(2)
    )
    larger = service.http.post(url, content=b"." * (4 * MEBIBYTE + 1), headers=key)

    assert (taken.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert larger.status_code == 400
    assert "4,194,304" in larger.json()["error"]["message"]


@requirement("anthropic:body:limit")
def test_a_body_over_four_mebibytes_is_refused_in_the_envelope(
    service: Service, sdk: anthropic.Anthropic
) -> None:
    notes = store(sdk)
    url = f"{STORES}/{notes.id}/memories"
    room = 4 * MEBIBYTE - len(b'{"path": "/a", "content": "x", "": ""}')
    bodies = [
        b'{"path": "/a", "content": "x", "": "%b"}' % (b"." * more) for more in (room, room + 1)
    ]

    taken, refused_ = (service.http.post(url, content=body) for body in bodies)
    chunked = service.http.post(url, content=iter([bodies[1]]))

    sentence = "The body is larger than 4,194,304 bytes; nothing was stored."
    assert taken.status_code == 200
    for answer in (refused_, chunked):
        id_ = answer.headers["request-id"]
        assert answer.status_code == 400
        assert answer.json() == envelope("invalid_request_error", sentence, id_)


def test_a_body_that_stops_coming_is_408_in_the_envelope(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_IDLE", 0.05)
    with wire(service.url) as connection:
        connection.send(request("POST", STORES, content_length="9"))

        answer = connection.answer()

    assert (answer.status, answer.json["error"]["type"]) == (408, "timeout_error")
    assert answer.json["request_id"] == answer.headers["request-id"]


def test_a_key_that_asks_too_often_is_told_when_to_come_again(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="1/h") as service:
        service.http.get(STORES)
        answer = service.http.get(STORES)

    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert 0 < int(answer.headers["retry-after"]) <= 3600


@requirement("anthropic:limits")
def test_a_tenant_that_stores_as_much_as_it_may_is_refused_once(path: Path) -> None:
    with serving(path, MEMORY_TENANT_QUOTA=quota(path, 1024)) as service, client(service) as sdk:
        notes = store(sdk)

        def fill() -> None:
            for number in range(100):
                memory(sdk, notes, f"/{number}", filler(60_000))

        with pytest.raises(anthropic.InternalServerError) as refused_:
            fill()

        answer = refused_.value.response
        assert (answer.status_code, answer.headers["x-should-retry"]) == (507, "false")
        assert refused_.value.type == "api_error"
        assert answer.request.headers["x-stainless-retry-count"] == "0"


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service with a fault in it."""

    def get(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(stores, "known_store", get)
    with serving(tmp_path / "memory.db") as service:
        yield service


def test_a_fault_of_the_service_is_500_in_the_envelope(broken: Service) -> None:
    answer = broken.http.get(f"{STORES}/{NOWHERE}")

    assert answer.status_code == 500
    assert answer.json() == envelope(
        "api_error", "The service failed; the log has the reason.", answer.headers["request-id"]
    )


@for_each(
    "refusal_, status, type_, headers",
    [
        (Busy("It is locked."), 503, "overloaded_error", {"retry-after": "1"}),
        (TimedOut("It took too long."), 503, "overloaded_error", {"retry-after": "1"}),
        (Full("The disk is full."), 503, "api_error", {"retry-after": "1"}),
        (Unavailable("It is not there."), 503, "api_error", {"retry-after": "1"}),
        (TooMany("Too often.", 7), 429, "rate_limit_error", {"retry-after": "7"}),
    ],
)
def test_what_may_succeed_later_says_so(
    refusal_: Refusal, status: int, type_: str, headers: dict[str, str]
) -> None:
    answer = refused(refusal_)

    assert answer.status_code == status
    assert f'"type":"{type_}"'.encode() in bytes(answer.body)
    assert headers.items() <= dict(answer.headers).items()
    assert "x-should-retry" not in answer.headers


def test_every_refusal_of_the_domain_has_a_place_in_the_table() -> None:
    assert {*REFUSALS.statuses, *REFUSALS.types} <= set(STATUS)
    assert codes() == set(STATUS)


@requirement("anthropic:sdk:envelope")
def test_a_foreign_page_is_refused_in_the_envelope_too(service: Service) -> None:
    answer = service.http.get(STORES, headers={"Origin": "https://evil.example"})

    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")
    assert answer.json()["request_id"] == answer.headers["request-id"]


@pytest.mark.parametrize("status", [401, 404, 405])
def test_a_stranger_learns_nothing_of_the_routes(tmp_path: Path, status: int) -> None:
    with serving(tmp_path / "memory.db") as service:
        made_key(service.path)
        with calling(service, None) as stranger:
            method = "PUT" if status == 405 else "GET"
            path = "/anthropic/v1/x" if status == 404 else STORES

            answer = stranger.request(method, path)

    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
    assert answer.headers["www-authenticate"] == "Bearer"
