"""What no library would send: broken, slow and huge, and clients that leave."""

import socket
from contextlib import suppress

from hypothesis import strategies as st

from ..support.raw import request, wire
from .asker import FAILURES, HANGS, TIMEOUT, Asker

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "\u00fcber")
TARGETS = (
    "/observations", "/sessions", "/import", "/export", "/context?query=" + "x" * 9000,
    "/search?q=%00%ff", "/mcp/one", "//", "/../etc/passwd", "/observations/%2e%2e", "*", "/docs",
    "/observations/999999999999999999999999999", "/anthropic/v1/memory_stores?limit=-1",
)  # fmt: skip
BODIES = (
    b"", b"{}", b'{"content": "', b"[" * 5000, b"\xff\xfe{}", b'{"a":1}' * 2, b"9" * 4000,
    b'{"observations": [' + b"{}," * 20_000, b'{"content": "' + b"x" * 1_200_000 + b'"}',
)  # fmt: skip
HEADERS: list[dict[str, str]] = [
    {}, {"content_length": "5"}, {"content_length": "-1"}, {"content_length": "9" * 30},
    {"transfer_encoding": "chunked"}, {"expect": "100-continue"}, {"content_encoding": "gzip"},
    {"x_odd": "\x01\x02"}, {"x_long": "y" * 70_000}, {"traceparent": "00-zz"}, {"host": ""},
    {"idempotency_key": "k" * 300}, {"accept": "\u00e9"}, {"content_type": "multipart/form-data"},
    {"upgrade": "websocket", "connection": "upgrade, close"}, {"range": "bytes=0-1"},
]  # fmt: skip
UNFINISHED = {"content_length", "transfer_encoding", "expect"}  # more could still come


class Wild:
    """A client that writes bytes."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def step(self, data: st.DataObject) -> None:
        """Send something, and wait for an answer or leave."""
        headers = data.draw(st.sampled_from(HEADERS))
        told = self._whole(data, headers)
        if data.draw(st.booleans()):
            self._leave(told[: data.draw(st.integers(0, len(told)))], data)
        elif data.draw(st.integers(0, 4)) == 0:
            self._dribble(told)
        else:
            self._wait(told, is_whole=not headers.keys() & UNFINISHED)

    def _whole(self, data: st.DataObject, headers: dict[str, str]) -> bytes:
        key = {"authorization": f"Bearer {self._asker.key}", "connection": "close"}
        method, target = data.draw(st.sampled_from(METHODS)), data.draw(st.sampled_from(TARGETS))
        return request(method, target, data.draw(st.sampled_from(BODIES)), **{**key, **headers})

    def _leave(self, told: bytes, data: st.DataObject) -> None:
        with wire(self._asker.url) as connection, suppress(OSError):
            connection.send(told)
            if data.draw(st.booleans()):
                connection.reset()

    def _dribble(self, told: bytes) -> None:
        """A little at a time, and then gone."""
        with wire(self._asker.url) as connection, suppress(OSError):
            connection.dribble(told[:10], 0.003)

    def _wait(self, told: bytes, *, is_whole: bool) -> None:
        """An answer, or the end of the connection: no silence."""
        with wire(self._asker.url) as connection:
            connection.socket.settimeout(TIMEOUT)
            try:
                with suppress(ConnectionError):
                    connection.send(told)
                    if not is_whole:
                        connection.socket.shutdown(socket.SHUT_WR)
                answered = connection.rest()
            except TimeoutError:
                self._asker.note(HANGS, repr(told[:300]))
                return
            except OSError:  # it is closed already
                return
        if answered.startswith(b"HTTP/1.1 500"):
            self._asker.note(FAILURES, repr(told[:3000]))
