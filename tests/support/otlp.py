"""A real collector for a test: it receives spans and measurements over gRPC or HTTP.

It has a socket of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped] # it ships no types
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Histogram, Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from agentops_memory.engine.engine import Engine
from agentops_memory.memory.access import Caller
from agentops_memory.memory.memory import Draft, SessionId, Text
from agentops_memory.memory.saves import SAVE, Saved
from agentops_memory.memory.space import Project, Space
from agentops_memory.telemetry import Telemetry, traced

from .engine import opened

TIMEOUT = 60.0  # seconds for a span to arrive

Value = str | bool | int | float | None
Attributes = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a span."""

    name: str
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpan:
    """A span as it was on the wire; ids are hexadecimal, and a root's parent is empty."""

    name: str
    trace: str
    id: str
    parent: str
    state: str
    is_server: bool
    began: int  # nanoseconds since 1970, as is its end
    ended: int
    failed: bool
    status: str
    attributes: Attributes
    events: tuple[Event, ...]
    resource: Attributes


@dataclass(slots=True, kw_only=True)
class Collector:
    """What has arrived so far, in that order."""

    endpoint: str
    protocol: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    gauges: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)  # of every measurement
    spreads: dict[str, Histogram] = field(default_factory=dict)  # newest, of every histogram
    labels: list[Attributes] = field(default_factory=list)  # of every measurement
    exemplars: dict[str, set[str]] = field(default_factory=dict)  # traces, by measurement
    _arrived: threading.Condition = field(default_factory=threading.Condition)

    def receive(self, request: ExportTraceServiceRequest) -> None:
        """Take the spans of a message in."""
        with self._arrived:
            self.spans += _spans(request)
            self._arrived.notify_all()

    def measure(self, request: ExportMetricsServiceRequest) -> None:
        """Take the newest values of a message in."""
        for of_resource in request.resource_metrics:
            for of_scope in of_resource.scope_metrics:
                for metric in of_scope.metrics:
                    self._measure(metric)

    def _measure(self, metric: Metric) -> None:
        self.units[metric.name] = metric.unit
        if metric.HasField("histogram"):
            self.spreads[metric.name] = metric.histogram
        for newest in metric.gauge.data_points:
            self.gauges[metric.name] = newest.as_int or newest.as_double
        points = (
            *metric.gauge.data_points, *metric.sum.data_points, *metric.histogram.data_points
        )  # fmt: skip
        for point in points:
            self.labels.append(_attributes(point.attributes))
            traces = {exemplar.trace_id.hex() for exemplar in point.exemplars}
            self.exemplars.setdefault(metric.name, set()).update(traces)

    def await_span(self, name: str) -> ReceivedSpan:
        """The first span of this name, once it is there."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.all(name), TIMEOUT), name
            return self.all(name)[0]

    def one(self, name: str) -> ReceivedSpan:
        """The only span of this name."""
        (span,) = self.all(name)
        return span

    def all(self, name: str) -> list[ReceivedSpan]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]

    def children(self, of: ReceivedSpan) -> list[ReceivedSpan]:
        """The spans right below a span, in the order in which they ended."""
        return [span for span in self.spans if span.parent == of.id]


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """A collector that speaks gRPC, as an operator names it: `host:port`."""
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    port = server.add_insecure_port("127.0.0.1:0")
    collector = Collector(endpoint=f"127.0.0.1:{port}", protocol="grpc")
    spans = _Servicer(collector.receive, ExportTraceServiceResponse())
    add_TraceServiceServicer_to_server(spans, server)  # type: ignore[no-untyped-call]
    measures = _Servicer(collector.measure, ExportMetricsServiceResponse())
    add_MetricsServiceServicer_to_server(measures, server)  # type: ignore[no-untyped-call]
    server.start()
    try:
        yield collector
    finally:
        server.stop(grace=None).wait()


@contextmanager
def http_collector() -> Iterator[Collector]:
    """A collector that speaks OTLP over HTTP."""
    server = _HttpServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


COLLECTORS: dict[str, Callable[[], AbstractContextManager[Collector]]] = {
    "grpc": grpc_collector,
    "http": http_collector,
}


class _Servicer(TraceServiceServicer, MetricsServiceServicer):
    """Of either service, which both have one method of the same name."""

    def __init__(self, take: Callable[[Any], None], answer: Any) -> None:
        self._take, self._answer = take, answer

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002, N802 - the protocol's
        self._take(request)
        return self._answer


class _HttpServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.collector = Collector(
            endpoint=f"http://127.0.0.1:{self.server_port}", protocol="http/protobuf"
        )


class _Handler(BaseHTTPRequestHandler):
    server: _HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/traces":
            self.server.collector.receive(ExportTraceServiceRequest.FromString(body))
        elif self.path == "/v1/metrics":
            self.server.collector.measure(ExportMetricsServiceRequest.FromString(body))
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - theirs
        """Say nothing."""


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for of_resource in request.resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            yield from (_span(span, resource) for span in of_scope.spans)


def _span(span: Span, resource: Attributes) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name, trace=span.trace_id.hex(), id=span.span_id.hex(),
        parent=span.parent_span_id.hex(), state=span.trace_state,
        is_server=span.kind == Span.SPAN_KIND_SERVER, began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano, failed=span.status.code == span.status.STATUS_CODE_ERROR,
        status=span.status.message, attributes=_attributes(span.attributes),
        events=_events(span.events), resource=resource,
    )  # fmt: skip


def _events(events: Sequence[Span.Event]) -> tuple[Event, ...]:
    return tuple(Event(name=e.name, attributes=_attributes(e.attributes)) for e in events)


def _attributes(pairs: Iterable[KeyValue]) -> Attributes:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    held: Value = getattr(value, kind) if kind else None
    return held


NOW = datetime(2030, 1, 1, tzinfo=UTC)
ADA = Caller()
DEMO = Project("demo")
SPACE = Space(project=DEMO)

TRACE, AGENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{AGENT}-01"

Work = Callable[[Telemetry, Engine], Awaitable[object]]


@pytest.fixture(params=COLLECTORS)
def each_collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    with COLLECTORS[request.param]() as running:
        yield running


@pytest.fixture
def collector() -> Iterator[Collector]:
    with grpc_collector() as running:
        yield running


def trace(collector: Collector, folder: Path, work: Work) -> None:
    """Do the work; when it is done or has failed, the collector has its spans."""

    async def main() -> None:
        async with opened(folder / "memory.db", clock=lambda: NOW) as engine:
            await work(telemetry, traced(engine, telemetry))

    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    try:
        asyncio.run(main())
    finally:
        telemetry.stop()


async def saved(engine: Engine, draft: Draft) -> Saved:
    return await engine.write(ADA, SAVE, draft, timedelta(minutes=15))


def draft(content: str, key: str | None = None) -> Draft:
    text = Text(type="discovery", title=content, content=content)
    return Draft(session=SessionId("s1"), space=SPACE, text=text, key=key)
