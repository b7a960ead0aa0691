"""The OpenTelemetry SDK with an OTLP exporter. Imported only when there is a collector."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.common import trace_encoder
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, SpanFlags
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AnyValue

from .. import __version__
from ..steps import PastStep

SERVICE = "agentops-memory"
SCOPE = "agentops_memory"
QUEUE = 1024  # spans, and past operations, that wait for the collector; the oldest are lost
BATCH = 128  # in one message; a past operation is one, of ten times the size if it shows much
DELAY = timedelta(seconds=1)  # that a span waits for others at most
INTERVAL = timedelta(seconds=60)  # between two messages of measurements
TRACES = "/v1/traces"
METRICS = "/v1/metrics"
# Settings of the SDK that change what a span holds, or how spans are counted.
_CHANGING = re.compile("OTEL_.*_LIMIT|OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED")

# Read once: protobuf looks a name up at each use.
_INTERNAL, _SERVER = Message.SPAN_KIND_INTERNAL, Message.SPAN_KIND_SERVER
_IS_KNOWN = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE = SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_FIELDS = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}


class PastOperation(ReadableSpan):
    """The span of an operation that is over, with those below it, encoded.

    For the SDK it is a span of the same scope, and one of those that wait.
    """

    def __init__(self, root: ReadableSpan, spans: list[Any]) -> None:
        scope = root.instrumentation_scope
        super().__init__(
            root.name, root.context, resource=root.resource, instrumentation_scope=scope
        )
        self.in_scope = ScopeSpans(spans=spans).SerializeToString()


def encode_spans(sdk_spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    """The message of the SDK, with what is encoded already."""
    others = [it for it in sdk_spans if not isinstance(it, PastOperation)]
    request = trace_encoder.encode_spans(others)
    if whole := [it for it in sdk_spans if isinstance(it, PastOperation)]:
        added = trace_encoder.encode_spans(whole[:1])
        scope = added.resource_spans[0].scope_spans[0]
        scope.ClearField("spans")
        scope.MergeFromString(b"".join([it.in_scope for it in whole]))
        request.MergeFrom(added)
    return request


class PastSpans:
    """Leaves the spans of what is over encoded at once, in the place of the SDK."""

    def __init__(self, provider: TracerProvider, processor: BatchSpanProcessor) -> None:
        self._tracer = provider.get_tracer(SCOPE, __version__)
        self._new_id = provider.id_generator.generate_span_id
        self._processor = processor
        self._callers = TraceContextTextMapPropagator()

    def operation(
        self,
        name: str,
        headers: Mapping[str, str],
        steps: Sequence[PastStep],
        attributes: Mapping[str, AnyValue],
        events: tuple[str, Iterable[Mapping[str, AnyValue]]],
    ) -> Span:
        """An operation that took as long as its first step, which had the others; all is sendable.

        Its events have one name.
        """
        work, *inner = steps
        caller, began = self._callers.extract(headers), work.began
        root = self._tracer.start_span(name, caller, SpanKind.SERVER, start_time=began)
        if not isinstance(root, ReadableSpan):  # it is not sampled
            return root
        top, within, parent = root.context.span_id, self._new_id(), root.parent
        shared = {
            "trace_id": root.context.trace_id.to_bytes(16, "big"),
            "trace_state": root.context.trace_state.to_header(),
            "status": {},
        }
        below = [(it, self._new_id(), within) for it in inner] + [(work, within, top)]
        spans = [
            {**shared, **_fields(step, own, above), "attributes": _pairs(step.attributes)}
            for step, own, above in below
        ]
        operation = _fields(work._replace(name=name), top, parent.span_id if parent else 0)
        operation["kind"], operation["attributes"] = _SERVER, _pairs(attributes)
        operation["flags"] |= _IS_REMOTE if parent else 0
        operation["events"] = [
            {"name": events[0], "time_unix_nano": work.ended, "attributes": _pairs(it)}
            for it in events[1]
        ]
        self._processor.on_end(PastOperation(root, [*spans, shared | operation]))
        return root


def _fields(step: PastStep, own: int, parent: int) -> dict[str, Any]:
    return {
        "span_id": own.to_bytes(8, "big"),
        "parent_span_id": parent.to_bytes(8, "big") if parent else b"",
        "name": step.name,
        "kind": _INTERNAL,
        "start_time_unix_nano": step.began,
        "end_time_unix_nano": step.ended,
        "flags": _IS_KNOWN,
    }


def _pairs(attributes: Mapping[str, AnyValue]) -> list[dict[str, object]]:
    return [
        {"key": name, "value": {_FIELDS[type(value)]: value}}
        for name, value in attributes.items()
        if value is not None
    ]


def providers(
    endpoint: str, protocol: str
) -> tuple[TracerProvider, PastSpans | None, MeterProvider]:
    """Providers of our own, never the global ones, that send in the background.

    They leave the end of the process alone: whoever started them shuts them down. Spans of
    what is over are left to the SDK where its settings or a sampler of others may change them.
    Raises ValueError for an unknown protocol.
    """
    if protocol not in _EXPORTERS:
        raise ValueError(f"The protocol must be one of {', '.join(_EXPORTERS)}.")
    spans, measurements = _EXPORTERS[protocol](endpoint)
    resource = Resource.create({"service.name": SERVICE, "service.version": __version__})
    tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
    processor = BatchSpanProcessor(
        spans,
        max_queue_size=QUEUE,
        max_export_batch_size=BATCH,
        schedule_delay_millis=DELAY / timedelta(milliseconds=1),
    )
    tracing.add_span_processor(processor)
    reader = PeriodicExportingMetricReader(
        measurements, export_interval_millis=INTERVAL / timedelta(milliseconds=1)
    )
    is_usual = type(tracing.sampler).__module__ == sampling.__name__ and not any(
        map(_CHANGING.fullmatch, os.environ)
    )
    past = PastSpans(tracing, processor) if is_usual else None
    return tracing, past, MeterProvider([reader], resource, shutdown_on_exit=False)


def grpc_target(endpoint: str) -> tuple[str, bool]:
    """Host and port, and whether to speak TLS: for `https` alone."""
    url = _url(endpoint)
    return urlsplit(url).netloc, url.startswith("https:")


def http_url(endpoint: str, path: str = TRACES) -> str:
    """The URL to post to. As everywhere in OTLP, an endpoint is a base: `/v1/traces` is added.

    One that is given with that path serves measurements too.
    """
    return _url(endpoint).rstrip("/").removesuffix(TRACES) + path


def _url(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"http://{endpoint}"


# One exporter is imported, never both: gRPC alone takes half of the memory that spans cost.


def _grpc(endpoint: str) -> tuple[SpanExporter, MetricExporter]:
    from opentelemetry.exporter.otlp.proto.grpc import (  # noqa: PLC0415
        metric_exporter,
        trace_exporter,
    )

    trace_exporter.encode_spans = encode_spans  # type: ignore[attr-defined]
    target, tls = grpc_target(endpoint)
    return (
        trace_exporter.OTLPSpanExporter(endpoint=target, insecure=not tls),
        metric_exporter.OTLPMetricExporter(endpoint=target, insecure=not tls),
    )


def _http(endpoint: str) -> tuple[SpanExporter, MetricExporter]:
    from opentelemetry.exporter.otlp.proto.http import (  # noqa: PLC0415
        metric_exporter,
        trace_exporter,
    )

    trace_exporter.encode_spans = encode_spans  # type: ignore[attr-defined]
    return (
        trace_exporter.OTLPSpanExporter(endpoint=http_url(endpoint)),
        metric_exporter.OTLPMetricExporter(endpoint=http_url(endpoint, METRICS)),
    )


_EXPORTERS: dict[str, Callable[[str], tuple[SpanExporter, MetricExporter]]] = {
    "grpc": _grpc,
    "http/protobuf": _http,
    "http": _http,
}
