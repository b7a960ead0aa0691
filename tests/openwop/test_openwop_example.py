"""The host of the examples loses nothing and does nothing twice, wherever it is killed."""

import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ..docs.test_docs import ROOT
from ..support.forks import SOURCES
from ..support.openwop_hosts import Host, ok
from ..support.process import Program, program
from ..support.requirements import requirement
from ..support.service import Service, serving

EXAMPLE = ROOT / "docs" / "examples" / "workflow.py"
REF = "mem://reviews"
VALUE = "zanzibar-hunter2-quokka"
LOG = f"fine\nerror: no disk\nerror: {VALUE} is wrong\n"
JUDGED = "log has 2 errors; known before: nothing"
STEPS = ("recall", "read", "judge")


def running(service: Service, folder: Path) -> AbstractContextManager[Program]:
    """The example's run r1."""
    variables = {"MEMORY_URL": service.url, "PYTHONPATH": SOURCES, "REVIEW_TOKEN": VALUE}
    code = f"import runpy; runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    return program("r1", "log", variables=variables, code=code, cwd=folder)


@pytest.mark.slow
@requirement("OW-104")
def test_a_host_that_is_killed_after_every_line_completes(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    with serving(tmp_path / "memory.db") as service:
        host = Host(service.http, ref=REF)
        for line in (
            f"{node} {what}" for node in STEPS for what in ("(begins|is done)", "is done")
        ):
            with running(service, tmp_path) as killed:
                killed.line(line)
                killed.send(signal.SIGKILL)
                killed.wait()
            if ok(host.ask("GET", "/runs/r1"))["status"] != "running":
                break  # it was quicker
        with running(service, tmp_path) as last:
            assert last.wait() == 0, last.errors
        assert last.lines[-1] in ("run r1 is completed", "run r1 has ended already")

        assert ok(host.ask("GET", "/runs/r1"))["status"] == "completed"
        events = host.told("r1")  # each node has put one entry, and the run tells of each once
        assert [it["type"] for it in events] == [
            "run.started", *["memory.written"] * 3, "run.completed"
        ]  # fmt: skip
        assert [it["nodeId"] for it in events[1:-1]] == [*STEPS]
        ids = [it["id"] for it in host.entries() if it["id"].startswith("r1/")]
        assert ids[::-1] == [f"r1/{node}" for node in STEPS]
        assert host.contents()[0] == JUDGED


def test_the_example_is_what_the_guide_links() -> None:
    assert f"examples/{EXAMPLE.name}" in (ROOT / "docs" / "client.md").read_text("utf-8")
