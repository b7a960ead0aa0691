"""Calls over HTTP, with their repetitions. It knows neither sockets nor loops: a `Line` does."""

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

import httpx

from . import __version__
from .address import place
from .contract.call import Call
from .contract.errors import MemoryServiceError, Misconfigured, UnexpectedAnswer
from .errors import is_passing, late, refusal, told
from .retries import Attempts, Patience
from .trace_context import inject
from .upload import Upload

T = TypeVar("T")
P = ParamSpec("P")

MAX_ANSWER = 16 * 1024 * 1024  # bytes; eight times what the service answers
_KEY = re.compile(r"[!-~]+")


class Line(Protocol):
    """What a client brings: how bytes travel, and how one waits.

    One that blocks never suspends, so that its work is done in one step.
    """

    async def open(self, request: httpx.Request, seconds: float) -> httpx.Response:
        """The answer, of which nothing but the head has been read; httpx's time-out after so long.

        One that blocks cannot give up while something comes, however slowly.
        """

    def pieces(self, answer: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Its body, as it comes."""

    async def close(self, answer: httpx.Response) -> None:
        """What is left of it is not wanted."""

    async def sleep(self, seconds: float) -> None:
        """Wait so long."""

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what may wait for a disk, and hold nobody up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The service at one address, for the owner of one key."""

    base: httpx.URL
    headers: httpx.Headers  # which does not show the key
    patience: Patience
    line: Line

    @classmethod
    def with_service(
        cls, base: httpx.URL, key: str | None, *, patience: Patience, line: Line
    ) -> "Exchange":
        """For the owner of the key, if there is one. Misconfigured if it cannot be a key."""
        headers = httpx.Headers(
            {
                "Host": base.netloc.decode("ascii"),
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"agentops-memory-python/{__version__}",
            }
        )
        if key and not _KEY.fullmatch(key):
            raise Misconfigured("The key has characters that no key has.")
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return cls(base=base, headers=headers, patience=patience, line=line)

    @property
    def url(self) -> str:
        return str(self.base)

    async def ask(self, call: Call[T], upload: Upload | None = None) -> T:
        """What the call reads from its answer, sent as often as it takes and as may be."""

        async def attempt(attempts: Attempts) -> T:
            answer = await self._opened(call, attempts, upload)
            return call.read(await self._whole(answer, attempts), answer.headers)

        return await self._repeated(call, attempt)

    async def opened(self, call: Call[object]) -> httpx.Response:
        """An answer of success, with its body yet to come; `pieces` has that and closes it."""
        return await self._repeated(call, lambda attempts: self._opened(call, attempts))

    async def pieces(self, answer: httpx.Response) -> AsyncGenerator[bytes, None]:
        """The body as it comes, until its end; one that was cut is Unreachable."""
        try:
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise UnexpectedAnswer(f"{self.url} answers in another encoding than asked for.")
            with told(self.url):
                async with aclosing(self.line.pieces(answer)) as pieces:
                    async for piece in pieces:
                        yield piece
        finally:
            await self.line.close(answer)

    async def _repeated(self, call: Call[object], attempt: Callable[[Attempts], Awaitable[T]]) -> T:
        attempts = self.patience.attempts(call.within)
        while True:
            try:
                return await attempt(attempts)
            except MemoryServiceError as failure:
                if not is_passing(failure, is_repeatable=call.is_repeatable):
                    raise
                wait = attempts.wait(getattr(failure, "retry_after", None))
                if wait is None:
                    raise
            await self.line.sleep(wait)

    async def _opened(
        self, call: Call[object], attempts: Attempts, upload: Upload | None = None
    ) -> httpx.Response:
        with told(self.url):
            request = self._request(call, attempts, upload)
            answer = await self.line.open(request, attempts.seconds_left)
        if answer.is_success:
            return answer
        body = await self._whole(answer, attempts)
        raise refusal(self.url, answer.status_code, answer.headers, body)

    def _request(
        self, call: Call[object], attempts: Attempts, upload: Upload | None
    ) -> httpx.Request:
        headers = httpx.Headers(self.headers)
        headers.update(call.headers)
        if upload:
            headers["Content-Length"] = str(upload.size)
        inject(headers)
        seconds = attempts.seconds_for_answer
        usual = min(seconds, self.patience.timeout.total_seconds())
        return httpx.Request(
            call.method,
            place(self.base, call),
            headers=headers,
            content=None if call.body is None else json.dumps(call.body).encode("ascii"),
            stream=upload,
            extensions={"timeout": httpx.Timeout(usual, read=seconds).as_dict()},
        )

    async def _whole(self, answer: httpx.Response, attempts: Attempts) -> bytes:
        body = bytearray()
        async with aclosing(self.pieces(answer)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MAX_ANSWER:
                    raise UnexpectedAnswer(f"{self.url} answers more than the service does.")
                if attempts.seconds_left <= 0:
                    raise late(self.url)
        return bytes(body)
