"""Paths, methods, parameters and headers as nobody should send them."""

from collections.abc import Iterator

import pytest

from ..support.raw import HEALTH, NO_REQUEST, Wire, request
from ..support.samples import for_each
from ..support.service import Service, serving

pytestmark = pytest.mark.usefixtures("nothing_fails")

NOWHERE = {"error": "There is nothing at this path."}
SESSION = b'{"id": "s1", "project": "demo"}'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        for name in ("café", "caf\ufffd", "demo"):
            running.save(f"A memory of {name}.", project=name)
        yield running


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
    "given",
    ["x", "1.0", "1e3", "0x1", "%00", "%FF", "%20", "1%20", "", "-", "9223372036854775808",
     "-9223372036854775809", "9" * 5_000, "%D9%A1", "%F0%9D%9F%8F", "null", "1%2F2"],
)  # fmt: skip
@for_each("path", ["/observations/{}/history", "/timeline?observation_id={}"])
def test_an_id_that_is_no_number_of_64_bits_is_refused(
    service: Service, path: str, given: str
) -> None:
    answer = service.http.get(path.format(given))

    assert answer.status_code in ((400,) if "?" in path else (400, 404))
    assert answer.json()["error"] in (NOWHERE["error"], _not_whole(path))


@for_each("number", ["0", "-1", "9223372036854775807", "-9223372036854775808"])
def test_any_other_id_is_unknown(service: Service, number: str) -> None:
    answers = [service.http.get(f"/observations/{number}"),
               service.http.patch(f"/observations/{number}", json={}),
               service.http.get("/timeline", params={"observation_id": number})]  # fmt: skip

    assert [answer.status_code for answer in answers] == [404, 404, 404]
    assert service.http.delete(f"/observations/{number}").status_code == 204


@for_each(
    "limit", ["0", "-1", "1.5", "x", "", "%00", "%FF", "9" * 9_000, "1e9", "%D9%A1", " 1", "NaN"]
)
@for_each(
    "path",
    ["/sessions/recent?limit=", "/observations/recent?limit=", "/search?q=memory&limit=",
     "/context?query=memory&project=demo&limit=", "/timeline?observation_id=1&before=",
     "/timeline?observation_id=1&after="],
)  # fmt: skip
def test_any_number_of_rows_is_a_number_of_rows(service: Service, path: str, limit: str) -> None:
    answer = service.http.get(path + limit)

    assert answer.status_code == 200
    assert answer.json()


def test_the_first_of_repeated_parameters_counts(service: Service) -> None:
    found = service.http.get("/observations/recent?project=demo&project=other&limit=1&limit=x")

    assert [row["project"] for row in found.json()] == ["demo"]


@for_each(
    "query, project",
    [
        (b"caf%C3%A9", "café"), ("café".encode(), "café"), (b"caf%E9", "caf\ufffd"),
        (b"caf\xe9", "caf\ufffd"), (b"caf%ED", "caf\ufffd"),
    ],
)  # fmt: skip
def test_a_parameter_is_utf_8_and_what_is_not_is_replaced(
    client: Wire, query: bytes, project: str
) -> None:
    client.send(HEALTH)
    client.answer()

    target = b"/observations/recent?project=" + query
    client.send(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert [row["project"] for row in client.answer().json] == [project]


def test_a_path_is_utf_8_too(client: Wire) -> None:
    client.send(request("POST", "/sessions/séance/end"))

    assert client.answer().json["session_id"] == "séance"


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


@pytest.mark.parametrize(
    "line",
    [b"FETCH /health HTTP/1.1", b"GET health HTTP/1.1", b"GET /hea lth HTTP/1.1", b"\x16\x03\x01",
     b"GET /\x00 HTTP/1.1", b"CONNECT elsewhere:80 HTTP/1.1", b"GET  HTTP/1.1",
     b"CONNECT /health HTTP/1.1\r\nHost: localhost", b"GET /health HTTP/9",
     b"PRI * HTTP/2.0\r\n\r\nSM", b"GET http:// HTTP/1.1\r\nHost: localhost",
     b"GET /health HTTP/1.1\r\nNo header"],
)  # fmt: skip
def test_what_is_no_request_is_refused(client: Wire, line: bytes) -> None:
    client.send(line + b"\r\n\r\n")

    answer = client.answer()

    assert (answer.status, answer.json) == (400, NO_REQUEST)
    assert client.rest() == b""


@for_each(
    "traceparent",
    ["", "00", "x" * 9_000, f"00-{'0' * 32}-{'0' * 16}-01", "ff-1-1-1", "\xff", "00-zz-zz-zz"],
)
def test_a_malformed_traceparent_is_passed_over(client: Wire, traceparent: str) -> None:
    client.send(request("POST", "/sessions", SESSION, traceparent=traceparent, tracestate="=,="))

    assert client.answer().status == 201


def test_a_body_where_none_is_expected_is_passed_over(client: Wire) -> None:
    client.send(request("GET", "/health", b"{}"))
    client.send(request("DELETE", "/observations/9", b"[[["), HEALTH)

    assert [client.answer().status for _ in range(3)] == [200, 204, 200]


def test_head_is_answered_as_get_without_its_body(service: Service) -> None:
    answers = [service.http.head(path) for path in ("/health", "/stats", "/nowhere")]

    assert [(answer.status_code, answer.content) for answer in answers] == [
        (200, b""), (200, b""), (404, b"")
    ]  # fmt: skip


def _not_whole(path: str) -> str:
    return f"{'observation_id' if '?' in path else 'id'} must be a whole number."
