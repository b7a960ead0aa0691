"""The trace context of the current span, sent along with a call."""

from collections.abc import MutableMapping

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    HAS_TRACING = False
else:
    HAS_TRACING = True


def inject(headers: MutableMapping[str, str]) -> None:
    """Add the W3C trace context headers of the current span, if there is one.

    There is none without OpenTelemetry's API, which is an extra.
    """
    if HAS_TRACING:
        TraceContextTextMapPropagator().inject(headers)
