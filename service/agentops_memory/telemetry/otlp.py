"""The OpenTelemetry SDK with an OTLP exporter. Imported only if there is a collector."""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta
from functools import lru_cache, wraps
from importlib import import_module
from math import isnan
from random import getrandbits
from typing import Any, Concatenate, ParamSpec, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common import trace_encoder
from opentelemetry.metrics import Meter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span as Message, SpanFlags, Status
from opentelemetry.sdk.metrics import MeterProvider, export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AnyValue

from .. import __version__, errors
from ..engine.engine import Engine, Maintenance, Transaction, noop
from ..memory import saves
from ..memory.access import Caller
from ..memory.table import TRACING, Attributes, PastStep, Tracing
from ..recall import recall
from . import SPAN, Metrics, OwnText, Recorder, Sink, annotate, encodable, events
from .metrics import Measure

SERVICE = "agentops-memory"
SCOPE = "agentops_memory"
QUEUE = 1024  # spans and past operations that wait for the collector; the oldest are dropped
BATCH = 128  # spans of one message; a past operation counts as one, but may be ten times as large
DELAY = timedelta(seconds=1)  # how long a span waits for others at most
INTERVAL = timedelta(seconds=60)  # between two messages of metrics
PROTOCOLS = {"grpc": "grpc", "http/protobuf": "http", "http": "http"}  # with their packages
TRACES = "/v1/traces"
METRICS = "/v1/metrics"
STEPS = 1024  # steps whose encoding is cached
# Settings of the SDK that change the content of spans, how they are counted, or if any is sent.
_CHANGING = re.compile("OTEL_(.*_LIMIT|PYTHON_SDK_INTERNAL_METRICS_ENABLED|SDK_DISABLED)")

_IS_KNOWN = int(SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
_IS_REMOTE = int(SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
_KINDS = {bool: "bool_value", int: "int_value", float: "double_value"}  # else `string_value`


class PastOperation(ReadableSpan):
    """The spans of a finished operation, as messages.

    The SDK queues it as one span and reads only its context.
    """

    def __init__(self, context: trace.SpanContext, frame: ReadableSpan, spans: ScopeSpans) -> None:
        self._context = context
        self.frame = frame  # an empty span of the same scope
        self.spans = spans


def encoded_message(sdk_spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    """Return the SDK's message, joined with the spans of past operations."""
    past = [it for it in sdk_spans if isinstance(it, PastOperation)]
    others = [it for it in sdk_spans if not isinstance(it, PastOperation)]
    message = trace_encoder.encode_spans(others)
    if past:
        message.MergeFrom(trace_encoder.encode_spans([past[0].frame]))
        (scope,) = message.resource_spans[-1].scope_spans
        scope.ClearField("spans")
        for it in past:
            scope.MergeFrom(it.spans)
    return message


class PastSpans:
    """Writes the spans of finished operations as messages, in a third of the SDK's time."""

    def __init__(self, provider: TracerProvider, processor: BatchSpanProcessor) -> None:
        self._sampler = provider.sampler
        self._processor = processor
        self._callers = TraceContextTextMapPropagator()
        scope = InstrumentationScope(SCOPE, __version__)
        self._frame = ReadableSpan(
            "", trace.INVALID_SPAN_CONTEXT, resource=provider.resource, instrumentation_scope=scope
        )

    def operation(
        self,
        name: str,
        headers: Mapping[str, str],
        steps: Sequence[PastStep],
        attributes: Mapping[str, AnyValue],
        events: tuple[str, Iterable[tuple[bytes, Mapping[str, AnyValue]]]],
    ) -> trace.Span:
        """Send the spans of an operation as long as its first step, the parent of the others.

        All texts must be sendable. Events have one name; each begins with results of `event`.
        """
        caller = self._callers.extract(headers)
        parent = trace.get_current_span(caller).get_span_context()
        trace_id = parent.trace_id if parent.is_valid else getrandbits(128) or 1
        sampled = self._sampler.should_sample(caller, trace_id, name, trace.SpanKind.SERVER)
        is_sent = sampled.decision is sampling.Decision.RECORD_AND_SAMPLE
        own, within, *ids = [getrandbits(64) or 1 for _ in (name, *steps)]
        flags, state = trace.TraceFlags(is_sent), parent.trace_state  # unchanged by samplers
        context = trace.SpanContext(trace_id, own, False, flags, state)
        if is_sent:
            spans, (work, *inner) = ScopeSpans(), steps

            def add(step: PastStep, id_: int, above: int) -> Message:
                span: Message = spans.spans.add(
                    trace_id=trace_id.to_bytes(16, "big"), span_id=id_.to_bytes(8, "big"),
                    parent_span_id=above.to_bytes(8, "big") if above else b"",
                    start_time_unix_nano=step.began, end_time_unix_nano=step.ended,
                    trace_state=state.to_header() if state else "",
                )  # fmt: skip
                span.MergeFromString(_encoded_step(step.name, *step.attributes.items()))
                return span

            for step, id_ in zip(inner, ids, strict=True):
                add(step, id_, within)
            add(work, within, own)
            root = add(PastStep(name, work.began, work.ended, {}), own, parent.span_id)
            root.kind = Message.SPAN_KIND_SERVER
            root.flags |= _IS_REMOTE if parent.is_valid else 0
            _add(root.attributes, attributes)
            for start, more in events[1]:
                event = root.events.add(time_unix_nano=work.ended, name=events[0])
                event.MergeFromString(start)
                _add(event.attributes, more)
            self._processor.on_end(PastOperation(context, self._frame, spans))
        return trace.NonRecordingSpan(context)

    @staticmethod
    def event(attributes: Mapping[str, AnyValue]) -> bytes:
        """Encode the first attributes of an event; the results may be joined and cached."""
        event = Message.Event()
        _add(event.attributes, attributes)
        encoded: bytes = event.SerializeToString()
        return encoded


@lru_cache(STEPS)  # steps have few distinct attributes, and no texts of users
def _encoded_step(name: str, *attributes: tuple[str, str | int | None]) -> bytes:
    span = Message(name=name, kind=Message.SPAN_KIND_INTERNAL, flags=_IS_KNOWN, status=Status())
    _add(span.attributes, dict(attributes))
    encoded: bytes = span.SerializeToString()
    return encoded


def _add(to: Any, attributes: Mapping[str, AnyValue]) -> None:
    for name, value in attributes.items():
        if value is not None:
            to.add(key=name, value={_KINDS.get(type(value), "string_value"): value})


def providers(
    endpoint: str, protocol: str, metrics: Metrics
) -> tuple[TracerProvider, PastSpans | None, MeterProvider]:
    """Return our own providers, never the global ones, which send in the background.

    They do not hook into the process's exit: the code that started them shuts them down. The SDK
    handles past spans if its settings, or a custom sampler, may change them. Raises ValueError for
    an unknown protocol.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"The protocol must be one of {', '.join(PROTOCOLS)}.")
    spans, measurements = _exporters(endpoint, protocol)
    resource = Resource.create({"service.name": SERVICE, "service.version": __version__})
    tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
    processor = BatchSpanProcessor(
        spans,
        max_queue_size=QUEUE,
        max_export_batch_size=BATCH,
        schedule_delay_millis=DELAY / timedelta(milliseconds=1),
    )
    tracing.add_span_processor(processor)
    milliseconds = INTERVAL / timedelta(milliseconds=1)
    reader = export.PeriodicExportingMetricReader(measurements, milliseconds)
    measuring = MeterProvider([reader], resource, shutdown_on_exit=False)
    metrics.join(instruments(measuring.get_meter(SCOPE, __version__)))
    is_usual = type(tracing.sampler).__module__ == sampling.__name__ and not any(
        map(_CHANGING.fullmatch, os.environ)
    )
    past = PastSpans(tracing, processor) if is_usual else None
    return tracing, past, measuring


def http_url(endpoint: str, path: str = TRACES) -> str:
    """Return the URL to post to: as usual in OTLP, the endpoint is a base for `/v1/traces`.

    An endpoint with that path is also used for metrics.
    """
    return _url(endpoint).rstrip("/").removesuffix(TRACES) + path


def _url(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"http://{endpoint}"


def _exporters(endpoint: str, protocol: str) -> tuple[SpanExporter, export.MetricExporter]:
    """Return the exporters of one protocol, as importing gRPC alone takes half of the memory."""
    spans, metrics = (
        import_module(f"opentelemetry.exporter.otlp.proto.{PROTOCOLS[protocol]}.{it}_exporter")
        for it in ("trace", "metric")
    )
    if protocol == "grpc":  # the scheme decides about TLS
        traces = measurements = _url(endpoint)
    else:
        traces, measurements = (http_url(endpoint, it) for it in (TRACES, METRICS))
    spans.encode_spans = encoded_message  # type: ignore[attr-defined]
    return spans.OTLPSpanExporter(traces), metrics.OTLPMetricExporter(measurements)


def instruments(meter: Meter) -> Sink:
    def recorder(measure: Measure) -> Recorder:
        more = {"explicit_bucket_boundaries_advisory": measure.buckets} if measure.buckets else {}
        made = getattr(meter, f"create_{measure.kind}")(
            measure.name, measure.unit, measure.help, **more
        )
        record = getattr(made, {"counter": "add", "gauge": "set"}.get(measure.kind, "record"))

        def send(value: float, labels: tuple[str, ...], span: trace.Span | None) -> None:
            if not isnan(value):  # NaN: the value is unknown
                named = dict(zip(measure.labels, labels, strict=True))
                record(value, named, trace.set_span_in_context(span or trace.INVALID_SPAN))

        return send

    return recorder


P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Transaction, P], T]

MOST_STEPS = 64  # most spans of one transaction; an import would have several for each row

WORK: Mapping[Callable[..., object], str] = {
    saves.save: "store.add_observation",
    recall.search: "store.search",
    recall.context: "store.fetch_context",
}


class TracedEngine:
    def __init__(self, engine: Engine, tracer: trace.Tracer) -> None:
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


def _steps(tracer: trace.Tracer) -> Tracing:
    """Return the tracing of one transaction's steps, up to the maximum number of spans."""
    room = iter(range(MOST_STEPS))

    @contextmanager
    def step(name: str) -> Iterator[Callable[[Attributes], None]]:
        if next(room, None) is None:
            yield noop
        else:
            with span(tracer, name):
                yield annotate

    return step


def _span_name(work: Callable[..., object]) -> str:
    return WORK.get(inspect.unwrap(work)) or f"store.{getattr(work, '__name__', 'work')}"


UNKNOWN_ERROR = "error"


ERROR_TYPES = frozenset(
    {"not_found", "validation_error", "invalid_input", "db_locked", "constraint_violation"}
)


@contextmanager
def operation(tracer: trace.Tracer, name: str, headers: Mapping[str, str]) -> Iterator[trace.Span]:
    caller = TraceContextTextMapPropagator().extract(headers)
    with span(tracer, f"memory.{name}", caller=caller) as current:
        SPAN.set(current)
        annotate({"memory.operation": OwnText(name)})
        yield current


@contextmanager
def span(tracer: trace.Tracer, name: str, *, caller: Context | None = None) -> Iterator[trace.Span]:
    """Within, the current span: a child of the previous one, or of the caller's.

    An exception is recorded on it and re-raised.
    """
    kind = trace.SpanKind.INTERNAL if caller is None else trace.SpanKind.SERVER
    with tracer.start_as_current_span(
        name, context=caller, kind=kind, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            _fail(current, error)
            raise


def _fail(current: trace.Span, error: Exception) -> None:
    if isinstance(error, errors.RunAgain) or not current.is_recording():
        return
    annotate({"error.type": _error_type(error)})
    name, message = type(error).__name__, errors.safe_message(error)
    status = encodable(f"{name}: {message}" if message else name)
    current.set_status(trace.Status(trace.StatusCode.ERROR, status))
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
