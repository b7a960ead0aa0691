"""What a client asks belongs to the trace in which it is asked."""

from pathlib import Path

from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

from ..support.asking import KINDS, Road, answering, asking
from ..telemetry.test_tracing import AGENT, TRACE, traced

CALLER = NonRecordingSpan(
    SpanContext(
        int(TRACE, 16), int(AGENT, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=TraceState([("vendor", "blue")]),
    )
)  # fmt: skip


def test_the_span_of_the_service_joins_the_trace_of_the_caller(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        for kind in KINDS:
            with asking(kind, service.url) as client, use_span(CALLER):
                client.stats("demo")
        with asking(KINDS[0], service.url) as client:
            client.health()
            client.sessions()
        collector = received()

    spans = [(span.trace, span.parent) for span in collector.all("memory.stats")]
    assert spans == [(TRACE, AGENT)] * 2
    assert collector.one("memory.recent_sessions").trace != TRACE


def test_every_attempt_tells_of_the_trace_if_there_is_one() -> None:
    for kind in KINDS:
        busy = answering(503, {"error": "Busy."})
        road = Road([busy, busy, answering(json=[])])
        with asking(kind, road=road) as client:
            with use_span(CALLER):
                client.sessions()
            client.sessions()

        assert [it.headers.get("traceparent") for it in road.requests] == [
            *[f"00-{TRACE}-{AGENT}-01"] * 3,
            None,
        ]
        assert [it.headers.get("tracestate") for it in road.requests] == [
            *["vendor=blue"] * 3,
            None,
        ]
