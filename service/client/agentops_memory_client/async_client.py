"""`AsyncMemoryClient`: the client whose methods are coroutines of asyncio."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Concatenate, ParamSpec, Self

import httpx

from .client import Client
from .contract import calls
from .contract.call import Call, T, shown_as
from .contract.service import MemoryService, awaiting
from .openwop.memory import AsyncOpenWopMemory
from .transport import transfers
from .transport.exchange import Exchange
from .transport.retries import Timing

P = ParamSpec("P")


class _Backend:
    """httpx on the running event loop."""

    def __init__(self, http: httpx.AsyncClient, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._http = http
        self._sleep = sleep

    async def send(self, request: httpx.Request, seconds: float) -> httpx.Response:
        try:
            async with asyncio.timeout(seconds):
                return await self._http.send(request, stream=True)
        except TimeoutError as error:
            raise httpx.ReadTimeout("", request=request) from error

    async def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        async for chunk in response.aiter_bytes():
            yield chunk

    async def close(self, response: httpx.Response) -> None:
        await response.aclose()

    async def sleep(self, seconds: float) -> None:
        await self._sleep(seconds)

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(work, *args, **kwargs)


def _transferring(
    work: Callable[Concatenate[Exchange, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["AsyncMemoryClient", P], Coroutine[Any, Any, T]]:
    """The method that does the work."""

    async def do(self: "AsyncMemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await work(self._exchange, *args, **kwargs)

    return shown_as(work, do, beside=1)


def _streaming(
    work: Callable[Concatenate[Exchange, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["AsyncMemoryClient", P], AsyncGenerator[T, None]]:
    """The method that yields what the work does."""

    def stream(
        self: "AsyncMemoryClient", /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        return work(self._exchange, *args, **kwargs)

    return shown_as(work, stream, beside=1)


class AsyncMemoryClient(MemoryService, Client[httpx.AsyncBaseTransport]):
    """A client of a running service for asyncio; many tasks may share it.

    Use it in `async with`, or call `aclose` at the end. `Client` documents its parameters.
    """

    _timing: ClassVar[Timing[Awaitable[None]]] = Timing(sleep=asyncio.sleep)

    def _backend(
        self, transport: httpx.AsyncBaseTransport | None, verify: ssl.SSLContext | bool
    ) -> _Backend:
        self._http = httpx.AsyncClient(transport=transport, verify=verify, trust_env=False)
        return _Backend(self._http, self._timing.sleep)

    @property
    def openwop(self) -> AsyncOpenWopMemory:
        """Memory of workflow runs, after OpenWOP."""
        return AsyncOpenWopMemory(self._exchange)

    async def aclose(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()

    async def _ask(self, call: Call[T], /) -> T:
        """The service's answer; the call is sent again as often as the retry policy permits."""
        return await self._exchange.send(call)

    health = awaiting(calls.health)
    export = _streaming(transfers.export)
    export_to = _transferring(transfers.export_to)
    import_from = _transferring(transfers.import_from)
    plan_import = _transferring(transfers.plan_import)
