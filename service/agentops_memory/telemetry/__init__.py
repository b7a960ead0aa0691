"""Telemetry of one service: the line of each request, its measurements, and its spans."""

import asyncio
import json
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib import import_module
from itertools import product
from select import PIPE_BUF
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeAlias, cast

from agentops_memory_client.contract.models import SERVER, install_command

from .. import __version__, errors
from ..engine.engine import Engine
from ..light import Lazy
from ..recall.text import printable
from ..secrets.redaction import hidden
from . import metrics as table

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.trace.propagation import tracecontext
    from opentelemetry.util.types import AnyValue
else:  # a process that sends nothing starts 10 ms earlier without it
    tracecontext = Lazy(None, "opentelemetry.trace.propagation.tracecontext")

QUIET = frozenset({"/health", "/health/live", "/health/ready", "/health/startup", "/metrics"})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
OTHER = "other"  # the label of non-standard methods
CALLER = "agentops_memory.caller"  # in a request's scope: the Caller, once known
BEGAN = "agentops_memory.began"  # in its scope: its start by `time.perf_counter`, if noted before
CALLERS = 256  # callers whose log fields are cached

log = logging.getLogger(__name__)
requests = logging.getLogger(f"{__name__}.requests")  # for the lines of requests

SPAN: "ContextVar[Span | None]" = ContextVar("the span that the request's line names", default=None)


class OwnText(str):
    """A text of ours, which cannot contain secrets and is not redacted."""

    __slots__ = ()


CHATTY = ("httpx", "httpcore")  # they log each request, sometimes with its whole query

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"  # codes of ANSI terminals
STYLES = {logging.WARNING: YELLOW, logging.ERROR: RED, logging.CRITICAL: RED}


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
        theirs.handlers, theirs.propagate = [], True
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


_STRICT = json.JSONEncoder(allow_nan=False)

_PLAIN = frozenset({"time", "level", "logger", "trace_id", "span_id"})  # texts of our own

_OWN = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}  # every record's


@lru_cache(1)  # most lines have the same second as the line before
def _second(since_epoch: int) -> str:
    return datetime.fromtimestamp(since_epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S")


TEXT = "text/plain; version=0.0.4; charset=utf-8"

Recorder: TypeAlias = "Callable[[float, tuple[str, ...], Span | None], None]"
"""Records a value, with the values of the metric's labels in its order, and a span if any.
The value is added to a counter or a histogram, or replaces that of a gauge.
"""

Sink = Callable[[table.Measure], Recorder]
"""Returns the recorder of a metric: a destination of measurements."""


class SlowRequest(NamedTuple):
    """A slow request, for people who look for the cause."""

    at: float  # when it was answered, in seconds since 1970
    method: str
    route: str
    status: int
    seconds: float
    tenant: str  # empty if the caller was not admitted


SLOW, SLOW_KEPT = 0.25, 50  # seconds of a slow request; how many of the newest are kept


class Metrics:
    """The metrics of one service; gauges are computed on demand where possible."""

    def __init__(self) -> None:
        self._recorders: dict[table.Measure, list[Recorder]] = {
            measure: [] for measure in table.MEASURES
        }
        self._values: dict[table.Measure, float] = {}
        self._counts: dict[tuple[table.Measure, tuple[str, ...]], tuple[float, Span | None]] = {}
        self._lock = threading.Lock()
        self._looks: dict[table.Measure, Callable[[], float]] = {}
        self.slow: deque[SlowRequest] = deque(maxlen=SLOW_KEPT)
        self.in_flight = 0  # requests

    def join(self, sink: Sink) -> None:
        """Send measurements to a sink."""
        for measure, recorders in self._recorders.items():
            recorders.append(sink(measure))
        self._recorders[table.INFO][-1](1, (__version__,), current_span())

    def count(
        self, measure: table.Measure, *labels: str, by: float = 1, span: "Span | None" = None
    ) -> None:
        """Add to a counter, with the newest sampled span as its exemplar."""
        with self._lock:
            count, newest = self._counts.get((measure, labels), (0, None))
            self._counts[measure, labels] = count + by, _sampled(span) or newest

    def observe(
        self, measure: table.Measure, value: float, *labels: str, span: "Span | None" = None
    ) -> None:
        for record in self._recorders[measure]:
            record(value, labels, _sampled(span))

    def note_slow(self, method: str, route: str, status: int, seconds: float, tenant: str) -> None:
        if seconds >= SLOW:
            self.slow.append(SlowRequest(time.time(), method, route, status, seconds, tenant))

    def committed(self, changes: int, seconds: float) -> None:
        self.observe(table.COMMIT_BATCH_SIZE, changes)
        self.observe(table.COMMIT_SECONDS, seconds)

    def fired(self, condition: str, commitments: int) -> None:
        self.count(table.COMMITMENTS_FIRED, condition, by=commitments)

    def show(self, measure: table.Measure, value: float, *labels: str) -> None:
        self._values[measure] = value
        for record in self._recorders[measure]:
            record(value, labels, current_span())

    def value_of(self, measure: table.Measure) -> float:
        """Return the value of a gauge without labels, or 0 before it has one."""
        return self._values.get(measure, 0)

    def count_context(
        self, methods: Sequence[str], span: "Span | None", *, is_degraded: bool = False
    ) -> None:
        """Count a context, by the methods that found its memories."""
        different = set(methods)
        for method in different:
            self.count(table.CONTEXT_METHOD, method, by=methods.count(method), span=span)
        matched = "found" if different - {"recency"} else "recency" if different else "empty"
        self.count(table.CONTEXT_ANSWERS, "degraded" if is_degraded else matched, span=span)

    def look_up(self, measure: table.Measure, look: Callable[[], float]) -> None:
        """Compute a gauge without labels by `look` whenever it is read."""
        self._looks[measure] = look

    def refresh(self) -> None:
        for measure, look in self._looks.items():
            self.show(measure, look())
        self.settle()

    def settle(self) -> None:
        """Hand the counts over to the sinks."""
        with self._lock:
            counts, self._counts = self._counts, {}
        for (measure, labels), (by, span) in counts.items():
            for record in self._recorders[measure]:
                record(by, labels, span)


def _sampled(span: "Span | None") -> "Span | None":
    return span if span is not None and span.get_span_context().trace_flags.sampled else None


class Prometheus:
    """A sink that keeps measurements until Prometheus scrapes them."""

    def __init__(self) -> None:
        # Imported here, as commands do not need it.
        import prometheus_client  # noqa: PLC0415
        from prometheus_client.openmetrics import exposition  # noqa: PLC0415

        self._client, self._open_metrics = prometheus_client, exposition
        # Otherwise each counter would have another series.
        self._client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = self._client.CollectorRegistry()
        self._client.ProcessCollector(registry=self._registry)

    def __call__(self, measure: table.Measure) -> Recorder:
        kind: Any = getattr(self._client, measure.kind.title())
        more = {"buckets": measure.buckets} if measure.buckets else {}
        made = kind(measure.name, measure.help, measure.labels, registry=self._registry, **more)
        series = cache(lambda of: made.labels(*of) if of else made)
        for values in product(*measure.labels.values()):
            series(values)  # known series begin at 0, so that a first event is an increase

        def record(value: float, labels: tuple[str, ...], span: "Span | None") -> None:
            its = series(labels)
            match measure.kind:
                case table.Kind.GAUGE:
                    its.set(value)
                case table.Kind.COUNTER:
                    its.inc(value, trace_ids(span) or None)
                case table.Kind.HISTOGRAM:
                    its.observe(value, trace_ids(span) or None)

        return record

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics as text and its type: OpenMetrics with exemplars if accepted."""
        if "application/openmetrics-text" in accept:
            writer = self._open_metrics
            return writer.generate_latest(self._registry), writer.CONTENT_TYPE_LATEST
        return self._client.generate_latest(self._registry), TEXT


def current_span() -> "Span | None":
    """Return the current span, or None if OpenTelemetry (10 ms) has not been imported."""
    # While the module is being imported, it may log or another thread may, before this exists.
    current = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    return current() if current else None


def trace_ids(span: "Span | None") -> dict[str, str]:
    """Return a span's ids for a log line or an exemplar; none for an invalid span."""
    if span is None or not (context := span.get_span_context()).is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


CURRENT: ContextVar[Metrics | None] = ContextVar("metrics", default=None)
"""The metrics of the service whose operation runs; None outside of an operation."""


def count(measure: table.Measure, *labels: str, by: float = 1) -> None:
    """Add to a counter of the current operation's service, unless `by` is 0."""
    metrics = CURRENT.get()
    if metrics is not None and by:
        metrics.count(measure, *labels, by=by, span=current_span())


@lru_cache(CALLERS)
def _caller_fields(by: tuple[str, ...]) -> tuple[Mapping[str, object], str]:
    """Return the caller's log fields, and their JSON to append to other fields."""
    pairs = zip(("client", "tenant", "key"), by, strict=False)  # the key may be unknown
    fields = {name: OwnText(it) for name, it in pairs if it}
    return fields, "".join(f', "{name}": {json.dumps(it)}' for name, it in fields.items())


def noted(  # noqa: PLR0913 - all data of a request's line
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
) -> str:
    """Count and measure an answered request; return its log line, or log it otherwise.

    `by` is the client's address, the tenant, and the key's name. The default route is the path.
    Lines are made by hand, as the formatter would make them, in a fraction of its time.
    """
    label, route = method if method in _KNOWN else OTHER, route or path
    metrics.count(table.REQUESTS, label, route, str(status), span=span)
    metrics.observe(table.REQUEST_SECONDS, seconds, label, route, span=span)
    metrics.note_slow(label, route, status, seconds, by[1] if len(by) > 1 else "")
    if route == path:
        path = OwnText(path)
    level = logging.DEBUG if path in QUIET else logging.INFO
    if not requests.isEnabledFor(level):
        return ""
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
        return (
            f'{{"time": "{_second(second)}.{int((now - second) * 1000):03d}Z", "level": "INFO", '
            f'"logger": "{requests.name}", "message": "request", "method": "{method}", '
            f'"path": {quoted}, "status": {status}, "duration_ms": {took}{caller_json}{ids}}}\n'
        )
    extra = {
        "method": _KNOWN.get(method, method), "path": path, "status": status,
        "duration_ms": took, **caller,
        **({"request_id": request_id} if request_id else {}), **named,
    }  # fmt: skip
    # Not `requests.log`, which would look up the caller's line of code.
    requests.handle(
        requests.makeRecord(requests.name, level, "", 0, "request", (), None, extra=extra)
    )
    return ""


def write(lines: str) -> None:
    """Write lines that `noted` has returned, as many at once as a shared pipe keeps together."""
    while lines:
        end = lines.rfind("\n", 0, PIPE_BUF) + 1 or lines.index("\n") + 1
        some, lines = lines[:end], lines[end:]
        stream = cast("logging.StreamHandler[TextIO]", logging.root.handlers[0]).stream
        with suppress(OSError, ValueError):  # as in a handler: a closed log stops no request
            stream.write(some)
            stream.flush()


_KNOWN: Mapping[str, str] = {method: OwnText(method) for method in METHODS}


TIMEOUT = timedelta(seconds=2)  # of the last export; a dead collector would take 7 to 10 s
_NOTHING = nullcontext(None)


class Cut(NamedTuple):
    """A text that is cut after its redaction, so that no part of a secret is left."""

    text: str
    limit: int  # code points


Attributes = Mapping[str, "AnyValue | Cut"]


class Telemetry:
    """The spans and metrics of one service, created by `started` and ended by `stop`."""

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        self.metrics = Metrics()
        self._shut_down: Callable[[], object] | None = None
        self.past: Any = None  # `PastSpans`, unless only the SDK may encode spans
        self._answered: list[Callable[[], str]] = []

    @classmethod
    def started(cls, endpoint: str | None, protocol: str = "grpc") -> "Telemetry":
        """Return telemetry that sends all to the endpoint, `host:port` or a URL; else nothing.

        The protocol is `grpc` or `http/protobuf`. If the collector does not respond, spans are
        lost, but no request fails.
        """
        if not endpoint:
            return cls()
        try:
            # Imported here: the SDK and gRPC take 0.2 s at the start and up to 30 MiB, and most
            # services have no collector.
            otlp, telemetry = _otlp(), cls()
            spans, telemetry.past, measured = otlp.providers(endpoint, protocol, telemetry.metrics)
        except ModuleNotFoundError as error:
            command = install_command(SERVER, "otlp")
            raise errors.SettingRefused(
                f"OTEL_EXPORTER_OTLP_ENDPOINT: sending needs an extra: {command}."
            ) from error

        telemetry.tracer = spans.get_tracer(otlp.SCOPE, __version__)
        telemetry._shut_down = lambda: (spans.shutdown(), measured.shutdown())
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
        return _otlp().operation(self.tracer, name, headers) if self.tracer else _NOTHING

    def after_answers(self, noting: Callable[[], str]) -> None:
        """Call `noting` once the event loop has sent its answers, so that none waits for it.

        The lines that one iteration's calls return are logged at once.
        """
        if not self._answered:
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._log_answered)  # after what writes the answers
        self._answered.append(noting)

    def _log_answered(self) -> None:
        calls, self._answered, lines = self._answered, [], list[str]()
        for noting in calls:
            try:
                lines.append(noting())
            except Exception:
                log.exception("an answered request is not measured")
        write("".join(lines))

    def stop(self) -> None:
        """Send what is left, for at most two seconds; the rest is lost."""
        if self._shut_down is None:
            return
        self.metrics.settle()
        # A daemon may be left running: the exporter does not return before its own timeout.
        last = threading.Thread(target=self._shut_down, name="telemetry-stop", daemon=True)
        last.start()
        last.join(TIMEOUT.total_seconds())
        if last.is_alive():
            log.warning("the collector does not answer; the last spans are lost")


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
            clean[name] = encodable(value.text)[: value.limit]
        elif isinstance(value, str) and not isinstance(value, OwnText):
            clean[name] = encodable(value)
        elif value is not None:
            clean[name] = value
    return clean


def encodable(text: str) -> str:
    """Remove secrets and lone surrogates; a surrogate would make a whole batch of spans fail."""
    return hidden(text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8"))


def traced(engine: Engine, telemetry: Telemetry) -> Engine:
    """Return the engine with a span for each transaction and step, or itself if none is sent.

    A transaction's span lasts as long as its caller waits, so it includes the queue and the
    commit.
    """
    return _otlp().TracedEngine(engine, telemetry.tracer) if telemetry.tracer else engine


@cache
def _otlp() -> Any:
    """Return the module that sends, which is part of an extra and builds on this one."""
    return import_module(".otlp", __package__)
