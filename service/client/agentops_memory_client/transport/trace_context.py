"""The current span as W3C trace context headers; none without OpenTelemetry's API, an extra."""

from collections.abc import MutableMapping

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    HAS_TRACING = False
else:
    HAS_TRACING = True


def inject(headers: MutableMapping[str, str]) -> None:
    """Add the headers of the current span, if there is one."""
    if HAS_TRACING:
        TraceContextTextMapPropagator().inject(headers)
