"""Either client in a test, on a road where things happen: one fixture, the same cases."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from inspect import isasyncgen, isawaitable
from typing import Any, cast

import httpx

from agentops_memory_client import AsyncMemoryClient, MemoryClient
from agentops_memory_client.contract.service import Awaited
from agentops_memory_client.transport import Timing

from .service import Service

PARTS = Awaited  # parts of a client, which are awaited as well
KINDS = ("blocking", "awaiting")

Answering = Callable[[httpx.Request], httpx.Response]
Happening = Exception | Answering


@dataclass(slots=True)
class Time:
    """Seconds that pass when a client waits, and how long it did each time."""

    now: float = 0.0
    chance: float = 1.0  # the longest waits
    waits: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    async def slept(self, seconds: float) -> None:
        self.sleep(seconds)


@dataclass(slots=True)
class Road:
    """What happens to each request, in turn; the last of it happens to all that follow."""

    happenings: Sequence[Happening]
    requests: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        place = min(len(self.requests), len(self.happenings) - 1)
        self.requests.append(request)
        happening = self.happenings[place]
        if isinstance(happening, Exception):
            raise happening
        return happening(request)

    @property
    def keys(self) -> list[str | None]:
        """The idempotency keys of the requests."""
        return [request.headers.get("idempotency-key") for request in self.requests]


@contextmanager
def asking(
    kind: str, url: str = "http://memory.test", *, road: Answering | None = None,
    time: Time | None = None, **options: Any,
) -> Iterator[MemoryClient]:  # fmt: skip
    """A client of either kind, of which every answer is waited for."""
    transport = None if road is None else httpx.MockTransport(road)
    time = time or Time()
    if kind == "blocking":
        with _blocking(time)(url, transport=transport, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        awaiting = _awaiting(time)(url, transport=transport, **options)
        try:
            yield cast(MemoryClient, _Waited(awaiting, runner))
        finally:
            runner.run(awaiting.aclose())


def over(service: Service, *, lost: bool = False) -> Answering:
    """The way to a real service, on which its answer may get lost."""

    def forwarded(request: httpx.Request) -> httpx.Response:
        answer = service.http.request(
            request.method,
            httpx.URL(service.url).copy_with(raw_path=request.url.raw_path),
            headers={k: v for k, v in request.headers.items() if k != "host"},
            content=request.read(),
        )
        if lost:
            raise httpx.ReadError("cut")
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    return forwarded


def answering(status: int = 200, json: object = None, **parts: Any) -> Answering:
    """What says this, in JSON or as `content` or `html`, to every request."""
    said = parts if json is None else {"json": json, **parts}
    return lambda _: httpx.Response(status, **said)


class _Waited:
    """A client that is awaited, or a part of one, on a loop of its own, as one that waits."""

    def __init__(self, client: object, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __repr__(self) -> str:
        return repr(self._client)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return self._shown(found)

        def wait(*args: object, **kwargs: object) -> object:
            answer = found(*args, **kwargs)
            if isasyncgen(answer):
                return self._each(answer)
            if not isawaitable(answer):
                return self._shown(answer)
            return self._runner.run(cast(Any, answer), context=copy_context())

        return wait

    def __enter__(self) -> "_Waited":
        self._runner.run(cast(Any, self._client).__aenter__())
        return self

    def __exit__(self, *exception: object) -> None:
        self._runner.run(cast(Any, self._client).__aexit__(*exception))

    def _shown(self, value: object) -> object:
        return _Waited(value, self._runner) if isinstance(value, PARTS) else value

    def _each(self, pieces: Any) -> Iterator[object]:
        try:
            while True:
                try:
                    yield self._runner.run(_next(pieces))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(pieces.aclose())


async def _next(pieces: Any) -> object:
    return await anext(pieces)


def _blocking(time: Time) -> type[MemoryClient]:
    class Client(MemoryClient):
        _timing = Timing(sleep=time.sleep, clock=lambda: time.now, random=lambda: time.chance)

    return Client


def _awaiting(time: Time) -> type[AsyncMemoryClient]:
    class Client(AsyncMemoryClient):
        _timing = Timing(sleep=time.slept, clock=lambda: time.now, random=lambda: time.chance)

    return Client


@contextmanager
def saying(answer: bytes, *, reset: bool = False) -> Iterator[str]:
    """The url of something that says this to whoever asks, and goes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_say, args=(listener, answer, reset))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _say(listener: socket.socket, answer: bytes, reset: bool) -> None:
    with suppress(OSError):  # the listener is shut down
        while True:
            connection, _ = listener.accept()
            with connection, suppress(ConnectionError):
                connection.recv(1 << 16)
                connection.sendall(answer)
                if reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@contextmanager
def silence() -> Iterator[str]:
    """The url of something that takes every request and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def dripping() -> Iterator[str]:
    """The url of something that says the head of its answer byte by byte, for some seconds."""
    gone = threading.Event()

    def drip(listener: socket.socket) -> None:
        with closing(listener.accept()[0]) as connection, suppress(OSError):
            for byte in b"H" * 500:
                if gone.wait(0.01):
                    break
                connection.sendall(bytes([byte]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        speaker = threading.Thread(target=drip, args=(listener,))
        speaker.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            gone.set()
            speaker.join()
