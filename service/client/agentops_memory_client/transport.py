"""Calls over HTTP: URLs, requests, responses, retries, uploads and downloads."""

import asyncio
import json
import logging
import os
import random
import re
import ssl
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import BinaryIO, ParamSpec, TypeVar
from urllib.parse import quote, urlencode

import httpx

from .contract import __version__, models
from .contract.models import MemoryServiceError, Misconfigured, UnexpectedAnswer, Unreachable
from .contract.service import Call

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    HAS_TRACING = False
else:
    HAS_TRACING = True

Verify = ssl.SSLContext | bool  # as httpx takes it

SURROGATE = re.compile("[\ud800-\udfff]")
_DOTS = {".": "%2E", "..": "%2E%2E"}  # unquoted, they would be relative path segments


def trace_headers() -> dict[str, str]:
    """Return the W3C trace context headers of the current span; empty without OpenTelemetry."""
    headers: dict[str, str] = {}
    if HAS_TRACING:
        TraceContextTextMapPropagator().inject(headers)
    return headers


def address(url: str, key: str | None) -> tuple[httpx.URL, str | None]:
    """Return the base URL without its userinfo, and the key: the argument, or the URL's password.

    Misconfigured if the URL is invalid or has another key.
    """
    try:
        base = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, UnicodeError):
        # The cause is omitted: it quotes the URL, which may contain a key.
        raise Misconfigured("The service URL is not a valid URL.") from None
    if base.scheme not in ("http", "https") or not base.host or base.query or base.fragment:
        raise Misconfigured(
            "The service URL must begin with http:// or https:// and name a host, and end with "
            "its path, with no query or fragment."
        )
    if base.userinfo and b":" not in base.userinfo:
        raise Misconfigured("The service URL has a user but no key; write user:key@.")
    if key and base.password and key != base.password:
        raise Misconfigured("The service URL contains a key other than the one that was passed.")
    return base.copy_with(username="", password=""), key or base.password or None


def tls_context(base: httpx.URL, verify: Verify) -> Verify:
    """Return `verify` for httpx. For http an empty context: loading the CAs takes 17 ms."""
    return verify if base.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def call_url(base: httpx.URL, call: Call[object]) -> httpx.URL:
    """Return the URL of the call; Invalid if it is too long."""
    path = base.raw_path.partition(b"?")[0].rstrip(b"/").decode("ascii")
    path += "".join(f"/{_DOTS.get(step) or quote(_utf8(step), safe='')}" for step in call.path)
    query = urlencode([(name, _utf8(it)) for name, values in call.query.items() for it in values])
    try:
        return base.copy_with(raw_path=f"{path}?{query}".rstrip("?").encode("ascii"))
    except httpx.InvalidURL as error:
        raise models.Invalid("The arguments are too long for the URL of a request.") from error


def _utf8(text: str) -> str:
    """Replace each lone surrogate by U+FFFD, as the service does."""
    return SURROGATE.sub("\ufffd", text)


MAX_TIMEOUT = timedelta(days=1)
FIRST_BACKOFF = 0.25  # seconds; the longest pause before the first retry
MAX_BACKOFF = 5.0  # seconds, in addition to the service's Retry-After

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clock, sleep and randomness of a client; tests replace them."""

    sleep: Callable[[float], Awaitable[None] | None]  # takes seconds
    clock: Callable[[], float] = time.monotonic  # seconds
    random: Callable[[], float] = random.random  # from 0 to 1


P = ParamSpec("P")

log = logging.getLogger("agentops_memory.client")
log.addHandler(logging.NullHandler())  # else a program without logging gets each warning twice

CHUNK = 64 * 1024  # bytes of an uploaded file in memory at once
MAX_ANSWER = 16 * 1024 * 1024  # bytes; eight times the service's largest response
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
START_HINT = "Is it running? `agentops-memory serve` starts it."
_CLOSED = ("disconnected", "closed connection")  # words in messages of httpcore
_SECONDS = re.compile(r"[0-9]{1,9}")
_KEY = re.compile(r"[!-~]+")


class Upload(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A file as the body of a request; each attempt reads it in chunks from the start."""

    def __init__(self, file: BinaryIO, progress: models.Progress | None) -> None:
        self._file = file
        self._progress = progress
        self.size = os.fstat(file.fileno()).st_size

    def __iter__(self) -> Iterator[bytes]:
        sent = self._file.seek(0)
        while chunk := self._file.read(min(CHUNK, self.size - sent)):
            yield chunk
            sent += len(chunk)
            if self._progress:
                self._progress(sent, self.size)
        if sent < self.size:
            raise OSError("The file became shorter while it was sent; nothing is stored.")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = iter(self)
        while chunk := await asyncio.to_thread(next, chunks, None):
            yield chunk


class Exchange:
    """Sends calls to the service at one address, with one key.

    With an httpx.Client its coroutines never suspend, so one step finishes each.

    Misconfigured if an argument is invalid; the message quotes neither the URL nor the key.
    """

    def __init__(
        self, url: str, key: str | None, *, timeout: timedelta, retries: int, timing: Timing,
        verify: Verify, http: Callable[..., httpx.Client | httpx.AsyncClient],
    ) -> None:  # fmt: skip
        self.base, own_key = address(url, key)
        self.url = str(self.base)
        if own_key and not _KEY.fullmatch(own_key):
            raise Misconfigured("The key contains characters that are not valid in a key.")
        if not isinstance(timeout, timedelta) or not timedelta() < timeout <= MAX_TIMEOUT:
            raise Misconfigured("timeout must be a timedelta longer than 0, and at most a day.")
        if retries < 0:
            raise Misconfigured("retries must be a whole number, 0 or more.")
        self._headers = httpx.Headers({
            "Host": self.base.netloc.decode("ascii"), "Accept": "application/json",
            "Accept-Encoding": "identity", "User-Agent": f"agentops-memory-python/{__version__}",
            **({"Authorization": f"Bearer {own_key}"} if own_key else {}),
        })  # fmt: skip
        self.timeout, self.retries, self.timing = timeout, retries, timing
        self._http = http(verify=tls_context(self.base, verify), trust_env=False)

    async def send(self, call: Call[T], upload: Upload | None = None) -> T:
        """Send the call, with retries, and return its result."""

        async def attempt(deadline: float) -> tuple[models.Headers, bytes]:
            response = await self._opened(call, deadline, upload)
            return response.headers, await self._body(response, deadline)

        headers, body = await self._with_retries(call, attempt)
        result = call.read(body, headers)
        if warning := headers.get(models.WARNING):
            log.warning("the service warns", extra={"warning": warning})
            warnings.warn(warning, models.MemoryServiceWarning, stacklevel=2)
        return result

    async def opened(self, call: Call[object]) -> httpx.Response:
        """Return a successful response with its body unread; `chunks` reads and closes it."""
        return await self._with_retries(call, lambda deadline: self._opened(call, deadline))

    async def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, then close the response; Unreachable if incomplete."""
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise UnexpectedAnswer(f"{self.url} answered in an encoding not requested.")
            with translated(self.url):
                if isinstance(self._http, httpx.Client):
                    for chunk in response.iter_bytes():
                        yield chunk
                else:
                    async for chunk in response.aiter_bytes():
                        yield chunk
        finally:
            await self.close(response)

    async def close(self, response: httpx.Response | None = None) -> None:
        """Close the response, or else all connections."""
        if isinstance(self._http, httpx.Client):
            (response or self._http).close()
        else:
            await (response or self._http).aclose()

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work on another thread, but in a blocking client on this one."""
        if isinstance(self._http, httpx.Client):
            return work(*args, **kwargs)
        return await asyncio.to_thread(work, *args, **kwargs)

    async def _with_retries(
        self, call: Call[object], attempt: Callable[[float], Awaitable[T]]
    ) -> T:
        """Return the result of the first attempt that succeeds; each gets the deadline of all.

        Together they take at most the timeout multiplied by their number. Exponential backoff with
        full jitter keeps clients from returning at the same time.
        """
        retries, backoff = self.retries, FIRST_BACKOFF
        deadline = self.timing.clock() + self._seconds(call) * (retries + 1)
        while True:
            try:
                return await attempt(deadline)
            except MemoryServiceError as failure:
                # Retry only if the call may succeed then, and cannot be executed twice.
                may_retry = failure.status in (429, 503)
                if isinstance(failure, Unreachable):
                    may_retry = call.is_idempotent or not failure.may_be_done
                minimum = (failure.retry_after or timedelta()).total_seconds()
                pause = self.timing.random() * backoff + minimum
                if not may_retry or not retries or pause >= deadline - self.timing.clock():
                    raise
            retries, backoff = retries - 1, min(backoff * 2, MAX_BACKOFF)
            if waiting := self.timing.sleep(pause):  # a coroutine of asyncio.sleep
                await waiting

    def _seconds(self, call: Call[object]) -> float:
        """Return the timeout of an attempt; a call's own counts if it is longer."""
        return max(self.timeout, call.timeout or self.timeout).total_seconds()

    async def _opened(
        self, call: Call[object], deadline: float, upload: Upload | None = None
    ) -> httpx.Response:
        headers = self._headers.copy()
        headers.update({**call.headers, **trace_headers()})
        if upload:
            headers["Content-Length"] = str(upload.size)
        seconds = max(min(self._seconds(call), deadline - self.timing.clock()), 0.001)
        timeout = min(seconds, self.timeout.total_seconds())
        with translated(self.url):
            request = httpx.Request(
                call.method, call_url(self.base, call), headers=headers, stream=upload,
                content=None if call.body is None else json.dumps(call.body).encode("ascii"),
                extensions={"timeout": httpx.Timeout(timeout, read=seconds).as_dict()},
            )  # fmt: skip
            sent = self._http.send(request, stream=True)
            response = sent if isinstance(sent, httpx.Response) else await sent
        if response.is_success:
            return response
        body, status = await self._body(response, deadline), response.status_code
        if 300 <= status < 400:
            message = f"{self.url} redirected ({status}), which is not followed."
            raise UnexpectedAnswer(message, status=status)
        failure: models.Refused | UnexpectedAnswer
        try:
            failure = models.problem(status, body)
            failure.request_id = response.headers.get("x-request-id")
        except UnexpectedAnswer:
            message = f"{self.url} answered {status}, but not as the service does."
            failure = UnexpectedAnswer(message, status=status)
        retry_after = response.headers.get("retry-after", "")
        if _SECONDS.fullmatch(retry_after):
            failure.retry_after = timedelta(seconds=int(retry_after))
        raise failure

    async def _body(self, response: httpx.Response, deadline: float) -> bytes:
        body = bytearray()
        async with aclosing(self.chunks(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > MAX_ANSWER:
                    raise UnexpectedAnswer(f"{self.url} answered with too much data.")
                if self.timing.clock() >= deadline:
                    raise Unreachable(f"{self.url} did not answer in time.", may_be_done=True)
        return bytes(body)


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn errors of httpx inside into Unreachable or UnexpectedAnswer."""
    try:
        yield
    except NOT_SENT as error:
        reason = str(error) or "no connection in time"
        raise Unreachable(f"{url} cannot be reached ({reason}). {START_HINT}") from error
    except httpx.TimeoutException as error:
        raise Unreachable(f"{url} did not answer in time.", may_be_done=True) from error
    except httpx.HTTPError as error:
        if isinstance(error, httpx.NetworkError) or any(word in str(error) for word in _CLOSED):
            message = f"{url} closed the connection before it answered."
            raise Unreachable(message, may_be_done=True) from error
        raise UnexpectedAnswer(f"{url} answered, but not as the service does.") from error
