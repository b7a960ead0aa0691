"""What the service says about itself: log lines, and spans and measurements over OTLP."""

from .hidden import hide_by
from .logs import AccessLog, configure_logging
from .metrics import Metrics
from .spans import Cut, annotate, event
from .tracing import Telemetry

__all__ = [
    "AccessLog",
    "Cut",
    "Metrics",
    "Telemetry",
    "annotate",
    "configure_logging",
    "event",
    "hide_by",
]
