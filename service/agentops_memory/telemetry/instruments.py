"""Measurements for a collector, which OpenTelemetry sends."""

from collections.abc import Sequence

from opentelemetry.metrics import Counter, Histogram, Meter
from opentelemetry.metrics import _Gauge as Gauge
from opentelemetry.trace import Span, set_span_in_context

from .metrics import MEASURES, Kind, Measure


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
