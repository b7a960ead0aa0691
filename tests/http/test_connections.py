"""Connections: several requests on one, offers of other protocols, and ends of every kind.

And what a client may cost: bytes and seconds of headers, of bodies, and of answers it leaves.
"""

import gc
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pytest

from agentops_memory.http import bodies, http_limits as limits
from agentops_memory.http.http_limits import LimitedProtocol

from ..support.engine import locked
from ..support.process import until
from ..support.raw import HEALTH, LOOPS, Wire, request, serving_on, wire
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
def test_a_client_that_floods_gets_the_answers_that_may_wait_and_then_the_end(client: Wire) -> None:
    client.send(HEALTH * 5_000)

    answers = client.rest()

    assert answers.count(b"HTTP/1.1 200 OK") == 1 + limits.MAX_WAITING
    assert answers.count(b"HTTP/1.1 429 ") == answers.count(b"connection: close") == 1


@pytest.mark.slow
def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALL_TIME", SHORT)
    with wire(service.url, receive_buffer=4096) as client:
        client.send(request("GET", "/export"))

        until(lambda: is_alone(service))
        assert len(client.rest()) < 9_000_000


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


CHUNKED = b"POST /sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


Step = bytes | int | Callable[[Wire], object]
END: Step = b""  # the service closes the connection, and says no more


def refused(status: int, sentence: str, connection: str | None = "close") -> Callable[[Wire], None]:
    """An answer that is the last."""

    def step(client: Wire) -> None:
        answer = client.answer()
        assert (answer.status, answer.json) == (status, {"error": sentence})
        assert answer.headers.get("connection") == connection
        assert client.rest() == b""

    return step


def closing(status: int) -> Step:
    """An answer that says that it is the last."""

    def step(client: Wire) -> None:
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")

    return step


def dribbled(data: bytes, *, is_taken: bool, every: float = SHORT / 10) -> Step:
    """Bytes one by one, all of which are taken, or not."""

    def step(client: Wire) -> None:
        assert (client.dribble(data, every) == len(data)) is is_taken

    return step


def unread(_: Wire) -> None:
    """Time passes, in which no answer is read and nothing is sent."""
    threading.Event().wait(2 * SHORT)


def exported(client: Wire) -> None:
    assert len(client.answer().json["observations"]) == 200


def idle_soon(client: Wire) -> None:
    own = client.socket.getsockname()
    until(lambda: any(it.client == own for it in alive(LimitedProtocol)))  # it is accepted
    (protocol,) = (it for it in alive(LimitedProtocol) if it.client == own)
    protocol.timeout_keep_alive = SHORT  # type: ignore[assignment]


def active(client: Wire) -> None:
    """Requests for longer than a connection may be idle, a moment after each other."""
    until = time.monotonic() + 2 * SHORT
    while time.monotonic() < until:
        client.send(EARLY)
        assert client.answer().status == 200


def quiet(client: Wire) -> None:
    assert client.is_quiet(2 * SHORT)


def said_all(client: Wire) -> None:
    client.socket.shutdown(socket.SHUT_WR)


EXPORT, OPEN = request("GET", "/export"), b"GET /health HTTP/1.1\r\n"
EARLY = OPEN + b"Host: localhost\r\n\r\n"  # answered before the application
HEADERS, LINGER = (limits, "HEADERS_TIME"), (limits, "LINGER_TIME")
BODY = (bodies, "BODY_IDLE")
SLOW = b'{"id": "slow", "project": "demo"}'
EXPECTING = request("POST", "/sessions", expect="100-continue", content_length=str(len(SESSION)))
OVERLONG = request("POST", "/sessions", content_length=str(bodies.MAX_BODY + 1))
LONG_HEAD = OPEN + b"Host: localhost\r\nX-Large: " + b"a" * 60_000 + b"\r\n\r\n"


def offering(protocol: str) -> list[Step]:
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": protocol, "http2_settings": "AA"}
    whole = request("POST", "/sessions", SESSION, **offer)
    return [whole, HEALTH, whole[:-9], whole[-9:], HEALTH, 201, 200, 201, 200]


def stopping(path: str, framing: str) -> list[Step]:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n2\r\n{{"
    return [head.encode(), refused(408, "The body stopped arriving; nothing was stored.", None)]


# What a client does and gets, with these limits at a fifth of a second.
SCENARIOS: dict[str, tuple[list[tuple[Any, str]], list[Step]]] = {
    "a fault waits for the answer before it":
        ([HEADERS], [EXPORT, b"no request\r\n\r\n", unread, exported, 400, END]),
    "late headers wait for the answer before them":
        ([HEADERS], [EXPORT, OPEN, unread, exported, 408, END]),
    "an offer of HTTP/2 is declined": ([], offering("h2c")),
    "an offer of a websocket is declined": ([], offering("websocket")),
    "an expectation ends the connection": ([], [EXPECTING, 100, SESSION, closing(201), END]),
    "an idle connection ends after empty lines": ([], [idle_soon, HEALTH, 200, b"\r\n\r\n", END]),
    "a refusal follows the answer before it": ([], [EARLY + b"no request\r\n\r\n", 200, 400, END]),
    "requests keep a connection open": ([], [idle_soon, active, END]),
    "an idle connection ends after the rest of a body":
        ([], [idle_soon, request("POST", "/nowhere", content_length="4"), 404, b"{}  ", END]),
    "headers of 60 KiB are read":
        ([], [*(LONG_HEAD[at : at + 10_000] for at in range(0, 70_000, 10_000)), 200]),
    "no headers come": ([HEADERS], [END]), "no headers come after lines":
        ([HEADERS], [b"\r\n\r\n", END]),
    "headers stop": ([HEADERS], [HEALTH, 200, OPEN + b"Host:", refused(408, LATE)]),
    "headers dribble": ([HEADERS], [
        HEALTH, 200, OPEN, dribbled(b"a" * 1_000, is_taken=False), refused(408, LATE)]),
    "a body stops": ([BODY, LINGER], stopping("/observations", "Content-Length: 9")),
    "an end stops": ([BODY, LINGER], stopping("/sessions/s1/end", "Transfer-Encoding: chunked")),
    "an import stops": ([BODY, LINGER], stopping("/import", "Content-Length: 9")),
    "a body dribbles after its answer": ([LINGER], [
        OVERLONG, 413, dribbled(b" " * 1_000, is_taken=False), END]),
    "a connection idles on after the rest of an answered body": ([LINGER], [
        OVERLONG, 413, b" " * (bodies.MAX_BODY + 1), quiet, HEALTH, 200]),
    "a request behind an unread expectation is no body": ([], [
        OVERLONG.replace(b"\r\n", b"\r\nExpect: 100-continue\r\n", 1),
        closing(413), HEALTH, said_all, END]),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(it, marks=pytest.mark.slow) if SCENARIOS[it][0] else it for it in SCENARIOS],
)
def test_a_connection_goes_on_or_ends_as_what_is_sent_demands(
    client: Wire, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shortened, steps = SCENARIOS[name]
    for module, limit in shortened:
        monkeypatch.setattr(module, limit, SHORT)
    for step in steps:
        if step is END:
            assert client.rest() == b""
        elif isinstance(step, bytes):
            client.send(step)
        elif isinstance(step, int):
            assert client.answer().status == step
        else:
            step(client)


@pytest.mark.slow
def test_a_slow_but_steady_upload_is_taken(client: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_IDLE", 5 * SHORT)
    monkeypatch.setattr(limits, "HEADERS_TIME", 5 * SHORT)
    client.send(request("POST", "/sessions", content_length=str(len(SLOW))))
    assert client.dribble(SLOW, SHORT / 5) == len(SLOW)

    assert client.answer().status == 201


@pytest.mark.representative(7)
@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"", b"\r\n"), (b"GET /search?q=", b"a"), (b"GET /health HTTP/1.1\r\nX-Large: ", b"a"),
        (b"GET /health HTTP/1.1\r\n", b"x"), (b"GET /health HTTP/1.1\r\n", b"X-Small: 1\r\n"),
        (b"GET /health HTTP/1.1\r\n", b"a:\r\n"), (CHUNKED + b"1;", b"x"),
        (CHUNKED + b"2\r\n{}\r\n0\r\nX-Trailer: ", b"x"),
    ],
    ids=["empty lines", "line", "value", "name", "many", "empty", "chunk", "trailer"],
)  # fmt: skip
def test_headers_without_end_are_refused(client: Wire, start: bytes, more: bytes) -> None:
    with sending(client, start, more * 1_000):
        answer = client.answer()

        assert (answer.status, answer.json) == (431, {"error": LARGE})
        assert answer.headers["connection"] == "close"


def test_a_refusal_waits_for_the_answer_that_is_due_before_it(
    service: Service, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADERS_TIME", SHORT)
    save = request("POST", "/observations", json.dumps(observation("apple")).encode())
    with locked(service.path):
        client.send(save, b"GET /health HTTP/1.1\r\nHost: x\r\n", b"Host: x\r\n\r\n")
        assert client.is_quiet(3 * SHORT)

    assert client.answer().status == 201
    refused(400, "The header host was sent more than once.")(client)


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
