"""The Starlette application: routes side by side, JSON for every refusal."""

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .about import About
from .api.agentops import routes as agentops
from .api.agentops.routes import HOT
from .api.anthropic_stores import routes as anthropic
from .api.door import Door
from .api.endpoint import Api, Endpoint, lies_below, routes
from .api.http import Failed, NoMethod, NoPath
from .api.memory_stores import answers as store_answers
from .api.memory_stores.routes import PREFIX as STORES
from .api.openapi import Operation
from .domain.access import Role
from .domain.errors import Denied, Refusal, Unavailable
from .health import WHILE_STARTING, WHILE_STOPPING, Told, while_waiting
from .mcp import routes as mcp
from .telemetry import Telemetry

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
            self.door.enter(request, Role.READER, is_bearer_only=api.is_bearer_only)
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
        log.warning("no more files can be opened", extra={"reason": str(error)})
        return self._api(request).refused(Unavailable("Too many files are open; try again."))

    async def failed(self, request: Request, _: Exception) -> Response:
        # The server logs what is raised; this is only the answer.
        return self._api(request).refused(Failed())

    def _api(self, request: Request) -> Api:
        path = request.scope["path"]
        return next(api for api in self.apis if lies_below(api.prefix, path))


class Gate:
    """Answers for the service while it starts and while it drains.

    While an upgrade or a recovery runs, /health answers 200, so that no probe
    kills it half-way, and all that is no probe 503. While it drains, /health and
    /health/ready fail and everything else is served.
    """

    def __init__(self) -> None:
        self._application = _starting(WHILE_STARTING)
        self._draining = False

    def wait(self, reason: str) -> None:
        """Tell probes for what the start waits; nothing once it goes on."""
        self._application = _starting(while_waiting(reason) if reason else WHILE_STARTING)

    def open(self, application: ASGIApp) -> None:
        """Serve the application from now on."""
        self._application = application

    def drain(self) -> None:
        """Tell probes from now on that no more requests should come."""
        self._draining = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = WHILE_STOPPING.get(scope["path"]) if self._draining else None
        await (told() if told else self._application)(scope, receive, send)


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


def _starting(probes: Told) -> ASGIApp:
    """What answers before the service does."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path, refusal = scope["path"], Unavailable("The service is starting; try again.")
        told = probes.get(path)
        await (told() if told else _refused_at(path, refusal))(scope, receive, send)

    return answer


def _methods(request: Request) -> list[str]:
    # Starlette names those of the path's first route alone; a path may have one route a method.
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)
