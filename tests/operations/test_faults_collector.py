"""A collector that is dead or slow: agents do not wait for it, and neither memory nor end do."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from ..support.losses import Losses
from ..support.onlookers import looked_on
from ..support.process import Load, served
from ..support.vitals import resident
from ..telemetry.test_collector import PATIENT, dead_port

pytestmark = pytest.mark.slow

SAVES = 200
FILLED = 150  # saves after which as many spans wait as may
GROWTH = 12  # MiB
DRAIN = "0.1s"


@contextmanager
def slow_port() -> Iterator[int]:
    """A port that reads what comes a little at a time, and answers nothing for seconds."""
    is_over = threading.Event()

    def dawdle(taken: socket.socket) -> None:
        with taken, suppress(OSError):
            while not is_over.wait(0.2) and taken.recv(512):
                pass

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                taken, _ = listener.accept()
                threading.Thread(target=dawdle, args=[taken]).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, args=[listener])
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            is_over.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


PORTS: dict[str, Callable[[], AbstractContextManager[int]]] = {
    "refuses": partial(dead_port, "refuses"), "says nothing": partial(dead_port, "says nothing"),
    "cannot be reached": partial(dead_port, "cannot be reached"), "is slow": slow_port,
}  # fmt: skip


@pytest.mark.representative(1)
@pytest.mark.parametrize(
    ("fault", "protocol"),
    [
        ("refuses", "grpc"), ("says nothing", "http/protobuf"), ("cannot be reached", "grpc"),
        ("is slow", "http/protobuf"),
    ],
)  # fmt: skip
def test_agents_do_not_wait_for_a_collector_that_fails(
    fault: str, protocol: str, path: Path, lost: Losses
) -> None:
    with (
        PORTS[fault]() as port,
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
