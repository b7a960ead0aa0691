"""The OpenTelemetry SDK with an OTLP exporter. Imported only when there is a collector."""

from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from .. import __version__

SERVICE = "agentops-memory"
QUEUE = 1024  # spans that wait for the collector; beyond, the oldest are lost
BATCH = 256  # spans in one message
DELAY = timedelta(seconds=1)  # that a span waits for others at most
TRACES = "/v1/traces"


def provider(endpoint: str, protocol: str) -> TracerProvider:
    """A provider of our own, never the global one, that sends in the background.

    It leaves the end of the process alone: whoever started it shuts it down.
    Raises ValueError for an unknown protocol.
    """
    if protocol not in _EXPORTERS:
        raise ValueError(f"The protocol is none of {', '.join(_EXPORTERS)}.")
    named = {"service.name": SERVICE, "service.version": __version__}
    made = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    made.add_span_processor(
        BatchSpanProcessor(
            _EXPORTERS[protocol](endpoint),
            max_queue_size=QUEUE,
            max_export_batch_size=BATCH,
            schedule_delay_millis=DELAY / timedelta(milliseconds=1),
        )
    )
    return made


def grpc_target(endpoint: str) -> tuple[str, bool]:
    """Host and port, and whether to speak TLS: for `https` alone."""
    url = _url(endpoint)
    return urlsplit(url).netloc, url.startswith("https:")


def http_url(endpoint: str) -> str:
    """The URL to post to. As everywhere in OTLP, an endpoint is a base: `/v1/traces` is added."""
    url = _url(endpoint).rstrip("/")
    return url if url.endswith(TRACES) else url + TRACES


def _url(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"http://{endpoint}"


# One exporter is imported, never both: gRPC alone takes half of the memory that spans cost.


def _grpc(endpoint: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )

    target, tls = grpc_target(endpoint)
    return OTLPSpanExporter(endpoint=target, insecure=not tls)


def _http(endpoint: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )

    return OTLPSpanExporter(endpoint=http_url(endpoint))


_EXPORTERS: dict[str, Callable[[str], SpanExporter]] = {
    "grpc": _grpc,
    "http/protobuf": _http,
    "http": _http,
}
