"""Connections: several requests on one, offers of other protocols, and ends of every kind.

And what a client may cost: bytes and seconds of headers, of bodies, and of answers it leaves.
"""

import gc
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest

from agentops_memory.http import bodies
from agentops_memory.http import http_limits as limits
from agentops_memory.http.http_limits import LimitedProtocol

from ..support.engine import locked
from ..support.process import until
from ..support.raw import HEALTH, LOOPS, Wire, request, serving_on, wire
from ..support.samples import for_each
from ..support.service import Service, observation

Kind = TypeVar("Kind")

SHORT = 0.2  # seconds, in the place of the real limits
LATE = "The headers of the request did not arrive in time."
LARGE = "The headers of the request are larger than 65536 bytes."
OVER = "The body is larger than 1,048,576 bytes; nothing was stored."
SESSION = b'{"id": "s1", "project": "demo"}'


@pytest.fixture(scope="module", params=LOOPS)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    gc.freeze()  # `alive` need not look through what other tests have left
    with serving_on(request.param, tmp_path_factory.mktemp("service") / "memory.db") as running:
        # An export of 9 MB, more than a socket takes at once; a space is no word to index.
        rows = [observation(f"{number}" + " " * 45_000 + ".") for number in range(200)]
        running.http.post("/import", json={"observations": rows}).raise_for_status()
        yield running


def alive(kind: type[Kind]) -> list[Kind]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, kind)]


def is_alone(service: Service) -> bool:
    """Whether the service has no connection but that of the fixture's own client."""
    service.http.get("/health")
    return len(alive(LimitedProtocol)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "status"), [(b"no request\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\n", 408)]
)
def test_a_fault_or_late_headers_do_not_cut_into_the_answer_before_them(
    client: Wire, monkeypatch: pytest.MonkeyPatch, start: bytes, status: int
) -> None:
    monkeypatch.setattr(limits, "HEADERS_TIME", SHORT)
    client.send(request("GET", "/export"), start)
    threading.Event().wait(2 * SHORT)  # the answer is not read, the headers do not go on

    assert len(client.answer().json["observations"]) == 200
    assert client.answer().status == status
    assert client.rest() == b""


@pytest.mark.slow
def test_a_client_that_floods_gets_the_answers_that_may_wait_and_then_the_end(client: Wire) -> None:
    client.send(HEALTH * 5_000)

    answers = client.rest()

    assert answers.count(b"HTTP/1.1 200 OK") == 1 + limits.MAX_WAITING
    assert answers.count(b"HTTP/1.1 429 ") == answers.count(b"connection: close") == 1


@pytest.mark.slow
@for_each("protocol", ["h2c", "websocket"])
def test_an_offer_of_another_protocol_is_declined_and_the_body_is_read(
    client: Wire, protocol: str
) -> None:
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": protocol, "http2_settings": "AA"}
    whole = request("POST", "/sessions", SESSION, **offer)

    client.send(whole, HEALTH, whole[: -len(SESSION)])
    client.send(SESSION[:9])
    client.send(SESSION[9:], HEALTH)

    assert [client.answer().status for _ in range(4)] == [201, 200, 201, 200]


@pytest.mark.slow
def test_an_expectation_is_met_and_ends_the_connection(client: Wire) -> None:
    length = str(len(SESSION))
    client.send(request("POST", "/sessions", expect="100-continue", content_length=length))
    assert client.answer().status == 100

    client.send(SESSION)

    answer = client.answer()
    assert (answer.status, answer.headers["connection"]) == (201, "close")
    assert client.rest() == b""


@pytest.mark.slow
def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALL_TIME", SHORT)
    with wire(service.url, receive_buffer=4096) as client:
        client.send(request("GET", "/export"))

        until(lambda: is_alone(service))
        assert len(client.rest()) < 9_000_000


@pytest.mark.parametrize(
    ("first", "rest"),
    [(HEALTH, b"\r\n\r\n"), (request("POST", "/nowhere", content_length="4"), b"{}  ")],
    ids=["empty lines", "the rest of a body"],
)
def test_an_idle_connection_ends_whatever_came_last(
    client: Wire, monkeypatch: pytest.MonkeyPatch, first: bytes, rest: bytes
) -> None:
    client.send(first)
    client.answer()
    for protocol in alive(LimitedProtocol):
        monkeypatch.setattr(protocol, "timeout_keep_alive", SHORT)

    client.send(rest)

    assert client.rest() == b""


def test_an_accepted_connection_sends_without_delay(client: Wire) -> None:
    client.send(HEALTH)
    client.answer()
    protocols = alive(LimitedProtocol)

    accepted = [protocol.transport.get_extra_info("socket") for protocol in protocols]

    assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in accepted)


def test_a_client_that_leaves_during_its_request_stores_nothing(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    whole = request("POST", "/observations", str(observation("half")).encode())
    for path in ("/observations", "/import", "/sessions/gone/end"):
        for leave in (Wire.reset, Wire.close):
            connection = Wire(service.url)
            connection.send(whole.replace(b"/observations", path.encode(), 1)[:-20])
            leave(connection)

    until(lambda: is_alone(service))
    assert service.http.get("/stats").json()["total_observations"] == 200
    assert all(row["id"] != "gone" for row in service.http.get("/sessions/recent").json())
    assert [record for record in caplog.records if record.exc_info] == []


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


@pytest.mark.slow
def test_headers_that_stop_or_dribble_do_not_hold_a_connection(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADERS_TIME", SHORT)
    for nothing in (b"", b"\r\n\r\n"):
        with wire(service.url) as client:
            client.send(nothing)
            assert client.rest() == b""
    for start, more in (
        (b"GET /health HTTP/1.1\r\nHost:", b""),
        (b"GET /health HTTP/1.1\r\n", b"a"),
    ):
        with wire(service.url) as client:
            client.send(HEALTH)
            client.answer()
            client.send(start)
            assert client.dribble(more * 1_000, SHORT / 10) < 1_000
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


@pytest.mark.slow
@pytest.mark.representative(3)
@pytest.mark.parametrize("framing", ["Content-Length: 9", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("path", ["/observations", "/sessions/s1/end", "/import"])
def test_a_body_that_stops_is_refused(
    client: Wire, monkeypatch: pytest.MonkeyPatch, path: str, framing: str
) -> None:
    monkeypatch.setattr(bodies, "BODY_IDLE", SHORT)
    monkeypatch.setattr(limits, "LINGER_TIME", SHORT)

    client.send(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode(), b"2\r\n{")

    answer = client.answer()
    assert answer.status == 408
    assert answer.json == {"error": "The body stopped arriving; nothing was stored."}
    assert client.rest() == b""


@pytest.mark.slow
def test_a_slow_but_steady_upload_is_taken(client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_IDLE", 5 * SHORT)
    monkeypatch.setattr(limits, "HEADERS_TIME", 5 * SHORT)
    body = b'{"id": "slow", "project": "demo"}'

    client.send(request("POST", "/sessions", content_length=str(len(body))))
    assert client.dribble(body, SHORT / 5) == len(body)

    assert client.answer().status == 201


@pytest.mark.representative(3)
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


def test_dribbling_after_an_early_answer_does_not_hold_a_connection(
    client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_TIME", SHORT)
    client.send(request("POST", "/sessions", content_length="2000000"))
    assert client.answer().status == 413

    assert client.dribble(b" " * 1_000, SHORT / 10) < 1_000

    assert client.rest() == b""


@pytest.mark.slow
def test_a_connection_idles_on_after_the_rest_of_an_answered_body(
    client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_TIME", SHORT)
    size = bodies.MAX_BODY + 1
    client.send(request("POST", "/sessions", content_length=str(size)))
    assert client.answer().status == 413
    client.send(b" " * size)

    assert client.is_quiet(2 * SHORT)
    client.send(HEALTH)

    assert client.answer().status == 200


@pytest.mark.slow
def test_a_request_behind_an_unread_expectation_is_no_body(client: Wire) -> None:
    client.send(request("POST", "/sessions", content_length="2000000", expect="100-continue"))

    answer = client.answer()

    assert (answer.status, answer.headers["connection"]) == (413, "close")
    client.send(HEALTH)
    client.socket.shutdown(1)
    assert client.rest() == b""
