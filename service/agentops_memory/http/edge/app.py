"""The application: routes side by side, JSON for every refusal, and what is of no protocol."""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from ... import __version__
from ...errors import Denied, Refusal, Unauthenticated, Unavailable
from ...memory.model.access import DEFAULT_TENANT, Role
from ...secrets.sanitizing import reason
from ...telemetry import Telemetry
from ..bodies import JSON
from ..endpoint import ADMISSION, BEGUN, Endpoint, Gate, routes
from ..large_answers import SAFE, Bounded
from ..openapi import document
from ..protocol import HEADERS, Handler, NoPath, Operation, Protocol, Served, protocol_at

TITLE = "agentops-memory"
PARTIAL = "Metrics cover all tenants: they need a key of the tenant default for every project."
CONSOLE = "/ui"  # to which the root leads a browser
NO_FILE_LEFT = (errno.EMFILE, errno.ENFILE)

log = logging.getLogger(__name__)


def application(
    served: Sequence[Served], more: Sequence[Operation], gate: Gate, telemetry: Telemetry
) -> Starlette:
    """The service, once its storage is open, with what more it answers that is of no protocol.

    The last protocol has the paths of no other.
    """
    own, refusals = documentation(served, more, gate), _Refusals([it for it, _ in served], gate)
    first_routes, found = list[Route](), list[Route]()
    for protocol, operations in reversed(served):
        of_it = routes(protocol, operations, gate, telemetry)
        first_routes += of_it[: len(protocol.first)]
        found += of_it[len(protocol.first) :]
    every = [
        *first_routes,
        *(Route(o.path, _bounded(o.handler, gate), methods=[o.method]) for o in own),
        *(Route(path, _bounded(_loaded(it), gate)) for path, it in PAGE_FILES.items()),
        *found,
    ]
    return Application(
        routes=[_Raised(), *every],
        exception_handlers={
            HTTPException: refusals.unknown,
            Refusal: refusals.refused,
            OSError: refusals.short_of_files,
            Exception: refusals.failed,
        },
    )


class Application(Starlette):
    """Finds the operation that takes a request by its method and path, of many, in few steps.

    What it does not find is left to Starlette, whose routes are tried one after another: who may
    ask, and by which method, they tell. So is an operation that failed before it has answered.
    """

    def __init__(self, routes: Sequence[BaseRoute], **handlers: Any) -> None:
        super().__init__(routes=routes, **handlers)
        self.router.redirect_slashes = False
        self._known: dict[tuple[str, str], list[tuple[int, Route]]] = {}
        for number, route in enumerate(routes):
            if isinstance(route, Route):
                fixed, is_template, _ = route.path.partition("{")
                start = fixed[: fixed.rfind("/") + 1] if is_template else fixed
                for method in route.methods or ():
                    self._known.setdefault((method, start), []).append((number, route))
        self._deepest = max(start.count("/") for _, start in self._known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._found(scope)
        if endpoint is None:
            await super().__call__(scope, receive, send)
            return
        try:
            await endpoint(scope, receive, send)
        except Exception as error:
            if BEGUN in scope:
                raise
            scope[_ERROR] = error
            await super().__call__(scope, receive, send)

    def _found(self, scope: Scope) -> Endpoint | None:
        method, path, at = scope["method"], scope["path"], 0
        if path.endswith("\n"):  # which the end of a pattern passes over
            return None
        found = list(self._known.get((method, path), ()))
        for _ in range(self._deepest):
            at = path.find("/", at) + 1
            if not at:
                break
            if at < len(path):
                found += self._known.get((method, path[:at]), ())
        for _, route in sorted(found, key=itemgetter(0)):  # as they would be tried
            match, known = route.matches(scope)
            if match is Match.FULL:
                scope.update(known)
                return route.endpoint if isinstance(route.endpoint, Endpoint) else None
        return None


class _Raised(BaseRoute):
    """Takes what an operation has failed with, before any other route."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Match.FULL if _ERROR in scope else Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise scope[_ERROR]


_ERROR = f"{__package__}.error"  # in the scope of a request


def _bounded(handler: Handler, gate: Gate) -> Handler:
    async def handle(request: Request) -> Response:
        answer = await handler(request)
        known = request.scope.get(ADMISSION)
        return Bounded(answer, gate.large_answers.of(known.admitted.key if known else None))

    return handle


def _loaded(path: Path) -> Handler:
    async def handle(_: Request) -> Response:
        return page_file(path)  # for anybody: a browser sends no key with what a page loads

    return handle


class NoMethod(Refusal):
    code = "no_method"


class Failed(Refusal):
    code = "failed"


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
        if request.scope["path"] == "/" and request.method in SAFE and is_browser(request):
            return RedirectResponse(CONSOLE)
        protocol = self._protocol(request)
        try:
            caller = self._gate.admit(
                request, Role.READER, is_authorization_only=protocol.is_authorization_only
            )
            if protocol.is_closed:
                protocol.require(request, caller)
        except Refusal as refusal:
            return protocol.refused(refusal)
        if error.status_code != 405:
            return protocol.refused(NoPath())
        # Starlette names those of the path's first route alone; a path may have one route a method.
        methods: set[str] = set()
        for route in request.app.routes:
            if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
                methods |= route.methods or set()
        response = protocol.refused(NoMethod("This path does not support this method."))
        response.headers["Allow"] = ", ".join(sorted(methods))
        return response

    async def short_of_files(self, request: Request, error: Exception) -> Response:
        """Asked again, it may be answered: too many connections are a fault of their number."""
        if getattr(error, "errno", None) not in NO_FILE_LEFT:
            raise error
        log.warning("too many files are open", extra={"reason": reason(error)})
        return self._protocol(request).refused(Unavailable("Too many files are open; try again."))

    async def failed(self, request: Request, _: Exception) -> Response:
        # The server logs what is raised; this is only the answer.
        failed = Failed("The service failed; the log has the reason.")
        return self._protocol(request).refused(failed)

    def _protocol(self, request: Request) -> Protocol:
        return protocol_at(request.scope["path"], self._protocols)


def is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


class Description(BaseModel):
    """GET /openapi.json."""

    openapi: str
    info: dict[str, Any]
    tags: list[dict[str, str]]
    paths: dict[str, Any]
    components: dict[str, Any]


def documentation(
    served: Sequence[Served], more: Sequence[Operation], gate: Gate
) -> list[Operation]:
    """The operations that are of no protocol; the description has them with those of the last."""

    @cache  # built on demand: it takes longer than the rest of the start
    def described() -> bytes:
        *others, (last, operations) = served
        every = [(last, [*operations, *own]), *others]
        documented = [each for each in every if each[0].problem is not None]
        return bytes(JSONResponse(document(documented, title=TITLE, version=__version__)).body)

    async def openapi(request: Request) -> Response:
        gate.admit(request, Role.READER)
        return Response(await asyncio.to_thread(described), media_type=JSON)

    async def docs(request: Request) -> Response:
        status = 200
        try:
            gate.admit(request, Role.READER)
        except Unauthenticated:
            # A browser sends no key with a link; the page asks for one, and says nothing else.
            if not is_browser(request):
                raise
            status = 401
        answer = page_file(PAGE / "page.html", status)
        answer.headers.update({"Content-Security-Policy": PAGE_POLICY, **HEADERS.get(status, {})})
        return answer

    operation = partial(Operation, method="GET", role=Role.READER, refusals=(503,))
    own = [
        *more,
        operation(
            path="/openapi.json", name="openapi", summary="This description, in OpenAPI 3.1.",
            handler=openapi, answer=Description,
        ),
        operation(
            path="/docs", name="docs", summary="This description, on a page.", handler=docs,
            media_type="text/html",
        ),
    ]  # fmt: skip
    return own


def scrape(
    refresh: Callable[[], Awaitable[None]],
    exposition: Callable[[str], tuple[bytes, str]],  # for a header Accept
    gate: Gate,
    *,
    is_open: bool,
) -> Operation:
    """The measurements of all tenants together; to none but the default one, unless it is open."""

    async def metrics(request: Request) -> Response:
        if not is_open:
            caller = gate.admit(request, Role.READER, is_limited=False)
            if caller.tenant != DEFAULT_TENANT or not caller.projects.are_everything:
                raise Denied(PARTIAL)
        await refresh()
        accept = request.headers.get("accept", "")
        text, media_type = await asyncio.to_thread(exposition, accept)
        return Response(text, media_type=media_type)

    return Operation(
        method="GET", path="/metrics", name="metrics",
        summary="Metrics, in the text format of Prometheus or as OpenMetrics.",
        handler=metrics, media_type="text/plain", role=None if is_open else Role.READER,
        refusals=() if is_open else (503,),
    )  # fmt: skip


PAGE = Path(__file__).parents[1] / "docs_page"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Told, not guessed: with `nosniff` a browser runs no script of another type.
TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}


PAGE_FILES = {
    f"/docs/{Path(name).name}": PAGE / name
    for name in ("page.js", "viewer/swagger-ui.css", "viewer/index.css",
                 "viewer/swagger-ui-bundle.js")
}  # fmt: skip


def page_file(path: Path, status: int = 200) -> FileResponse:
    return FileResponse(path, status, media_type=TYPES[path.suffix])
