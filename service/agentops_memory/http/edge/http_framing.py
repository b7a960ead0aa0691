"""A connection's bytes: where a request ends, which heads leave no doubt of it, who closes."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Headers = Sequence[tuple[bytes, bytes]]  # names in lower case

_END = b"\r\n\r\n"  # of a head, and of a body in chunks; the parser takes no other
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_WITHOUT_HOST = ("0.9", "1.0")  # versions of HTTP
_KEYS = frozenset({b"authorization", b"x-api-key"})  # the same one may come twice
_SINGLE = _KEYS | {b"host", b"transfer-encoding"}


class Refused(Exception):
    """A request that the protocol itself refuses; it is the last of its connection."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class Framing:
    """Cuts the bytes of a connection where requests end, however the network has cut them.

    A parser that is fed part by part, and tells of heads and ends, cannot meet
    bytes of one request in a state that another one left.
    """

    def __init__(self) -> None:
        self._held = b""  # the start of what may be an end
        self._has_begun = False
        self._in_line = True  # before the end of the request line
        self._left: int | None = None  # bytes of the body; None where an end is looked for

    def parts(self, data: bytes) -> Iterator[bytes]:
        """The data, each part of one request, with request lines as a client that escapes has them.

        What comes of it is told by head_ended and request_ended before the next part.
        """
        data, at = self._held + data, 0
        while at < len(data):
            start = at if self._has_begun else self._start(data, at)
            at = self._end(data, start)
            if start == at:
                break
            part = data[start:at]
            yield self._escaped(part) if self._in_line else part
        self._held = data[at:]

    def head_ended(self, headers: Headers) -> None:
        """A head was read: its body follows."""
        for name, value in headers:
            if name == b"content-length":
                self._left = int(value)

    def request_ended(self) -> None:
        """A request was read: the next one follows."""
        self._has_begun, self._in_line, self._left = False, True, None

    def _start(self, data: bytes, at: int) -> int:
        """Where the next part begins; empty lines before a request are passed over."""
        start = len(data) - len(data[at:].lstrip(b"\r\n"))
        self._has_begun = start < len(data)
        return start

    def _end(self, data: bytes, at: int) -> int:
        """Where the part ends that begins here; what may be the start of an end waits."""
        if self._left is not None:
            size = min(self._left, len(data) - at)
            self._left -= size
            return at + size
        found = data.find(_END, at)
        if found >= 0:
            return found + len(_END)
        tail = data[max(at, len(data) - len(_END) + 1) :]
        return len(data) - next(size for size in (3, 2, 1, 0) if tail.endswith(_END[:size]))

    def _escaped(self, part: bytes) -> bytes:
        """The part, in the request line as a client that escapes would have sent it."""
        if part.isascii():
            self._in_line = b"\n" not in part
            return part
        line, end, rest = part.partition(b"\n")
        self._in_line = not end
        return _NOT_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], line) + end + rest


def require_clear(headers: Headers, version: Callable[[], str]) -> None:
    """Refused for a head that two readers could understand in two ways."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _SINGLE:
            stripped = value.strip()
            if name in found and (name not in _KEYS or found[name] != stripped):
                raise Refused(400, f"The header {name.decode()} came more than once.")
            found[name] = stripped
    if b"host" not in found and version() not in _WITHOUT_HOST:
        raise Refused(400, "A request names its host: Host.")
    if found.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        raise Refused(501, "A body comes as it is or in chunks; there is no other transfer coding.")


class HeldTransport:
    """A transport that leaves closing to the protocol, and takes nothing after it."""

    def __init__(self, wire: asyncio.Transport, finish: Callable[[], None]) -> None:
        self._wire = wire
        self._finish = finish
        self._is_finished = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def is_closing(self) -> bool:
        return self._is_finished or self._wire.is_closing()

    def write(self, data: bytes) -> None:
        # A closed wire raises in uvloop: uvicorn learns that a client has gone for the last of its
        # pipelined requests alone, and goes on with the answer to an earlier one.
        if not self.is_closing():
            self._wire.write(data)

    def close(self) -> None:
        if not self.is_closing():
            self._is_finished = True
            self._finish()
