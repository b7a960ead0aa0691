"""Limits the cost of a client before its request is read: uvicorn limits neither size nor time.

The headers of a request are limited in bytes and in seconds. A client that is still sending when
the response ends gets a few seconds to read it, while the rest of the request is dropped. A client
that reads its response too slowly is disconnected, and so is a client whose response the
application leaves incomplete.
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http import httptools_impl

from ..light import dataclass
from .app import ALWAYS, Headers, HttpService
from .gate import HAS_BODY

log = logging.getLogger(__name__)

_END = b"\r\n\r\n"
_LINE = len(b"GET  HTTP/1.1") + len(_END)  # bytes of a head besides the URL and the header lines
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_WITHOUT_HOST = ("0.9", "1.0")  # versions of HTTP that need no Host header
_KEYS = frozenset({b"authorization", b"x-api-key"})  # may be repeated with the same value
_SINGLE = _KEYS | {b"host", b"transfer-encoding"}
MAX_HEADERS = 64 * 1024  # bytes of request line and headers, and of trailers
MAX_WAITING = 100  # pipelined requests that wait for the response to an earlier request
HEADERS_TIME = 10.0  # seconds from a request's first byte to the end of its headers
LINGER_TIME = 5.0  # seconds in which the rest of an answered request is dropped
STALL_TIME = 150.0  # seconds in which a client must read 64 KiB; `gate` cuts long responses first
NO_REQUEST = "This is not an HTTP request."
LATE = "The headers of the request did not arrive in time."
LARGE = f"The headers of the request are larger than {MAX_HEADERS} bytes."
TRAILERS = "Trailers are not supported."
FLOOD = f"More than {MAX_WAITING} requests on this connection wait for their responses."
_ALWAYS = b"".join(b"%s: %s\r\n" % header for header in ALWAYS)
MAX_BUFFERED = 64 * 1024  # bytes of responses that wait for the other requests of an iteration
SHORT = 32 * 1024  # bytes of a body that may be answered early
BODY_TIME = 0.1  # seconds to wait for such a body; many clients send it after the head


class Refused(Exception):
    """A request that is refused before the application; its connection is closed."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def require_clear(headers: Headers, version: Callable[[], str]) -> None:
    """Raise Refused for an ambiguous head, which two servers could read differently."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _SINGLE:
            text = value.strip()
            if name in values and (name not in _KEYS or values[name] != text):
                raise Refused(400, f"The header {name.decode()} was sent more than once.")
            values[name] = text
    if b"host" not in values and version() not in _WITHOUT_HOST:
        raise Refused(400, "A request needs a Host header.")
    if values.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        raise Refused(501, "The only supported transfer coding is chunked.")


@dataclass(eq=False)
class BufferedTransport:
    """A transport that leaves closing to the protocol, and drops all writes after it.

    The head of a response waits for the body, or for the next iteration of the loop, because two
    writes would wake the client twice.
    """

    _wire: asyncio.Transport
    _finish: Callable[[], None]
    _loop: asyncio.AbstractEventLoop
    _buffer: bytes = b""
    _is_finished: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def is_closing(self) -> bool:
        return self._is_finished or self._wire.is_closing()

    def write(self, data: bytes) -> None:
        # In uvloop, writing to a closed transport raises. uvicorn marks only the last pipelined
        # request of a disconnected client, and goes on with the response to an earlier request.
        if self.is_closing():
            return
        if self._buffer:
            buffered, self._buffer = self._buffer, b""
            self._wire.write(buffered + data)
        elif data.endswith(_END) and data.startswith(b"HTTP/"):
            self._buffer = data
            self._loop.call_soon(self.flush)
        else:
            self._wire.write(data)

    def write_later(self, data: bytes) -> None:
        """Write a response after the other requests of this iteration of the loop are read.

        Writing takes the processor's caches from them: 16 connections are served a tenth faster.
        """
        if not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer += data
        if len(self._buffer) > MAX_BUFFERED:
            self.flush()

    def flush(self) -> None:
        buffered, self._buffer = self._buffer, b""
        if buffered and not self.is_closing():
            self._wire.write(buffered)

    def close(self) -> None:
        if not self.is_closing():
            self.flush()
            self._is_finished = True
            self._finish()


class _Timer:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float, then: Callable[[], None]) -> None:
        self.stop()
        self.handle = self._loop.call_later(seconds, then)

    def stop(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class LimitedProtocol(httptools_impl.HttpToolsProtocol):
    """HTTP/1.1 with limits; its refusals are JSON.

    The service may answer a request once its head, or a short body, has arrived.
    """

    def __init__(self, *args: Any, service: HttpService, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._service = service
        self._is_answered_early = False
        self._wire: asyncio.Transport = None  # type: ignore[assignment]
        self._in_headers = False
        self._idle_since = 0.0  # in the loop's time
        self._in_line = True  # whether the next read begins in, or before, a request line
        self._pending = 0  # bytes of the reads since the last end of a head or part of a body
        self._refusal: Refused | None = None
        self._deadline, self._stall = _Timer(self.loop), _Timer(self.loop)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._wire = transport
        self._buffered = BufferedTransport(transport, self._finish, self.loop)
        super().connection_made(cast(asyncio.Transport, self._buffered))
        self._deadline.start(HEADERS_TIME, self._headers_are_late)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._deadline.stop()
        self._stall.stop()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._refusal:
            return
        self._pending += len(data)
        self._parse(self._encoded(data))
        if self._refusal:
            return
        self._in_line |= not self._is_receiving()
        if self._pending > MAX_HEADERS:
            self._refuse(Refused(431, LARGE))
        elif self._in_headers and self._deadline.handle is None:
            self._deadline.start(HEADERS_TIME, self._headers_are_late)
        if self._is_receiving() or self._is_unanswered():
            self._unset_keepalive_if_required()
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_handler()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; one timer serves many requests that are answered early."""
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(
                left, self.timeout_keep_alive_handler
            )
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.start(STALL_TIME, self._wire.abort)

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self._stall.stop()
        super().resume_writing()

    def on_message_begin(self) -> None:
        if len(self.pipeline) == MAX_WAITING:
            raise Refused(429, FLOOD)
        super().on_message_begin()
        self._in_headers = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:
            raise Refused(400, TRAILERS)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise Refused(400, NO_REQUEST)
            return
        if self._pending > MAX_HEADERS:  # else the head is smaller in any case
            size = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if len(self.url) + size + _LINE > MAX_HEADERS:
                raise Refused(431, LARGE)
        self._pending = 0
        self._deadline.stop()
        if self._answered_early():
            return
        require_clear(self.headers, self.parser.get_http_version)
        self._unset_keepalive_if_required()
        super().on_headers_complete()
        if self.expect_100_continue:
            # After an early response, the client may send the body or not; the server cannot know.
            self.cycle.keep_alive = False

    def _answered_early(self) -> bool:
        """Answer the request now if the service can and no other waits; return whether it did."""
        if (
            self.parser.get_method() != b"GET"
            or self.parser.get_http_version() != "1.1"
            or not self.parser.should_keep_alive()
            or self.pipeline
            or self._is_unanswered()
            or self.flow.write_paused
        ):
            return False
        date = b"%b: %b\r\n" % self.server_state.default_headers[0]
        try:
            address = self.client[0] if self.client else ""
            answer = self._service.early(self.url, self.headers, date, address)
        except Exception:  # otherwise the parser would report an invalid request
            log.exception("the fast path failed; the request takes the slow one")
            answer = None
        if answer is None:
            return False
        self._is_answered_early = True
        self.server_state.total_requests += 1
        self._buffered.write_later(answer)
        return True

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._pending = 0
        if self._is_answered_early:
            self._is_answered_early = False
            return
        self.cycle.more_body = False
        if self.cycle.response_complete:
            self._deadline.stop()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.pipeline:
            self.flow.pause_reading()
        if self._refusal:
            self._refuse(self._refusal)
        elif self.cycle.response_complete and self.cycle.more_body:
            self._deadline.start(LINGER_TIME, self._close)

    def _start_asgi_task(self, cycle: httptools_impl.RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, partial(_run, app, self._service, cycle))

    def _encoded(self, data: bytes) -> bytes:
        """Return the data, of which a request line at its start is percent-encoded.

        Clients such as curl send URLs as typed. The parser refuses those of pipelined requests.
        """
        if not self._in_line:
            return data
        if not self._in_headers:
            data = data.lstrip(b"\r\n")
        if data.isascii():
            self._in_line = b"\n" not in data
            return data
        line, end, after = data.partition(b"\n")
        self._in_line = not end
        if line.isascii():
            return data
        return _NOT_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], line) + end + after

    def _parse(self, data: bytes | memoryview) -> None:
        while data and not self._refusal:
            offer = None  # the end of a head that offers another protocol
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                offer = upgrade.args[0]
            except httptools.HttpParserError as error:
                raised = error.__context__  # raised by one of the parser's callbacks
                self._refuse(raised if isinstance(raised, Refused) else Refused(400, NO_REQUEST))
            if offer is None:
                return
            self._decline_upgrade()
            data = memoryview(data)[offer:]

    def _decline_upgrade(self) -> None:
        """Parse the head again without the Upgrade header, which makes the parser skip the body."""
        version = self.parser.get_http_version().encode()
        line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)
        headers = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"".join([line, *headers, b"\r\n"]))

    def _is_receiving(self) -> bool:
        return self._in_headers or (self.cycle is not None and self.cycle.more_body)

    def _is_unanswered(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _headers_are_late(self) -> None:
        self._deadline.stop()
        if self.flow.read_paused:  # by us, not by the client
            self._deadline.start(HEADERS_TIME, self._headers_are_late)
        elif self._in_headers:
            self._refuse(Refused(408, LATE))
        else:
            self.transport.close()

    def _refuse(self, refusal: Refused) -> None:
        """Read no more from this client, and send the refusal once no other response is due."""
        self._refusal = refusal.with_traceback(None)  # a traceback would keep this connection alive
        self._deadline.stop()
        if self._is_unanswered() and (
            self.pipeline or self.cycle.response_started or not self.cycle.more_body
        ):
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        content = json.dumps({"error": refusal.sentence}).encode()
        self.transport.write(
            httptools_impl.STATUS_LINE[refusal.status]
            + b"content-type: application/json\r\ncontent-length: %d\r\n" % len(content)
            + _ALWAYS
            + b"connection: close\r\n\r\n"
            + content
        )
        self.transport.close()

    def _finish(self) -> None:
        """Close the connection, but give a client that is still sending time to read."""
        if not (self._is_receiving() or self._refusal):
            self._close()
            return
        self.flow.resume_reading()
        with contextlib.suppress(OSError):  # the client has gone
            self._wire.write_eof()
        self._deadline.start(LINGER_TIME, self._close)

    def _close(self) -> None:
        self._deadline.stop()
        self._wire.close()
        # Unsent bytes would keep the connection open as long as the client does not read.
        self._stall.start(STALL_TIME, self._wire.abort)


async def _run(
    app: ASGIApp,
    service: HttpService,
    cycle: httptools_impl.RequestResponseCycle,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Run the application. If its response ends early, it or the server has logged the reason."""
    try:
        if not cycle.more_body:
            scope[HAS_BODY] = True
        is_plain = scope["method"] == "POST" and not scope["query_string"]
        early_post = service.early_posts.get(scope["path"]) if is_plain else None
        answer = await early_post(scope, partial(_body, cycle)) if early_post else None
        if answer is None:
            await app(scope, receive, send)
        else:
            status, headers, body = answer
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
    except asyncio.CancelledError:
        if not cycle.disconnected:
            raise
    if cycle.response_started and not cycle.response_complete:
        cycle.disconnected = True  # nothing more is sent
        cycle.transport.close()


async def _body(cycle: httptools_impl.RequestResponseCycle) -> tuple[bytes, bool] | None:
    has_waited = cycle.more_body
    if has_waited:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BODY_TIME):
                while cycle.more_body and not cycle.disconnected and len(cycle.body) <= SHORT:
                    cycle.message_event.clear()
                    await cycle.message_event.wait()
    is_whole = not (cycle.more_body or cycle.disconnected) and len(cycle.body) <= SHORT
    cycle.message_event.set()  # lets the application read the bytes that have arrived
    return (bytes(cycle.body), has_waited) if is_whole else None
