"""What a client may cost: bytes and seconds of headers, of bodies, and of answers it leaves."""

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentops_memory.http import bodies as http
from agentops_memory.http import http_limits as limits

from ..support.engine import locked
from ..support.raw import HEALTH, LOOPS, Wire, request, serving_on, wire
from ..support.service import Service, observation

SHORT = 0.2  # seconds, in the place of the real limits
LATE = "The headers of the request did not arrive in time."
LARGE = "The headers of the request are larger than 65536 bytes."
OVER = "The body is larger than 1,048,576 bytes; nothing was stored."


@pytest.fixture(scope="module", params=LOOPS)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    with serving_on(request.param, tmp_path_factory.mktemp("service") / "memory.db") as running:
        yield running


@contextmanager
def sending(client: Wire, start: bytes, more: bytes) -> Iterator[None]:
    """Sends the start, and more for as long as the service takes it or the block lasts."""

    def send() -> None:
        with suppress(OSError):
            client.send(start)
            while True:
                client.send(more)

    thread = threading.Thread(target=send)
    thread.start()
    yield
    client.socket.shutdown(socket.SHUT_RDWR)
    thread.join()


def assert_refused(client: Wire, status: int, sentence: str) -> None:
    answer = client.answer()
    assert (answer.status, answer.json) == (status, {"error": sentence})
    assert answer.headers["connection"] == "close"
    assert client.rest() == b""


CHUNKED = b"POST /sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.representative(7)
@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"", b"\r\n"), (b"GET /search?q=", b"a"), (b"GET /health HTTP/1.1\r\nX-Large: ", b"a"),
        (b"GET /health HTTP/1.1\r\n", b"x"), (b"GET /health HTTP/1.1\r\n", b"X-Small: 1\r\n"),
        (b"GET /health HTTP/1.1\r\n", b"a:\r\n"), (CHUNKED + b"1;", b"x"),
        (CHUNKED + b"2\r\n{}\r\n0\r\nX-Trailer: ", b"x"),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X-Trailer: x\r\n"),
    ],
    ids=["empty lines", "line", "value", "name", "many", "empty", "chunk", "trailer", "trailers"],
)  # fmt: skip
def test_headers_without_end_are_refused(client: Wire, start: bytes, more: bytes) -> None:
    with sending(client, start, more * 1_000):
        answer = client.answer()

        assert (answer.status, answer.json) == (431, {"error": LARGE})
        assert answer.headers["connection"] == "close"


def test_headers_of_60_kib_are_read_however_they_are_cut(client: Wire) -> None:
    head = (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Small: 1\r\nX-Large: "
        + b"a" * 60_000
        + b"\r\n\r\n"
    )

    client.send(*(head[at : at + 10_000] for at in range(0, len(head), 10_000)))

    assert client.answer().status == 200


def test_headers_that_stop_are_refused(client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADERS_TIME", SHORT)
    client.send(HEALTH)
    client.answer()

    client.send(b"GET /health HTTP/1.1\r\nHost:")

    assert_refused(client, 408, LATE)


def test_dribbled_headers_do_not_hold_a_connection(
    client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADERS_TIME", SHORT)
    client.send(HEALTH)
    client.answer()

    assert client.dribble(b"GET /health HTTP/1.1\r\n" + b"a" * 1_000, SHORT / 10) < 1_000

    assert_refused(client, 408, LATE)


def test_a_refusal_waits_for_the_answer_that_is_due_before_it(
    service: Service, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADERS_TIME", SHORT)
    save = request("POST", "/observations", json.dumps(observation("apple")).encode())
    with locked(service.path):
        client.send(save, b"GET /health HTTP/1.1\r\nHost: x\r\n", b"Host: x\r\n\r\n")
        assert client.is_quiet(3 * SHORT)

    assert client.answer().status == 201
    assert_refused(client, 400, "The header host was sent more than once.")


@pytest.mark.parametrize("nothing", [b"", b"\r\n\r\n"], ids=["no byte", "empty lines"])
def test_a_connection_without_a_request_is_closed(
    service: Service, monkeypatch: pytest.MonkeyPatch, nothing: bytes
) -> None:
    monkeypatch.setattr(limits, "HEADERS_TIME", SHORT)

    with wire(service.url) as client:
        client.send(nothing)

        assert client.rest() == b""


@pytest.mark.parametrize(
    "framing", ["Content-Length: 9", "Transfer-Encoding: chunked"], ids=["length", "chunked"]
)
@pytest.mark.parametrize("path", ["/observations", "/sessions/s1/end", "/import"])
def test_a_body_that_stops_is_refused(
    client: Wire, monkeypatch: pytest.MonkeyPatch, path: str, framing: str
) -> None:
    monkeypatch.setattr(http, "BODY_IDLE", SHORT)
    monkeypatch.setattr(limits, "LINGER_TIME", SHORT)

    client.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode(), b"2\r\n{")

    answer = client.answer()
    assert answer.status == 408
    assert answer.json == {"error": "The body stopped arriving; nothing was stored."}
    assert client.rest() == b""


def test_a_slow_but_steady_upload_is_taken(client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_IDLE", 5 * SHORT)
    monkeypatch.setattr(limits, "HEADERS_TIME", 5 * SHORT)
    body = b'{"id": "slow", "project": "demo"}'

    client.send(request("POST", "/sessions", content_length=str(len(body))))
    assert client.dribble(body, SHORT / 5) == len(body)

    assert client.answer().status == 201


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize("framing", ["Content-Length: 999999999", "Transfer-Encoding: chunked"])
def test_413_reaches_a_client_that_is_still_sending(
    client: Wire, version: str, connection: str, framing: str
) -> None:
    headers = f"Host: localhost\r\nConnection: {connection}\r\n{framing}\r\n"
    head = f"POST /sessions HTTP/{version}\r\n{headers}\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"

    with sending(client, head.encode(), chunk):
        answer = client.answer()

        assert (answer.status, answer.json) == (413, {"error": OVER})


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_shows_413(service: Service, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b" " * 32 * 1024 * 1024)

    shown = [
        subprocess.run(
            ["curl", "-sS", "--data-binary", f"@{large}", *options, f"{service.url}/sessions"],
            check=True, capture_output=True, text=True,
        ).stdout
        for options in ([], ["-H", "Expect:"], ["-0"], ["-H", "Transfer-Encoding: chunked"])
    ]  # fmt: skip

    assert shown == [f'{{"error":"{OVER}"}}'] * 4


def test_dribbling_after_an_early_answer_does_not_hold_a_connection(
    client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_TIME", SHORT)
    client.send(request("POST", "/sessions", content_length="2000000"))
    assert client.answer().status == 413

    assert client.dribble(b" " * 1_000, SHORT / 10) < 1_000

    assert client.rest() == b""


def test_the_rest_of_an_answered_body_is_passed_over(client: Wire) -> None:
    size = http.MAX_BODY + 1
    client.send(request("POST", "/sessions", content_length=str(size)))
    assert client.answer().status == 413

    client.send(b" " * size, HEALTH)

    assert client.answer().status == 200


def test_a_connection_idles_on_after_the_rest_of_an_answered_body(
    client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_TIME", SHORT)
    client.send(request("POST", "/nowhere", content_length="4"))
    assert client.answer().status == 404
    client.send(b"{", b"} ", b" ")

    assert client.is_quiet(2 * SHORT)
    client.send(HEALTH)

    assert client.answer().status == 200


def test_a_request_behind_an_unread_expectation_is_no_body(client: Wire) -> None:
    client.send(request("POST", "/sessions", content_length="2000000", expect="100-continue"))

    answer = client.answer()

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    client.send(HEALTH)
    client.socket.shutdown(1)
    assert client.rest() == b""
