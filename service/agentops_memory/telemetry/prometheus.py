"""Measurements for Prometheus, which comes and asks."""

from collections.abc import Sequence
from itertools import product

from opentelemetry.trace import Span, format_span_id, format_trace_id
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPEN_METRICS
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics

from .measures import MEASURES, Kind, Measure

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Prometheus:
    """A sink that keeps what it is given, for `exposition`."""

    def __init__(self) -> None:
        # Else each has a series more.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._counters: dict[Measure, Counter] = {}
        self._gauges: dict[Measure, Gauge] = {}
        self._histograms: dict[Measure, Histogram] = {}
        for measure in MEASURES:
            _begin_at_zero(self._made(measure), measure)

    def add(self, measure: Measure, amount: float, labels: Sequence[str], span: Span) -> None:
        counter = self._counters[measure]
        (counter.labels(*labels) if labels else counter).inc(amount, _exemplar(span))

    def record(self, measure: Measure, value: float, labels: Sequence[str], span: Span) -> None:
        histogram = self._histograms[measure]
        (histogram.labels(*labels) if labels else histogram).observe(value, _exemplar(span))

    def hold(self, measure: Measure, value: float, labels: Sequence[str]) -> None:
        gauge = self._gauges[measure]
        (gauge.labels(*labels) if labels else gauge).set(value)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All of them as text, and its content type: OpenMetrics, with exemplars, if accepted."""
        if "application/openmetrics-text" in accept:
            text: bytes = generate_open_metrics(self._registry)  # type: ignore[no-untyped-call]
            return text, OPEN_METRICS
        return generate_latest(self._registry), TEXT

    def _made(self, measure: Measure) -> MetricWrapperBase:
        given = (measure.name, measure.help, tuple(measure.labels))
        made: MetricWrapperBase
        match measure.kind:
            case Kind.COUNTER:
                made = self._counters[measure] = Counter(*given, registry=self._registry)
            case Kind.GAUGE:
                made = self._gauges[measure] = Gauge(*given, registry=self._registry)
            case Kind.HISTOGRAM:
                made = self._histograms[measure] = Histogram(
                    *given, buckets=measure.buckets, registry=self._registry
                )
        return made


def _begin_at_zero(made: MetricWrapperBase, measure: Measure) -> None:
    """Series that are known beforehand are there at once: the first event is then an increase."""
    if measure.labels:
        for values in product(*measure.labels.values()):
            made.labels(*values)


def _exemplar(span: Span) -> dict[str, str] | None:
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return None
    return {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
    }
