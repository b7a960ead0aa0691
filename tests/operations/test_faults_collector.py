"""A collector that is silent: agents do not wait for it, and neither memory nor end do."""

import signal
import socket
import time
from pathlib import Path

import pytest

from ..support.losses import Losses
from ..support.process import Load, served
from ..support.vitals import looked_on, resident

pytestmark = pytest.mark.slow

SAVES = 200
FILLED = 150  # saves after which as many spans wait as may
GROWTH = 12  # MiB


def test_agents_do_not_wait_for_a_collector_that_says_nothing(path: Path, lost: Losses) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, served(
        path, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf", MEMORY_DRAIN="0.1s",
        OTEL_EXPORTER_OTLP_TIMEOUT="600",  # seconds; who waits for the exporter hangs
    ) as (program, http):  # fmt: skip
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
        "a collector that says nothing",
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
