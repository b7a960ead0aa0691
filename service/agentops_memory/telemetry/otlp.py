"""The OpenTelemetry SDK with an OTLP exporter. Imported only if there is a collector."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from importlib import import_module
from random import getrandbits
from struct import Struct, pack
from time import time
from typing import Any, cast
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common import trace_encoder
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags
from opentelemetry.sdk.metrics import Exemplar, MeterProvider, export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AnyValue

from .. import __version__
from ..memory.table import PastStep
from .metrics import Measure, Metrics, Series, Spreads, instruments

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
# Settings of the SDK that change how histograms are sent.
_COUNTING = re.compile("OTEL_.*_(EXEMPLAR_FILTER|METRICS_TEMPORALITY_.*|HISTOGRAM_AGGREGATION)")

# Keys precede fields: the field's number, shifted left by three bits, and its wire type.
# The keys of a Span, of its Events, and of the attributes of both.
_TRACE_ID, _SPAN_ID, _PARENT = b"\x0a\x10", b"\x12\x08", b"\x22\x08"  # each with the field's size
_TRACE_STATE, _NAME = b"\x1a", b"\x2a"
_ATTRIBUTE, _EVENT, _FLAGS, _NO_STATUS = b"\x4a", b"\x5a", b"\x85\x01", b"\x7a\x00"
_EVENT_AT, _NAMED, _EVENT_ATTRIBUTE = b"\x09", b"\x12", b"\x1a"
_KEY, _VALUE, _TEXT, _TRUE, _FALSE, _INT, _FLOAT = (
    b"\x0a", b"\x12", b"\x0a", b"\x10\x01", b"\x10\x00", b"\x18", b"\x21"
)  # fmt: skip
_SPAN = _SCOPE = b"\x12"  # a span in a scope, and a scope in a resource
_RESOURCE = b"\x0a"  # a resource in a message
_TAIL = Struct("<BBBQBQ2sI")  # kind, times and flags, each after its key
_INTERNAL, _SERVER = Message.SPAN_KIND_INTERNAL, Message.SPAN_KIND_SERVER
_IS_KNOWN = int(SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
_IS_REMOTE = int(SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)


class PastOperation(ReadableSpan):
    """The encoded span of a finished operation, with its child spans.

    The SDK queues it as one span and reads only its context.
    """

    def __init__(self, context: trace.SpanContext, frame: ReadableSpan, encoded: bytes) -> None:
        self._context = context
        self.frame = frame  # an empty span of the same scope
        self.encoded = encoded


def encoded_message(sdk_spans: Sequence[ReadableSpan]) -> bytes:
    """Return the SDK's message, joined with already encoded spans, which are slow to parse."""
    past = [it for it in sdk_spans if isinstance(it, PastOperation)]
    others = trace_encoder.encode_spans(
        [it for it in sdk_spans if not isinstance(it, PastOperation)]
    )
    message: bytes = others.SerializePartialToString()
    if not past:
        return message
    (frame,) = trace_encoder.encode_spans([past[0].frame]).resource_spans
    scope = frame.scope_spans.pop()
    scope.ClearField("spans")
    spans = b"".join([scope.SerializeToString(), *(it.encoded for it in past)])
    whole = frame.SerializeToString() + _sized(_SCOPE, spans)
    return _sized(_RESOURCE, whole) + message


class _Encoded(bytes):
    """An encoded message, posted over HTTP instead of a message object."""

    def SerializePartialToString(self) -> bytes:  # noqa: N802 - protobuf's name
        return self

    SerializeToString = SerializePartialToString


class PastSpans:
    """Encodes the spans of finished operations itself, instead of the SDK."""

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
        attributes: bytes,
        events: tuple[str, Iterable[bytes]],
    ) -> trace.Span:
        """Send the spans of an operation as long as its first step, the parent of the others.

        All texts must be sendable. Events have one name; all attributes come from `encoded`.
        """
        caller = self._callers.extract(headers)
        parent = trace.get_current_span(caller).get_span_context()
        trace_id = parent.trace_id if parent.is_valid else getrandbits(128) or 1
        is_sent = not parent.is_valid or parent.trace_flags.sampled
        if self._sampler is not sampling.DEFAULT_ON:  # the default decides so in many more calls
            sampled = self._sampler.should_sample(caller, trace_id, name, trace.SpanKind.SERVER)
            is_sent = sampled.decision is sampling.Decision.RECORD_AND_SAMPLE
        own, within, *ids = [(getrandbits(64) or 1).to_bytes(8, "big") for _ in (*steps, name)]
        own_id, state = int.from_bytes(own, "big"), parent.trace_state  # unchanged by samplers
        context = trace.SpanContext(trace_id, own_id, False, trace.TraceFlags(is_sent), state)
        if is_sent:
            work, *inner = steps
            shared = _sized(_TRACE_STATE, state.to_header().encode()) if state else b""
            shared = _NO_STATUS + _TRACE_ID + trace_id.to_bytes(16, "big") + shared + _SPAN_ID
            below = [*zip(inner, ids, [within] * len(ids), strict=True), (work, within, own)]
            spans = [_span(shared + own_ + _PARENT + above, it) for it, own_, above in below]
            at = _EVENT_AT + work.ended.to_bytes(8, "little") + _sized(_NAMED, events[0].encode())
            fields = _PARENT + parent.span_id.to_bytes(8, "big") if parent.is_valid else b""
            flags = _IS_KNOWN | (_IS_REMOTE if fields else 0)
            fields = shared + own + fields + attributes
            fields += b"".join([_sized(_EVENT, at + it) for it in events[1]])
            spans.append(_span(fields, PastStep(name, work.began, work.ended, {}), _SERVER, flags))
            self._processor.on_end(PastOperation(context, self._frame, b"".join(spans)))
        return trace.NonRecordingSpan(context)

    @staticmethod
    def encoded(attributes: Mapping[str, AnyValue], *, of_event: bool = True) -> bytes:
        """Encode attributes; the results may be joined."""
        key = _EVENT_ATTRIBUTE if of_event else _ATTRIBUTE
        return b"".join([_pair(key, *it) for it in attributes.items() if it[1] is not None])


def _span(before: bytes, step: PastStep, kind: int = _INTERNAL, flags: int = _IS_KNOWN) -> bytes:
    tail = _TAIL.pack(0x30, kind, 0x39, step.began, 0x41, step.ended, _FLAGS, flags)
    return _sized(_SPAN, before + _encoded_step(step.name, *step.attributes.items()) + tail)


@lru_cache(STEPS)  # steps have few distinct attributes, and no texts of users
def _encoded_step(name: str, *attributes: tuple[str, str | int | None]) -> bytes:
    encoded = PastSpans.encoded(dict(attributes), of_event=False)
    return encoded + _sized(_NAME, name.encode())


def _pair(key: bytes, name: str, value: AnyValue) -> bytes:
    if isinstance(value, str):
        written = _sized(_TEXT, value.encode())
    elif isinstance(value, bool):
        written = _TRUE if value else _FALSE
    elif isinstance(value, int):
        written = _INT + _varint(value & (1 << 64) - 1)
    else:
        written = _FLOAT + pack("<d", value)
    return _sized(key, _sized(_KEY, name.encode()) + _sized(_VALUE, written))


def _sized(key: bytes, value: bytes) -> bytes:
    """Return a length-delimited field."""
    size = len(value)
    if size < 1 << 7:
        return b"%b%c%b" % (key, size, value)
    if size < 1 << 14:  # most fields; `_varint` would recurse
        return b"%b%c%c%b" % (key, size & 0x7F | 0x80, size >> 7, value)
    return key + _varint(size) + value


def _varint(number: int) -> bytes:
    """Return a number as seven bits per byte, lowest first."""
    if number < 1 << 7:
        return bytes((number,))
    return bytes((number & 0x7F | 0x80,)) + _varint(number >> 7)


class _Reader(export.PeriodicExportingMetricReader):
    """Sends our histograms with the SDK's metrics; the SDK would take 40 us to record a value."""

    def __init__(self, exporter: export.MetricExporter, spreads: Spreads) -> None:
        self._spreads, self._since = spreads, 0.0
        super().__init__(exporter, INTERVAL / timedelta(milliseconds=1))

    def _receive_metrics(self, metrics_data: export.MetricsData, *args: Any, **kwargs: Any) -> None:
        for it in metrics_data.resource_metrics[0].scope_metrics:
            if it.scope.name == SCOPE:  # the SDK may also send metrics of itself
                cast("list[export.Metric]", it.metrics).extend(self._counted())
        super()._receive_metrics(metrics_data, *args, **kwargs)

    def _counted(self) -> Iterator[export.Metric]:
        since, self._since = self._since, time()
        for it, known in self._spreads.items():
            if points := [*_points(it, [*known.items()], since, int(self._since * 1e9))]:
                spread = export.Histogram(points, export.AggregationTemporality.CUMULATIVE)
                yield export.Metric(it.name, it.help, it.unit, spread)


def _points(
    measure: Measure, known: Sequence[tuple[tuple[str, ...], Series]], since: float, now: int
) -> Iterator[export.HistogramDataPoint]:
    """Yield a point for each series with values, and its exemplars since the last message."""
    for labels, it in known:
        exemplars = [
            Exemplar({}, value, int(at * 1e9), int(ids["span_id"], 16), int(ids["trace_id"], 16))
            for _, (ids, value, at) in sorted(it.exemplars.items()) if at > since
        ]  # fmt: skip
        if count := sum(counts := it.counts.copy()):
            yield export.HistogramDataPoint(
                dict(zip(measure.labels, labels, strict=True)), it.began, now, count, it.sum,
                counts, it.bounds, it.least, it.greatest, exemplars,
            )  # fmt: skip


def providers(
    endpoint: str, protocol: str, metrics: Metrics
) -> tuple[TracerProvider, PastSpans | None, MeterProvider]:
    """Return our own providers, never the global ones, which send in the background.

    They do not hook into the process's exit: the code that started them shuts them down. The SDK
    handles past spans and histograms if its settings, or a custom sampler, may change them. Raises
    ValueError for an unknown protocol.
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
    has_spreads = not any(map(_COUNTING.fullmatch, os.environ))
    reader = _Reader(measurements, metrics.spreads if has_spreads else {})
    measuring = MeterProvider([reader], resource, shutdown_on_exit=False)
    metrics.join(instruments(measuring.get_meter(SCOPE, __version__)), has_spreads=has_spreads)
    is_usual = type(tracing.sampler).__module__ == sampling.__name__ and not any(
        map(_CHANGING.fullmatch, os.environ)
    )
    past = PastSpans(tracing, processor) if is_usual else None
    return tracing, past, measuring


def grpc_target(endpoint: str) -> tuple[str, bool]:
    """Return host and port, and whether to use TLS: only for `https`."""
    url = _url(endpoint)
    return urlsplit(url).netloc, url.startswith("https:")


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
    if protocol == "grpc":
        encode: Callable[[bytes], object] = ExportTraceServiceRequest.FromString
        target, tls = grpc_target(endpoint)
        of_spans: dict[str, Any] = {"endpoint": target, "insecure": not tls}
        of_metrics = of_spans
    else:
        encode = _Encoded
        of_spans, of_metrics = ({"endpoint": http_url(endpoint, it)} for it in (TRACES, METRICS))
    spans.encode_spans = lambda it: encode(encoded_message(it))  # type: ignore[attr-defined]
    return spans.OTLPSpanExporter(**of_spans), metrics.OTLPMetricExporter(**of_metrics)
