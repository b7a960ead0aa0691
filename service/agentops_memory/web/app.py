"""The application: what a request passes, routes side by side, JSON for every refusal."""

import asyncio
import errno
import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from itertools import chain

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..api.kit.endpoint import Endpoint, Gate, routes
from ..api.kit.protocol import READ, SENT, Operation, Protocol, Services, protocol_at
from ..api.kit.refusals import Failed, NoMethod, NoPath
from ..domain.errors import Denied, Refusal, Unavailable
from ..domain.model.access import Role
from ..domain.secrets.sanitizing import reason
from ..telemetry import Metrics, Requests, Telemetry
from .docs import DocsEndpoints
from .health import AS_USUAL, WHILE_STARTING, WHILE_STOPPING, Told, while_waiting
from .origins import local_names
from .security_headers import Origins, SecurityHeaders

START_TIMEOUT = timedelta(seconds=5)  # that a request waits for the service to open
MOST_WAITING = 256  # requests; the headers and the first 64 KiB of the body are in memory
NO_FILE_LEFT = (errno.EMFILE, errno.ENFILE)

log = logging.getLogger(__name__)


def guarded(
    gate: "StartupGate",
    protocols: Sequence[Protocol],
    metrics: Metrics,
    *,
    host: str,
    allowed_origins: frozenset[str],
) -> ASGIApp:
    """The gate inside all that a request passes before it, so that no answer is without it."""

    def denied(path: str, sentence: str) -> Response:
        return protocol_at(path, protocols).refused(Denied(sentence))

    *others, last = protocols
    outermost_first = (
        SecurityHeaders,
        partial(Requests, metrics=metrics, route_of=route_of),
        partial(
            Origins,
            allowed=allowed_origins,
            names=local_names(host),
            sent={*SENT, *chain.from_iterable(each.sent for each in protocols)},
            read=list(dict.fromkeys(chain(*(each.read for each in (last, *others)), READ))),
            denied=denied,
        ),
    )
    app: ASGIApp = gate
    for middleware in reversed(outermost_first):
        app = middleware(app)
    return app


def application(
    protocols: Sequence[Protocol],
    services: Services,
    more: Sequence[Operation],
    gate: Gate,
    telemetry: Telemetry,
) -> Starlette:
    """The service, once its storage is open, with what more it answers that is of no protocol.

    The last protocol has the paths of no other.
    """
    served = [(protocol, protocol.operations(services)) for protocol in protocols]
    own, refusals = DocsEndpoints(served, more, gate).operations, _Refusals(protocols, gate)
    application = Starlette(
        routes=[
            *(Route(o.path, o.handler, methods=[o.method]) for o in own),
            *(route for each in reversed(served) for route in routes(*each, gate, telemetry)),
        ],
        exception_handlers={
            HTTPException: refusals.unknown,
            Refusal: refusals.refused,
            OSError: refusals.short_of_files,
            Exception: refusals.failed,
        },
    )
    application.router.redirect_slashes = False
    return application


class _Refusals:
    """What no operation answers, in the shape of the protocol that has the path."""

    def __init__(self, protocols: Sequence[Protocol], gate: Gate) -> None:
        self._protocols = protocols
        self._gate = gate

    async def refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return self._protocol(request).refused(error)

    async def unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        protocol = self._protocol(request)
        try:
            self._gate.admit(
                request, Role.READER, is_authorization_only=protocol.is_authorization_only
            )
        except Refusal as refusal:
            return protocol.refused(refusal)
        if error.status_code != 405:
            return protocol.refused(NoPath())
        response = protocol.refused(NoMethod())
        response.headers["Allow"] = ", ".join(_methods(request))
        return response

    async def short_of_files(self, request: Request, error: Exception) -> Response:
        """Asked again, it may be answered: too many connections are a fault of their number."""
        if getattr(error, "errno", None) not in NO_FILE_LEFT:
            raise error
        log.warning("no more files can be opened", extra={"reason": reason(error)})
        return self._protocol(request).refused(Unavailable("Too many files are open; try again."))

    async def failed(self, request: Request, _: Exception) -> Response:
        # The server logs what is raised; this is only the answer.
        return self._protocol(request).refused(Failed())

    def _protocol(self, request: Request) -> Protocol:
        return protocol_at(request.scope["path"], self._protocols)


class StartupGate:
    """Answers for the service while it starts and while it drains.

    While it starts, probes are answered at once, /health with 200, so that none of them
    ends an upgrade half-way. What is no probe waits, and is served once the service is
    open; nothing of its body is read before. It is refused with 503 instead when the
    start takes too long, when too many wait, while an upgrade runs, and while another
    service has the database. While it drains, /health and /health/ready fail and
    everything else is served.
    """

    def __init__(self, protocols: Sequence[Protocol]) -> None:
        self._protocols = protocols
        self._application: ASGIApp | None = None
        self._probes: Told = WHILE_STARTING
        self._refusal = Unavailable("The service is starting; try again.")
        self._no_wait = asyncio.Event()  # set while requests are served or refused at once
        self._waiting = 0

    def wait(self, reason: str) -> None:
        """Refuse requests, and tell probes for what the start waits; no more without a reason."""
        self._probes = while_waiting(reason) if reason else WHILE_STARTING
        if reason:
            self._no_wait.set()
        else:
            self._no_wait.clear()

    def upgrade(self) -> None:
        """Refuse requests until the service is open: an upgrade takes as long as it takes."""
        self._no_wait.set()

    def open(self, application: ASGIApp) -> None:
        """Serve the application from now on, also to the requests that have waited for it."""
        self._application, self._probes = application, AS_USUAL
        self._no_wait.set()

    def drain(self) -> None:
        """Tell probes from now on that no more requests should come."""
        self._probes = WHILE_STOPPING

    def close(self) -> None:
        """Refuse what waits, and what still comes, if the service was not open before its end."""
        self.drain()
        self._refusal = Unavailable("The service is stopping; try again.")
        self._no_wait.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        probe = self._probes.get(scope["path"])
        if probe is not None:
            await probe()(scope, receive, send)
            return
        if self._application is None:
            await self._opened()
        answer = self._application or self._refused(scope["path"])
        await answer(scope, receive, send)

    def _refused(self, path: str) -> Response:
        return protocol_at(path, self._protocols).refused(self._refusal)

    async def _opened(self) -> None:
        """Wait for the service to open, while that is a matter of seconds."""
        if self._waiting == MOST_WAITING:
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(START_TIMEOUT.total_seconds()):
                await self._no_wait.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1


def route_of(scope: Scope) -> str:
    """The template of the path that a request came by; `none` if it is none of the service's."""
    endpoint = scope.get("endpoint")
    if isinstance(endpoint, Endpoint):
        return endpoint.operation.path.replace(":path}", "}")
    return scope["path"] if endpoint or scope["path"] in WHILE_STARTING else "none"


def _methods(request: Request) -> list[str]:
    # Starlette names those of the path's first route alone; a path may have one route a method.
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)
