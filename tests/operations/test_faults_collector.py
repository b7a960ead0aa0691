"""A collector that is dead or slow: agents do not wait for it, and neither memory nor end do."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..support.losses import Losses
from ..support.process import Load, served
from ..support.vitals import looked_on, resident

pytestmark = pytest.mark.slow

SAVES = 200
FILLED = 150  # saves after which as many spans wait as may
GROWTH = 12  # MiB
DRAIN = "0.1s"
PATIENT = {"OTEL_EXPORTER_OTLP_TIMEOUT": "600"}  # seconds; who waits for the exporter hangs


@pytest.mark.representative(1)
@pytest.mark.parametrize(
    ("fault", "protocol"),
    [
        ("refuses", "grpc"), ("says nothing", "http/protobuf"), ("cannot be reached", "grpc"),
    ],
)  # fmt: skip
def test_agents_do_not_wait_for_a_collector_that_fails(
    fault: str, protocol: str, path: Path, lost: Losses
) -> None:
    with (
        dead_port(fault) as port,
        served(
            path, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol, MEMORY_DRAIN=DRAIN, **PATIENT,
        ) as (program, http),
    ):  # fmt: skip
        full = Load(str(http.base_url), about="earlier save", saves=FILLED).start()
        full.join()
        before = resident(program.pid)
        with looked_on(http.base_url) as onlookers:
            load = Load(str(http.base_url), saves=SAVES).start()
            load.join()
        grown = resident(program.pid) - before
        exported = http.get("/export").json()["observations"]
        program.send(signal.SIGTERM)
        began = time.monotonic()
        code = program.wait()
        took = time.monotonic() - began

    lost(
        f"a collector that {fault}",
        acknowledged=load.acknowledged.items(),
        found={row["content"]: row["id"] for row in exported}.items(),
        remark=f"{onlookers.told}; it grew by {grown:.0f} MiB and ended in {took:.1f} s",
    )
    assert code == 0
    assert onlookers.statuses.keys() == {200}
    assert load.refused == {}
    assert onlookers.unanswered == 0  # who waits for the exporter gets no answer in time
    assert grown < GROWTH
    assert "the collector does not answer; the last spans are lost" in program.output


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
