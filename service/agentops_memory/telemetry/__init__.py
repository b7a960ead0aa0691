"""What the service says about itself: log lines, and spans and measurements over OTLP."""

from .logs import configure_logging
from .metrics import Metrics
from .redaction import hide_by
from .requests import Requests
from .spans import Cut, annotate, event
from .tracing import Telemetry

__all__ = [
    "Cut",
    "Metrics",
    "Requests",
    "Telemetry",
    "annotate",
    "configure_logging",
    "event",
    "hide_by",
]
