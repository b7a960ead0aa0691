"""`MemoryClient`: the client whose methods block.

It runs the coroutines of `AsyncMemoryClient` over a backend that blocks, so that
they never suspend: each finishes in one step.
"""

import ssl
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, ClassVar, Concatenate, ParamSpec, Self

import httpx

from .client import Client
from .contract import calls, session_calls
from .contract.call import Call, T, shown_as
from .openwop.blocking import OpenWopMemory
from .openwop.memory import AsyncOpenWopMemory
from .transport import transfers
from .transport.exchange import Exchange, finished
from .transport.retries import Timing

P = ParamSpec("P")


class _Backend:
    """httpx on the calling thread."""

    def __init__(self, http: httpx.Client, sleep: Callable[[float], None]) -> None:
        self._http = http
        self._sleep = sleep

    async def send(self, request: httpx.Request, seconds: float) -> httpx.Response:  # noqa: ARG002
        return self._http.send(request, stream=True)

    async def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        for chunk in response.iter_bytes():
            yield chunk

    async def close(self, response: httpx.Response) -> None:
        response.close()

    async def sleep(self, seconds: float) -> None:
        self._sleep(seconds)

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)


def _calling(function: Callable[P, Call[T]]) -> Callable[Concatenate["MemoryClient", P], T]:
    """The method that sends the function's call."""

    def send(self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finished(self._exchange.send(function(*args, **kwargs)))

    return shown_as(function, send)


def _transferring(
    work: Callable[Concatenate[Exchange, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["MemoryClient", P], T]:
    """The method that does the work."""

    def do(self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finished(work(self._exchange, *args, **kwargs))

    return shown_as(work, do, beside=1)


def _streaming(
    work: Callable[Concatenate[Exchange, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["MemoryClient", P], Generator[T, None, None]]:
    """The method that yields what the work does."""

    def stream(
        self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        chunks = work(self._exchange, *args, **kwargs)
        try:
            while True:
                try:
                    chunk = finished(chunks.__anext__())
                except StopAsyncIteration:
                    return
                yield chunk
        finally:
            finished(chunks.aclose())

    return shown_as(work, stream, beside=1)


class MemoryClient(Client[httpx.BaseTransport]):
    """A client of a running service that blocks; many threads may share it.

    Use it in `with`, or call `close` at the end. `Client` documents its parameters.
    """

    _timing: ClassVar[Timing[None]] = Timing(sleep=time.sleep)

    def _backend(
        self, transport: httpx.BaseTransport | None, verify: ssl.SSLContext | bool
    ) -> _Backend:
        self._http = httpx.Client(transport=transport, verify=verify, trust_env=False)
        return _Backend(self._http, self._timing.sleep)

    @property
    def openwop(self) -> OpenWopMemory:
        """Memory of workflow runs, after OpenWOP."""
        return OpenWopMemory(AsyncOpenWopMemory(self._exchange))

    def close(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    save = _calling(calls.save)
    get = _calling(calls.get)
    recent = _calling(calls.recent)
    history = _calling(calls.history)
    restore = _calling(calls.restore)
    update = _calling(calls.update)
    confirm = _calling(calls.confirm)
    review = _calling(calls.review)
    delete = _calling(calls.delete)
    search = _calling(calls.search)
    context = _calling(calls.context)
    timeline = _calling(calls.timeline)
    stats = _calling(calls.stats)
    sessions = _calling(session_calls.sessions)
    start_session = _calling(session_calls.start_session)
    append_messages = _calling(session_calls.append_messages)
    end_session = _calling(session_calls.end_session)
    health = _calling(calls.health)
    export = _streaming(transfers.export)
    export_to = _transferring(transfers.export_to)
    import_from = _transferring(transfers.import_from)
    plan_import = _transferring(transfers.plan_import)
