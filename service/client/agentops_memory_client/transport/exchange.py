"""Calls over HTTP, with retries. It is independent of sockets and event loops: see `Backend`."""

import asyncio
import inspect
import json
import logging
import os
import re
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import BinaryIO, ParamSpec, Protocol

import httpx

from ..contract import errors, reading
from ..contract.call import Call, T
from ..contract.errors import MemoryServiceError, Refused, UnexpectedAnswer, Unreachable, refused
from ..contract.models import Progress
from . import inject
from .address import call_url
from .retries import Attempts, RetryPolicy

P = ParamSpec("P")

PACKAGE = __name__.partition(".")[0]

log = logging.getLogger("agentops_memory.client")
log.addHandler(logging.NullHandler())  # a program without logging has the warning on stderr once

CHUNK = 64 * 1024  # bytes of a file that are in memory at once
MAX_ANSWER = 16 * 1024 * 1024  # bytes; eight times what the service answers
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
START = "Is it running? `agentops-memory serve` starts it."
_CUT = ("disconnected", "closed connection")  # as httpcore words it
_SECONDS = re.compile(r"[0-9]{1,9}")


class Upload(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A file as the body of a request, read in chunks, for each attempt from its start."""

    def __init__(self, file: BinaryIO, progress: Progress | None) -> None:
        self._file = file
        self._progress = progress
        self.size = os.fstat(file.fileno()).st_size

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        while chunk := self._chunk(sent):
            yield chunk
            sent = self._report(sent + len(chunk))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sent = 0
        while chunk := await asyncio.to_thread(self._chunk, sent):
            yield chunk
            sent = self._report(sent + len(chunk))

    def _chunk(self, offset: int) -> bytes:
        self._file.seek(offset)
        chunk = self._file.read(min(CHUNK, self.size - offset))
        if not chunk and offset < self.size:
            raise OSError("The file became shorter while it was sent; nothing is stored.")
        return chunk

    def _report(self, sent: int) -> int:
        if self._progress:
            self._progress(sent, self.size)
        return sent


class Backend(Protocol):
    """How a client sends bytes, sleeps and runs blocking work.

    One that blocks never suspends, so that its coroutines finish in one step.
    """

    async def send(self, request: httpx.Request, seconds: float) -> httpx.Response:
        """The response, its body unread; httpx's ReadTimeout after so many seconds.

        One that blocks cannot enforce them while a head arrives byte by byte.
        """

    def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """The body, as it arrives."""

    async def close(self, response: httpx.Response) -> None:
        """Discard the rest of the response."""

    async def sleep(self, seconds: float) -> None:
        """Sleep so long."""

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work that may block on a disk, without blocking an event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The service at one address, for the owner of one key."""

    base: httpx.URL
    headers: httpx.Headers  # whose repr hides the key
    policy: RetryPolicy
    backend: Backend

    @property
    def url(self) -> str:
        return str(self.base)

    async def send(self, call: Call[T], upload: Upload | None = None) -> T:
        """The answer, as the call reads it; sent again as often as the policy permits."""

        async def attempt(attempts: Attempts) -> tuple[T, str | None]:
            response = await self._opened(call, attempts, upload)
            answer = call.read(await self._body(response, attempts), response.headers)
            return answer, response.headers.get(reading.WARNING)

        answer, warning = await self._with_retries(call, attempt)
        if warning:
            _warn(warning)
        return answer

    async def opened(self, call: Call[object]) -> httpx.Response:
        """A successful response, its body unread; `chunks` reads and closes it."""
        return await self._with_retries(call, lambda attempts: self._opened(call, attempts))

    async def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """The body as it arrives; Unreachable if it is incomplete. Closes the response."""
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise UnexpectedAnswer(f"{self.url} answered in an encoding not requested.")
            with translated(self.url):
                async with aclosing(self.backend.chunks(response)) as chunks:
                    async for chunk in chunks:
                        yield chunk
        finally:
            await self.backend.close(response)

    async def _with_retries(
        self, call: Call[object], attempt: Callable[[Attempts], Awaitable[T]]
    ) -> T:
        attempts = self.policy.attempts(call.within)
        while True:
            try:
                return await attempt(attempts)
            except MemoryServiceError as failure:
                if not is_retryable(failure, is_idempotent=call.is_idempotent):
                    raise
                pause = attempts.pause(getattr(failure, "retry_after", None))
                if pause is None:
                    raise
            await self.backend.sleep(pause)

    async def _opened(
        self, call: Call[object], attempts: Attempts, upload: Upload | None = None
    ) -> httpx.Response:
        with translated(self.url):
            request = self._request(call, attempts, upload)
            response = await self.backend.send(request, attempts.seconds_left)
        if response.is_success:
            return response
        body = await self._body(response, attempts)
        raise refusal(self.url, response.status_code, response.headers, body)

    def _request(
        self, call: Call[object], attempts: Attempts, upload: Upload | None
    ) -> httpx.Request:
        headers = httpx.Headers(self.headers)
        headers.update(call.headers)
        if upload:
            headers["Content-Length"] = str(upload.size)
        inject(headers)
        seconds = attempts.seconds_for_answer
        usual = min(seconds, self.policy.timeout.total_seconds())
        return httpx.Request(
            call.method,
            call_url(self.base, call),
            headers=headers,
            content=None if call.body is None else json.dumps(call.body).encode("ascii"),
            stream=upload,
            extensions={"timeout": httpx.Timeout(usual, read=seconds).as_dict()},
        )

    async def _body(self, response: httpx.Response, attempts: Attempts) -> bytes:
        body = bytearray()
        async with aclosing(self.chunks(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > MAX_ANSWER:
                    raise UnexpectedAnswer(f"{self.url} answered with too much data.")
                if attempts.seconds_left <= 0:
                    raise timed_out(self.url)
        return bytes(body)


def _warn(text: str) -> None:
    """Log the service's warning, and issue it at the line that called the client."""
    log.warning("the service warns", extra={"warning": text})
    level, frame = 1, inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, errors.MemoryServiceWarning, stacklevel=level)


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Inside, an error of httpx becomes Unreachable or UnexpectedAnswer."""
    try:
        yield
    except httpx.HTTPError as error:
        raise _failure(error, url) from error


def timed_out(url: str) -> Unreachable:
    return _may_be_done(f"{url} did not answer in time.")


def refusal(
    url: str, status: int, headers: Mapping[str, str], body: bytes
) -> Refused | UnexpectedAnswer:
    """The error for an unsuccessful response."""
    if 300 <= status < 400:
        return _unexpected(status, f"{url} redirected ({status}), which is not followed.")
    try:
        problem = reading.problem(body)
    except UnexpectedAnswer:
        failure = _unexpected(status, f"{url} answered {status}, but not as the service does.")
        failure.retry_after = _retry_after(headers)
        return failure
    request_id, retry_after = headers.get("x-request-id"), _retry_after(headers)
    return refused(
        status, problem.sentence, code=problem.code, details=problem.details,
        request_id=request_id, retry_after=retry_after,
    )  # fmt: skip


def is_retryable(failure: MemoryServiceError, *, is_idempotent: bool) -> bool:
    """Whether the same call may succeed if sent again, without being executed twice."""
    if isinstance(failure, Unreachable):
        return is_idempotent or not failure.may_be_done
    return getattr(failure, "status", 0) in (429, 503)


def _failure(error: httpx.HTTPError, url: str) -> Unreachable | UnexpectedAnswer:
    if isinstance(error, NOT_SENT):
        reason = str(error) or "no connection in time"
        if isinstance(error, httpx.PoolTimeout):
            reason = "every connection is in use"
        return Unreachable(f"{url} cannot be reached ({reason}). {START}")
    if isinstance(error, httpx.TimeoutException):
        return timed_out(url)
    if isinstance(error, httpx.NetworkError) or any(word in str(error) for word in _CUT):
        return _may_be_done(f"{url} closed the connection before it answered.")
    return UnexpectedAnswer(f"{url} answered, but not as the service does.")


def _may_be_done(sentence: str) -> Unreachable:
    failure = Unreachable(sentence)
    failure.may_be_done = True
    return failure


def _unexpected(status: int, sentence: str) -> UnexpectedAnswer:
    failure = UnexpectedAnswer(sentence)
    failure.status = status
    return failure


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    seconds = headers.get("retry-after", "")
    return timedelta(seconds=int(seconds)) if _SECONDS.fullmatch(seconds) else None
