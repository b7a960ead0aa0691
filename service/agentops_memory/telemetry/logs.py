"""Log lines: one JSON object per line, and one line per request."""

import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TextIO, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import is_own, message_of, text_of, trace
from ..memory.access import Caller
from ..recall.visible import printable
from ..secrets.redaction import DEFAULT_RULES, SHORTEST_VALUE, Redacted, Rules
from .metrics import REQUEST_SECONDS, REQUESTS, REQUESTS_IN_FLIGHT, Metrics, current_span, trace_ids

if TYPE_CHECKING:
    from opentelemetry.trace import Span

QUIET = frozenset({"/health", "/health/live", "/health/ready", "/health/startup", "/metrics"})
REQUEST_IDS = (b"request-id", b"x-request-id")  # response headers by which clients report a request
TEXTS = 16  # redacted texts that are cached for one request
FAILED = 500  # the server's response if the application raises
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
OTHER = "other"  # the label of non-standard methods
CALLER = "agentops_memory.caller"  # in a request's scope: the Caller, once known
BEGAN = "agentops_memory.began"  # in its scope: its start by `time.perf_counter`, if noted before
CALLERS = 256  # callers whose log fields are cached
CHATTY = ("httpx", "httpcore")  # they log each request, sometimes with its whole query

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"  # codes of ANSI terminals
STYLES = {logging.WARNING: YELLOW, logging.ERROR: RED, logging.CRITICAL: RED}

log = logging.getLogger(f"{__package__}.requests")  # for the lines of requests

_spans: "ContextVar[list[Span] | None]" = ContextVar("spans of the request", default=None)
_hidden: ContextVar[Callable[[str], str]] = ContextVar(
    "takes secrets out of what leaves", default=lambda text: DEFAULT_RULES.redacted(text).text
)


def hide_by(rules: Callable[[], Rules]) -> None:
    """Redact the current request's logs and spans by these rules from now on.

    The rules are fetched once, if a text may contain a secret. Repeated texts, such as a prompt
    or a type in spans, are redacted once.
    """
    known: dict[str, str] = {}
    redacted: Callable[[str], Redacted] | None = None

    def clean(text: str) -> str:
        nonlocal redacted
        if (safe := known.get(text)) is None:
            redacted = redacted or rules().redacted
            safe = redacted(text).text
            if len(known) < TEXTS:
                known[text] = safe
        return safe

    _hidden.set(clean)


def hide_too(rewritten: Callable[[str], str]) -> None:
    """Also rewrite the current request's texts in logs and spans, after their redaction."""
    before = _hidden.get()
    _hidden.set(lambda text: rewritten(before(text)))


def hidden(text: str) -> str:
    return text if len(text) < SHORTEST_VALUE else _hidden.get()(text)


class OwnText(str):
    """A text of ours, which cannot contain secrets and is not redacted."""

    __slots__ = ()


def configure_logging(
    level: str = "INFO", stream: TextIO = sys.stdout, form: str = "", *, has_colors: bool = True
) -> None:
    """Write every logger's lines of this level and above to the stream, as JSON.

    `form` is `json`, or `text` for people; if it is empty, a terminal gets text. Libraries that
    log each request only log warnings and above.
    """
    handler = logging.StreamHandler(stream)
    is_text = form == "text" or (not form and stream.isatty())
    handler.setFormatter(TextFormatter(has_colors=has_colors) if is_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):  # with their own handlers
        theirs = logging.getLogger(name)
        theirs.handlers = []
        theirs.propagate = True
    # No line contains them, and collecting them takes as long as encoding the line.
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class JsonFormatter(logging.Formatter):
    """Formats any record as one line of ASCII without secrets, and never raises.

    `time`, `level`, `logger` and `message` come first; within a span `trace_id` and `span_id`
    follow, then the fields of `extra` with other names (for a library's record `source`
    instead), then `exception`. Exceptions are logged without data that their messages quote.
    """

    def format(self, record: logging.LogRecord) -> str:
        seconds, microseconds = divmod(round(record.created * 1_000_000), 1_000_000)
        fields: dict[str, object] = {
            "time": f"{_second(seconds)}.{microseconds // 1000:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
            **trace_ids(current_span()),
        }
        fields |= {name: value for name, value in _extra(record).items() if name not in fields}
        if record.exc_info and record.exc_info[1]:
            fields["exception"] = trace(record.exc_info[1])
        if record.stack_info:
            fields["stack"] = record.stack_info
        return _line(fields)


class TextFormatter(logging.Formatter):
    """Formats a record as a line for people, without secrets; a request's line is short."""

    def __init__(self, *, has_colors: bool) -> None:
        super().__init__()
        self._has_colors = has_colors

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        extra = {name: _without_secrets(it) for name, it in _extra(record).items()}
        if record.name == log.name and "status" in extra:
            status: Any = extra["status"]
            who = "  ".join(
                printable(str(extra[it])) for it in ("key", "tenant", "client") if it in extra
            )
            took = self.styled(f"{extra['duration_ms']:g} ms  {who}", DIM)
            style = RED if status >= 500 else YELLOW if status >= 400 else GREEN
            return (
                f"{self.styled(at, DIM)}  {self.styled(str(status), style)}  "
                f"{extra['method']:<6} {printable(str(extra['path']))}  {took}"
            )
        style = STYLES.get(record.levelno, "")
        level = f"{self.styled(record.levelname.lower(), style)}  " if style else ""
        line = f"{self.styled(at, DIM)}  {level}{hidden(message_of(record))}"
        line += "".join(f"  {name}={it}" for name, it in extra.items())
        error = record.exc_info[1] if record.exc_info else None
        return line + (f"\n{trace(error).rstrip()}" if error else "")

    def styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._has_colors else text


def show_banner(title: str, facts: Mapping[str, str]) -> bool:
    """Show a banner if the log is text for people; return whether it is."""
    handler = next(iter(logging.root.handlers), None)
    if not isinstance(handler, logging.StreamHandler):
        return False
    form = handler.formatter
    if not isinstance(form, TextFormatter):
        return False
    rows = [f"  {form.styled(f'{name:<15}', DIM)}{fact}" for name, fact in facts.items()]
    handler.stream.write("\n".join(["", f"  {form.styled(title, BOLD)}", *rows, "", ""]))
    handler.stream.flush()
    return True


@lru_cache(1)  # most lines have the same second as the line before
def _second(since_epoch: int) -> str:
    return datetime.fromtimestamp(since_epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _extra(record: logging.LogRecord) -> dict[str, object]:
    if not is_own(record):  # its fields may hold anything
        return {"source": f"{record.filename}:{record.lineno}"}
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _line(fields: Mapping[str, object]) -> str:
    try:
        safe = {
            name: value if name in _PLAIN else _without_secrets(value)
            for name, value in fields.items()
        }
        return _STRICT.encode(safe)
    except (TypeError, ValueError, RecursionError):  # NaN, odd keys, circles
        return json.dumps({name: hidden(text_of(value)) for name, value in fields.items()})


def _without_secrets(value: object) -> object:
    if isinstance(value, OwnText):
        return value
    if type(value) is str:  # most are
        return hidden(value)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        return {_name(name): _without_secrets(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return hidden(text_of(value))


def _name(key: object) -> str:
    if not isinstance(key, str | int | float | None):
        raise TypeError
    return hidden(str(key))


class Requests:
    """An ASGI middleware that logs and measures each request.

    `route_of` returns the route of an answered request, one of few.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, route_of: Callable[[Scope], str]) -> None:
        self._app = app
        self._metrics = metrics
        self._route_of = route_of
        metrics.look_up(REQUESTS_IN_FLIGHT, lambda: metrics.in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = scope.get(BEGAN, time.perf_counter()), FAILED
        headers: Mapping[bytes, bytes] = {}

        def watched(message: Message) -> Awaitable[None]:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], dict(message.get("headers", ()))
            return send(message)

        spans: list[Span] = []
        token = _spans.set(spans)
        self._metrics.in_flight += 1
        try:
            await self._app(scope, receive, watched)
        finally:
            self._metrics.in_flight -= 1
            _spans.reset(token)
            client, caller = scope.get("client"), cast("Caller | None", scope.get(CALLER))
            known = (caller.tenant, caller.key_name) if caller else ()
            ids = (headers[name].decode("latin-1") for name in REQUEST_IDS if name in headers)
            log_answered(
                scope["path"],
                time.perf_counter() - began,
                self._metrics,
                spans[-1] if spans else None,
                (client[0] if client else "", *known),
                method=scope["method"],
                status=status,
                route=self._route_of(scope),
                request_id=next(ids, ""),
            )


@lru_cache(CALLERS)
def _caller_fields(by: tuple[str, ...]) -> tuple[Mapping[str, object], str]:
    """Return the caller's log fields, and their JSON to append to other fields."""
    pairs = zip(("client", "tenant", "key"), by, strict=False)  # the key may be unknown
    fields = {name: OwnText(it) for name, it in pairs if it}
    return fields, "".join(f', "{name}": {json.dumps(it)}' for name, it in fields.items())


def log_answered(  # noqa: PLR0913 - all data of a request's line
    path: str,
    seconds: float,
    metrics: Metrics,
    span: "Span | None" = None,
    by: tuple[str, ...] = (),
    *,
    method: str = "GET",
    status: int = 200,
    route: str = "",
    request_id: str = "",
) -> None:
    """Count, measure and log an answered request, also one answered in front of `Requests`.

    `by` is the client's address, the tenant, and the key's name. The default route is the path.
    Most lines are written by hand, exactly as the formatter would write them, in a fraction of
    its time.
    """
    label, route = method if method in _KNOWN else OTHER, route or path
    metrics.count(REQUESTS, label, route, str(status), span=span)
    metrics.observe(REQUEST_SECONDS, seconds, label, route, span=span)
    metrics.note_slow(label, route, status, seconds, by[1] if len(by) > 1 else "")
    if route == path:
        path = OwnText(path)
    level = logging.DEBUG if path in QUIET else logging.INFO
    if not log.isEnabledFor(level):
        return
    named, took = trace_ids(span), round(seconds * 1000, 2)
    caller, caller_json = _caller_fields(by)
    handlers = logging.root.handlers
    if (
        level == logging.INFO
        and method in _KNOWN
        and not (request_id or log.handlers)
        and len(handlers) == 1
        and isinstance(handlers[0].formatter, JsonFormatter)
    ):
        now = time.time()
        second = int(now)
        ids = "".join([f', "{name}": "{value}"' for name, value in named.items()])
        quoted = f'"{path}"' if isinstance(path, OwnText) else json.dumps(hidden(path))
        line = (
            f'{{"time": "{_second(second)}.{int((now - second) * 1000):03d}Z", "level": "INFO", '
            f'"logger": "{log.name}", "message": "request", "method": "{method}", '
            f'"path": {quoted}, "status": {status}, "duration_ms": {took}{caller_json}{ids}}}\n'
        )
        stream = cast("logging.StreamHandler[TextIO]", handlers[0]).stream
        with suppress(OSError, ValueError):  # as in a handler: a closed log stops no request
            stream.write(line)
            stream.flush()
        return
    extra = {
        "method": _KNOWN.get(method, method), "path": path, "status": status,
        "duration_ms": took, **caller,
        **({"request_id": request_id} if request_id else {}), **named,
    }  # fmt: skip
    # Not `log.log`, which would look up the caller's line of code.
    log.handle(log.makeRecord(log.name, level, "", 0, "request", (), None, extra=extra))


def remember(span: "Span") -> None:
    """Make this the request's span, which its log line and measurements name."""
    spans = _spans.get()
    if spans is not None:
        spans.append(span)


_KNOWN: Mapping[str, str] = {method: OwnText(method) for method in METHODS}

_STRICT = json.JSONEncoder(allow_nan=False)

_PLAIN = frozenset({"time", "level", "logger", "trace_id", "span_id"})  # texts of our own

_OWN = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}  # every record's
