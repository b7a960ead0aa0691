"""Either client in a test, on a road where things happen: one fixture, the same cases."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from inspect import isasyncgen, isawaitable
from typing import Any, cast

import httpx

from agentops_memory_client import AsyncMemoryClient, MemoryClient
from agentops_memory_client.client import Timing
from agentops_memory_client.contract.service import Awaited

from .service import Service

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
    time, is_blocking = time or Time(), kind == "blocking"
    timing = Timing(
        sleep=time.sleep if is_blocking else time.slept,
        clock=lambda: time.now, random=lambda: time.chance,
    )  # fmt: skip
    base = MemoryClient if is_blocking else AsyncMemoryClient
    transport = None if road is None else httpx.MockTransport(road)
    client: Any = type("Client", (base,), {"_timing": timing})(url, transport=transport, **options)
    if is_blocking:
        with client:
            yield client
        return
    with asyncio.Runner() as runner:
        try:
            yield cast(MemoryClient, _Waited(client, runner))
        finally:
            runner.run(client.aclose())


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
        return _Waited(value, self._runner) if isinstance(value, Awaited) else value

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


@contextmanager
def saying(answer: bytes, *, reset: bool = False, pause: float = 0) -> Iterator[str]:
    """The url of something that says this to any request, and goes; with a pause before each byte.

    After a long pause it never says anything.
    """
    over_ = threading.Event()

    def say(listener: socket.socket) -> None:
        with suppress(OSError):  # the listener is shut down
            while True:
                connection, _ = listener.accept()
                with connection, suppress(ConnectionError):
                    connection.recv(1 << 16)
                    for part in [bytes([byte]) for byte in answer] if pause else [answer]:
                        if over_.wait(pause):
                            break
                        connection.sendall(part)
                    if reset:
                        linger = b"\1\0\0\0\0\0\0\0"
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=say, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over_.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
