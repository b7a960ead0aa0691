"""The Starlette application: routes side by side, JSON for every refusal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .about import About
from .api.agentops import routes as agentops
from .api.agentops.routes import HOT
from .api.anthropic_stores import routes as anthropic
from .api.door import Door
from .api.endpoint import Api, lies_below, routes
from .api.http import Failed, NoMethod, NoPath
from .api.memory_stores import answers as store_answers
from .api.memory_stores.routes import PREFIX as STORES
from .domain.access import Role
from .domain.errors import Denied, Refusal, Unavailable
from .mcp import routes as mcp
from .telemetry import Telemetry

# How a refusal looks that no protocol was asked for, by what the path lies below.
REFUSED: Mapping[str, Callable[[Refusal], Response]] = {
    STORES: store_answers.refused,
    anthropic.PREFIX: anthropic.refused,
    mcp.PREFIX: lambda refusal: mcp.as_message(refusal, agentops.refused(refusal)),
    "": agentops.refused,
}


def application(apis: Sequence[Api], door: Door, telemetry: Telemetry) -> Starlette:
    """The service, once its storage is open. The last protocol has the paths of no other."""
    refusals = _Refusals(apis, door)
    own = About(apis, door).operations
    application = Starlette(
        routes=[
            *(Route(o.path, o.handler, methods=[o.method]) for o in own),
            *(route for api in reversed(apis) for route in routes(api, door, telemetry, HOT)),
        ],
        exception_handlers={
            HTTPException: refusals.unknown,
            Refusal: refusals.refused,
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

    async def failed(self, request: Request, _: Exception) -> Response:
        # The server logs what is raised; this is only the answer.
        return self._api(request).refused(Failed())

    def _api(self, request: Request) -> Api:
        path = request.scope["path"]
        return next(api for api in self.apis if lies_below(api.prefix, path))


class Gate:
    """Answers for the service while it starts and while it drains.

    While an upgrade or a recovery runs, /health answers 200, so that no probe
    kills it half-way, and everything else 503. While it drains, /health fails
    and everything else is served.
    """

    def __init__(self) -> None:
        self._application: ASGIApp = _starting
        self._draining = False

    def open(self, application: ASGIApp) -> None:
        """Serve the application from now on."""
        self._application = application

    def drain(self) -> None:
        """Fail /health from now on."""
        self._draining = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._draining and scope["path"] == "/health":
            await JSONResponse({"error": "The service is stopping."}, 503)(scope, receive, send)
        else:
            await self._application(scope, receive, send)


def denied_at(path: str, sentence: str) -> Response:
    """The answer to a request that is kept from the service, as the path's protocol shows it."""
    return _refused_at(path, Denied(sentence))


def _refused_at(path: str, refusal: Refusal) -> Response:
    prefix = next(prefix for prefix in REFUSED if lies_below(prefix, path))
    return REFUSED[prefix](refusal)


async def _starting(scope: Scope, receive: Receive, send: Send) -> None:
    response: Response
    if scope["path"] == "/health":
        response = JSONResponse({"status": "ok"})
    else:
        response = _refused_at(scope["path"], Unavailable("The service is starting; try again."))
    await response(scope, receive, send)


def _methods(request: Request) -> list[str]:
    # Starlette names those of the path's first route alone; a path may have one route a method.
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)
