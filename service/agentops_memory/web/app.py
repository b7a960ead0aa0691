"""The Starlette application: routes side by side, JSON for every refusal."""

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..api.agentops import routes as agentops
from ..api.agentops.routes import HOT
from ..api.anthropic_stores import routes as anthropic
from ..api.kit.endpoint import Api, Endpoint, lies_below, routes
from ..api.kit.gate import Door
from ..api.kit.http import Failed, NoMethod, NoPath
from ..api.kit.openapi import Operation
from ..api.memory_stores import answers as store_answers
from ..api.memory_stores.routes import PREFIX as STORES
from ..domain.errors import Denied, Refusal, Unavailable
from ..domain.model.access import Role
from ..domain.secrets.sanitizing import reason
from ..mcp import routes as mcp
from ..telemetry import Telemetry
from .docs import About
from .health import AS_USUAL, WHILE_STARTING, WHILE_STOPPING, Told, while_waiting

START_TIMEOUT = timedelta(seconds=5)  # that a request waits for the service to open
MOST_WAITING = 256  # requests; the headers and the first 64 KiB of the body are in memory
NO_FILE_LEFT = (errno.EMFILE, errno.ENFILE)

log = logging.getLogger(__name__)

# How a refusal looks that no protocol was asked for, by what the path lies below.
REFUSED: Mapping[str, Callable[[Refusal], Response]] = {
    STORES: store_answers.refused,
    anthropic.PREFIX: anthropic.refused,
    mcp.PREFIX: lambda refusal: mcp.as_message(refusal, agentops.refused(refusal)),
    "": agentops.refused,
}


def application(
    apis: Sequence[Api], more: Sequence[Operation], door: Door, telemetry: Telemetry
) -> Starlette:
    """The service, once its storage is open, with what more it answers that is of no protocol.

    The last protocol has the paths of no other.
    """
    refusals = _Refusals(apis, door)
    own = About(apis, more, door).operations
    application = Starlette(
        routes=[
            *(Route(o.path, o.handler, methods=[o.method]) for o in own),
            *(route for api in reversed(apis) for route in routes(api, door, telemetry, HOT)),
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


@dataclass(frozen=True, slots=True)
class _Refusals:
    """What no operation answers, in the shape of the protocol that has the path."""

    apis: Sequence[Api]
    door: Door

    async def refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return self._api(request).refused(error)

    async def unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        api = self._api(request)
        try:
            self.door.enter(request, Role.READER, is_authorization_only=api.is_authorization_only)
        except Refusal as refusal:
            return api.refused(refusal)
        if error.status_code != 405:
            return api.refused(NoPath())
        response = api.refused(NoMethod())
        response.headers["Allow"] = ", ".join(_methods(request))
        return response

    async def short_of_files(self, request: Request, error: Exception) -> Response:
        """Asked again, it may be answered: too many connections are a fault of their number."""
        if getattr(error, "errno", None) not in NO_FILE_LEFT:
            raise error
        log.warning("no more files can be opened", extra={"reason": reason(error)})
        return self._api(request).refused(Unavailable("Too many files are open; try again."))

    async def failed(self, request: Request, _: Exception) -> Response:
        # The server logs what is raised; this is only the answer.
        return self._api(request).refused(Failed())

    def _api(self, request: Request) -> Api:
        path = request.scope["path"]
        return next(api for api in self.apis if lies_below(api.prefix, path))


class Gate:
    """Answers for the service while it starts and while it drains.

    While it starts, probes are answered at once, /health with 200, so that none of them
    ends an upgrade half-way. What is no probe waits, and is served once the service is
    open; nothing of its body is read before. It is refused with 503 instead when the
    start takes too long, when too many wait, while an upgrade runs, and while another
    service has the database. While it drains, /health and /health/ready fail and
    everything else is served.
    """

    def __init__(self) -> None:
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
        told = self._probes.get(scope["path"])
        if told is not None:
            await told()(scope, receive, send)
            return
        if self._application is None:
            await self._opened()
        answer = self._application or _refused_at(scope["path"], self._refusal)
        await answer(scope, receive, send)

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


def denied_at(path: str, sentence: str) -> Response:
    """The answer to a request that is kept from the service, as the path's protocol shows it."""
    return _refused_at(path, Denied(sentence))


def _refused_at(path: str, refusal: Refusal) -> Response:
    prefix = next(prefix for prefix in REFUSED if lies_below(prefix, path))
    return REFUSED[prefix](refusal)


def _methods(request: Request) -> list[str]:
    # Starlette names those of the path's first route alone; a path may have one route a method.
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)
