"""The service as a process: it listens, opens, serves, drains and ends."""

import asyncio
import gc
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import uvicorn
from starlette.types import ASGIApp

from . import __version__
from .errors import SettingRefused
from .http.http_limits import LimitedProtocol
from .http.middleware import StartupGate, guarded
from .http.protocol import Protocol
from .light import dataclass, replace
from .settings import IN_WORKING_FOLDER, Address, Settings, file
from .telemetry import Telemetry, show_banner

if TYPE_CHECKING:
    from .openwop.routes import OpenWopOperations

T = TypeVar("T")

log = logging.getLogger(__name__)

# Longer than the clients' pools keep an idle connection (Go: 90 s): a request
# that meets a closing connection fails, and the agent runtime does not retry.
KEEP_ALIVE = timedelta(seconds=120)
GRACE = timedelta(seconds=15)  # in which accepted requests are finished
LOOK = timedelta(milliseconds=10)  # after which it is looked again whether they are
SECOND = timedelta(seconds=1)  # that which the header Date counts in
BACKLOG = 2048  # connections that wait to be accepted: a burst of agents, as uvicorn's default
YOUNG = 700  # objects, new ones, until garbage is looked for: short pauses, none in a start


def _protocols() -> Sequence[Protocol]:
    """The protocols, imported when first needed: a probe is answered before that."""
    from .compose import PROTOCOLS  # noqa: PLC0415 - half of the time of a start

    return PROTOCOLS


async def serve(settings: Settings, of_openwop: "OpenWopOperations | None" = None) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends the drain.

    Raises StartRefused or SettingRefused, with a sentence, when it cannot start.
    """
    signals = _Signals()
    telemetry = Telemetry.started(settings.otlp_endpoint, settings.otlp_protocol)
    try:
        async with AsyncExitStack() as stack:
            starting = stack.enter_async_context(running(settings, telemetry, of_openwop))
            service = await signals.unless_one_comes(starting)
            if service is not None:
                gc.collect(0)  # what probes left that came meanwhile
                gc.freeze()  # what is there now stays: no request waits until it is looked through
                gc.set_threshold(YOUNG)
                _announce(settings, service.address)
                received = await signals.received.get()
                service.gate.drain()
                if received == signal.SIGTERM:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(settings.drain.total_seconds()):
                            await signals.received.get()
    finally:
        telemetry.stop()
    log.info("stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A service that answers, and where."""

    address: Address
    gate: StartupGate


@asynccontextmanager
async def running(
    settings: Settings,
    telemetry: Telemetry,
    of_openwop: "OpenWopOperations | None" = None,
    *,
    clock: Callable[[], datetime] | None = None,
    elapsed: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Running]:
    """The service on its socket. At the end it finishes what was accepted, then closes."""
    gate = StartupGate(_protocols)
    app = guarded(gate, _protocols, telemetry.metrics, settings)
    async with (
        _listening(app, gate, settings.listen) as server,
        # Imported in a thread, as above.
        (await asyncio.to_thread(import_module, ".compose", __package__)).opened(
            replace(settings, listen=replace(settings.listen, port=server.address.port)), telemetry,
            of_openwop=of_openwop, clock=clock, elapsed=elapsed, on_wait=gate.wait,
            on_upgrade=gate.upgrade,
        ) as application,
    ):  # fmt: skip
        gate.open(application, application.early, application.early_posts)
        try:
            yield Running(address=server.address, gate=gate)
        finally:
            await server.finish()


class _Signals:
    """The signals that ask the process to end, in order."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._starting: asyncio.Task[Any] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        self.received.put_nowait(number)
        if self._starting is not None:
            self._starting.cancel()

    async def unless_one_comes(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What work answers; None, and work is cancelled, if a signal comes before."""
        self._starting = task = asyncio.create_task(work)
        try:
            return await task
        except asyncio.CancelledError:
            if self.received.empty():
                raise
            return None
        finally:
            self._starting = None


class _Server(uvicorn.Server):
    """uvicorn's server under our own signals: it would raise SIGTERM again at the end."""

    def __init__(self, application: ASGIApp, gate: StartupGate, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http=partial(LimitedProtocol, gate=gate),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",  # of its start and its end we tell ourselves
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=int(KEEP_ALIVE.total_seconds()),
            )
        )
        host, port = listener.getsockname()[:2]
        self.address = Address(host=host, port=port)
        self._ending = asyncio.Event()
        self._serving = asyncio.create_task(self.serve([listener]))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def finish(self) -> None:
        """Finish what was accepted, and stop listening."""
        self.should_exit = True
        self._ending.set()
        await self._serving

    async def main_loop(self) -> None:
        """Until the end, a new Date each second; uvicorn's own looks for it ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(SECOND.total_seconds()):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and finish what was; uvicorn's own takes a tenth of a second or more."""
        for listening in [*self.servers, *(sockets or ())]:
            listening.close()
        state = self.server_state
        if state.connections:
            log.info("finishing accepted requests")
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE.total_seconds()):
                while True:
                    for connection in list(state.connections):
                        connection.shutdown()  # once it has its answer
                    await asyncio.sleep(LOOK.total_seconds())
                    if not (state.connections or state.tasks):
                        return
        # What did not come to its end, ends as if the clients had left, or else by force.
        left = {"requests": len(state.tasks), "connections": len(state.connections)}
        log.error("unfinished requests were cut off", extra=left)
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(LOOK.total_seconds())
        for task in state.tasks:
            task.cancel()


@asynccontextmanager
async def _listening(app: ASGIApp, gate: StartupGate, address: Address) -> AsyncIterator[_Server]:
    server = _Server(app, gate, _listener(address))
    try:
        yield server
    finally:
        gate.close()
        await server.finish()


def _listener(address: Address) -> socket.socket:
    try:
        listener = _bound(address)
    except (OSError, UnicodeError) as error:  # a name too long for the resolver is the latter
        # What follows in it repeats the address.
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise SettingRefused(f"MEMORY_LISTEN: {address} cannot be used: {reason}.") from error
    # Connections inherit it; without it an answer in two writes waits 40 ms for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _bound(address: Address) -> socket.socket:
    """A socket on the address; without a host, on every interface of both families."""
    if not address.host and socket.has_dualstack_ipv6():
        every = ("::", address.port)
        return socket.create_server(
            every, family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
        )
    family, _, _, _, bindable = socket.getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(bindable, family=family, backlog=BACKLOG)


def _announce(settings: Settings, address: Address) -> None:
    host = {"::": "0.0.0.0"}.get(address.host, address.host)  # noqa: S104 - printed, not bound
    bound = Address(host=host, port=address.port)
    data = "PostgreSQL" if settings.database_url else str(settings.db_path)
    is_by_folder = data == str(file(IN_WORKING_FOLDER))  # elsewhere a start would find no memory
    note = " (below the current folder; --db selects another file)" if is_by_folder else ""
    if show_banner(
        f"agentops-memory {__version__}",
        {
            "address": f"http://{bound}",
            "data": data + note,
            "documentation": f"http://{bound}/docs",
            "try it": "agentops-memory demo, in another terminal",
            "stop it": "Ctrl-C",
        },
    ):
        return
    log.info(
        "serving on http://%s, data in %s, every write %s before it is answered", bound, data,
        "committed" if settings.database_url else "on disk",
        extra={"version": __version__, "listen": str(bound), "db": data},
    )  # fmt: skip
