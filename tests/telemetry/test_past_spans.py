"""What is written as messages at once is, field by field, what the SDK would have sent."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AnyValue

from agentops_memory import __version__
from agentops_memory.memory.table import PastStep
from agentops_memory.telemetry import otlp

from ..support.otlp import AGENT, TRACE
from ..support.samples import for_each

CALLERS: tuple[dict[str, str], ...] = (
    {},
    {"traceparent": f"00-{TRACE}-{AGENT}-01"},
    {"traceparent": f"00-{TRACE}-{AGENT}-01", "tracestate": "vendor=1,b=2"},
    {"traceparent": f"00-{TRACE}-{AGENT}-03"},
)
VALUES: dict[str, AnyValue] = {
    "text": "東京 🐳", "empty": "", "long": "x" * 20_000, "yes": True, "no": False,
    "zero": 0, "least": -(1 << 63), "most": (1 << 63) - 1, "rank": -1.5, "nothing": 0.0,
    "endless": float("inf"),
}  # fmt: skip
EVENTS: list[dict[str, AnyValue]] = [VALUES, {}, {"a": 1}]
STEPS = [
    PastStep("store.search", 10, 90, {}),
    PastStep("store.fts", 20, 30, {"memory.fts.match": "every", "memory.search.result_count": 0}),
    PastStep("store.fts", 40, 50, {"memory.fts.match": None, "memory.search.result_count": 300}),
]


class Kept(BatchSpanProcessor):
    """What ends, in its order."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    def shutdown(self) -> None:
        """Send nothing."""


@contextmanager
def providing() -> Iterator[tuple[TracerProvider, Kept]]:
    resource = Resource.create({"service.name": "test", "many": ["a", "b"]})
    provider, kept = TracerProvider(resource=resource, shutdown_on_exit=False), Kept()
    provider.add_span_processor(kept)
    yield provider, kept
    provider.shutdown()


def by_the_sdk(tracer: Tracer, headers: Mapping[str, str]) -> None:
    work, *inner = STEPS
    caller = TraceContextTextMapPropagator().extract(headers)
    root = tracer.start_span("memory.search", caller, SpanKind.SERVER, VALUES, start_time=10)
    transaction = tracer.start_span(work.name, set_span_in_context(root), start_time=work.began)
    for name, began, ended, attributes in inner:
        sent = {key: value for key, value in attributes.items() if value is not None}
        above = set_span_in_context(transaction)
        tracer.start_span(name, above, attributes=sent, start_time=began).end(ended)
    transaction.end(work.ended)
    for event in EVENTS:
        root.add_event("search.result", event, work.ended)
    root.end(work.ended)


def without_ids(spans: list[Span]) -> list[Span]:
    """The spans with the place of a span among them for its id, and one trace for each."""
    known = {span.span_id: bytes([place]) for place, span in enumerate(spans, 1)}
    traces = {
        it: bytes([place]) for place, it in enumerate(dict.fromkeys(s.trace_id for s in spans))
    }
    for span in spans:
        if span.trace_id.hex() != TRACE:
            span.trace_id = traces[span.trace_id]
        span.span_id = known[span.span_id]
        span.parent_span_id = known.get(span.parent_span_id, span.parent_span_id)
    return spans


@for_each("headers", CALLERS)
def test_a_past_operation_is_what_the_sdk_sends(headers: dict[str, str]) -> None:
    with providing() as (provider, kept):
        by_the_sdk(provider.get_tracer(otlp.SCOPE, __version__), headers)
        sdk = encode_spans(kept.spans)
        kept.spans.clear()
        past = otlp.PastSpans(provider, kept)
        events = [(past.event({name: it[name] for name in [*it][:5]}),
                   {name: it[name] for name in [*it][5:]}) for it in EVENTS]  # fmt: skip
        root = past.operation("memory.search", headers, STEPS, VALUES, ("search.result", events))
        own = otlp.encoded_message(kept.spans)

    assert len(kept.spans) == 1
    (of_resource,), (of_own,) = sdk.resource_spans, own.resource_spans
    (scope,), (own_scope,) = of_resource.scope_spans, of_own.scope_spans
    assert own_scope.spans[-1].span_id == root.get_span_context().span_id.to_bytes(8, "big")
    spans, others = without_ids(list(scope.spans)), without_ids(list(own_scope.spans))
    assert len(spans) == 4
    assert others == spans
    assert (of_own.resource, of_own.schema_url) == (of_resource.resource, of_resource.schema_url)
    assert (own_scope.scope, own_scope.schema_url) == (scope.scope, scope.schema_url)


def test_a_message_holds_spans_of_the_sdk_and_past_ones() -> None:
    with providing() as (provider, kept):
        past = otlp.PastSpans(provider, kept)
        for name in ("one", "two"):
            past.operation(name, {}, STEPS, {}, ("e", []))
            provider.get_tracer(otlp.SCOPE, __version__).start_span(f"{name} of the SDK").end()
        message = otlp.encoded_message(kept.spans)

    spans = [
        span.name
        for of_resource in message.resource_spans
        for scope in of_resource.scope_spans
        for span in scope.spans
    ]
    steps = ["store.fts", "store.fts", "store.search"]
    assert sorted(spans) == sorted(["one", "two", "one of the SDK", "two of the SDK", *steps * 2])


def test_a_sampler_that_is_not_the_usual_one_is_asked() -> None:
    with providing() as (provider, kept):
        headers = {"traceparent": f"00-{TRACE}-{AGENT}-00"}
        for provider.sampler in (sampling.ALWAYS_ON, sampling.ALWAYS_OFF):
            past = otlp.PastSpans(provider, kept)
            root = past.operation("memory.search", headers, STEPS, {}, ("e", []))
            is_sampled = provider.sampler is sampling.ALWAYS_ON
            assert root.get_span_context().trace_flags.sampled is is_sampled

    assert len(kept.spans) == 1


def test_a_span_that_is_not_sampled_is_not_encoded() -> None:
    with providing() as (provider, kept):
        past, headers = otlp.PastSpans(provider, kept), {"traceparent": f"00-{TRACE}-{AGENT}-00"}
        root = past.operation("memory.search", headers, STEPS, {}, ("e", []))

    assert kept.spans == []
    assert f"{root.get_span_context().trace_id:032x}" == TRACE
