"""Whatever a client sends, it gets a clear answer in JSON, and nothing is stored by half."""

import gzip
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agentops_memory.http import bodies as http

from ..support.raw import NO_REQUEST, Wire, request
from ..support.samples import for_each
from ..support.service import Service, observation, serving

pytestmark = pytest.mark.usefixtures("nothing_fails")

BODIES = (
    "/sessions", "/sessions/s1/messages", "/sessions/s1/end", "/observations", "/observations/1",
    "/observations/1/restore", "/import",
)  # fmt: skip
UPLOADS = ("/import", "/sessions/s1/end")
# A save that is also an export of nothing.
SAVE = json.dumps(observation("The queue holds 512 writes.", observations=[])).encode()
DIGITS = "9" * 20


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        running.save("The first of them.")
        yield running


def sent(service: Service, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of the answer; PATCH where the path is that of an observation."""
    method = "PATCH" if path == "/observations/1" else "POST"
    answer = service.http.request(method, path, content=body, headers=headers)
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def refused(reason: str) -> tuple[int, dict[str, str]]:
    return 400, {"error": f"invalid JSON: {reason}."}


def nested(depth: int, name: str = "extra") -> bytes:
    """An object with so many levels of brackets, its own among them."""
    return b'{"%s":%s%s}' % (name.encode(), b"[" * (depth - 1), b"]" * (depth - 1))


@for_each("path", BODIES)
@for_each(
    "body",
    [b"{", b'{"a":1,}', b"{'a':1}", b"{a:1}", b'{"a":01}', b'{"a":"\n"}', b'{"a":1}{}', b"nul",
     b"\0"],
)  # fmt: skip
def test_what_is_no_json_is_refused(service: Service, path: str, body: bytes) -> None:
    status, answer = sent(service, path, body)

    assert status == 400
    assert answer["error"].startswith("invalid JSON: ")


@for_each("path", BODIES)
@for_each("body", [b"[]", b"null", b"1", b'"{}"', b"true"])
def test_json_that_is_no_object_is_refused(service: Service, path: str, body: bytes) -> None:
    status, answer = sent(service, path, body)

    assert status == 400
    assert re.match("invalid JSON: an object (with sessions and observations )?is expected",
                    answer["error"])  # fmt: skip


@for_each("path", [path for path in BODIES if not path.endswith("/end")])
def test_an_empty_body_is_refused(service: Service, path: str) -> None:
    status, answer = sent(service, path, b"")

    assert status == 400
    assert answer["error"].startswith("invalid JSON: ")


@for_each("path", BODIES)
@for_each("name", ["extra", "messages", "observations", "content"])
@for_each("depth", [101, 100_000])
def test_json_deeper_than_100_levels_is_refused(
    service: Service, path: str, name: str, depth: int
) -> None:
    answer = sent(service, path, nested(depth, name))

    assert answer == refused("it is nested deeper than 100 levels")


@for_each("path", ["/observations", *UPLOADS])
def test_json_of_100_levels_is_read(service: Service, path: str) -> None:
    status, _ = sent(service, path, nested(100)[:-1] + b"," + SAVE[1:])

    assert status in (200, 201)


@for_each("path", BODIES)
@for_each("number", ["9" * 21, "9" * 5_000, "0." + "1" * 20, "-" + "1" * 21])
def test_a_number_of_more_than_20_digits_is_refused(
    service: Service, path: str, number: str
) -> None:
    answer = sent(service, path, b'{"extra": %s}' % number.encode())

    assert answer == refused("a number has more than 20 digits")


@for_each("path", BODIES)
@for_each("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_constant_that_is_no_number_is_refused(
    service: Service, path: str, constant: str
) -> None:
    answer = sent(service, path, b'{"extra": %s}' % constant.encode())

    assert answer == refused(f"{constant} is not a number")


@for_each("number", [DIGITS, "-" + DIGITS, "1e999", "0.5", "1E-400"])
def test_any_other_number_is_read(service: Service, number: str) -> None:
    status, _ = sent(service, "/observations", b'{"extra": %s,' % number.encode() + SAVE[1:])

    assert status == 201


@for_each("value", [DIGITS, "1e999", "1.5", "0", "-1", '"1"', "true", "[1]", "{}"])
def test_a_revision_that_can_be_none_is_refused(service: Service, value: str) -> None:
    status, answer = sent(service, "/observations/1/restore", b'{"revision": %s}' % value.encode())

    assert status == 400
    assert answer["error"].startswith("validation failed: revision ")


@for_each(
    "field", ["session_id", "type", "title", "content", "project", "tags", "scope", "topic_key"]
)
@for_each("value", [1, 1.5, True, {"a": "b"}, [1], [["x"]], [{}]])
def test_a_value_of_the_wrong_type_is_refused(service: Service, field: str, value: object) -> None:
    body = json.dumps(observation("text") | {field: value}).encode()

    status, answer = sent(service, "/observations", body)

    assert status == 400
    assert answer["error"].startswith(f"validation failed: {field}")


def test_text_that_cannot_be_stored_is_replaced(service: Service) -> None:
    body = SAVE.replace(b"512", rb"\u0000 \ud800 \udc00x")
    body = body.replace(b"holds", b"\xff\xc3\xed\xa0\x80")

    status, saved = sent(service, "/observations", body)

    assert status == 201
    content = service.http.get(f"/observations/{saved['id']}").json()["content"]
    assert content == "The queue \ufffd\ufffd\ufffd\ufffd\ufffd \ufffd \ufffd \ufffdx writes."


def test_a_pair_of_surrogates_is_one_character(service: Service) -> None:
    status, saved = sent(service, "/observations", SAVE.replace(b"512", rb"\ud83d\ude00"))

    assert status == 201
    content = service.http.get(f"/observations/{saved['id']}").json()["content"]
    assert content == "The queue holds \U0001f600 writes."


def test_the_last_of_repeated_names_counts(service: Service) -> None:
    status, _ = sent(service, "/observations", b'{"title": 1,' + SAVE[1:])

    assert status == 201


@pytest.mark.parametrize("path", ["/observations", *UPLOADS])
def test_a_byte_order_mark_is_passed_over(service: Service, path: str) -> None:
    status, _ = sent(service, path, b"\xef\xbb\xbf" + SAVE)

    assert status in (200, 201)


@for_each("path", BODIES)
@for_each(
    "body", [SAVE.decode().encode("utf-16"), SAVE.decode().encode("utf-32"), gzip.compress(SAVE)]
)
def test_another_encoding_is_no_json(service: Service, path: str, body: bytes) -> None:
    status, answer = sent(service, path, body, **{"content-encoding": "gzip"})

    assert status == 400
    assert answer["error"].startswith("invalid JSON: ")


@for_each(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "é"],
)
def test_json_is_read_whatever_its_type(client: Wire, content_type: str) -> None:
    client.send(request("POST", "/observations", SAVE, content_type=content_type))

    assert client.answer().status == 201


@for_each("path", [path for path in BODIES if path not in UPLOADS])
def test_a_body_may_have_one_mebibyte_and_no_byte_more(service: Service, path: str) -> None:
    whole = SAVE.ljust(http.MAX_BODY)

    assert sent(service, path, whole)[0] != 413
    status, answer = sent(service, path, whole + b" ")

    assert status == 413
    assert answer == {"error": "The body is larger than 1,048,576 bytes; nothing was stored."}


def test_a_body_in_chunks_may_have_one_mebibyte_and_no_byte_more(client: Wire) -> None:
    head = b"POST /observations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"1000\r\n%s\r\n" % part for part in _parts(SAVE.ljust(http.MAX_BODY), 4096))

    client.send(head, chunks, b"0\r\n\r\n")
    assert client.answer().status == 201
    client.send(head, chunks, b"1\r\n \r\n0\r\n\r\n")
    assert client.answer().status == 413


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: -1", b"Content-Length: 1x", b"Content-Length: 99999999999999999999999",
        b"Content-Length: 2\r\nContent-Length: 3",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\n\r\nzz",
    ],
)  # fmt: skip
def test_a_body_of_unclear_length_is_refused(client: Wire, framing: bytes) -> None:
    client.send(b"POST /sessions HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n\r\n{}")

    answer = client.answer()

    assert (answer.status, answer.json) == (400, NO_REQUEST)
    assert client.rest() == b""


def test_a_length_that_is_declared_too_short_cuts_the_body(client: Wire) -> None:
    client.send(request("POST", "/observations", SAVE, content_length=str(len(SAVE) - 9)))

    assert client.answer().json["error"].startswith("invalid JSON")
    assert client.answer().json == NO_REQUEST  # what was left of it
    assert client.rest() == b""


def _parts(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))
