"""`AsyncMemoryClient`: each question is awaited, on asyncio."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import httpx

from . import transfers
from .client import Client
from .contract import calls
from .contract.call import Call, shown_as
from .contract.service import MemoryService, awaiting
from .exchange import Exchange
from .retries import Surroundings

T = TypeVar("T")
P = ParamSpec("P")


class _Line:
    """Bytes by httpx, on the loop that runs."""

    def __init__(self, http: httpx.AsyncClient, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._http = http
        self._sleep = sleep

    async def open(self, request: httpx.Request, seconds: float) -> httpx.Response:
        try:
            async with asyncio.timeout(seconds):
                return await self._http.send(request, stream=True)
        except TimeoutError as error:
            raise httpx.ReadTimeout("", request=request) from error

    async def pieces(self, answer: httpx.Response) -> AsyncGenerator[bytes, None]:
        async for piece in answer.aiter_bytes():
            yield piece

    async def close(self, answer: httpx.Response) -> None:
        await answer.aclose()

    async def sleep(self, seconds: float) -> None:
        await self._sleep(seconds)

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(work, *args, **kwargs)


def transferring(
    work: Callable[Concatenate[Exchange, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["AsyncMemoryClient", P], Coroutine[Any, Any, T]]:
    """The method that does the work."""

    async def do(self: "AsyncMemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await work(self._exchange, *args, **kwargs)

    return shown_as(work, do, beside=1)


def streaming(
    work: Callable[Concatenate[Exchange, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["AsyncMemoryClient", P], AsyncGenerator[T, None]]:
    """The method that yields what the work does."""

    def stream(
        self: "AsyncMemoryClient", /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        return work(self._exchange, *args, **kwargs)

    return shown_as(work, stream, beside=1)


class AsyncMemoryClient(MemoryService, Client[httpx.AsyncBaseTransport]):
    """A running service, asked from asyncio; many tasks may ask at once.

    Use it in `async with`, or call `aclose` at the end. What it is given, `Client` says.
    """

    _around: ClassVar[Surroundings[Awaitable[None]]] = Surroundings(sleep=asyncio.sleep)

    def _line(
        self, transport: httpx.AsyncBaseTransport | None, trusted: ssl.SSLContext | bool
    ) -> _Line:
        self._http = httpx.AsyncClient(transport=transport, verify=trusted, trust_env=False)
        return _Line(self._http, self._around.sleep)

    async def aclose(self) -> None:
        """Close the connections; nothing can be asked from then on."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _ask(self, call: Call[T], /) -> T:
        """What the service answers to a call, which is sent as often as it takes and may be."""
        return await self._exchange.ask(call)

    health = awaiting(calls.health)
    export = streaming(transfers.export)
    export_to = transferring(transfers.export_to)
    import_from = transferring(transfers.import_from)
    plan_import = transferring(transfers.plan_import)
