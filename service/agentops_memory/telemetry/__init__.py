"""The service's log lines, and its spans and measurements over OTLP."""

from .logs import (
    BEGAN,
    CALLER,
    OwnText,
    Requests,
    configure_logging,
    hidden,
    hide_by,
    hide_too,
    log_answered,
    show_banner,
)
from .metrics import Metrics, count
from .spans import Cut, Telemetry, annotate, events, trace_headers, traced

__all__ = [
    "BEGAN",
    "CALLER",
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
    "show_banner",
    "trace_headers",
    "traced",
]
