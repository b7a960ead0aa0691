"""One worker: requests of its kind until the time is over, the same ones for the same seed."""

import itertools
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Protocol

from hypothesis import HealthCheck, Phase, given, seed as seeded, settings, strategies as st
from hypothesis.errors import Flaky, Unsatisfiable

from .agents import Agents
from .asker import UNTRUE, Asker, Faults
from .known import Known
from .wild import Wild

AT_ONCE = 50  # requests of one turn; each has a seed of its own
TURNS = 100_000  # that a worker can take until it comes to the seeds of the next
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance",
)  # fmt: skip
QUICKEST = 5  # seconds that Schemathesis takes at least


class Kind(Protocol):
    """A way to make requests."""

    def step(self, data: st.DataObject) -> None: ...


KINDS: dict[str, Callable[[Asker], Kind]] = {"known": Known, "agents": Agents, "wild": Wild}


def work(kind: str, url: str, key: str, seed: int, seconds: float) -> Faults:
    """What one worker sees in this time."""
    warnings.simplefilter("ignore")  # in a process of its own
    asker, end = Asker(url=url, key=key), time.monotonic() + seconds
    if kind not in KINDS:
        _describe(asker, seed, seconds)
        return asker.faults
    maker = KINDS[kind](asker)
    for turn in itertools.count(seed * TURNS):
        if time.monotonic() >= end:
            break
        _turn(maker, turn)
    return asker.faults


def _turn(maker: Kind, number: int) -> None:
    @seeded(number)
    @settings(
        max_examples=AT_ONCE, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def step(data: st.DataObject) -> None:
        maker.step(data)

    try:
        step()
    except (Unsatisfiable, Flaky):  # what is drawn follows what the service has answered
        return


def _describe(asker: Asker, seed: int, seconds: float) -> None:
    """Schemathesis's own run: examples, edges, anything, and what follows, held against answers."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "run", f"{asker.url}/openapi.json",
                "--header", f"Authorization: Bearer {asker.key}",
                "--phases", "examples,coverage,fuzzing,stateful", "--mode", "all",
                "--checks", ",".join(CHECKS), "--warnings", "off", "--continue-on-failure",
                "--suppress-health-check", "all", "--request-timeout", "20", "--no-color",
                "--seed", str(seed), "--max-time", str(max(QUICKEST, int(seconds))),
            ],
            cwd=folder, capture_output=True, text=True, check=False, env=os.environ,
        )  # fmt: skip
    if run.returncode != 0:
        failures = run.stdout.partition("FAILURES")[2] or run.stdout + run.stderr
        asker.note(UNTRUE, failures.replace(asker.key, "$KEY"))
