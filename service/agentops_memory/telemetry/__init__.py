"""What the service says about itself: log lines, and spans over OTLP."""

from .logs import AccessLog, configure_logging
from .spans import annotate, event
from .tracing import Telemetry

__all__ = ["AccessLog", "Telemetry", "annotate", "configure_logging", "event"]
