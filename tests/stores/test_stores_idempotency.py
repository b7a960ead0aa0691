"""A write to a store that has an idempotency key is done once, and answered as before."""

import httpx

from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service
from ..support.service import lasting as service
from ..support.store_dialects import (
    ANTHROPIC,
    Dialect,
    in_both,
)
from ..support.stores import STORES, at, entry_at, fault

__all__ = ["service"]

ERASED = "This was done, but its response has been erased."
REUSED = "Idempotency key reused with a different request body."


def ask(http: httpx.Client, method: str, path: str, body: object, key: str) -> httpx.Response:
    return http.request(method, path, json=body, headers={"Idempotency-Key": key})


@for_each("key", [b"", "é".encode(), b"k" * 256])
@in_both
def test_what_is_no_key_is_refused(service: Service, dialect: Dialect, key: bytes) -> None:
    headers = {b"Idempotency-Key": key}
    answer = service.http.post(dialect.stores, json={"name": "n"}, headers=headers)

    assert dialect.fault(answer) == (400, "invalid_request_error")


@requirement("stores:idempotency:other", "anthropic:once")
@in_both
def test_another_request_under_the_key_is_a_conflict(service: Service, dialect: Dialect) -> None:
    key = f"other-{dialect.prefix}"
    ask(service.http, "POST", dialect.stores, {"name": "One"}, key)

    other = dialect.refusal(ask(service.http, "POST", dialect.stores, {"name": "Other"}, key))

    assert (other.status, other.type, other.message) == (409, "conflict_error", REUSED)


def test_what_was_made_and_is_gone_is_not_there(service: Service) -> None:
    writes: list[tuple[str, str, object, str]] = [("POST", STORES, {"name": "Gone"}, "made")]
    home = ask(service.http, *writes[0]).json()
    body = {"path": "a.md", "content": "b"}
    writes.append(("POST", at(home, "memories"), body, "made-2"))
    held = ask(service.http, *writes[1]).json()
    theirs = f"{ANTHROPIC.stores}/{home['id']}"
    writes += [
        ("PUT", entry_at(home, held), {"content": "c"}, "made-3"),
        ("POST", theirs, {"name": "Going"}, "made-4"),
    ]
    for write in writes[2:]:
        assert ask(service.http, *write).is_success
    service.http.delete(at(home))

    again = [ask(service.http, *write) for write in writes]

    assert [fault(answer)[0] for answer in again[:3]] == [404] * 3
    assert again[3].status_code == 404
    messages = [answer.json()["error"]["message"] for answer in again]
    assert messages[0] == ERASED
    assert all(home["id"] in message for message in messages[1:3])
    assert messages[3] == "No such memory store."
