"""Connections: several requests on one, offers of other protocols, and ends of every kind."""

import gc
import socket
import threading
from collections.abc import Iterator
from typing import TypeVar

import pytest

from agentops_memory.http import http_limits as limits
from agentops_memory.http.http_limits import LimitedProtocol

from ..support.process import until
from ..support.raw import HEALTH, LOOPS, NO_REQUEST, Wire, request, serving_on, wire
from ..support.samples import for_each
from ..support.service import Service, observation

Kind = TypeVar("Kind")

SHORT = 0.2  # seconds, in the place of the real limits
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


@pytest.mark.heavy
def test_requests_that_were_sent_together_are_answered_in_order(client: Wire) -> None:
    client.send(request("POST", "/sessions", SESSION) + HEALTH + request("GET", "/nowhere"))

    assert [client.answer().status for _ in range(3)] == [201, 200, 404]


@pytest.mark.slow
def test_a_fault_does_not_cut_into_the_answer_before_it(client: Wire) -> None:
    client.send(request("GET", "/export"), b"no request\r\n\r\n")

    assert len(client.answer().json["observations"]) == 200
    assert client.answer().json == NO_REQUEST
    assert client.rest() == b""


@pytest.mark.slow
def test_late_headers_do_not_cut_into_the_answer_before_them(
    client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADERS_TIME", SHORT)
    client.send(request("GET", "/export"), b"GET /health HTTP/1.1\r\n")
    threading.Event().wait(2 * SHORT)  # the answer is not read, the headers do not go on

    assert len(client.answer().json["observations"]) == 200
    assert client.answer().status == 408
    assert client.rest() == b""


@pytest.mark.slow
def test_a_client_that_floods_gets_the_answers_that_may_wait_and_then_the_end(client: Wire) -> None:
    client.send(HEALTH * 5_000)

    answers = client.rest()

    assert answers.count(b"HTTP/1.1 200 OK") == 1 + limits.MAX_WAITING
    assert answers.count(b"HTTP/1.1 429 ") == answers.count(b"connection: close") == 1


@for_each("protocol", ["h2c", "websocket"])
def test_an_offer_of_another_protocol_is_declined_and_the_body_is_read(
    client: Wire, protocol: str
) -> None:
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": protocol, "http2_settings": "AA"}
    whole = request("POST", "/sessions", SESSION, **offer)

    client.send(whole, HEALTH)
    client.send(whole[: -len(SESSION)])
    client.send(SESSION[:9])
    client.send(SESSION[9:], HEALTH)

    assert [client.answer().status for _ in range(4)] == [201, 200, 201, 200]


def test_an_expectation_is_met_and_ends_the_connection(client: Wire) -> None:
    length = str(len(SESSION))
    client.send(request("POST", "/sessions", expect="100-continue", content_length=length))
    assert client.answer().status == 100

    client.send(SESSION)

    answer = client.answer()
    assert (answer.status, answer.headers["connection"]) == (201, "close")
    assert client.rest() == b""


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_asks_for_the_end_gets_it_after_the_answer(
    client: Wire, version: str
) -> None:
    client.send(request("GET", "/health", version=version, connection="close"))

    assert client.answer().json == {"status": "ok"}
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


@pytest.mark.heavy
def test_a_client_that_takes_its_answer_slowly_gets_it_whole(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALL_TIME", 3 * SHORT)
    with wire(service.url, receive_buffer=65_536) as client:
        client.send(request("GET", "/export", connection="close"))

        assert client.take(65_536, SHORT / 40) > 9_000_000


@pytest.mark.heavy
def test_connections_that_were_dropped_leave_nothing_behind(service: Service) -> None:
    begun = (b"", b"GET / HT", HEALTH, request("POST", "/sessions", SESSION, content_length="99"))
    for number in range(600):
        connection = Wire(service.url)
        connection.send(begun[number % 4])
        (connection.reset if number % 8 < 4 else connection.close)()

    until(lambda: is_alone(service))


@pytest.mark.heavy
def test_idle_connections_do_not_keep_others_out(service: Service) -> None:
    idle = [Wire(service.url) for _ in range(200)]
    for connection in idle[:100]:
        connection.send(HEALTH)
        connection.answer()

    assert service.http.get("/health").status_code == 200
    for connection in idle:
        connection.close()
    until(lambda: is_alone(service))


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
