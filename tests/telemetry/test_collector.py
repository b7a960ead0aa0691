"""Spans reach the collector that is there, and a start says what it takes to reach one."""

import pytest

from agentops_memory.telemetry import Telemetry
from agentops_memory.telemetry.otlp import http_url

from ..support.otlp import Collector, each_collector
from ..support.process import ANY_PORT, run

__all__ = ["each_collector"]


@pytest.mark.slow
def test_spans_arrive_while_the_service_runs(each_collector: Collector) -> None:
    telemetry = Telemetry.started(each_collector.endpoint, each_collector.protocol)
    try:
        with telemetry.operation("stats", {}):
            pass

        assert each_collector.await_span("memory.stats").parent == ""
    finally:
        telemetry.stop()


def test_http_posts_below_the_endpoint_and_there_are_two_protocols() -> None:
    for endpoint, url in (
        ("collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("https://collector/otlp", "https://collector/otlp/v1/traces"),
        ("https://collector/otlp/v1/traces", "https://collector/otlp/v1/traces"),
    ):
        assert http_url(endpoint) == url
    with pytest.raises(ValueError, match="must be one of grpc, http"):
        Telemetry.started("127.0.0.1:4317", "carrier-pigeon")


@pytest.mark.parametrize(
    ("protocol", "absent"),
    [
        ("grpc", "opentelemetry.exporter.otlp.proto.grpc"), ("http/protobuf", "opentelemetry.sdk"),
        pytest.param("", "psycopg", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_start_without_the_extra_says_how_to_install_it(protocol: str, absent: str) -> None:
    missing = f"import sys; sys.modules[{absent!r}] = None"
    code = f"{missing}; from agentops_memory.cli import main; main()"
    variables = {
        "MEMORY_LISTEN": "127.0.0.1:0", "OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }  # fmt: skip
    if not protocol:
        variables = {"MEMORY_DATABASE_URL": "postgresql://host/name", **ANY_PORT}
    refused = run("serve", variables=variables, code=code)

    assert (refused.returncode, refused.stdout) == (1, "")
    if not protocol:
        assert "[postgresql]'" in refused.stderr or "psycopg[binary]" in refused.stderr
        return
    sentence, hint = refused.stderr.splitlines()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT: sending needs an extra: " in sentence
    assert "[otlp]'" in sentence or "opentelemetry-exporter-otlp-proto-grpc" in sentence
    assert hint.startswith("Hint: ")
