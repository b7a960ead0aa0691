"""The running trace as headers (W3C trace context); none without OpenTelemetry's API.

Whoever traces has the API, so the distribution does not bring it.
"""

from collections.abc import MutableMapping

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    HAS_TRACING = False
else:
    HAS_TRACING = True


def inject(headers: MutableMapping[str, str]) -> None:
    """Add the headers of the running trace, if there is one."""
    if HAS_TRACING:
        TraceContextTextMapPropagator().inject(headers)
