"""`MemoryClient`: each question waits for its answer.

What is asked is the same work as for `AsyncMemoryClient`. Its coroutines never
suspend here, as this line blocks instead; so each is done in one step.
"""

import ssl
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

import httpx

from . import transfers
from .client import Client
from .contract import calls
from .contract.call import Call, shown_as
from .exchange import Exchange
from .retries import Surroundings

T = TypeVar("T")
P = ParamSpec("P")


class _Line:
    """Bytes by httpx, on the thread that asks."""

    def __init__(self, http: httpx.Client, sleep: Callable[[float], None]) -> None:
        self._http = http
        self._sleep = sleep

    async def open(self, request: httpx.Request, seconds: float) -> httpx.Response:  # noqa: ARG002
        return self._http.send(request, stream=True)

    async def pieces(self, answer: httpx.Response) -> AsyncGenerator[bytes, None]:
        for piece in answer.iter_bytes():
            yield piece

    async def close(self, answer: httpx.Response) -> None:
        answer.close()

    async def sleep(self, seconds: float) -> None:
        self._sleep(seconds)

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)


def done(work: Coroutine[Any, Any, T]) -> T:
    """What work returns that never suspends."""
    try:
        work.send(None)
    except StopIteration as returned:
        answer: T = returned.value
        return answer
    raise AssertionError("The line of a blocking client has suspended.")


def blocking(question: Callable[P, Call[T]]) -> Callable[Concatenate["MemoryClient", P], T]:
    """The method that asks the question."""

    def ask(self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return done(self._exchange.ask(question(*args, **kwargs)))

    return shown_as(question, ask)


def transferring(
    work: Callable[Concatenate[Exchange, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["MemoryClient", P], T]:
    """The method that does the work."""

    def do(self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return done(work(self._exchange, *args, **kwargs))

    return shown_as(work, do, beside=1)


def streaming(
    work: Callable[Concatenate[Exchange, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate["MemoryClient", P], Generator[T, None, None]]:
    """The method that yields what the work does."""

    def stream(
        self: "MemoryClient", /, *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        pieces = work(self._exchange, *args, **kwargs)
        try:
            while True:
                try:
                    piece = done(pieces.__anext__())
                except StopAsyncIteration:
                    return
                yield piece
        finally:
            done(pieces.aclose())

    return shown_as(work, stream, beside=1)


class MemoryClient(Client[httpx.BaseTransport]):
    """A running service, of which each answer is waited for; many threads may ask at once.

    Use it in `with`, or call `close` at the end. What it is given, `Client` says.
    """

    _around: ClassVar[Surroundings[None]] = Surroundings(sleep=time.sleep)

    def _line(self, transport: httpx.BaseTransport | None, trusted: ssl.SSLContext | bool) -> _Line:
        self._http = httpx.Client(transport=transport, verify=trusted, trust_env=False)
        return _Line(self._http, self._around.sleep)

    def close(self) -> None:
        """Close the connections; nothing can be asked from then on."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    save = blocking(calls.save)
    get = blocking(calls.get)
    recent = blocking(calls.recent)
    history = blocking(calls.history)
    restore = blocking(calls.restore)
    update = blocking(calls.update)
    delete = blocking(calls.delete)
    search = blocking(calls.search)
    context = blocking(calls.context)
    timeline = blocking(calls.timeline)
    stats = blocking(calls.stats)
    sessions = blocking(calls.sessions)
    start_session = blocking(calls.start_session)
    append_messages = blocking(calls.append_messages)
    end_session = blocking(calls.end_session)
    health = blocking(calls.health)
    export = streaming(transfers.export)
    export_to = transferring(transfers.export_to)
    import_from = transferring(transfers.import_from)
    plan_import = transferring(transfers.plan_import)
