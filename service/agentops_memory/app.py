"""The Starlette application: routes side by side, /health, JSON for every refusal."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import __version__
from .api.agentops import models
from .api.agentops.routes import refused
from .api.door import Door
from .api.openapi import Handler, Operation, document
from .domain.access import Role
from .domain.errors import Refusal

TITLE = "agentops-memory"


def application(
    operations: Sequence[Operation], routes: Sequence[BaseRoute], door: Door
) -> Starlette:
    """The service, once its storage is open."""

    async def openapi(request: Request) -> Response:
        door.enter(request, Role.READER)
        return JSONResponse(described)

    async def unknown(request: Request, error: Exception) -> Response:
        try:
            door.enter(request, Role.READER)
        except Refusal as refusal:
            return refused(refusal)
        return await _unknown(request, error)

    own = _own_operations(openapi)
    described = document(
        [*own, *operations], title=TITLE, version=__version__, problem=models.Problem
    )
    application = Starlette(
        routes=[*(Route(o.path, o.handler, methods=[o.method]) for o in own), *routes],
        exception_handlers={HTTPException: unknown, Refusal: _refused, Exception: _failed},
    )
    application.router.redirect_slashes = False
    return application


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


async def _starting(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/health":
        response = JSONResponse({"status": "ok"})
    else:
        error = "The service is starting; try again."
        response = JSONResponse({"error": error}, 503, {"Retry-After": "1"})
    await response(scope, receive, send)


class Description(BaseModel):
    """GET /openapi.json."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]


def _own_operations(openapi: Handler) -> list[Operation]:
    return [
        Operation(
            method="GET",
            path="/health",
            name="health",
            summary="Whether the service runs.",
            handler=_health,
            answer=models.Health,
            refusals=(503,),
        ),
        Operation(
            method="GET",
            path="/openapi.json",
            name="openapi",
            summary="This description, in OpenAPI 3.1.",
            handler=openapi,
            answer=Description,
            role=Role.READER,
            refusals=(503,),
        ),
    ]


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(error)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = _SENTENCES.get(error.status_code, error.detail)
    headers = {"Allow": ", ".join(_methods(request))} if error.status_code == 405 else error.headers
    return JSONResponse({"error": sentence}, error.status_code, headers)


def _methods(request: Request) -> list[str]:
    # Starlette names those of the path's first route alone; a path may have one route a method.
    methods: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)


async def _failed(request: Request, error: Exception) -> Response:
    # The server logs what is raised; this is only the answer.
    return JSONResponse({"error": "The service failed; the log has the reason."}, 500)


_SENTENCES = {404: "There is nothing at this path.", 405: "This path does not take this method."}
