"""Spans reach the collector that is there, and one that is not stands in nobody's way."""

import inspect
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentops_memory.telemetry import Telemetry
from agentops_memory.telemetry.otlp import grpc_target, http_url

from ..support.forks import SOURCES
from ..support.otlp import Collector, each_collector
from ..support.process import run

__all__ = ["each_collector"]

MOST = 120.0  # seconds until an end has hung; two of them are the collector's
PATIENT = {"OTEL_EXPORTER_OTLP_TIMEOUT": "600"}  # seconds; who waits for the exporter hangs

ENDING = """
    import sys
    from agentops_memory.telemetry import Telemetry, configure_logging
    configure_logging()
    telemetry = Telemetry.started(*sys.argv[1:])
    with telemetry.operation("stats", {}):
        pass
    print('"ending"', flush=True)
    telemetry.stop()
"""


@pytest.mark.slow
def test_spans_arrive_while_the_service_runs(each_collector: Collector) -> None:
    telemetry = Telemetry.started(each_collector.endpoint, each_collector.protocol)
    try:
        with telemetry.operation("stats", {}):
            pass

        assert each_collector.await_span("memory.stats").parent == ""
    finally:
        telemetry.stop()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("fault", ["refuses", "says nothing", "cannot be reached"])
@pytest.mark.slow
@pytest.mark.representative(1)
def test_a_dead_collector_does_not_delay_the_exit(fault: str, protocol: str) -> None:
    with dead_port(fault) as port, python(ENDING, f"127.0.0.1:{port}", protocol) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '"ending"\n'
        said, _ = process.communicate(timeout=MOST)

    assert process.returncode == 0
    messages = [json.loads(line)["message"] for line in said.splitlines()]
    assert messages[-1] == "the collector does not answer; the last spans are lost"


def test_grpc_is_plain_text_unless_the_url_is_https_and_http_posts_below_the_endpoint() -> None:
    for endpoint, target, tls in (
        ("collector:4317", "collector:4317", False), ("[::1]:4317", "[::1]:4317", False),
        ("http://collector:4317", "collector:4317", False),
        ("https://collector:4317/", "collector:4317", True),
    ):  # fmt: skip
        assert grpc_target(endpoint) == (target, tls)
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


@contextmanager
def dead_port(fault: str) -> Iterator[int]:
    """A port that refuses connections, takes them without a word, or lets them wait."""
    with socket.socket() as bound, socket.socket() as first, socket.socket() as second:
        bound.bind(("127.0.0.1", 0))
        if fault != "refuses":
            bound.listen(0 if fault == "cannot be reached" else 16)
        if fault == "cannot be reached":
            for waiting in (first, second):  # they fill the queue of those to be accepted
                waiting.setblocking(False)
                waiting.connect_ex(bound.getsockname())
        yield bound.getsockname()[1]


def python(program: str, *arguments: str) -> "subprocess.Popen[str]":
    """A process of its own that runs the program."""
    return subprocess.Popen(
        [sys.executable, "-c", inspect.cleandoc(program), *arguments],
        env=os.environ | PATIENT | {"PYTHONPATH": SOURCES}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "absent"),
    [("grpc", "opentelemetry.exporter.otlp.proto.grpc"), ("http/protobuf", "opentelemetry.sdk")],
)
def test_a_start_without_the_extra_says_how_to_install_it(protocol: str, absent: str) -> None:
    missing = f"import sys; sys.modules[{absent!r}] = None"
    code = f"{missing}; from agentops_memory.cli import main; main()"
    variables = {
        "MEMORY_LISTEN": "127.0.0.1:0", "OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4317",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }  # fmt: skip
    refused = run("serve", variables=variables, code=code)

    assert (refused.returncode, refused.stdout) == (1, "")
    sentence, hint = refused.stderr.splitlines()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT: sending needs an extra: " in sentence
    assert "[otlp]'" in sentence or "opentelemetry-exporter-otlp-proto-grpc" in sentence
    assert hint.startswith("Hint: ")
