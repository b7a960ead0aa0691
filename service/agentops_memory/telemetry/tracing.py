"""Spans and measurements of the service, sent to a collector if there is one."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta

from opentelemetry.metrics import Meter
from opentelemetry.trace import INVALID_SPAN, NoOpTracer, Span, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .. import __version__
from ..domain.ports.engine import Engine
from .instruments import Instruments
from .metrics import Metrics
from .outcomes import Service, counted
from .requests import remember
from .spans import annotate, span
from .step_spans import traced

SCOPE = "agentops_memory"
TIMEOUT = timedelta(seconds=2)  # at the end; a dead collector would take 7 to 10 seconds

log = logging.getLogger(__name__)

_CALLER = TraceContextTextMapPropagator()
_NOTHING = nullcontext(INVALID_SPAN)


class Telemetry:
    """The spans and measurements of one service. Make it with `started`; end it with `stop`."""

    def __init__(
        self,
        tracer: Tracer,
        meter: Meter | None = None,
        shut_down: Callable[[], None] | None = None,
    ) -> None:
        self.tracer = tracer
        self.metrics = Metrics(*([Instruments(meter)] if meter else []))
        self._shut_down = shut_down

    @property
    def is_sent(self) -> bool:
        """Whether there is a collector."""
        return self._shut_down is not None

    @classmethod
    def started(cls, endpoint: str | None, protocol: str = "grpc") -> "Telemetry":
        """All goes to the endpoint: `host:port` or a URL; with none, nothing is traced or sent.

        The protocol is `grpc` or `http/protobuf`. A collector that does not
        answer costs spans, never a request.
        """
        if not endpoint:
            return cls(NoOpTracer())
        # Not at the top: the SDK and gRPC cost 0.2 s at the start and up to 30 MiB
        # for good, and most services have no collector.
        from .otlp import providers  # noqa: PLC0415

        spans, measurements = providers(endpoint, protocol)

        def shut_down() -> None:
            spans.shutdown()
            measurements.shutdown()

        tracer = spans.get_tracer(SCOPE, __version__)
        return cls(tracer, measurements.get_meter(SCOPE, __version__), shut_down)

    def engine(self, engine: Engine) -> Engine:
        """The engine with a span for each transaction and for its steps; itself when off."""
        return traced(engine, self.tracer) if self._shut_down else engine

    def exposition(self) -> Callable[[str], tuple[bytes, str]]:
        """Keep measurements from now on; the answer shows them, as `Prometheus.exposition` does."""
        # Not at the top: a command at the terminal has no use for it.
        from .prometheus import Prometheus  # noqa: PLC0415

        prometheus = Prometheus()
        self.metrics.join(prometheus)
        return prometheus.exposition

    def counted(self, service: Service) -> Service:
        """The domain service, with what comes of its operations counted."""
        return counted(service, self.metrics)

    def operation(self, name: str, headers: Mapping[str, str]) -> AbstractContextManager[Span]:
        """The span `memory.<name>`, in the caller's trace if `headers` name one.

        A malformed `traceparent` is ignored. An exception is recorded and goes on.
        """
        return self._operation(name, headers) if self._shut_down else _NOTHING

    def stop(self) -> None:
        """Send what is left, for at most two seconds; what is unsent by then is lost."""
        if self._shut_down is None:
            return
        # A thread of its own, and a daemon, may be left behind: the exporter
        # does not return before its own time-out.
        last = threading.Thread(target=self._shut_down, name="telemetry-stop", daemon=True)
        last.start()
        last.join(TIMEOUT.total_seconds())
        if last.is_alive():
            log.warning("the collector does not answer; the last spans are lost")

    @contextmanager
    def _operation(self, name: str, headers: Mapping[str, str]) -> Iterator[Span]:
        caller = _CALLER.extract(headers)
        with span(self.tracer, f"memory.{name}", kind=SpanKind.SERVER, parent=caller) as current:
            remember(current)
            annotate({"memory.operation": name})
            yield current
