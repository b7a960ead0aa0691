"""What the service says about itself: log lines, and spans and measurements over OTLP."""

from .logs import OwnText, Requests, configure_logging, hidden, hide_by, hide_too, log_answered
from .metrics import Metrics, count
from .spans import Cut, Telemetry, annotate, events, traced

__all__ = [
    "Cut",
    "Metrics",
    "OwnText",
    "Requests",
    "Telemetry",
    "annotate",
    "configure_logging",
    "count",
    "events",
    "hidden",
    "hide_by",
    "hide_too",
    "log_answered",
    "traced",
]
