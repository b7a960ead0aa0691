"""Bodies and idempotency keys of requests, within their bounds."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qs, parse_qsl

from starlette.requests import Request
from starlette.types import Message

from ..errors import Full, Invalid
from ..memory.idempotency import idempotency
from ..recall.text.normalization import clean
from .endpoint import ADMISSION, admission
from .json_reader import parsed
from .protocol import Gone, TooLarge, TooSlow
from .query import NUMBER, Query

MAX_BODY = 1024 * 1024  # bytes
SHORT = 64 * 1024  # bytes of a body that is read at once
BODY_IDLE = 15.0  # seconds in which a body must continue
IN_MEMORY = 1024 * 1024  # bytes of an upload before it becomes a file

# A save changes threads five times; beside a thread that reads an import, each of these waits for
# as long as Python lets that one keep its lock: 5 ms by default.
SWITCH_INTERVAL = timedelta(microseconds=300)

KEY_HEADERS = ("Idempotency-Key", "X-Idempotency-Key")  # the second is an older spelling


async def json_object(
    request: Request, *, limit: int = MAX_BODY, empty: bool = False, exact: bool = False
) -> dict[str, object]:
    """The JSON object in the body, whatever the Content-Type says.

    Where it may be empty, no body is an empty object. Where it is taken exactly,
    bytes that are no UTF-8 are refused; else they become U+FFFD.
    """
    body = bytearray()
    async for chunk in _chunks(request, limit):
        body += chunk
    if empty and not body.strip():
        return {}
    # A body of a megabyte can be a quarter of a million values: others are served meanwhile.
    if len(body) < SHORT:
        value = parsed(body, exact=exact)
    else:
        value = await asyncio.to_thread(parsed, body, exact=exact)
        admission(request).has_waited = True
    if not isinstance(value, dict):
        raise Invalid("invalid JSON: an object is expected.")
    return value


@asynccontextmanager
async def spooled(request: Request, limit: int, folder: Path) -> AsyncIterator[BinaryIO]:
    admission(request).has_waited = True  # as far as anybody can tell
    try:
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(folder)))
            is_long = False
            async for chunk in _chunks(request, limit):
                if file.tell() + len(chunk) <= IN_MEMORY:
                    file.write(chunk)
                    continue
                if not is_long:
                    stack.enter_context(_short_switch_interval())
                    is_long = True
                await asyncio.to_thread(file.write, chunk)
            yield cast(BinaryIO, file)
    except OSError as error:  # at any step: what is written may wait in a buffer until the end
        raise Full("The disk cannot hold the body; nothing was stored.") from error


async def whole_body(request: Request, limit: int) -> bytes:
    return b"".join([chunk async for chunk in _chunks(request, limit)])


async def read_key(request: Request, *, limit: int = MAX_BODY, holder: str = "") -> None:
    """Let the caller of the request be one under its idempotency key, of its holder.

    Called after the body was read: what is left of it is read here, up to so many bytes.
    Invalid for what is no key, and for several keys. Without a key nothing is read.
    """
    values = (value for name in KEY_HEADERS for value in request.headers.getlist(name))
    keys = {value.strip(" \t") for value in values}
    if not keys:
        return
    if len(keys) > 1:
        raise Invalid("A request may have only one idempotency key; this one has several.")
    admitted = admission(request)
    if admitted.body_digest is None:
        async for _ in _chunks(request, limit):
            pass
    assert admitted.body_digest is not None  # such a request has a key
    path, query = request.scope["path"].encode(), request.scope["query_string"]
    parts = [request.method.encode(), path, query, admitted.body_digest]
    if match := request.headers.get("if-match"):  # another version is another request
        parts.append(match.encode())
    admitted.idempotency = idempotency(
        admitted.caller(), keys.pop(), admitted.status, *parts, holder=holder
    )


def is_empty(file: BinaryIO) -> bool:
    file.seek(0)
    return not any(chunk.strip() for chunk in iter(lambda: file.read(IN_MEMORY), b""))


def query_of(request: Request) -> Query:
    return parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)


def exact_parameter(request: Request, name: str, *, allows_nul: bool = False) -> str | None:
    """The same, as it was meant; a ValueError for one that no stored text can be like."""
    pairs = parse_qsl(
        request.scope["query_string"].decode("latin-1"),
        keep_blank_values=True,
        errors="surrogateescape",
    )
    text = next((value for key, value in pairs if key == name), "")
    exact = text.replace("\0", "") if allows_nul else text
    if clean(exact) != exact:
        raise ValueError
    return text or None


class _Readers:
    count = 0
    before = 0.0


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    """Inside, a thread keeps Python's lock for `SWITCH_INTERVAL` while others want it.

    For the loop's thread alone; it may be entered by many requests at once. Always on it would
    cost searches a tenth of their processor time.
    """
    if not _Readers.count:
        _Readers.before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL.total_seconds())
    _Readers.count += 1
    try:
        yield
    finally:
        _Readers.count -= 1
        if not _Readers.count:
            sys.setswitchinterval(_Readers.before)


async def _chunks(request: Request, limit: int) -> AsyncIterator[bytes]:
    declared = request.headers.get("content-length", "")
    left = limit - int(declared) if NUMBER.fullmatch(declared[:18]) else limit
    if left < 0:
        raise _too_large(limit)
    left = limit
    digest = sha256() if any(name in request.headers for name in KEY_HEADERS) else None
    is_more = True
    while is_more:
        chunk, is_more = await _next(request)
        left -= len(chunk)
        if left < 0:
            raise _too_large(limit)
        if digest is not None:
            digest.update(chunk)
        yield chunk
    if digest is not None:
        admission(request).body_digest = digest.digest()


async def _next(request: Request) -> tuple[bytes, bool]:
    receiving = cast(Coroutine[Any, Any, Message], request.receive())
    try:
        waiting = receiving.send(None)
    except StopIteration as arrived:  # as bodies mostly are there with their heads
        message: Message = arrived.value
    else:
        if (known := request.scope.get(ADMISSION)) is not None:
            known.has_waited = True
        try:
            async with asyncio.timeout(BODY_IDLE):
                message = await _Begun(receiving, waiting)
        except TimeoutError as error:
            raise TooSlow("The body stopped arriving; nothing was stored.") from error
    if message["type"] == "http.disconnect":
        raise Gone("The client left before its body was complete.")
    return message.get("body", b""), message.get("more_body", False)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A coroutine that has begun, and what it waits for: continues with it."""

    coroutine: Coroutine[Any, Any, Message]
    waiting: object

    def __await__(self) -> Generator[object, Any, Message]:
        waiting = self.waiting
        try:
            while True:
                try:
                    came = yield waiting
                except BaseException as error:  # noqa: BLE001 - the coroutine's to handle
                    waiting = self.coroutine.throw(error)
                else:
                    waiting = self.coroutine.send(came)
        except StopIteration as end:
            return cast(Message, end.value)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit:,} bytes; nothing was stored.")
