"""The service as a process: it listens, opens the storage, serves, drains and ends."""

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

from . import __version__
from .errors import SettingRefused
from .http.app import HttpService
from .http.http_limits import LimitedProtocol
from .http.protocol import Protocol
from .light import dataclass, replace
from .settings import Address, Settings
from .telemetry import BOLD, DIM, Telemetry, TextFormatter

if TYPE_CHECKING:
    from .openwop.routes import OpenWopOperations

T = TypeVar("T")

log = logging.getLogger(__name__)

# Longer than clients' pools keep an idle connection (Go: 90 s): a request on a closing connection
# fails, and the agent runtime does not retry.
KEEP_ALIVE = timedelta(seconds=120)
GRACE = timedelta(seconds=15)  # how long accepted requests may take to finish
POLL_INTERVAL = timedelta(milliseconds=10)  # between two checks whether they have finished
SECOND = timedelta(seconds=1)  # the resolution of the header Date
BACKLOG = 2048  # connections that may wait to be accepted in a burst; uvicorn's default
GC_THRESHOLD = 700  # new objects before a collection: short pauses, none during the start


def _protocols() -> Sequence[Protocol]:
    """Return the protocols, imported on first use, so that probes are answered before that."""
    from .compose import PROTOCOLS  # noqa: PLC0415 - takes half of the start

    return PROTOCOLS


async def serve(settings: Settings, of_openwop: "OpenWopOperations | None" = None) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends the drain.

    Raises StartRefused or SettingRefused, with a message, if the service cannot start.
    """
    signals = _Signals()
    telemetry = Telemetry.started(settings.otlp_endpoint, settings.otlp_protocol)
    try:
        async with AsyncExitStack() as stack:
            starting = stack.enter_async_context(running(settings, telemetry, of_openwop))
            started = await signals.unless_signaled(starting)
            if started is not None:
                gc.collect(0)  # the garbage of early probes
                gc.freeze()  # existing objects stay: no request waits for their collection
                gc.set_threshold(GC_THRESHOLD)
                _announce(settings, started.address)
                received = await signals.received.get()
                started.service.drain()
                if received == signal.SIGTERM:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(settings.drain.total_seconds()):
                            await signals.received.get()
    finally:
        telemetry.stop()
    log.info("stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running service and its address."""

    address: Address
    service: HttpService


@asynccontextmanager
async def running(
    settings: Settings,
    telemetry: Telemetry,
    of_openwop: "OpenWopOperations | None" = None,
    *,
    clock: Callable[[], datetime] | None = None,
    elapsed: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Running]:
    """Run the service on its socket; at the end finish accepted requests, then close."""
    service = HttpService(_protocols, telemetry.metrics, settings)
    async with (
        _listening(service, settings.listen) as server,
        # Imported on a thread, so that probes are answered meanwhile.
        (await asyncio.to_thread(import_module, ".compose", __package__)).opened(
            replace(settings, listen=replace(settings.listen, port=server.address.port)), telemetry,
            of_openwop=of_openwop, clock=clock, elapsed=elapsed, on_upgrade=service.upgrade,
        ) as application,
    ):  # fmt: skip
        service.open(application, application.early, application.early_posts)
        try:
            yield Running(address=server.address, service=service)
        finally:
            await server.finish()


class _Signals:
    """The received signals to end the process, in order."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._starting: asyncio.Task[Any] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number)

    def _receive(self, number: signal.Signals) -> None:
        self.received.put_nowait(number)
        if self._starting is not None:
            self._starting.cancel()

    async def unless_signaled(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`, or cancel it and return None if a signal comes first."""
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
    """uvicorn's server without its signal handling, which would raise SIGTERM again at the end."""

    def __init__(self, service: HttpService, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                service,
                http=partial(LimitedProtocol, service=service),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",  # its start and end are logged by us
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
        """Stop listening and finish accepted requests."""
        self.should_exit = True
        self._ending.set()
        await self._serving

    async def main_loop(self) -> None:
        """Update the header Date each second until the end; uvicorn does it ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(SECOND.total_seconds()):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting and finish requests; uvicorn's own method takes 0.1 s or more."""
        for listening in [*self.servers, *(sockets or ())]:
            listening.close()
        state = self.server_state
        if state.connections:
            log.info("finishing accepted requests")
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE.total_seconds()):
                while True:
                    for connection in list(state.connections):
                        connection.shutdown()  # after its response
                    await asyncio.sleep(POLL_INTERVAL.total_seconds())
                    if not (state.connections or state.tasks):
                        return
        # Unfinished requests end as if the clients had disconnected, or else by cancellation.
        left = {"requests": len(state.tasks), "connections": len(state.connections)}
        log.error("unfinished requests were cut off", extra=left)
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(POLL_INTERVAL.total_seconds())
        for task in state.tasks:
            task.cancel()


@asynccontextmanager
async def _listening(service: HttpService, address: Address) -> AsyncIterator[_Server]:
    server = _Server(service, _listener(address))
    try:
        yield server
    finally:
        service.close()
        await server.finish()


def _listener(address: Address) -> socket.socket:
    try:
        listener = _bound(address)
    except (OSError, UnicodeError) as error:  # UnicodeError if the resolver rejects a long name
        # The rest of the text repeats the address.
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise SettingRefused(f"MEMORY_LISTEN: {address} cannot be used: {reason}.") from error
    # Connections inherit it. Otherwise a response in two writes waits 40 ms for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _bound(address: Address) -> socket.socket:
    """Return a socket on the address; without a host, on all interfaces of both families."""
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
    """Log where the service listens, or show it as a banner if the log is text for people."""
    host = {"::": "0.0.0.0"}.get(address.host, address.host)  # noqa: S104 - printed, not bound
    bound = Address(host=host, port=address.port)
    data = "PostgreSQL" if settings.database_url else str(settings.db_path)
    handler = next(iter(logging.root.handlers), None)
    form = handler and handler.formatter
    if not (isinstance(handler, logging.StreamHandler) and isinstance(form, TextFormatter)):
        log.info(
            "serving on http://%s, data in %s, every write %s before it is answered", bound, data,
            "committed" if settings.database_url else "on disk",
            extra={"version": __version__, "listen": str(bound), "db": data},
        )  # fmt: skip
        return
    facts = {
        "address": f"http://{bound}",
        "data": data,
        "documentation": f"http://{bound}/docs",
        "try it": "agentops-memory demo, in another terminal",
        "stop it": "Ctrl-C",
    }
    title = form.styled(f"agentops-memory {__version__}", BOLD)
    rows = [f"  {form.styled(f'{name:<15}', DIM)}{fact}" for name, fact in facts.items()]
    handler.stream.write("\n".join(["", f"  {title}", *rows, "", ""]))
    handler.stream.flush()
