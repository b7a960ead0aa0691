"""One service at a time on a database: the next waits for it, or says who has it."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ..support.losses import Losses, found_again
from ..support.process import Load, Program, free_port, program, until
from ..support.service import PLAIN, serving

SAVES = 60  # acknowledged by each service of a round, at least


@contextmanager
def second(path: Path, **variables: str) -> Iterator[tuple[Program, httpx.Client]]:
    """Another service on the file, once its socket listens."""
    address = f"127.0.0.1:{free_port()}"
    own = {"MEMORY_LISTEN": address, "MEMORY_DB_PATH": str(path), **variables}
    with (
        program("serve", variables=own) as process,
        httpx.Client(base_url=f"http://{address}", timeout=30, verify=PLAIN) as http,
    ):
        yield process, http


@pytest.mark.slow
def test_a_second_service_waits_and_then_refuses_with_the_name_of_the_first(path: Path) -> None:
    with serving(path) as first:
        for wait in ("0", "100ms"):
            with second(path, MEMORY_LOCK_WAIT=wait) as (process, _):
                assert process.wait() == 1
            assert ("waiting for it to stop" in process.output) == (wait != "0")
            line, hint = process.errors.splitlines()
            assert hint.startswith("Hint: ")
            assert line.startswith(
                f"agentops-memory: The database {path} is served by {socket.gethostname()} "
                f"(process {os.getpid()}), since 20"
            )
            assert line.endswith(
                "End that service first. Or let this one wait longer for it, with MEMORY_LOCK_WAIT."
            )
        first.save("the first goes on")


@pytest.mark.slow
def test_a_signal_ends_a_service_that_waits_at_once(path: Path) -> None:
    with serving(path), second(path) as (process, _):
        process.line("another service has the database")
        process.send(signal.SIGTERM)

        assert (process.wait(), process.errors) == (0, "")  # else it would refuse, with exit code 1


@pytest.mark.slow
def test_two_services_that_start_at_once_take_turns_and_lose_nothing(
    path: Path, lost: Losses
) -> None:
    acknowledged: dict[str, int] = {}
    for number, end in enumerate((signal.SIGTERM, signal.SIGKILL)):
        with second(path, MEMORY_DRAIN="0") as one, second(path, MEMORY_DRAIN="0") as other:
            pods = dict((one, other))
            (first,) = until(lambda: [*filter(serves, pods)])  # noqa: B023 - called at once
            (last,) = (it for it in pods if it is not first)
            last.line("another service has the database")
            assert_waits(pods[last])
            for place, pod in enumerate((first, last)):
                pod.line('"serving on http')
                about = f"round {number}, service {place}, save"
                load = Load(str(pods[pod].base_url), about=about, saves=100_000).start()
                load.reach(SAVES)
                assert place or not serves(last)
                pod.send(end)
                assert pod.wait() == (0 if end == signal.SIGTERM else -signal.SIGKILL)
                load.join()
                acknowledged |= load.acknowledged
                assert set(load.refused.values()) <= {503}

    fault, remark = "two services start at once on one volume", "one served, and then the other"
    found_again(lost, fault, path, acknowledged, remark)


def serves(pod: Program) -> bool:
    return '"serving on http' in pod.output


def assert_waits(probes: httpx.Client) -> None:
    """A service that waits is alive, and not ready."""
    assert probes.get("/health/live").status_code == probes.get("/health").status_code == 200
    startup, ready = probes.get("/health/startup"), probes.get("/health/ready")
    assert (startup.status_code, ready.status_code) == (503, 503)
