"""`MemoryClient`, whose methods block, and `AsyncMemoryClient`, whose methods are coroutines.

Both run the same coroutines, which send calls over HTTP: URLs, requests, responses, retries,
uploads and downloads. With a blocking httpx.Client a coroutine never suspends, so that one step
finishes it.
"""

import asyncio
import json
import logging
import os
import random
import re
import ssl
import tempfile
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import BinaryIO, ClassVar, Generic, Self, TypeVar, cast
from urllib.parse import quote, urlencode

import httpx

from .contract import __version__, models, service
from .contract.models import Imported, ImportPlan, Misconfigured, UnexpectedAnswer, Unreachable
from .contract.service import Blocking, Call, MemoryService, Method, Operations, P, StrPath, T
from .openwop import AsyncOpenWopMemory, OpenWopMemory

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    HAS_TRACING = False
else:
    HAS_TRACING = True

Verify = ssl.SSLContext | bool  # as httpx takes it

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
    if "%" in base.host or (base.port is not None and base.port not in range(1, 1 << 16)):
        raise Misconfigured("The host or the port of the service URL is not valid.")
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
    return service.SURROGATE.sub("\ufffd", text)


MAX_TIMEOUT = timedelta(days=1)
FIRST_BACKOFF = 0.25  # seconds; the longest pause before the first retry
MAX_BACKOFF = 5.0  # seconds, in addition to the service's Retry-After


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clock, sleep and randomness of a client; tests replace them."""

    sleep: Callable[[float], Awaitable[None] | None]  # takes seconds
    clock: Callable[[], float] = time.monotonic  # seconds
    random: Callable[[], float] = random.random  # from 0 to 1


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
            except models.MemoryServiceError as failure:
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
            response = await self._sent(request, seconds)
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

    async def _sent(self, request: httpx.Request, seconds: float) -> httpx.Response:
        """Return the response with its body unread; without blocking, within so many seconds."""
        if isinstance(self._http, httpx.Client):
            return self._http.send(request, stream=True)
        try:
            async with asyncio.timeout(seconds):  # httpx limits each phase alone
                return await self._http.send(request, stream=True)
        except TimeoutError as error:
            raise httpx.ReadTimeout("", request=request) from error

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


IMPORT_TIMEOUT = timedelta(minutes=10)  # the largest import takes several minutes
TIMEOUT = timedelta(seconds=10)  # longer than 5 s, after which the service refuses and says why
RETRIES = 2
DEFAULT_URL = "http://127.0.0.1:7437"

Transport = TypeVar("Transport")


MAX_PREFIX = 60  # characters of the target's name in a temporary name, whose length is limited


@contextmanager
def temporary(target: Path) -> Iterator[BinaryIO]:
    """Create a temporary file next to the target; remove it at the end unless it was renamed."""
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=f".{target.name[:MAX_PREFIX]}.", suffix=".part", delete=False
    ) as file:
        try:
            yield cast(BinaryIO, file)
        finally:
            Path(file.name).unlink(missing_ok=True)


def replace(target: Path, file: BinaryIO) -> None:
    """Flush the file to disk, then replace the target by it atomically."""
    file.flush()
    os.fsync(file.fileno())
    Path(file.name).replace(target)


class Client(Operations, Generic[Transport]):
    """A client of the service at `url`, which may have a path. Misconfigured if it is invalid.

    `timeout` limits connecting, and the wait between two pieces of a response. `retries` is how
    often a failed call is sent again at most (docs/client.md says when). The `key`, or the password
    in `url`, is sent to the host of `url` and nowhere else: redirects are not followed, and proxy
    variables of the environment are ignored. For https, `verify` may be an SSLContext with your own
    certificate authorities. `transport` is a transport of httpx.
    """

    _timing: ClassVar[Timing]
    _http: ClassVar[Callable[..., httpx.Client | httpx.AsyncClient]]
    _exchange: Exchange

    def __init__(
        self, url: str = DEFAULT_URL, *, key: str | None = None, timeout: timedelta = TIMEOUT,
        retries: int = RETRIES, verify: Verify = True, transport: Transport | None = None,
    ) -> None:  # fmt: skip
        self._exchange = Exchange(
            url, key, timeout=timeout, retries=retries, timing=self._timing, verify=verify,
            http=partial(self._http, transport=transport),
        )  # fmt: skip

    @classmethod
    def from_environment(
        cls, *, url: str | None = None, key: str | None = None, timeout: timedelta = TIMEOUT,
        retries: int = RETRIES,
    ) -> Self:  # fmt: skip
        """Return a client of the service at MEMORY_URL, with the key in MEMORY_API_KEY.

        Arguments override these variables; an empty variable counts as unset.
        """
        url = url or os.environ.get("MEMORY_URL") or DEFAULT_URL
        key = key or os.environ.get("MEMORY_API_KEY") or None
        return cls(url, key=key, timeout=timeout, retries=retries)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._exchange.url!r})"

    @service.sends(
        "health", "GET", "health",
        read=lambda body, _: models.read_as(str, models.json_object(body).get("status")),
    )  # fmt: skip
    def health(self) -> str:  # type: ignore[empty-body]
        """Return `ok` if the service runs; Unavailable while it shuts down. Needs no key."""

    async def _export(
        self, project: str | None, progress: models.Progress | None
    ) -> AsyncGenerator[bytes, None]:
        call = Call(
            operation="export", method="GET", path=("export",),
            query=service.params(project=project), read=lambda _body, _headers: None,
        )  # fmt: skip
        response = await self._exchange.opened(call)
        length = response.headers.get("content-length")
        total, done, first, last = int(length) if length else None, 0, b"", b""
        async with aclosing(self._exchange.chunks(response)) as chunks:
            async for chunk in chunks:
                first, last, done = first or chunk[:1], (last + chunk)[-2:], done + len(chunk)
                if first != b"{":
                    break
                yield chunk
                if progress:
                    progress(done, total)
        if (first, last) != (b"{", b"]}"):
            raise UnexpectedAnswer(f"{self._exchange.url} did not answer with an export.")

    @Method
    async def export_to(
        self, path: StrPath, project: str | None = None, progress: models.Progress | None = None
    ) -> int:
        """Write sessions and observations of a project to a JSON file; return its size in bytes.

        Without a project, export all. The file is replaced atomically, and only its owner may read
        it. On failure an existing file is unchanged. OSError if the file cannot be written.
        """
        target, exchange, size = service.regular(path), self._exchange, 0
        with temporary(target) as file:
            async with aclosing(self._export(project, progress)) as chunks:
                async for chunk in chunks:
                    size += await exchange.run_in_thread(file.write, chunk)
            await exchange.run_in_thread(replace, target, file)
        return size

    @Method
    async def import_from(self, path: StrPath, progress: models.Progress | None = None) -> Imported:
        """Import an export file; rows that the service has already are skipped and not counted.

        The file is checked before anything is stored. If the response is lost, the call raises
        Unreachable without a retry: all or part of the file may be stored, and it is safe to import
        it again. OSError if the file cannot be read.
        """
        return await self._import(path, progress, Imported)

    @Method
    async def plan_import(
        self, path: StrPath, progress: models.Progress | None = None
    ) -> ImportPlan:
        """Return what an import of the file would do. OSError if the file cannot be read."""
        return await self._import(path, progress, ImportPlan)

    async def _import(self, path: StrPath, progress: models.Progress | None, of: type[T]) -> T:
        dry_run = of is ImportPlan
        with service.regular(path).open("rb") as file:
            call = Call(
                operation="import", method="POST", path=("import",),
                query=service.params(dry_run=dry_run), read=models.noun(of),
                is_idempotent=dry_run, timeout=IMPORT_TIMEOUT,
            )  # fmt: skip
            return await self._exchange.send(call, Upload(file, progress))


class MemoryClient(Blocking, Client[httpx.BaseTransport]):
    """A blocking client of a running service; threads may share it.

    Use it in `with`, or call `close` at the end. `Client` documents the parameters.
    """

    _timing = Timing(sleep=time.sleep)
    _http = httpx.Client

    @property
    def openwop(self) -> OpenWopMemory:
        """Memory of workflow runs, as OpenWOP defines it."""
        return OpenWopMemory(self._exchange)

    def export(
        self, project: str | None = None, progress: models.Progress | None = None
    ) -> Generator[bytes, None, None]:
        """Yield all sessions and observations of the project, or of all, as chunks of JSON.

        Unreachable if the response is incomplete, UnexpectedAnswer if it is not an export;
        discard the chunks received before.
        """
        chunks = self._export(project, progress)
        try:
            while (chunk := service.run_now(anext(chunks, None))) is not None:
                yield chunk
        finally:
            service.run_now(chunks.aclose())

    def close(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        service.run_now(self._exchange.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class AsyncMemoryClient(Client[httpx.AsyncBaseTransport], MemoryService):
    """An asyncio client of a running service; tasks may share it.

    Use it in `async with`, or call `aclose` at the end. `Client` documents the parameters.
    """

    _timing = Timing(sleep=asyncio.sleep)
    _http = httpx.AsyncClient

    @property
    def openwop(self) -> AsyncOpenWopMemory:
        """Memory of workflow runs, as OpenWOP defines it."""
        return AsyncOpenWopMemory(self._exchange)

    def export(
        self, project: str | None = None, progress: models.Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Like `MemoryClient.export`, for `async for`."""
        return self._export(project, progress)

    async def aclose(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        await self._exchange.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()
