"""Calls over HTTP, with retries. It is independent of sockets and event loops: see `Backend`."""

import inspect
import json
import logging
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol

import httpx

from ..contract.call import Call, T
from ..contract.errors import MemoryServiceError, MemoryServiceWarning, UnexpectedAnswer
from ..contract.reading import WARNING
from .address import call_url
from .errors import is_retryable, refusal, timed_out, translated
from .retries import Attempts, RetryPolicy
from .trace_context import inject
from .upload import Upload

P = ParamSpec("P")

PACKAGE = __name__.partition(".")[0]

log = logging.getLogger("agentops_memory.client")
log.addHandler(logging.NullHandler())  # a program without logging has the warning on stderr once

MAX_ANSWER = 16 * 1024 * 1024  # bytes; eight times what the service answers


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


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine over a backend that blocks: it never suspends."""
    try:
        work.send(None)
    except StopIteration as returned:
        result: T = returned.value
        return result
    raise AssertionError("The backend of a blocking client has suspended.")


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
            return answer, response.headers.get(WARNING)

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
                raise UnexpectedAnswer(f"{self.url} answers in another encoding than asked for.")
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
                    raise UnexpectedAnswer(f"{self.url} answers more than the service does.")
                if attempts.seconds_left <= 0:
                    raise timed_out(self.url)
        return bytes(body)


def _warn(text: str) -> None:
    """Log the service's warning, and issue it at the line that called the client."""
    log.warning("the service warns", extra={"warning": text})
    level, frame = 1, inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, MemoryServiceWarning, stacklevel=level)
