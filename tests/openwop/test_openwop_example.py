"""The host of the examples loses nothing and does nothing twice, wherever it is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..docs.test_docs import ROOT
from ..support.forks import SOURCES
from ..support.openwop_hosts import Host, Json, ok
from ..support.process import Program
from ..support.requirements import requirement
from ..support.service import Service, serving

EXAMPLE = ROOT / "docs" / "examples" / "workflow.py"
REF = "mem://reviews"
VALUE = "zanzibar-hunter2-quokka"
LOG = f"fine\nerror: no disk\nerror: {VALUE} is wrong\n"
JUDGED = "log has 2 errors; known before: nothing"
STEPS = ("recall", "read", "judge")


@contextmanager
def running(service: Service, folder: Path, run: str = "r1") -> Iterator[Program]:
    variables = {"MEMORY_URL": service.url, "PYTHONPATH": SOURCES, "REVIEW_TOKEN": VALUE}
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE), run, "log"], cwd=folder, env=os.environ | variables,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    program = Program(process)
    try:
        yield program
    finally:
        program.end()


def state(service: Service, run: str = "r1") -> str:
    found: Json = ok(Host(service.http).ask("GET", f"/runs/{run}"))
    return str(found["status"])


def assert_done_once(service: Service, run: str = "r1") -> None:
    """Each node has put one entry, and the run tells of each once, and of one end."""
    host = Host(service.http, ref=REF)
    events = host.told(run)
    assert [it["type"] for it in events] == [
        "run.started", *["memory.written"] * 3, "run.completed"
    ]  # fmt: skip
    assert [it["nodeId"] for it in events[1:-1]] == [*STEPS]
    ids = [it["id"] for it in host.entries() if it["id"].startswith(f"{run}/")]
    assert ids[::-1] == [f"{run}/{node}" for node in STEPS]


@pytest.mark.slow
@requirement("OW-104")
def test_a_host_that_is_killed_after_every_line_completes(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    with serving(tmp_path / "memory.db") as service:
        for line in (
            f"{node} {what}" for node in STEPS for what in ("(begins|is done)", "is done")
        ):
            with running(service, tmp_path) as program:
                program.line(line)
                program.send(signal.SIGKILL)
                program.wait()
            if state(service) != "running":
                break  # it was quicker
        with running(service, tmp_path) as program:
            assert program.wait() == 0, program.errors
        assert program.lines[-1] in ("run r1 is completed", "run r1 has ended already")

        assert state(service) == "completed"
        assert_done_once(service)
        assert Host(service.http, ref=REF).contents()[0] == JUDGED


def test_the_example_is_what_the_guide_links() -> None:
    assert f"examples/{EXAMPLE.name}" in (ROOT / "docs" / "client.md").read_text("utf-8")
