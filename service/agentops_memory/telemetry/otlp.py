"""The OpenTelemetry SDK with an OTLP exporter. Imported only when there is a collector."""

from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from .. import __version__

SERVICE = "agentops-memory"
QUEUE = 1024  # spans that wait for the collector; beyond, the oldest are lost
BATCH = 256  # spans in one message
DELAY = timedelta(seconds=1)  # that a span waits for others at most
INTERVAL = timedelta(seconds=60)  # between two messages of measurements
TRACES = "/v1/traces"
METRICS = "/v1/metrics"


def providers(endpoint: str, protocol: str) -> tuple[TracerProvider, MeterProvider]:
    """Providers of our own, never the global ones, that send in the background.

    They leave the end of the process alone: whoever started them shuts them down.
    Raises ValueError for an unknown protocol.
    """
    if protocol not in _EXPORTERS:
        raise ValueError(f"The protocol is none of {', '.join(_EXPORTERS)}.")
    spans, measurements = _EXPORTERS[protocol](endpoint)
    resource = Resource.create({"service.name": SERVICE, "service.version": __version__})
    tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracing.add_span_processor(
        BatchSpanProcessor(
            spans,
            max_queue_size=QUEUE,
            max_export_batch_size=BATCH,
            schedule_delay_millis=DELAY / timedelta(milliseconds=1),
        )
    )
    reader = PeriodicExportingMetricReader(
        measurements, export_interval_millis=INTERVAL / timedelta(milliseconds=1)
    )
    return tracing, MeterProvider([reader], resource, shutdown_on_exit=False)


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

    return (
        trace_exporter.OTLPSpanExporter(endpoint=http_url(endpoint)),
        metric_exporter.OTLPMetricExporter(endpoint=http_url(endpoint, METRICS)),
    )


_EXPORTERS: dict[str, Callable[[str], tuple[SpanExporter, MetricExporter]]] = {
    "grpc": _grpc,
    "http/protobuf": _http,
    "http": _http,
}
