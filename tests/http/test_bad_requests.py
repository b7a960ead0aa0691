"""Whatever a client sends, it gets a clear answer in JSON, and nothing is stored by half."""

import gzip
import json
from typing import Any

import pytest

from agentops_memory.http import bodies

from ..support.raw import HEALTH, NO_REQUEST, Wire, request
from ..support.samples import for_each
from ..support.service import Service, lasting_with, observation

pytestmark = pytest.mark.usefixtures("nothing_fails")

NOWHERE = {"error": "There is nothing at this path."}
BODIES = (
    "/sessions", "/sessions/s1/messages", "/sessions/s1/end", "/observations", "/observations/1",
    "/observations/1/restore", "/import",
)  # fmt: skip
UPLOADS = ("/import", "/sessions/s1/end")
# A save that is also an export of nothing.
SAVE = json.dumps(observation("The queue holds 512 writes.", observations=[])).encode()
DIGITS = "9" * 20


def filled(service: Service) -> None:
    for name in ("café", "caf\ufffd", "demo"):
        service.save(f"A memory of {name}.", project=name)


service = lasting_with(filled)


def sent(service: Service, path: str, body: bytes) -> tuple[int, Any]:
    """The status and the JSON of the answer; PATCH where the path is that of an observation."""
    method = "PATCH" if path == "/observations/1" else "POST"
    encoding = {"content-encoding": "gzip"} if body.startswith(b"\x1f\x8b") else {}
    answer = service.http.request(method, path, content=body, headers=encoding)
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def nested(depth: int, name: str = "extra") -> bytes:
    """An object with so many levels of brackets, its own among them."""
    return b'{"%s":%s%s}' % (name.encode(), b"[" * (depth - 1), b"]" * (depth - 1))


@for_each("path", BODIES)
@for_each(
    "body, reason",
    [
        *[
            (body, "")
            for body in (
                b"{", b'{"a":1,}', b"{'a':1}", b"{a:1}", b'{"a":01}', b'{"a":"\n"}', b'{"a":1}{}',
                b"nul", b"\0", SAVE.decode().encode("utf-16"), SAVE.decode().encode("utf-32"),
                gzip.compress(SAVE),
            )
        ],
        *[(body, "an object ") for body in (b"[]", b"null", b"1", b'"{}"', b"true")],
        *[
            (nested(depth, name), "it is nested deeper than 100 levels.")
            for name in ("extra", "messages", "observations", "content")
            for depth in (101, 100_000)
        ],
        *[
            (b'{"extra": %s}' % number.encode(), "a number has more than 20 digits.")
            for number in ("9" * 21, "9" * 5_000, "0." + "1" * 20, "-" + "1" * 21)
        ],
        *[
            (b'{"extra": %s}' % constant.encode(), f"{constant} is not a number.")
            for constant in ("NaN", "Infinity", "-Infinity")
        ],
        (b"", ""),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(service: Service, path: str, body: bytes, reason: str) -> None:
    status, answer = sent(service, path, body)

    if path.endswith("/end") and not body:  # an end without messages
        assert status == 200
        return
    assert status == 400
    assert answer["error"].startswith(f"invalid JSON: {reason}")


@for_each("path", ["/observations", *UPLOADS])
@for_each(
    "body",
    [
        nested(100)[:-1] + b"," + SAVE[1:], b"\xef\xbb\xbf" + SAVE,
        b'{"title": 1,' + SAVE[1:],  # the last of repeated names counts
        *(
            b'{"extra": %s,' % number.encode() + SAVE[1:]
            for number in (DIGITS, f"-{DIGITS}", "1e999", "0.5", "1E-400")
        ),
    ],
)  # fmt: skip
def test_json_of_100_levels_of_any_number_and_with_a_byte_order_mark_is_read(
    service: Service, path: str, body: bytes
) -> None:
    assert sent(service, path, body)[0] in (200, 201)


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
    body = SAVE.replace(b"512", rb"\u0000 \ud800 \udc00x \ud83d\ude00")
    body = body.replace(b"holds", b"\xff\xc3\xed\xa0\x80")

    status, saved = sent(service, "/observations", body)

    assert status == 201
    content = service.http.get(f"/observations/{saved['id']}").json()["content"]
    assert content == "The queue \ufffd\ufffd\ufffd\ufffd\ufffd \ufffd \ufffd \ufffdx 😀 writes."


@for_each("path", [path for path in BODIES if path not in UPLOADS])
def test_a_body_may_have_one_mebibyte_and_no_byte_more(service: Service, path: str) -> None:
    whole = SAVE.ljust(bodies.MAX_BODY)

    assert sent(service, path, whole)[0] != 413
    assert sent(service, path, whole + b" ") == (
        413, {"error": "The body is larger than 1,048,576 bytes; nothing was stored."},
    )  # fmt: skip


def test_a_body_in_chunks_may_have_one_mebibyte_and_no_byte_more(client: Wire) -> None:
    head = b"POST /observations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = SAVE.ljust(bodies.MAX_BODY)
    parts = (whole[at : at + 4096] for at in range(0, len(whole), 4096))
    chunks = b"".join(b"1000\r\n%s\r\n" % part for part in parts)

    client.send(head, chunks, b"0\r\n\r\n")
    assert client.answer().status == 201
    client.send(head, chunks, b"1\r\n \r\n0\r\n\r\n")
    assert client.answer().status == 413


def test_a_length_that_is_declared_too_short_cuts_the_body(client: Wire) -> None:
    client.send(request("POST", "/observations", SAVE, content_length=str(len(SAVE) - 9)))

    assert client.answer().json["error"].startswith("invalid JSON")
    assert client.answer().json == NO_REQUEST  # what was left of it
    assert client.rest() == b""


@for_each(
    "path",
    ["/", "//", "/health/", "/Health", "/observations/1/2", "/sessions/s1", "/%2e%2e/health"],
)
def test_an_unknown_path_is_404(service: Service, path: str) -> None:
    answer = service.http.get(path)

    assert (answer.status_code, answer.json()) == (404, NOWHERE)


@for_each(
    "method, path, allowed",
    [
        ("POST", "/health", "GET, HEAD"), ("DELETE", "/sessions", "POST"),
        ("GET", "/sessions/s1/end", "POST"), ("PUT", "/observations/1", "DELETE, GET, HEAD, PATCH"),
        ("OPTIONS", "/export", "GET, HEAD"), ("GET", "/import", "POST"),
    ],
)  # fmt: skip
def test_a_wrong_method_is_405_and_names_the_right_ones(
    service: Service, method: str, path: str, allowed: str
) -> None:
    answer = service.http.request(method, path)

    assert answer.status_code == 405
    assert answer.headers["allow"] == allowed
    assert answer.json() == {"error": "This path does not support this method."}


@for_each(
    "text",
    ["x", "1.0", "1e3", "0x1", "%00", "%FF", "%20", "1%20", "", "-", "9223372036854775808",
     "-9223372036854775809", "9" * 5_000, "%D9%A1", "%F0%9D%9F%8F", "null", "1%2F2"],
)  # fmt: skip
@for_each(
    "path, name",
    [("/observations/{}/history", "id"), ("/timeline?observation_id={}", "observation_id")],
)
def test_an_id_that_is_no_number_of_64_bits_is_refused(
    service: Service, path: str, name: str, text: str
) -> None:
    answer = service.http.get(path.format(text))

    assert answer.status_code in ((400,) if "?" in path else (400, 404))
    assert answer.json()["error"] in (NOWHERE["error"], f"{name} must be a whole number.")


@for_each("number", ["0", "-1", "9223372036854775807", "-9223372036854775808"])
def test_any_other_id_is_unknown(service: Service, number: str) -> None:
    path = f"/observations/{number}"
    for answer in (
        service.http.get(path), service.http.patch(path, json={}),
        service.http.get("/timeline", params={"observation_id": number}),
    ):  # fmt: skip
        assert answer.status_code == 404
    assert service.http.delete(path).status_code == 204


@for_each(
    "query, project",
    [
        (b"caf%C3%A9", "café"), ("café".encode(), "café"), (b"caf%E9", "caf\ufffd"),
        (b"caf\xe9", "caf\ufffd"), (b"caf%ED", "caf\ufffd"),
    ],
)  # fmt: skip
def test_a_parameter_is_utf_8_as_a_path_is_and_what_is_not_is_replaced(
    client: Wire, query: bytes, project: str
) -> None:
    client.send(request("POST", "/sessions/séance/end"))
    assert client.answer().json["session_id"] == "séance"

    target = b"/observations/recent?project=" + query
    client.send(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert [row["project"] for row in client.answer().json] == [project]


@for_each("query", ["%", "%zz", "&&&", "=", "=&=", "q", "q=%", "%00=%00", "q=" + "(" * 999])
@for_each("path", ["/search", "/context", "/stats", "/sessions/recent", "/health"])
def test_a_broken_query_is_read_as_far_as_it_goes(service: Service, path: str, query: str) -> None:
    assert service.http.get(f"{path}?{query}").status_code == 200


@pytest.mark.parametrize(
    "line",
    [b"GET http://elsewhere/health HTTP/1.1", b"GET /health HTTP/1.0", b"GET /health",
     b"GET /health#fragment HTTP/1.1", b"GET //health HTTP/1.1", b"\r\n\r\nGET /health HTTP/1.1"],
)  # fmt: skip
def test_old_and_odd_request_lines_are_understood(client: Wire, line: bytes) -> None:
    client.send(line + b"\r\nHost: localhost\r\n\r\n")

    assert client.answer().status in (200, 404)


POST = b"POST /sessions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "head",
    [b"FETCH /health HTTP/1.1", b"GET health HTTP/1.1", b"GET /hea lth HTTP/1.1", b"\x16\x03\x01",
     b"GET /\x00 HTTP/1.1", b"CONNECT elsewhere:80 HTTP/1.1", b"GET  HTTP/1.1",
     b"CONNECT /health HTTP/1.1\r\nHost: localhost", b"GET /health HTTP/9",
     b"PRI * HTTP/2.0\r\n\r\nSM", b"GET http:// HTTP/1.1\r\nHost: localhost",
     b"GET /health HTTP/1.1\r\nNo header", POST + b"Content-Length: -1",
     POST + b"Content-Length: 1x", POST + b"Content-Length: 99999999999999999999999",
     POST + b"Content-Length: 2\r\nContent-Length: 3",
     POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked",
     POST + b"Transfer-Encoding: chunked\r\n\r\nzz"],
)  # fmt: skip
def test_what_is_no_request_is_refused(client: Wire, head: bytes) -> None:
    client.send(head + b"\r\n\r\n" + b"{}" * head.startswith(POST))

    answer = client.answer()

    assert (answer.status, answer.json) == (400, NO_REQUEST)
    assert client.rest() == b""


def test_a_body_where_none_is_expected_is_passed_over(client: Wire) -> None:
    client.send(request("GET", "/health", b"{}"))
    client.send(request("DELETE", "/observations/9", b"[[["), HEALTH)

    assert [client.answer().status for _ in range(3)] == [200, 204, 200]


def test_head_is_answered_as_get_without_its_body(service: Service) -> None:
    answers = [service.http.head(path) for path in ("/health", "/stats", "/nowhere")]

    assert [(answer.status_code, answer.content) for answer in answers] == [
        (200, b""), (200, b""), (404, b"")
    ]  # fmt: skip
