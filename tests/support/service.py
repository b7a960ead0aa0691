"""The real service for a test: its own file, its own socket, a clock that the test owns."""

import asyncio
import functools
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette import routing

from agentops_memory.openwop import routes as openwop
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.server import running
from agentops_memory.settings import Settings, settings
from agentops_memory.telemetry import Telemetry

from . import engines
from .engines import put_new_file

# Each service of a process has the same paths, and to compile them took an eleventh of the suite.
routing.compile_path = functools.cache(routing.compile_path)
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # what a client would load takes it 17 ms
Protocols = Callable[[Settings], openwop.OpenWopOperations]
"""What a service with these settings speaks as OpenWOP."""
START = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, at: datetime = START) -> None:
        self.now = at
        self._elapsed = 0.0

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        """Let time pass: `advance(minutes=5)`. To put the clock, set `now`."""
        self.now += timedelta(**by)
        self._elapsed += timedelta(**by).total_seconds()

    def elapsed(self) -> float:
        """The seconds that have passed, however the clock was put."""
        return self._elapsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running service, a client of it, and its file."""

    http: httpx.Client
    url: str
    path: Path
    clock: Clock

    def save(self, content: str, **fields: object) -> dict[str, object]:
        """The answer to a save of an observation with these fields and plain defaults."""
        body = observation(content, **fields)
        answer = self.http.post("/observations", json=body)
        assert answer.status_code == 201, answer.text
        saved: dict[str, object] = answer.json()
        return saved


def observation(content: str, **fields: object) -> dict[str, object]:
    """The body of a save."""
    return {
        "session_id": "s1", "type": "discovery", "title": content[:60], "content": content,
        "project": "demo",
    } | fields  # fmt: skip


@contextmanager
def serving(
    path: Path, *, clock: Clock | None = None, telemetry: Telemetry | None = None, **variables: str
) -> Iterator[Service]:
    """A service over the file, with environment variables (`MEMORY_DEDUPE_WINDOW="1h"`).

    A file that is missing is put there; the service makes it itself where its folder is missing.
    """
    with speaking(own_protocols, path, variables, clock=clock, telemetry=telemetry) as service:
        yield service


def lasting_with(fill: Callable[[Service], object] | None = None, **variables: str) -> Any:
    """A fixture: a service of a module, filled once, whose tests do not hinder each other."""

    @pytest.fixture(scope="module")
    def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
        with serving(tmp_path_factory.mktemp("lasting") / "memory.db", **variables) as running:  # type: ignore[arg-type]
            if fill:
                fill(running)
            yield running

    return lasting


lasting = lasting_with()


def own_protocols(_: Settings) -> openwop.OpenWopOperations:
    """What the service itself speaks."""
    return openwop.operations


@contextmanager
def speaking(
    protocols: Protocols, path: Path, variables: Mapping[str, str], *, clock: Clock | None = None,
    telemetry: Telemetry | None = None,
) -> Iterator[Service]:  # fmt: skip
    """The same, with other protocols."""
    own_clock = clock or Clock()
    environment = {"MEMORY_LISTEN": "127.0.0.1:0", **engines.storage_at(path), **variables}
    if not environment.get(engines.DATABASE_URL):
        put_new_file(path)
    spoken = telemetry or Telemetry.started(None)
    with (
        _running(settings(environment), protocols, own_clock, spoken) as url,
        engines.told_of(path, url),
        httpx.Client(base_url=url, timeout=120, verify=PLAIN) as http,
    ):
        yield Service(http=http, url=url, path=path, clock=own_clock)


@contextmanager
def _running(
    chosen: Settings, protocols: Protocols, clock: Clock, telemetry: Telemetry
) -> Iterator[str]:
    """The URL of a service whose event loop has a thread of its own."""
    ready: Future[tuple[str, Callable[[], object]]] = Future()

    async def serve() -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        async with running(
            chosen, telemetry, protocols(chosen), clock=clock, elapsed=clock.elapsed
        ) as service:
            stop = functools.partial(loop.call_soon_threadsafe, stopped.set)
            ready.set_result((f"http://{service.address}", stop))
            await stopped.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as failure:  # noqa: BLE001 - handed to the test's thread
            if not ready.done():
                ready.set_exception(failure)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        url, stop = ready.result(120)
    except BaseException:
        thread.join(120)
        raise
    try:
        yield url
    finally:
        stop()
        thread.join(120)
        assert not thread.is_alive()


def initialized(url: str) -> None:
    """Have what a service needs made in a database of PostgreSQL."""

    async def make() -> None:
        async with PostgresEngine.opened(url, clock=Clock()):
            pass

    asyncio.run(make())
