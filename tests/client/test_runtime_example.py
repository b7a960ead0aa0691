"""The agent of the examples does what the guide says, also when it is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ..docs.test_docs import ROOT
from ..support.forks import SOURCES
from ..support.process import Program
from ..support.service import Service, serving


@contextmanager
def running(service: Service, folder: Path) -> Iterator[tuple[Program, Callable[[str], None]]]:
    """The agent, and what gives it a prompt."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "docs" / "examples" / "agent.py"), "agent.checkpoint"],
        cwd=folder, env=os.environ | {"MEMORY_URL": service.url, "PYTHONPATH": SOURCES},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    program, prompts = Program(process), process.stdin
    assert prompts is not None
    try:
        yield program, lambda prompt: print(prompt, file=prompts, flush=True)
    finally:
        with suppress(BrokenPipeError):
            prompts.close()
        program.end()


@pytest.mark.heavy
def test_an_agent_that_is_killed_while_its_tool_runs_goes_on_and_ends_its_session_when_stopped(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "slow")
    with serving(tmp_path / "memory.db") as service:
        with running(service, tmp_path) as (program, say):
            session = program.line("goes on after turn 0")
            for number, prompt in enumerate(("hello", "run echo fatal: no disk"), 1):
                say(prompt)
                program.line(f"turn {number} is over")
            say("run cat slow")
            with (tmp_path / "slow").open("w"):  # waits for the tool to begin
                program.send(signal.SIGKILL)
                program.wait()
        (row,) = service.http.get("/sessions/recent").json()
        assert "ended_at" not in row

        with running(service, tmp_path) as (program, say):
            again = program.line("goes on after turn 3")
            assert again.split()[1] == session.split()[1] == row["id"]
            program.line("It says: The agent was started anew")
            say("what do you know of the disk?")
            assert program.line("Auto-captured") == (
                "- [bugfix] Auto-captured: bash — echo fatal: no disk: fatal: no disk"
            )
            program.line("turn 4 is over")
            program.send(signal.SIGTERM)
            program.wait()
        (row,) = service.http.get("/sessions/recent").json()
    assert row["summary"] == (
        "Session: 12 messages (4 user, 6 assistant). "
        "Started with: hello Ended with: what do you know of the disk?"
    )
