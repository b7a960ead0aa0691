"""The ASGI application: it routes requests, guards them, and answers probes at any time."""

import asyncio
import errno
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import cast

from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..engine.engine import Storage, noop
from ..errors import Denied, Refusal, Unavailable, reason
from ..light import dataclass, field
from ..memory.access import OPERATOR, Caller, Role
from ..settings import PORTS, Settings, canonical_origin
from ..telemetry import BEGAN, CALLER, SPAN, Metrics, Telemetry, noted, write
from ..telemetry.metrics import DAMAGED_ROWS, INDEX_DRIFT, REQUESTS_IN_FLIGHT
from .gate import BEGUN, SAFE, Endpoint, Gate, is_loopback, routes
from .protocol import READ, SENT, NoPath, Operation, Protocol, Served, protocol_at, template

HEALTH, LIVE, READY, STARTUP = "/health", "/health/live", "/health/ready", "/health/startup"

LOW_SPACE = 100 * 2**20  # free bytes on the disk below which an operator should act
NO_SPACE = 2**20  # free bytes below which a large write fails
LONG_LOG = 128 * 2**20  # bytes of a write-ahead log; normally it restarts long before
TIMEOUT = timedelta(seconds=3)  # of the test write; a probe waits for five seconds
RESULT_LIFETIME = timedelta(seconds=2)  # time until the next check, however frequent the probes

DRIFTED = "The index differed from the memories at the last check, and was rebuilt."
LOG_IS_LONG = "The write-ahead log is long; a read or another process prevents its restart."
DAMAGED = "Rows in the database are damaged, first {}; `agentops-memory doctor` names them."
DATABASE = "database"
MIGRATIONS = "migrations"


class Status(StrEnum):
    """The result of a check; with `failed`, the service cannot do its work."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Health(BaseModel):
    """GET /health."""

    status: str


class Check(BaseModel):
    """The result of a check with its details."""

    status: Status = Status.OK
    detail: str | None = None  # a sentence, unless the status is ok
    bytes: int | None = None
    rows: int | None = None


NO_STANDBY = Check(
    status=Status.WARNING,
    detail="No synchronous standby is named (synchronous_standby_names), so acknowledged writes "
    "can be lost with the database's machine.",
)


class Readiness(BaseModel):
    """GET /health/ready."""

    status: Status
    error: str | None = None  # the sentence of the first failed check
    checks: dict[str, Check]


@dataclass(slots=True, kw_only=True)
class Probes:
    """The operations for probes of a service that has started."""

    storage: Storage
    metrics: Metrics
    backup_trouble: Callable[[], str | None] | None = None  # None: backups are off
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _newest: Readiness | None = None
    _next_check: float = 0.0

    @property
    def operations(self) -> list[Operation]:
        async def ok(_: Request) -> Response:
            return healthy()

        async def ready(_: Request) -> Response:
            return _answer(await self.readiness())

        probe = partial(Operation, method="GET", refusals=(503,), handler=ok, answer=Health)
        return [
            probe(path=HEALTH, name="health", summary="Whether the service runs."),
            probe(path=LIVE, name="live", summary="Whether the process answers."),
            probe(path=STARTUP, name="startup", summary="Whether the service has started."),
            probe(
                path=READY, name="ready", handler=ready, answer=Readiness,
                summary="Whether the service can do its work, with the result of each check.",
            ),
        ]  # fmt: skip

    async def readiness(self) -> Readiness:
        """Return the result of each check, at most two seconds old."""
        async with self._lock:
            now = asyncio.get_running_loop().time
            if self._newest is None or now() >= self._next_check:
                self._newest = _readiness(await self._checks())
                self._next_check = now() + RESULT_LIFETIME.total_seconds()
            return self._newest

    async def _checks(self) -> dict[str, Check]:
        checks = await self._database_checks()
        if self.storage.maintenance.has_files:
            sizes = await self.storage.maintenance.sizes(OPERATOR)
            log, free = sizes.log or 0, sizes.free
            if free is None:
                checks["disk"] = _failed("The free disk space cannot be determined.")
            elif free < NO_SPACE:
                checks["disk"] = _failed("The disk is full.", bytes=free)
            else:
                trouble = "The disk is nearly full." if free < LOW_SPACE else None
                checks["disk"] = _warned(trouble, bytes=free)
            checks["wal"] = _warned(LOG_IS_LONG if log >= LONG_LOG else None, bytes=log)
        drift = int(self.metrics.value_of(INDEX_DRIFT))
        checks["index"] = _warned(DRIFTED if drift else None, rows=drift)
        if self.backup_trouble:
            checks["backup"] = _warned(self.backup_trouble())
        return checks

    async def _database_checks(self) -> dict[str, Check]:
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                probe = await self.storage.probe()
        except (TimeoutError, Refusal) as error:
            is_late = isinstance(error, TimeoutError)
            late = f"A write took longer than {TIMEOUT.total_seconds():.0f} s."
            return {DATABASE: _failed(late if is_late else str(error)), MIGRATIONS: Check()}
        damaged, migrations = probe.damaged_rows, Check()
        self.metrics.show(DAMAGED_ROWS, len(damaged))
        # A warning: all other rows are served, and after a failed check, no request would arrive.
        # The detail names a row by its table and id, not by user data, so probes need no key.
        rows = _warned(DAMAGED.format(damaged[0]), rows=len(damaged)) if damaged else Check()
        if not probe.has_newest_format:
            migrations = _failed("Another version of the program has changed the database.")
        standby = {"standby": NO_STANDBY} if probe.lacks_standby else {}
        return {DATABASE: rows, MIGRATIONS: migrations, **standby}


def _warned(trouble: str | None, **counts: int) -> Check:
    return Check(status=Status.WARNING if trouble else Status.OK, detail=trouble, **counts)


def _failed(detail: str, **counts: int) -> Check:
    return Check(status=Status.FAILED, detail=detail, **counts)


def _readiness(checks: dict[str, Check]) -> Readiness:
    for status in (Status.FAILED, Status.WARNING):
        details = [check.detail for check in checks.values() if check.status is status]
        if details:
            error = details[0] if status is Status.FAILED else None
            return Readiness(status=status, error=error, checks=checks)
    return Readiness(status=Status.OK, checks=checks)


def _answer(readiness: Readiness) -> Response:
    status = 503 if readiness.status is Status.FAILED else 200
    return JSONResponse(readiness.model_dump(mode="json", exclude_none=True), status)


def healthy() -> Response:
    return JSONResponse({"status": "ok"})


def _refused(sentence: str) -> Response:
    return JSONResponse({"error": sentence}, 503)


def _unready(check: str, detail: str) -> Response:
    return _answer(_readiness({check: _failed(detail)}))


_STOPPING = "The service is stopping."

ProbeAnswers = Mapping[str, Response]
"""Responses to probes, by their path."""

WHILE_STARTING: ProbeAnswers = {
    # An upgrade may take long, and a liveness probe on /health must not abort it half-way.
    HEALTH: healthy(),
    LIVE: healthy(),
    STARTUP: _refused("The service is starting."),
    READY: _unready(MIGRATIONS, "The database is being opened or upgraded."),
}
"""Responses to probes before the database is open."""

WHILE_STOPPING: ProbeAnswers = {
    HEALTH: _refused(_STOPPING),
    READY: _unready("service", _STOPPING),
}

CONSOLE = "/ui"  # the root redirects browsers here
FAILED = 500  # the server's response if the application raises
NO_FILE_LEFT = (errno.EMFILE, errno.ENFILE)
REQUEST_IDS = (b"request-id", b"x-request-id")  # response headers by which clients report a request
_AUTHORITY = re.compile(r"(?P<host>\[[^\]\s]+\]|[^:\[\]\s]+)(?::\d*)?", re.ASCII)
METHODS = ("GET", "POST", "PATCH", "PUT", "DELETE")
START_TIMEOUT = timedelta(seconds=5)  # longest time that a request waits for the service to open
MOST_WAITING = 256  # waiting requests; each keeps its headers and 64 KiB of its body in memory

FOREIGN = (
    "This page's origin may not call the service; MEMORY_ALLOWED_ORIGINS lists the allowed origins."
)
HIDDEN = "null"  # the Origin header of a browser that hides the origin
RENAMED = "A service on this machine alone answers to localhost, 127.0.0.1 and [::1] only."

# For browsers: a response is data, never a page, a script, a frame or a cached copy.
ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

Headers = Sequence[tuple[bytes, bytes]]

Early = Callable[[bytes, Headers, bytes, str], bytes | None]
"""Renders the whole response to a GET: (path and query, headers, Date line, client address).

The address is for the log. Returns None to leave the request to the application."""
Body = Callable[[], Awaitable[tuple[bytes, bool] | None]]
"""Returns the whole body, and whether it was waited for; None if the body is long or late."""
EarlyPost = Callable[[Scope, Body], Awaitable[tuple[int, Headers, bytes] | None]]
"""Returns the status, the headers and the body of a response to a POST; or None."""
NONE: Mapping[str, EarlyPost] = {}


Protocols = Callable[[], Sequence[Protocol]]
"""Imports the protocols. This takes long, so it waits for the first request other than a probe."""

log = logging.getLogger(__name__)


class HttpService:
    """The ASGI application, from before the storage is open until all requests are answered.

    While the service starts, probes are answered at once, /health with 200, so that no probe aborts
    an upgrade half-way. Other requests wait until the service is open, with their bodies unread.
    They are refused with 503 if the start takes too long, if too many requests wait, during an
    upgrade, and while another service has the database. While the service drains, /health and
    /health/ready fail, and all other requests are served.

    Browsers send a page's origin with every request that is not a simple embed. An origin that
    is neither the service's own nor allowed is refused with 403; an allowed origin may read the
    responses, and send and read the headers of the protocols. A service on loopback refuses other
    Host names with 403: with DNS rebinding, a page whose name resolves to 127.0.0.1 would count as
    the service's own origin.

    Each request is measured and logged, and each response has the headers `ALWAYS`.
    """

    def __init__(self, protocols: Protocols, metrics: Metrics, settings: Settings) -> None:
        self._protocols, self._metrics = protocols, metrics
        self._names, self._allowed = local_names(settings.listen.host), settings.allowed_origins
        self._application: ASGIApp | None = None
        # These answer requests without the application.
        self.early: Early = noop
        self.early_posts = NONE
        self._probes = WHILE_STARTING
        self._refusal = Unavailable("The service is starting; try again.")
        self._no_wait = asyncio.Event()  # set while requests are served or refused at once
        self._waiting = 0
        self._app: ASGIApp = self._serve
        if self._allowed:
            *others, last = protocols()
            read = dict.fromkeys(chain(last.read, *(it.read for it in others), READ))
            self._app = CORSMiddleware(
                self._serve,
                allow_origins=self._allowed,
                allow_methods=METHODS,
                allow_headers={*SENT, *chain.from_iterable(each.sent for each in protocols())},
                expose_headers=[*read],
                allow_private_network=True,  # pages from other machines may call this one
            )
        metrics.look_up(REQUESTS_IN_FLIGHT, lambda: metrics.in_flight)

    def upgrade(self) -> None:
        """Refuse requests until the service is open: an upgrade may take any time."""
        self._no_wait.set()

    def open(
        self,
        application: ASGIApp,
        early: Early = noop,
        early_posts: Mapping[str, EarlyPost] = NONE,
    ) -> None:
        """Serve all requests by the application from now on, including the waiting requests."""
        self._application, self._probes = application, {}
        self.early, self.early_posts = early, early_posts
        self._no_wait.set()

    def drain(self) -> None:
        """Fail the health and readiness probes from now on, so that no more requests arrive."""
        self._probes = WHILE_STOPPING
        self.early, self.early_posts = noop, NONE

    def close(self) -> None:
        """Refuse waiting and later requests, if the service stops before it was open."""
        self.drain()
        self._refusal = Unavailable("The service is stopping; try again.")
        self._no_wait.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = scope.get(BEGAN, time.perf_counter()), FAILED
        headers: Mapping[bytes, bytes] = {}

        def sent(message: Message) -> Awaitable[None]:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                every, scope[BEGUN] = message.get("headers", ()), True
                status, headers = message["status"], dict(every)
                message["headers"] = [*every, *(it for it in ALWAYS if it[0] not in headers)]
            return send(message)

        SPAN.set(None)
        self._metrics.in_flight += 1
        try:
            forbidden = self._forbidden(scope)
            answer = self._app
            if forbidden:
                protocol = protocol_at(scope["path"], self._protocols())
                answer = protocol.refused(Denied(forbidden), scope)
            await answer(scope, receive, sent)
        finally:
            self._metrics.in_flight -= 1
            client, caller = scope.get("client"), cast("Caller | None", scope.get(CALLER))
            known = (caller.tenant, caller.key_name) if caller else ()
            ids = (headers[name].decode("latin-1") for name in REQUEST_IDS if name in headers)
            write(noted(
                scope["path"], time.perf_counter() - began, self._metrics, SPAN.get(),
                (client[0] if client else "", *known), method=scope["method"], status=status,
                route=_route_of(scope), request_id=next(ids, ""),
            ))  # fmt: skip

    def _forbidden(self, scope: Scope) -> str | None:
        """Return why a web page, or a request by this Host name, may not call the service."""
        hosts, origins = (
            [value.decode("latin-1") for name, value in scope["headers"] if name == header]
            for header in (b"host", b"origin")
        )
        if self._names is not None and any(host_of(host) not in self._names for host in hosts):
            return RENAMED
        if origins == [HIDDEN] and protocol_at(scope["path"], self._protocols()).has_forms:
            return None
        if not all(is_welcome(origin, hosts, self._allowed) for origin in origins):
            return FOREIGN
        return None

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, by the application once it is open."""
        answer: ASGIApp | None = self._probes.get(scope["path"])
        if answer is None:
            if self._application is None and self._waiting < MOST_WAITING:
                await self._wait_until_open()
            answer = self._application
        if answer is None:
            protocol = protocol_at(scope["path"], self._protocols())
            answer = protocol.refused(self._refusal, scope)
        await answer(scope, receive, send)

    async def _wait_until_open(self) -> None:
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_TIMEOUT.total_seconds()):
                    await self._no_wait.wait()
        finally:
            self._waiting -= 1


class Application:
    """Finds the operation for a request, and turns refusals and failures into responses.

    The last protocol takes all paths that no other protocol has; `more` are routes outside the
    protocols. Unmatched requests, and failures before the response starts, get the refusal format
    of the path's protocol. A failure in the middle of a response leaves it incomplete, and the
    server closes the connection, so that no client takes a part for the whole.
    """

    def __init__(
        self, served: Sequence[Served], more: Sequence[Route], gate: Gate, telemetry: Telemetry
    ) -> None:
        self.early: Early = noop
        self.early_posts = NONE
        self.routes = [*more]
        for protocol, operations in reversed(served):
            self.routes += routes(protocol, operations, gate, telemetry)
        self._protocols = [protocol for protocol, _ in served]
        self._gate = gate
        # By method, with the start of the path that needs no pattern: it rules most routes out.
        self._by_method: dict[str, list[tuple[str, Route]]] = {}
        for route in self.routes:
            for method in route.methods or ():
                start = route.path.partition("{")[0]
                self._by_method.setdefault(method, []).append((start, route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoint(scope)
        try:
            answer = endpoint or self._unmatched(Request(scope))
            await answer(scope, receive, send)
        except Exception as error:
            refusal, name = _refusal_of(error), scope["path"]
            protocol = protocol_at(name, self._protocols)
            if isinstance(endpoint, Endpoint):
                protocol, name = endpoint.protocol, endpoint.operation.name
            if BEGUN not in scope:
                answer = protocol.refused(refusal or InternalError(), scope)
                await answer(scope, receive, send)
            elif refusal:
                fields = {"operation": name, "reason": str(refusal)}
                log.warning("response incomplete", extra=fields)
            if refusal is None:
                raise  # and the server logs it

    def _endpoint(self, scope: Scope) -> ASGIApp | None:
        path = scope["path"]
        for start, route in self._by_method.get(scope["method"], ()):
            if path.startswith(start):
                match, known = route.matches(scope)
                if match is Match.FULL:
                    scope.update(known)
                    return route.app
        return None

    def _unmatched(self, request: Request) -> Response:
        """Return the response to a request that no operation takes."""
        scope, protocol = request.scope, protocol_at(request.scope["path"], self._protocols)
        # A path may have one route per method.
        matches = [
            (route, known)
            for route in self.routes
            for match, known in [route.matches(scope)]
            if match is not Match.NONE
        ]
        if matches:
            scope.update(matches[0][1])
        elif scope["path"] == "/" and request.method in SAFE and is_browser(request):
            return RedirectResponse(CONSOLE)
        caller = self._gate.admit(
            request, Role.READER, is_authorization_only=protocol.is_authorization_only
        )
        if protocol.is_closed:
            protocol.require(request, caller)
        if not matches:
            return protocol.refused(NoPath(), scope)
        response = protocol.refused(MethodNotAllowed(), scope)
        methods = set[str]().union(*(route.methods or () for route, _ in matches))
        response.headers["Allow"] = ", ".join(sorted(methods))
        return response


class MethodNotAllowed(Refusal):
    code, sentence = "no_method", "This path does not support this method."


class InternalError(Refusal):
    code, sentence = "failed", "The service failed; the log has the reason."


def _refusal_of(error: Exception) -> Refusal | None:
    """Return the error as a refusal; None for a fault of the service."""
    if isinstance(error, OSError) and error.errno in NO_FILE_LEFT:
        # Retryable: the cause is the number of open connections.
        log.warning("too many files are open", extra={"reason": reason(error)})
        return Unavailable("Too many files are open; try again.")
    return error if isinstance(error, Refusal) else None


def is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def host_of(authority: str) -> str | None:
    """Return the host of a Host header in lower case, without the port; None if malformed."""
    match = _AUTHORITY.fullmatch(authority)
    return match["host"].lower() if match else None


def is_welcome(origin: str, hosts: Collection[str], allowed: Collection[str]) -> bool:
    """Whether a page of this origin may call the service under these Host names.

    The service's own origin is its name with http or https, because a proxy may add TLS. A
    hidden origin (`null`) is never welcome.
    """
    page = canonical_origin(origin)
    if page is None or page in allowed:
        return page is not None
    return bool(hosts) and any(
        all(canonical_origin(f"{scheme}://{host}") == page for host in hosts) for scheme in PORTS
    )


def local_names(host: str) -> frozenset[str] | None:
    """Return the Host names of a service that listens on this host; None allows any name.

    On loopback: localhost, 127.0.0.1, [::1] and the host itself.
    """
    if not is_loopback(host):
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host})


def _route_of(scope: Scope) -> str:
    """Return the path template of the request's route; `none` if no route matched."""
    endpoint = scope.get("endpoint")
    if isinstance(endpoint, Endpoint):
        return template(endpoint.operation.path)
    path: str = scope["path"]  # with a line feed at its end, it also matches a route
    return path if (endpoint and path.isprintable()) or path in WHILE_STARTING else "none"
