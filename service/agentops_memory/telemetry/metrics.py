"""Measurements: where they go, and how what came of an operation is counted."""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache
from itertools import accumulate, product
from math import isnan
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)

from .. import __version__
from . import measures as m
from .measures import MEASURES, Kind, Measure

if TYPE_CHECKING:
    from opentelemetry.context import Context as SpanContext
    from opentelemetry.metrics import Meter

TEXT = "text/plain; version=0.0.4; charset=utf-8"

Recorder = Callable[[float, tuple[str, ...], Span], None]
"""Takes a value, the values of the measure's labels in its order, and the span it belongs to.

It lets a counter grow by the value, adds it to a histogram, or is a gauge's from now on.
"""
Sink = Callable[[Measure], Recorder]
"""Where measurements go."""


class SlowRequest(NamedTuple):
    """A request that took long, for people who look for the cause."""

    at: float  # when it was answered, in seconds since 1970
    method: str
    route: str
    status: int
    seconds: float
    tenant: str  # empty if nobody was let in


SLOW, SLOW_KEPT = 0.25, 50  # seconds; and how many of the newest are remembered


class Metrics:
    """The measurements of one service. What can be computed on demand is."""

    def __init__(self) -> None:
        self._recorders: dict[Measure, list[Recorder]] = {measure: [] for measure in MEASURES}
        self._values: dict[Measure, float] = {}
        self._tallies: dict[tuple[Measure, tuple[str, ...]], tuple[int, Span]] = {}
        self._looks: dict[Measure, Callable[[], float]] = {}
        self.slow: deque[SlowRequest] = deque(maxlen=SLOW_KEPT)
        self.in_flight = 0  # requests

    def join(self, sink: Sink) -> None:
        for measure, recorders in self._recorders.items():
            recorders.append(sink(measure))
        self._recorders[m.INFO][-1](1, (__version__,), get_current_span())

    def count(
        self, measure: Measure, *labels: str, by: float = 1, span: Span = INVALID_SPAN
    ) -> None:
        for record in self._recorders[measure]:
            record(by, labels, span)

    def tally(self, measure: Measure, *labels: str, by: int = 1, span: Span = INVALID_SPAN) -> None:
        """Count for the next scrape, with the newest sampled span; on the event loop's thread."""
        count, newest = self._tallies.get((measure, labels), (0, INVALID_SPAN))
        if span is not INVALID_SPAN and span.get_span_context().trace_flags.sampled:
            newest = span
        self._tallies[measure, labels] = count + by, newest

    def observe(
        self, measure: Measure, value: float, *labels: str, span: Span = INVALID_SPAN
    ) -> None:
        for record in self._recorders[measure]:
            record(value, labels, span)

    def note_slow(self, method: str, route: str, status: int, seconds: float, tenant: str) -> None:
        if seconds >= SLOW:
            slow = SlowRequest(time.time(), method, route, status, seconds, tenant)
            self.slow.append(slow)

    def committed(self, changes: int, seconds: float) -> None:
        self.observe(m.COMMIT_BATCH_SIZE, changes)
        self.observe(m.COMMIT_SECONDS, seconds)

    def fired(self, condition: str, commitments: int) -> None:
        self.count(m.COMMITMENTS_FIRED, condition, by=commitments)

    def show(self, measure: Measure, value: float, *labels: str) -> None:
        self._values[measure] = value
        for record in self._recorders[measure]:
            record(value, labels, get_current_span())

    def value_of(self, measure: Measure) -> float:
        """The value of a gauge without labels; 0 before there is one."""
        return self._values.get(measure, 0)

    def look_up(self, measure: Measure, look: Callable[[], float]) -> None:
        """Let a gauge without labels be what `look` returns when it is read."""
        self._looks[measure] = look

    def refresh(self) -> None:
        for measure, look in self._looks.items():
            self.show(measure, look())
        self.settle()

    def settle(self) -> None:
        """Count what was tallied."""
        tallies, self._tallies = self._tallies, {}
        for (measure, labels), (by, span) in tallies.items():
            self.count(measure, *labels, by=by, span=span)


def instruments(meter: "Meter") -> Sink:
    def recorder(measure: Measure) -> Recorder:
        record = _instrument(meter, measure)

        def recorded(value: float, labels: tuple[str, ...], span: Span) -> None:
            if isnan(value):  # nobody can tell
                return
            labelled = dict(zip(measure.labels, labels, strict=True))
            record(value, labelled, set_span_in_context(span))

        return recorded

    return recorder


def _instrument(
    meter: "Meter", measure: Measure
) -> "Callable[[float, dict[str, str], SpanContext], None]":
    args = (measure.name, measure.unit, measure.help)
    match measure.kind:
        case Kind.COUNTER:
            return meter.create_counter(*args).add
        case Kind.GAUGE:
            return meter.create_gauge(*args).set
        case Kind.HISTOGRAM:
            return meter.create_histogram(
                *args, explicit_bucket_boundaries_advisory=measure.buckets
            ).record


class Prometheus:
    """A sink that keeps the measurements until Prometheus scrapes them."""

    def __init__(self) -> None:
        # Not at the top: a command at the terminal has no use for it.
        import prometheus_client  # noqa: PLC0415
        from prometheus_client.openmetrics import exposition  # noqa: PLC0415

        self._client, self._open_metrics = prometheus_client, exposition
        # Else each has a series more.
        self._client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = self._client.CollectorRegistry()
        self._client.ProcessCollector(registry=self._registry)

    def __call__(self, measure: Measure) -> Recorder:
        labelled, add = self._made(measure)
        series = cache(lambda labels: labelled(*labels))
        for values in product(*measure.labels.values()):
            series(values)  # known ones begin at 0, so that a first event is an increase

        def recorded(value: float, labels: tuple[str, ...], span: Span) -> None:
            add(series(labels), value, _exemplar(span))

        return recorded

    def _made(self, measure: Measure) -> tuple[Callable[..., Any], Callable[..., None]]:
        """What tells the series of some labels, and what adds a value to one."""
        client, args = self._client, (measure.name, measure.help, tuple(measure.labels))
        if measure.kind is Kind.HISTOGRAM:
            histogram = _Histogram(client, measure)
            self._registry.register(histogram)
            return histogram.labels, _Series.observe
        is_counter = measure.kind is Kind.COUNTER
        made = (client.Counter if is_counter else client.Gauge)(*args, registry=self._registry)
        add = client.Counter.inc if is_counter else lambda gauge, value, _: gauge.set(value)
        return made.labels if measure.labels else lambda: made, add

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All of them as text, and its content type: OpenMetrics, with exemplars, if accepted."""
        if "application/openmetrics-text" in accept:
            writer = self._open_metrics
            return writer.generate_latest(self._registry), writer.CONTENT_TYPE_LATEST
        return self._client.generate_latest(self._registry), TEXT


class _Series:
    """The values of a histogram for some labels, counted in few calls: each request has some."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last is of what is beyond all bounds
        self.sum = 0.0
        self.exemplars: dict[int, tuple[dict[str, str], float, float]] = {}  # newest, by bucket
        self._lock = Lock()

    def observe(self, value: float, exemplar: dict[str, str] | None) -> None:
        at = bisect_left(self.bounds, value)
        with self._lock:
            self.counts[at] += 1
            self.sum += value
        if exemplar:
            self.exemplars[at] = exemplar, value, time.time()


class _Histogram:
    """A collector of `prometheus_client`."""

    def __init__(self, client: Any, measure: Measure) -> None:
        self._client = client
        self._measure = measure
        self._series: dict[tuple[str, ...], _Series] = {}

    def labels(self, *labels: str) -> _Series:
        return self._series.setdefault(labels, _Series(self._measure.buckets))

    def collect(self) -> Iterator[Any]:
        measure, client = self._measure, self._client
        family = client.metrics_core.HistogramMetricFamily(
            measure.name, measure.help, labels=tuple(measure.labels)
        )
        bounds = [*map(client.utils.floatToGoString, measure.buckets), "+Inf"]
        for labels, series in list(self._series.items()):
            newest = map(series.exemplars.get, range(len(bounds)))
            exemplars = [it and client.samples.Exemplar(*it) for it in newest]
            buckets = list(zip(bounds, accumulate(series.counts), exemplars, strict=True))
            family.add_metric(labels, buckets, series.sum)
        yield family


def _exemplar(span: Span) -> dict[str, str] | None:
    if span is INVALID_SPAN:  # of a service that sends none
        return None
    return trace_ids(span) if span.get_span_context().trace_flags.sampled else None


def trace_ids(span: Span) -> dict[str, str]:
    """The names of a span, for a log line or an exemplar; none for one that is not recorded."""
    context = span.get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
    }


CURRENT: ContextVar[Metrics | None] = ContextVar("metrics", default=None)
"""Those of the service whose operation this is; none outside of one."""


def count(measure: Measure, *labels: str, by: float = 1) -> None:
    """Count what came of the operation; 0 is nothing."""
    metrics = CURRENT.get()
    if metrics is not None and by:
        metrics.count(measure, *labels, by=by, span=get_current_span())
