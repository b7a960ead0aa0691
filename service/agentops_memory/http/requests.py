"""Bodies, parameters and idempotency keys of requests, within their bounds."""

import asyncio
import re
import sys
import tempfile
from collections.abc import (
    AsyncIterator,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
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

MAX_BODY = 1024 * 1024  # bytes
SHORT = 64 * 1024  # bytes of a body that is read at once
MAX_ANSWER = 2 * 1024 * 1024  # bytes; the agent runtime reads no more
MAX_ROWS = 1000
BODY_IDLE = 15.0  # seconds in which a body must go on
IN_MEMORY = 1024 * 1024  # bytes of an upload before it becomes a file

# A save changes threads five times; beside a thread that reads an import, each of these waits for
# as long as Python lets that one keep its lock: 5 ms, unless it is told otherwise.
SWITCH_INTERVAL = timedelta(microseconds=300)

Query = Mapping[str, Sequence[str]]
"""The values of each parameter, in their order."""

KEY_HEADERS = ("Idempotency-Key", "X-Idempotency-Key")  # the second is an older spelling

_NUMBER = re.compile(r"\d+", re.ASCII)
_SIGNED = re.compile(r"[-+]?\d{1,19}", re.ASCII)
_DIGITS = 18  # of an amount that are read: no longer one is less than these
_INT64 = range(-(1 << 63), 1 << 63)


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
        raise Full("The disk cannot take the body; nothing was stored.") from error


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
        raise Invalid("A request has one idempotency key; this one has several.")
    admitted = admission(request)
    if admitted.body_digest is None:
        async for _ in _chunks(request, limit):
            pass
    assert admitted.body_digest is not None  # such a request has a key
    path, query = request.scope["path"].encode(), request.scope["query_string"]
    asked = [request.method.encode(), path, query, admitted.body_digest]
    if match := request.headers.get("if-match"):  # another version is another request
        asked.append(match.encode())
    admitted.idempotency = idempotency(
        admitted.caller(), keys.pop(), admitted.status, *asked, holder=holder
    )


def is_empty(file: BinaryIO) -> bool:
    file.seek(0)
    return not any(chunk.strip() for chunk in iter(lambda: file.read(IN_MEMORY), b""))


def query_of(request: Request) -> Query:
    return parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)


def parameter(query: Query, name: str) -> str | None:
    """The first value of a query parameter; an empty one is an unset one."""
    values = query.get(name)
    return clean(values[0]) or None if values else None


def several(query: Query, name: str, most: int) -> tuple[str, ...]:
    """The different values of a repeatable parameter; empty ones are unset.

    Invalid for more than so many.
    """
    values = sorted({clean(value) for value in query.get(name, ())} - {""})
    if len(values) > most:
        raise Invalid(f"{name} takes at most {most} different values.")
    return tuple(values)


def exact_parameter(request: Request, name: str, *, allows_nul: bool = False) -> str | None:
    """The same, as it was meant; a ValueError for one that no stored text can be like."""
    asked = parse_qsl(
        request.scope["query_string"].decode("latin-1"),
        keep_blank_values=True,
        errors="surrogateescape",
    )
    text = next((value for given, value in asked if given == name), "")
    exact = text.replace("\0", "") if allows_nul else text
    if clean(exact) != exact:
        raise ValueError
    return text or None


def row_count(query: Query, name: str, default: int) -> int:
    """A number of rows: the default unless it is a positive number, and at most 1,000."""
    text = parameter(query, name) or ""
    if not _NUMBER.fullmatch(text):
        return default
    digits = text.lstrip("0")
    return min(int(digits[:5] or 0), MAX_ROWS) or default


def whole_number(text: str | None, name: str) -> int:
    """A number of at most 64 bits; anything else is Invalid."""
    number = int(text) if text and _SIGNED.fullmatch(text) else None
    if number is None or number not in _INT64:
        raise Invalid(f"{name} must be a whole number.")
    return number


def amount(query: Query, name: str, least: int = 0) -> int | None:
    """A whole number, at least so large; none if it is unset, and anything else is Invalid."""
    text = parameter(query, name)
    if text is None:
        return None
    number = int(text.lstrip("0")[:_DIGITS] or 0) if _NUMBER.fullmatch(text) else -1
    if number < least:
        raise Invalid(f"{name} must be a whole number, {least} or more.")
    return number


def is_true(query: Query, name: str) -> bool:
    return (parameter(query, name) or "").lower() in ("1", "t", "true", "yes")


def asks_for(query: Query, name: str) -> bool:
    """Whether a flag is set that must not be misread; Invalid unless it is true or false."""
    values = [value.lower() for value in query.get(name, ())]
    if any(value not in ("true", "false", "1", "0") for value in values):
        raise Invalid(f"{name} must be true or false.")
    return any(value in ("true", "1") for value in values)


def fitting(items: Iterable[bytes], *, beside: int = 0) -> list[bytes]:
    """The first of the items, as many as one answer can hold beside so many bytes."""
    room, fit = MAX_ANSWER - 1024 - beside, []
    for item in items:
        room -= len(item) + 1
        if room < 0:
            break
        fit.append(item)
    return fit


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
    left = limit - int(declared) if _NUMBER.fullmatch(declared[:18]) else limit
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
            raise TooSlow("The body stopped coming; nothing was stored.") from error
    if message["type"] == "http.disconnect":
        raise Gone("The client left before its body was complete.")
    return message.get("body", b""), message.get("more_body", False)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A coroutine that has begun, and what it waits for: goes on with it."""

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
