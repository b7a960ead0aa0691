"""What a request is: its head alone, in one reading, however the network has cut its bytes."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import uvicorn
from hypothesis import given, strategies as st

from agentops_memory.http.http_limits import TRAILERS, LimitedProtocol

from ..support.callers import made_key
from ..support.raw import HEALTH, LOOPS, NO_REQUEST, Wire, request, serving_on, wire
from ..support.samples import examples, for_each
from ..support.service import Service
from .test_connections import alive
from .test_security_headers import EXPECTED

VARIABLE = re.compile(rb"(?m)^(date|x-request-id): .*\r\n")


def twice(name: str) -> dict[str, str]:
    return {"error": f"The header {name} was sent more than once."}


class Keyed(NamedTuple):
    """A service with keys of two tenants."""

    service: Service
    server: uvicorn.Server
    key: str
    other: str


@pytest.fixture(scope="module", params=LOOPS)
def keyed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Keyed]:
    path = tmp_path_factory.mktemp("service") / "memory.db"
    with serving_on(request.param, path) as running:
        running.save("A memory.", project="café", session_id="é")
        (server,) = (it for it in alive(uvicorn.Server) if it.started and not it.should_exit)
        yield Keyed(running, server, made_key(path), made_key(path, tenant="other"))


@pytest.fixture
def client(keyed: Keyed) -> Iterator[Wire]:
    with wire(keyed.service.url) as connection:
        yield connection


def chunked(head: bytes, body: bytes, trailers: bytes = b"") -> bytes:
    """The request in chunks of three bytes, with lines after the last."""
    head = re.sub(rb"content-length: \d+\r\n", b"transfer-encoding: chunked\r\n", head)
    parts = (body[at : at + 3] for at in range(0, len(body), 3))
    return head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n%s\r\n" % trailers


def session(key: str, name: str, **headers: str) -> bytes:
    return request("POST", "/sessions", _body(name), x_api_key=key, **headers)


def told(key: str, name: str, trailers: bytes, **headers: str) -> bytes:
    head = request("POST", "/sessions", b"", x_api_key=key, **headers)
    return chunked(head, _body(name), trailers)


def _body(name: str) -> bytes:
    return f'{{"id": "{name}",\r\n\r\n"project": "café"}}'.encode()


@for_each(
    "trailer",
    ["X-API-Key: {other}", "Authorization: Bearer {other}", "Host: evil.example",
     "Origin: https://evil.example", "Connection: close", "Connection: upgrade\r\nUpgrade: h2c",
     "Idempotency-Key: {other}\r\nX-Memory-Project: x\r\nExpect: 100-continue",
     "Content-Length: 2", "Transfer-Encoding: chunked"],
)  # fmt: skip
def test_a_request_with_trailers_is_refused(keyed: Keyed, trailer: str) -> None:
    trailers = trailer.format(other=keyed.other).encode() + b"\r\n"
    offer = {"connection": "upgrade", "upgrade": "h2c"}

    for headers in ({}, {"transfer_encoding": "Chunked "}, offer):
        with wire(keyed.service.url) as client:
            client.send(told(keyed.key, "refused", trailers, **headers), HEALTH)
            assert client.answer().json in (NO_REQUEST, {"error": TRAILERS})
            assert client.rest() == b""
    assert "refused" not in str(keyed.service.http.get("/sessions/recent").json())
    assert _sessions(keyed, keyed.other) == 0


HOSTED = "POST / HTTP/1.1\r\nHost: x\r\n"
READ_TWICE: list[tuple[int, dict[str, str], list[str]]] = [
    (400, {"error": "A request needs a Host header."}, [
        "GET /health HTTP/1.1", "GET /health HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c",
    ]),
    (400, twice("host"), ["GET / HTTP/1.0\r\nHost: x\r\nHost: y", f"{HOSTED}Host: x"]),
    (501, {"error": "The only supported transfer coding is chunked."}, [
        f"{HOSTED}Transfer-Encoding: {coding}"
        for coding in ("gzip", "identity", "gzip, chunked", "xchunked")
    ]),
    (400, twice("transfer-encoding"), [
        f"{HOSTED}Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
    ]),
    (400, NO_REQUEST, [
        f"{HOSTED}Transfer-Encoding: chunked\r\nContent-Length: 2",
        f"{HOSTED}Transfer-Encoding: chunked, gzip",
    ]),
    (400, twice("x-api-key"), [f"{HOSTED}X-API-Key: a\r\nX-Api-Key: b"]),
    (400, twice("authorization"), [f"{HOSTED}Authorization: Basic a\r\nAuthorization: Basic b"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("head", "status", "told"),
    [(head, status, told) for status, told, heads in READ_TWICE for head in heads],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(
    client: Wire, head: str, status: int, told: dict[str, str]
) -> None:
    client.send(head.encode() + b"\r\n\r\n")

    answer = client.answer()

    assert (answer.status, answer.json) == (status, told)
    assert answer.headers["connection"] == "close"
    assert EXPECTED.items() <= answer.headers.items()
    assert client.rest() == b""


@examples(30)
@given(data=st.data())
def test_the_answers_are_the_same_however_the_bytes_are_cut(
    keyed: Keyed, data: st.DataObject
) -> None:
    good = data.draw(st.lists(st.sampled_from(_good(keyed)), max_size=3))
    if data.draw(st.booleans()):
        good.insert(0, data.draw(st.sampled_from(_unencoded(keyed))))
    whole = b"".join([*good, data.draw(st.sampled_from(_last(keyed)))])
    places = range(1, len(whole))
    cuts = data.draw(st.sets(st.sampled_from(places), max_size=40).map(sorted) | st.just([*places]))
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]

    answers = _answers(keyed, [whole])
    assert _answers(keyed, parts) == answers
    assert answers.count(b"HTTP/1.1 20") >= len(good)
    assert _sessions(keyed, keyed.other) == 0


def _unencoded(keyed: Keyed) -> list[bytes]:
    """Good requests that are no HTTP, and only taken if no other is in front of them."""
    return [
        request("GET", "/observations/recent?project=café", x_api_key=keyed.key).replace(
            b"content-length: 0\r\n", b""
        ),
        b"\r\n\r\n" + request("GET", "/search?q=é\xff", x_api_key=keyed.key, x_note="é"),
    ]


def _good(keyed: Keyed) -> list[bytes]:
    """Requests with an answer of 200 or 201."""
    key = keyed.key
    offer = {"connection": "upgrade", "upgrade": "h2c", "x_note": "é"}
    return [
        b"\r\n\r\n" + request("GET", "/search?q=%E9", x_api_key=key, x_note="é"),
        request("GET", "/stats", host=f"localhost\r\nX-API-Key: {key}\r\nx-api-key: {key} "),
        session(key, "é"),
        session(key, "é", **offer),
        told(key, "é", b""),
        told(key, "é", b"", **offer),
    ]


def _last(keyed: Keyed) -> list[bytes]:
    """Requests that end the connection."""
    key, twice = keyed.key, f"localhost\r\nX-API-Key: {keyed.other}"
    return [
        request("GET", "/stats?project=caf%C3%A9", x_api_key=key, connection="close") + HEALTH,
        session(key, "é", expect="100-continue") + HEALTH,
        request("GET", "/health", version="1.0") + HEALTH,
        request("GET", "/%E9", x_api_key=key, host=twice) + HEALTH,
        request("POST", "/sessions", b"{}", transfer_encoding="gzip") + HEALTH,
        told(key, "é", b"X: y\r\n") + HEALTH, told(key, "é", b"X\r\n: y") + HEALTH,
        told(key, "é", b"Content-Length: 2\r\n") + HEALTH,
        told(key, "é", b"").replace(b"3\r\n", b"g\r\n") + HEALTH, "é é é\r\n\r\n".encode() + HEALTH,
        HEALTH.replace(b"\r\n", b"\n") + HEALTH,
        HEALTH.replace(b"localhost", b"local\0host") + HEALTH,
        HEALTH.replace(b"localhost", b"localhost\r\n more") + HEALTH,
        b"CONNECT /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEALTH,
    ]  # fmt: skip


def _answers(keyed: Keyed, parts: list[bytes]) -> bytes:
    """All that the service answers to these bytes, read by it in just these parts."""
    with wire(keyed.service.url) as client:
        client.send(HEALTH)
        client.answer()
        protocol = _protocol_of(client, keyed.server)
        for part in parts:
            protocol.loop.call_soon_threadsafe(protocol.data_received, part)
        return VARIABLE.sub(b"", client.rest())


def _protocol_of(client: Wire, server: uvicorn.Server) -> LimitedProtocol:
    own = client.socket.getsockname()
    connections = [it for it in server.server_state.connections if isinstance(it, LimitedProtocol)]
    return next(found for found in connections if found.client == own)


def _sessions(keyed: Keyed, key: str) -> int:
    answer = keyed.service.http.get("/stats", headers={"x-api-key": key})
    total: int = answer.json()["total_sessions"]
    return total
