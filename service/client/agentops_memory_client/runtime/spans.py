"""Spans around the kit's requests, which the service's spans join.

They contain no text of the conversation; the service's own do, without secrets.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from .. import Found, __version__
from ..transport import HAS_TRACING, inject

if HAS_TRACING:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TITLE = 100  # code points of a title in an event

Attributes = Mapping[str, str | int | float]
Span: TypeAlias = "trace.Span | None"  # None without OpenTelemetry's API


@contextmanager
def span(
    name: str, attributes: Attributes, *, under: Mapping[str, str] | None = None
) -> Iterator[Span]:
    """A span in the current trace, or in that of the trace context headers `under`.

    An exception is recorded on it and propagates.
    """
    if not HAS_TRACING:
        yield None
        return
    tracer = trace.get_tracer("agentops_memory.runtime", __version__)
    context = None if under is None else TraceContextTextMapPropagator().extract(under)
    with tracer.start_as_current_span(
        name, context, attributes=dict(attributes),
        record_exception=False, set_status_on_exception=False,
    ) as running:  # fmt: skip
        try:
            yield running
        except Exception as failure:
            failed(running, failure)
            raise


def here() -> dict[str, str]:
    """The current span as W3C trace context headers."""
    headers: dict[str, str] = {}
    inject(headers)
    return headers


def failed(running: Span, failure: Exception) -> None:
    """Set the span's status, with the exception's type: its message may quote the conversation."""
    if running is None:
        return
    kind = type(failure)
    name = f"{kind.__module__}.{kind.__qualname__}"
    running.add_event("exception", {"exception.type": name})
    running.set_status(trace.StatusCode.ERROR, kind.__name__)


def add_hits(running: Span, hits: Found) -> None:
    """Add an event for each hit of a search."""
    if running is None:
        return
    running.set_attribute("memory.search.result_count", len(hits))
    for hit in hits:
        running.add_event(
            "search.result",
            {
                "memory.injected.observation_id": hit.id,
                "memory.injected.type": hit.type,
                "memory.injected.title": hit.title[:TITLE],
                "memory.injected.rank": hit.rank,
            },
        )
