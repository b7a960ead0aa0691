"""The service's measurements, by name, unit and meaning."""

from dataclasses import dataclass

from opentelemetry.metrics import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is measured: a gauge, which holds the newest value."""

    name: str
    unit: str
    help: str


INDEX_DRIFT = Measure(
    name="memory_index_drift_rows",
    unit="{row}",
    help="By how many rows the full-text index was out of line with the memories, at the last "
    "look. It is mended at once; anything but 0 is worth a report.",
)
INDEX_PARTITIONS = Measure(
    name="memory_index_partitions",
    unit="{partition}",
    help="Partitions of the full-text index.",
)
MEASURES = (INDEX_DRIFT, INDEX_PARTITIONS)


class Metrics:
    """The measurements of one service."""

    def __init__(self, meter: Meter) -> None:
        self._gauges = {
            measure.name: meter.create_gauge(measure.name, measure.unit, measure.help)
            for measure in MEASURES
        }

    def show(self, measure: Measure, value: int) -> None:
        """Let this be the measure's value from now on."""
        self._gauges[measure.name].set(value)
