"""Log lines, of which each request has one, and spans: what they say, and where they are sent."""

import inspect
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TextIO, TypeVar, cast

from agentops_memory_client.contract.models import SERVER, install_command

from .. import __version__, errors
from ..engine.engine import Engine, Maintenance, Transaction, noop
from ..light import Lazy
from ..memory import saves
from ..memory.access import Caller
from ..memory.table import TRACING, Tracing
from ..memory.table import Attributes as StepAttributes
from ..recall import recall
from ..recall.text import printable
from ..secrets.redaction import DEFAULT_RULES, SHORTEST_VALUE, Redacted, Rules
from .metrics import (
    CURRENT,
    REQUEST_SECONDS,
    REQUESTS,
    Metrics,
    Prometheus,
    current_span,
    trace_ids,
)

if TYPE_CHECKING:
    from opentelemetry import trace as otel
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.trace.propagation import tracecontext
    from opentelemetry.util.types import AnyValue

    from .otlp import PastSpans
else:  # a process that sends nothing starts 10 ms earlier without them
    otel = Lazy(None, "opentelemetry.trace")
    tracecontext = Lazy(None, "opentelemetry.trace.propagation.tracecontext")

QUIET = frozenset({"/health", "/health/live", "/health/ready", "/health/startup", "/metrics"})
TEXTS = 16  # redacted texts that are cached for one request
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
OTHER = "other"  # the label of non-standard methods
CALLER = "agentops_memory.caller"  # in a request's scope: the Caller, once known
BEGAN = "agentops_memory.began"  # in its scope: its start by `time.perf_counter`, if noted before
CALLERS = 256  # callers whose log fields are cached
CHATTY = ("httpx", "httpcore")  # they log each request, sometimes with its whole query

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"  # codes of ANSI terminals
STYLES = {logging.WARNING: YELLOW, logging.ERROR: RED, logging.CRITICAL: RED}

log = logging.getLogger(__name__)
requests = logging.getLogger(f"{__name__}.requests")  # for the lines of requests

SPAN: "ContextVar[Span | None]" = ContextVar("the span that the request's line names", default=None)
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
            "message": errors.message_of(record),
            **trace_ids(current_span()),
        }
        fields |= {name: value for name, value in _extra(record).items() if name not in fields}
        if record.exc_info and record.exc_info[1]:
            fields["exception"] = errors.trace(record.exc_info[1])
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
        if record.name == requests.name and "status" in extra:
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
        line = f"{self.styled(at, DIM)}  {level}{hidden(errors.message_of(record))}"
        line += "".join(f"  {name}={it}" for name, it in extra.items())
        error = record.exc_info[1] if record.exc_info else None
        return line + (f"\n{errors.trace(error).rstrip()}" if error else "")

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
    if not errors.is_own(record):  # its fields may hold anything
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
        return json.dumps({name: hidden(errors.text_of(value)) for name, value in fields.items()})


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
    return hidden(errors.text_of(value))


def _name(key: object) -> str:
    if not isinstance(key, str | int | float | None):
        raise TypeError
    return hidden(str(key))


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
    if not requests.isEnabledFor(level):
        return
    named, took = trace_ids(span), round(seconds * 1000, 2)
    caller, caller_json = _caller_fields(by)
    handlers = logging.root.handlers
    if (
        level == logging.INFO
        and method in _KNOWN
        and not (request_id or requests.handlers)
        and len(handlers) == 1
        and isinstance(handlers[0].formatter, JsonFormatter)
    ):
        now = time.time()
        second = int(now)
        ids = "".join([f', "{name}": "{value}"' for name, value in named.items()])
        quoted = f'"{path}"' if isinstance(path, OwnText) else json.dumps(hidden(path))
        line = (
            f'{{"time": "{_second(second)}.{int((now - second) * 1000):03d}Z", "level": "INFO", '
            f'"logger": "{requests.name}", "message": "request", "method": "{method}", '
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
    # Not `requests.log`, which would look up the caller's line of code.
    requests.handle(
        requests.makeRecord(requests.name, level, "", 0, "request", (), None, extra=extra)
    )


_KNOWN: Mapping[str, str] = {method: OwnText(method) for method in METHODS}

_STRICT = json.JSONEncoder(allow_nan=False)

_PLAIN = frozenset({"time", "level", "logger", "trace_id", "span_id"})  # texts of our own

_OWN = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}  # every record's


TIMEOUT = timedelta(seconds=2)  # of the last export; a dead collector would take 7 to 10 s
_NOTHING = nullcontext(None)


class Cut(NamedTuple):
    """A text that is cut after its redaction, so that no part of a secret is left."""

    text: str
    limit: int  # code points


Attributes = Mapping[str, "AnyValue | Cut"]

UNKNOWN_ERROR = "error"
ERROR_TYPES = frozenset(
    {"not_found", "validation_error", "invalid_input", "db_locked", "constraint_violation"}
)


class Telemetry:
    """The spans and metrics of one service, created by `started` and ended by `stop`."""

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.metrics = Metrics()
        self._shut_down: Callable[[], None] | None = None
        self.past: PastSpans | None = None  # None if only the SDK may encode spans

    @classmethod
    def started(cls, endpoint: str | None, protocol: str = "grpc") -> "Telemetry":
        """Send all to the endpoint, `host:port` or a URL; without one, trace and send nothing.

        The protocol is `grpc` or `http/protobuf`. If the collector does not respond, spans are
        lost, but no request fails.
        """
        if not endpoint:
            return cls()
        try:
            # Imported here: the SDK and gRPC take 0.2 s at the start and up to 30 MiB, and most
            # services have no collector.
            from .otlp import SCOPE, providers  # noqa: PLC0415

            telemetry = cls()
            spans, telemetry.past, measurements = providers(endpoint, protocol, telemetry.metrics)
        except ModuleNotFoundError as error:
            command = install_command(SERVER, "otlp")
            raise errors.SettingRefused(
                f"OTEL_EXPORTER_OTLP_ENDPOINT: sending needs an extra: {command}."
            ) from error

        def shut_down() -> None:
            spans.shutdown()
            measurements.shutdown()

        telemetry.tracer = spans.get_tracer(SCOPE, __version__)
        telemetry._shut_down = shut_down
        return telemetry

    def exposition(self) -> Callable[[str], tuple[bytes, str]]:
        """Keep metrics for Prometheus from now on; return its `exposition`."""
        prometheus = Prometheus()
        self.metrics.join(prometheus)
        return prometheus.exposition

    def operation(
        self, name: str, headers: Mapping[str, str]
    ) -> "AbstractContextManager[Span | None]":
        """Open the span `memory.<name>`, in the trace that `headers` name; None if not sent.

        A malformed `traceparent` is ignored. An exception is recorded and re-raised. From now on
        `count` counts for this service.
        """
        CURRENT.set(self.metrics)
        return _operation(self.tracer, name, headers) if self.tracer else _NOTHING

    def stop(self) -> None:
        """Send what is left, for at most two seconds; the rest is lost."""
        if self._shut_down is None:
            return
        self.metrics.settle()
        # A daemon thread may be left running: the exporter does not return before its own
        # timeout.
        last = threading.Thread(target=self._shut_down, name="telemetry-stop", daemon=True)
        last.start()
        last.join(TIMEOUT.total_seconds())
        if last.is_alive():
            log.warning("the collector does not answer; the last spans are lost")


@contextmanager
def _operation(tracer: "Tracer", name: str, headers: Mapping[str, str]) -> "Iterator[Span]":
    caller = tracecontext.TraceContextTextMapPropagator().extract(headers)
    with span(tracer, f"memory.{name}", caller=caller) as current:
        SPAN.set(current)
        annotate({"memory.operation": OwnText(name)})
        yield current


@contextmanager
def span(tracer: "Tracer", name: str, *, caller: "Context | None" = None) -> "Iterator[Span]":
    """Within, the current span: a child of the previous one, or of the caller's.

    An exception is recorded on it and re-raised.
    """
    kind = otel.SpanKind.INTERNAL if caller is None else otel.SpanKind.SERVER
    with tracer.start_as_current_span(
        name, context=caller, kind=kind, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            _fail(current, error)
            raise


def annotate(attributes: "Attributes | Callable[[], Attributes]") -> None:
    """Set attributes of the current span, computed only if it is recorded; None is omitted."""
    current = current_span()
    if current is not None and current.is_recording():
        current.set_attributes(sendable(attributes() if callable(attributes) else attributes))


def events(name: str, each: Iterable[Attributes]) -> None:
    """Add events to the current span, if it is recorded; values of None are omitted."""
    current = current_span()
    if current is not None and current.is_recording():
        for attributes in each:
            current.add_event(name, sendable(attributes))


def _fail(current: "Span", error: Exception) -> None:
    if isinstance(error, errors.RunAgain) or not current.is_recording():
        return
    annotate({"error.type": _error_type(error)})
    name, message = type(error).__name__, errors.safe_message(error)
    status = _encodable(f"{name}: {message}" if message else name)
    current.set_status(otel.Status(otel.StatusCode.ERROR, status))
    # Span.record_exception would record data that the message quotes.
    attributes = {
        "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": message or None,
        "exception.stacktrace": errors.trace(error),
    }
    events("exception", [attributes])


def _error_type(error: Exception) -> str:
    if isinstance(error, errors.AtItem):
        return _error_type(error.refusal)
    if isinstance(error, errors.Conflict):
        return errors.Conflict.code  # its kinds have codes that the contract lacks
    code = error.code if isinstance(error, errors.Refusal) else UNKNOWN_ERROR
    return code if code in ERROR_TYPES else UNKNOWN_ERROR


def trace_headers() -> dict[str, str]:
    """Return request headers that continue the current trace; empty without one."""
    headers: dict[str, str] = {}
    if current_span() is not None:
        tracecontext.TraceContextTextMapPropagator().inject(headers)
    return headers


def sendable(attributes: Attributes) -> "dict[str, AnyValue]":
    """Return the attributes to send: without secrets and without values of None."""
    clean: dict[str, AnyValue] = {}
    for name, value in attributes.items():
        if isinstance(value, Cut):
            clean[name] = _encodable(value.text)[: value.limit]
        elif isinstance(value, str) and not isinstance(value, OwnText):
            clean[name] = _encodable(value)
        elif value is not None:
            clean[name] = value
    return clean


def _encodable(text: str) -> str:
    """Remove secrets and lone surrogates; a surrogate would make a whole batch of spans fail."""
    return hidden(text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8"))


P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Transaction, P], T]

MOST_STEPS = 64  # most spans of one transaction; an import would have several for each row

WORK: Mapping[Callable[..., object], str] = {
    saves.save: "store.add_observation",
    recall.search: "store.search",
    recall.context: "store.fetch_context",
}


def traced(engine: Engine, telemetry: Telemetry) -> Engine:
    """Return the engine with a span for each transaction and step, or itself if none is sent.

    A transaction's span lasts as long as its caller waits, so it includes the queue and the
    commit.
    """
    return _TracedEngine(engine, telemetry.tracer) if telemetry.tracer else engine


class _TracedEngine:
    def __init__(self, engine: Engine, tracer: "Tracer") -> None:
        self._engine = engine
        self._tracer = tracer

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with span(self._tracer, _span_name(work)):
            return await self._engine.read(caller, self._carried(work), *args, **kwargs)

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with span(self._tracer, _span_name(work)):
            return await self._engine.write(caller, self._carried(work), *args, **kwargs)

    @property
    def maintenance(self) -> Maintenance:
        return self._engine.maintenance

    def _carried(self, work: Work[P, T]) -> Work[P, T]:
        context = copy_context()  # passed on to the thread of the transaction

        @wraps(work)
        def carried(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
            context.run(TRACING.set, _steps(self._tracer))
            return context.run(work, tx, *args, **kwargs)

        return carried


def _steps(tracer: "Tracer") -> Tracing:
    """Return the tracing of one transaction's steps, up to the maximum number of spans."""
    room = iter(range(MOST_STEPS))

    @contextmanager
    def step(name: str) -> Iterator[Callable[[StepAttributes], None]]:
        if next(room, None) is None:
            yield noop
        else:
            with span(tracer, name):
                yield annotate

    return step


def _span_name(work: Callable[..., object]) -> str:
    return WORK.get(inspect.unwrap(work)) or f"store.{getattr(work, '__name__', 'work')}"
