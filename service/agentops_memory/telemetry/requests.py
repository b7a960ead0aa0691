"""Each request: a line in the log, and its measurements."""

import logging
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar

from opentelemetry.trace import INVALID_SPAN, Span
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .logs import trace_ids
from .measures import REQUEST_SECONDS, REQUESTS, REQUESTS_IN_FLIGHT
from .metrics import Metrics

QUIET = frozenset({"/health", "/health/live", "/health/ready", "/health/startup", "/metrics"})
REQUEST_IDS = (b"request-id", b"x-request-id")  # of an answer: what its client calls it by
FAILED = 500  # what the server answers for an application that raised
METHODS = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)
OTHER = "other"  # a method that no standard knows

log = logging.getLogger(__name__)

_Headers = Mapping[bytes, bytes]

_NOTHING: _Headers = {}

_spans: ContextVar[list[Span] | None] = ContextVar("spans of the request", default=None)


class Requests:
    """An ASGI application that tells of each request to the one inside it.

    `route_of` names the route that a request went, once it is answered: one of few.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, route_of: Callable[[Scope], str]) -> None:
        self._app = app
        self._metrics = metrics
        self._route_of = route_of
        self._in_flight = 0
        metrics.look_up(REQUESTS_IN_FLIGHT, lambda: self._in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, said = time.perf_counter(), FAILED, _NOTHING

        async def watched(message: Message) -> None:
            nonlocal status, said
            if message["type"] == "http.response.start":
                status, said = message["status"], dict(message.get("headers", ()))
            await send(message)

        spans: list[Span] = []
        token = _spans.set(spans)
        self._in_flight += 1
        try:
            await self._app(scope, receive, watched)
        finally:
            self._in_flight -= 1
            _spans.reset(token)
            seconds, span = time.perf_counter() - began, spans[-1] if spans else INVALID_SPAN
            _log_request(scope, status, said, seconds, span)
            self._measure(scope, status, seconds, span)

    def _measure(self, scope: Scope, status: int, seconds: float, span: Span) -> None:
        method, route = scope["method"], self._route_of(scope)
        method = method if method in METHODS else OTHER
        self._metrics.count(REQUESTS, method, route, str(status), span=span)
        self._metrics.observe(REQUEST_SECONDS, seconds, method, route, span=span)


def remember(span: Span) -> None:
    """Let this be the span of its request, which the request's log line and measurements name."""
    spans = _spans.get()
    if spans is not None:
        spans.append(span)


def _log_request(scope: Scope, status: int, said: _Headers, seconds: float, span: Span) -> None:
    fields: dict[str, object] = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "duration_ms": round(seconds * 1000, 2),
    }
    for name in said.keys() & REQUEST_IDS:
        fields["request_id"] = said[name].decode("latin-1")
    level = logging.DEBUG if scope["path"] in QUIET else logging.INFO
    log.log(level, "request", extra=fields | trace_ids(span))
