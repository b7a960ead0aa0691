"""An HTTP client that costs little: one socket, one request at a time, kept open."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

TIMEOUT = 30.0  # seconds until an answer has failed to come
BLOCK = 1 << 18  # bytes asked for at a time

NO_HEADERS: Mapping[str, str] = {}

Request = bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service answered."""

    status: int
    body: bytes

    def good(self) -> bytes:
        """The body; anything but a success ends the program."""
        if not self.is_good:
            raise SystemExit(f"{self.status} {self.body.decode('utf-8', 'replace')}")
        return self.body

    @property
    def is_good(self) -> bool:
        """Whether it is a success."""
        return 200 <= self.status < 300


def get(path: str, **parameters: str | int) -> Request:
    """A GET request, ready to send."""
    return _head("GET", f"{path}?{urlencode(parameters)}" if parameters else path, "")


def post(path: str, body: object, headers: Mapping[str, str] = NO_HEADERS) -> Request:
    """A POST request with a JSON body, ready to send."""
    return with_body("POST", path, json.dumps(body).encode(), headers)


def put(path: str, body: object) -> Request:
    """A PUT request with a JSON body, ready to send."""
    return with_body("PUT", path, json.dumps(body).encode())


def patch(path: str, body: object) -> Request:
    """A PATCH request with a JSON body, ready to send."""
    return with_body("PATCH", path, json.dumps(body).encode())


def delete(path: str) -> Request:
    """A DELETE request, ready to send."""
    return _head("DELETE", path, "")


def with_body(
    method: str, path: str, body: bytes, headers: Mapping[str, str] = NO_HEADERS
) -> Request:
    """A request with this body, ready to send."""
    given = {"Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return _head(method, path, lines) + body


def received(data: bytes) -> Answer | None:
    """The answer in what has come so far, once it is whole."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    _, _, after = data[:end].lower().partition(b"content-length:")
    length = int(after.partition(b"\r\n")[0] or 0)  # 204 has none
    if len(data) < end + 4 + length:
        return None
    return Answer(int(data[9:12]), data[end + 4 :])


def connected(port: int, patience: float = TIMEOUT) -> socket.socket:
    """An open connection to the service."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=patience)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def more(connection: socket.socket) -> bytes:
    """What comes next; a connection that ends instead ends the program."""
    block = connection.recv(BLOCK)
    if not block:
        raise SystemExit("The service closed the connection.")
    return block


class Client:
    """One connection."""

    def __init__(self, port: int, patience: float = TIMEOUT) -> None:
        self._socket = connected(port, patience)

    def ask(self, request: Request) -> bytes:
        """The body of the answer, which must be a good one."""
        return self.answer(request).good()

    def answer(self, request: Request) -> Answer:
        """The answer, whatever it is."""
        self._socket.sendall(request)
        data = more(self._socket)
        while (answer := received(data)) is None:
            data += more(self._socket)
        return answer

    def close(self) -> None:
        self._socket.close()


def _head(method: str, target: str, headers: str) -> Request:
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()
