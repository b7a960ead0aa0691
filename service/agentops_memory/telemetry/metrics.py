"""Measurements: where they go, and what came of the domain's operations."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeVar, cast

from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.metrics import _Gauge as Gauge
from opentelemetry.trace import INVALID_SPAN, Span, get_current_span, set_span_in_context

from .. import __version__
from ..domain.memories.idempotency import IdempotentRequest
from ..domain.model.memory import Amended, Entered, Imported, Saved
from ..domain.model.search import Context, Method
from ..domain.model.stores import Written
from .measures import (
    COMMIT_BATCH_SIZE,
    COMMIT_SECONDS,
    CONTEXT_ANSWERS,
    CONTEXT_METHOD,
    DEDUP,
    INFO,
    MEASURES,
    REDACTIONS,
    Kind,
    Measure,
)

Service = TypeVar("Service")


class Sink(Protocol):
    """Where measurements go. `labels` are the values of the measure's labels, in its order."""

    def add(self, measure: Measure, amount: float, labels: Sequence[str], span: Span) -> None:
        """Let a counter grow; the span is one in which it did."""

    def record(self, measure: Measure, value: float, labels: Sequence[str], span: Span) -> None:
        """Add a value to a histogram; the span is where it was measured."""

    def hold(self, measure: Measure, value: float, labels: Sequence[str]) -> None:
        """Let this be a gauge's value from now on."""


class Metrics:
    """The measurements of one service. What can be looked up is looked up when it is asked for."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks: tuple[Sink, ...] = ()
        self._shown: dict[Measure, float] = {}
        self._looks: dict[Measure, Callable[[], float]] = {}
        for sink in sinks:
            self.join(sink)

    def join(self, sink: Sink) -> None:
        """Tell the sink, too, from now on."""
        sink.hold(INFO, 1, (__version__,))
        self._sinks += (sink,)

    def count(
        self, measure: Measure, *labels: str, by: float = 1, span: Span = INVALID_SPAN
    ) -> None:
        """Let a counter grow."""
        for sink in self._sinks:
            sink.add(measure, by, labels, span)

    def observe(
        self, measure: Measure, value: float, *labels: str, span: Span = INVALID_SPAN
    ) -> None:
        """Add a value to a histogram."""
        for sink in self._sinks:
            sink.record(measure, value, labels, span)

    def committed(self, changes: int, seconds: float) -> None:
        """Add a commit."""
        self.observe(COMMIT_BATCH_SIZE, changes)
        self.observe(COMMIT_SECONDS, seconds)

    def show(self, measure: Measure, value: float, *labels: str) -> None:
        """Let this be a gauge's value from now on."""
        self._shown[measure] = value
        for sink in self._sinks:
            sink.hold(measure, value, labels)

    def shown(self, measure: Measure) -> float:
        """The value of a gauge without labels; 0 before there is one."""
        return self._shown.get(measure, 0)

    def look_up(self, measure: Measure, look: Callable[[], float]) -> None:
        """Let a gauge without labels be what `look` answers when it is asked for."""
        self._looks[measure] = look

    def refresh(self) -> None:
        """Look up what is looked up."""
        for measure, look in self._looks.items():
            self.show(measure, look())


class Instruments:
    """A sink over the instruments of a meter."""

    def __init__(self, meter: Meter) -> None:
        self._counters: dict[Measure, Counter] = {}
        self._gauges: dict[Measure, Gauge] = {}
        self._histograms: dict[Measure, Histogram] = {}
        for measure in MEASURES:
            self._make(meter, measure)

    def add(self, measure: Measure, amount: float, labels: Sequence[str], span: Span) -> None:
        labelled = dict(zip(measure.labels, labels, strict=True))
        self._counters[measure].add(amount, labelled, set_span_in_context(span))

    def record(self, measure: Measure, value: float, labels: Sequence[str], span: Span) -> None:
        labelled = dict(zip(measure.labels, labels, strict=True))
        self._histograms[measure].record(value, labelled, set_span_in_context(span))

    def hold(self, measure: Measure, value: float, labels: Sequence[str]) -> None:
        self._gauges[measure].set(value, dict(zip(measure.labels, labels, strict=True)))

    def _make(self, meter: Meter, measure: Measure) -> None:
        given = (measure.name, measure.unit, measure.help)
        match measure.kind:
            case Kind.COUNTER:
                self._counters[measure] = meter.create_counter(*given)
            case Kind.GAUGE:
                self._gauges[measure] = meter.create_gauge(*given)
            case Kind.HISTOGRAM:
                self._histograms[measure] = meter.create_histogram(
                    *given, explicit_bucket_boundaries_advisory=measure.buckets
                )


def counted(service: Service, metrics: Metrics) -> Service:
    """The domain service, with what comes of its operations counted."""
    return cast("Service", _Counted(service, metrics))


class _Counted:
    """Stands for a service: what its operations answer is counted, by the kind of answer."""

    def __init__(self, service: object, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._service, name)
        if iscoroutinefunction(found):
            found = self._counted(found)
        setattr(self, name, found)  # found at once from now on
        return found

    def _counted(
        self, operation: Callable[..., Awaitable[object]]
    ) -> Callable[..., Awaitable[object]]:
        @wraps(operation)
        async def counting(
            *args: object, idempotency: IdempotentRequest | None = None, **kwargs: object
        ) -> object:
            given = kwargs if idempotency is None else kwargs | {"idempotency": idempotency}
            outcome = await operation(*args, **given)
            count = COUNTS.get(type(outcome))
            if count and not (
                idempotency and idempotency.is_replay
            ):  # that was counted when it was done
                count(self._metrics, outcome)
            return outcome

        return counting


def _saved(metrics: Metrics, saved: Saved) -> None:
    metrics.count(DEDUP, saved.action.value, span=get_current_span())
    _redacted(metrics, saved)


def _redacted(metrics: Metrics, of: Saved | Amended | Entered | Imported | Written[object]) -> None:
    if of.redacted:
        metrics.count(REDACTIONS, by=of.redacted, span=get_current_span())


def _context(metrics: Metrics, context: Context) -> None:
    methods = [hit.method for hit in context.found.hits]
    for method in set(methods):
        metrics.count(CONTEXT_METHOD, method.value, by=methods.count(method))
    metrics.count(CONTEXT_ANSWERS, _outcome(context, methods), span=get_current_span())


def _outcome(context: Context, methods: list[Method]) -> str:
    if context.found.is_degraded:
        return "degraded"
    if any(method is not Method.RECENCY for method in methods):
        return "found"
    return "recency" if methods else "empty"


COUNTS: Mapping[type, Callable[[Metrics, Any], None]] = {
    Saved: _saved,
    Amended: _redacted,
    Entered: _redacted,
    Imported: _redacted,
    Written: _redacted,
    Context: _context,
}
