"""HTTP by hand: bytes on a socket, for requests that no client library would send."""

import asyncio
import json
import select
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from .service import Service, serving

LOOPS = (pytest.param("asyncio", marks=pytest.mark.heavy), "uvloop")  # all else runs on asyncio
TIMEOUT = 120.0  # seconds; whatever a test waits for comes long before


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A connection to a service."""

    def __init__(self, url: str, *, receive_buffer: int | None = None) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect((host, int(port)))
        self._reader = self.socket.makefile("rb")

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def answer(self) -> Answer:
        """The next response, with its body by length or by chunks."""
        status = int(self._reader.readline().split()[1])
        headers = {}
        while line := self._reader.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status=status, headers=headers, body=b"".join(self._chunks()))
        body = self._reader.read(int(headers.get("content-length", 0)))
        return Answer(status=status, headers=headers, body=body)

    def rest(self) -> bytes:
        """All that still comes, until the service closes; a reset counts as that."""
        data = bytearray()
        with suppress(ConnectionError):
            while chunk := self._reader.read1():
                data += chunk
        return bytes(data)

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing comes, nor an end, in this time."""
        return not select.select([self.socket], [], [], seconds)[0]

    def dribble(self, data: bytes, every: float) -> int:
        """How many of the bytes could be sent, one at a time, before something came."""
        for sent, byte in enumerate(data):
            if not self.is_quiet(every):
                return sent
            self.send(bytes([byte]))
        return len(data)

    def take(self, size: int, every: float) -> int:
        """How many bytes come until the end, taken so many at a time with a pause after each."""
        taken, pause = 0, threading.Event()
        with suppress(ConnectionError):
            while part := self.socket.recv(size):
                taken += len(part)
                pause.wait(every)
        return taken

    def reset(self) -> None:
        """End the connection without a word."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def close(self) -> None:
        self._reader.close()
        self.socket.close()

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._reader.readline(), 16):
            yield self._reader.read(size)
            self._reader.readline()
        self._reader.readline()


@contextmanager
def wire(url: str, *, receive_buffer: int | None = None) -> Iterator[Wire]:
    """A connection, closed at the end."""
    connection = Wire(url, receive_buffer=receive_buffer)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def serving_on(loop: str, path: Path) -> Iterator[Service]:
    """A service on one of the event loops that it may run on."""

    def run_on_uvloop(main: Coroutine[Any, Any, object]) -> object:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main)

    with pytest.MonkeyPatch.context() as patch:
        if loop == "uvloop":
            # uvloop.run calls asyncio.run itself, from Python 3.12 on.
            patch.setattr(asyncio, "run", run_on_uvloop)
        with serving(path) as running:
            yield running


def keep_little(url: str, size: int) -> None:
    """Have the kernel keep so many bytes, not megabytes, of what the service here sends."""
    port = int(url.rpartition(":")[2])
    for descriptor in [int(it.name) for it in Path("/proc/self/fd").iterdir()]:
        with (
            suppress(OSError),  # it is no socket
            socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as own,
        ):
            listens = own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens and own.getsockname()[1:2] == (port,):
                own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)  # its connections inherit


def request(
    method: str, target: str, body: bytes = b"", *, version: str = "1.1", **headers: str
) -> bytes:
    """A request with its length declared; `content_length="9"` is a header."""
    fields = {"host": "localhost", "content_length": str(len(body)), **headers}
    head = [f"{method} {target} HTTP/{version}"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*head, "", ""]).encode() + body


HEALTH = request("GET", "/health")
NO_REQUEST = {"error": "This is not an HTTP request."}
