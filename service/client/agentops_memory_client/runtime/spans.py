"""Spans around what the kit asks of the service, so that the agent's trace goes on there.

They have no text of the conversation: the service's own spans tell it, without secrets.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from .. import Found, __version__
from ..transport.trace_context import HAS_TRACING, inject

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
    """A span of the trace that runs, or of the one that `under` tells of as headers do.

    An exception that passes through is noted on it and goes on.
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
    """The trace that runs, as headers tell it."""
    headers: dict[str, str] = {}
    inject(headers)
    return headers


def failed(running: Span, failure: Exception) -> None:
    """The span's work failed. Its type is told, for its message may quote the conversation."""
    if running is None:
        return
    kind = type(failure)
    name = f"{kind.__module__}.{kind.__qualname__}"
    running.add_event("exception", {"exception.type": name})
    running.set_status(trace.StatusCode.ERROR, kind.__name__)


def counted(running: Span, attribute: str, results: int) -> None:
    """How many results the service answered with."""
    if running is not None:
        running.set_attribute(attribute, results)


def found(running: Span, hits: Found) -> None:
    """What a search found, an event each."""
    if running is None:
        return
    counted(running, "memory.search.result_count", len(hits))
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
