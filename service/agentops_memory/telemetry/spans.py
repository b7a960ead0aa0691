"""Spans: their start, attributes, events and failures, and where they are sent."""

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from agentops_memory_client.contract.models import SERVER, install_command

from .. import __version__
from ..engine.engine import Engine, Maintenance, Transaction, noop
from ..errors import AtItem, Conflict, Refusal, RunAgain, SettingRefused, safe_message, trace
from ..light import Lazy
from ..memory import saves
from ..memory.access import Caller
from ..memory.table import TRACING, Tracing
from ..memory.table import Attributes as StepAttributes
from ..recall import recall
from .logs import OwnText, hidden, remember
from .metrics import CURRENT, Metrics, Prometheus, current_span

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

TIMEOUT = timedelta(seconds=2)  # of the last export; a dead collector would take 7 to 10 s

log = logging.getLogger(__name__)

_NOTHING = nullcontext(None)


class Cut(NamedTuple):
    """A text that is cut after its redaction, so that no part of a secret is left."""

    text: str
    limit: int  # code points


Attributes: TypeAlias = "Mapping[str, AnyValue | Cut]"

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
            raise SettingRefused(
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
        prometheus = Prometheus(self.metrics.spreads)
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
        remember(current)
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
    if isinstance(error, RunAgain) or not current.is_recording():
        return
    annotate({"error.type": _error_type(error)})
    name, message = type(error).__name__, safe_message(error)
    status = _encodable(f"{name}: {message}" if message else name)
    current.set_status(otel.Status(otel.StatusCode.ERROR, status))
    # Span.record_exception would record data that the message quotes.
    attributes = {
        "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": message or None,
        "exception.stacktrace": trace(error),
    }
    events("exception", [attributes])


def _error_type(error: Exception) -> str:
    if isinstance(error, AtItem):
        return _error_type(error.refusal)
    if isinstance(error, Conflict):
        return Conflict.code  # its kinds have codes that the contract lacks
    code = error.code if isinstance(error, Refusal) else UNKNOWN_ERROR
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
