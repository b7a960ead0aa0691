"""The agent of the examples does what the guide says, also when it is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from ..docs.test_docs import ROOT
from ..support.forks import SOURCES
from ..support.process import Program
from ..support.service import Service, serving

EXAMPLE = ROOT / "docs" / "examples" / "agent.py"


@contextmanager
def running(service: Service, folder: Path) -> Iterator[tuple[Program, "subprocess.Popen[str]"]]:
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE), "agent.checkpoint"], cwd=folder,
        env=os.environ | {"MEMORY_URL": service.url, "PYTHONPATH": SOURCES}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    program = Program(process)
    try:
        yield program, process
    finally:
        with suppress(BrokenPipeError):
            stdin(process).close()
        program.end()


def say(process: "subprocess.Popen[str]", prompt: str) -> None:
    stdin(process).write(f"{prompt}\n")
    stdin(process).flush()


def stdin(process: "subprocess.Popen[str]") -> IO[str]:
    assert process.stdin is not None
    return process.stdin


@pytest.mark.heavy
def test_an_agent_that_is_killed_while_its_tool_runs_goes_on_as_if_it_was_not(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "slow")
    with serving(tmp_path / "memory.db") as service:
        with running(service, tmp_path) as (program, process):
            session = program.line("goes on after turn 0")
            say(process, "hello")
            program.line("turn 1 is over")
            say(process, "run echo fatal: no disk")
            program.line("turn 2 is over")
            say(process, "run cat slow")
            with (tmp_path / "slow").open("w"):  # waits for the tool to begin
                program.send(signal.SIGKILL)
                program.wait()
        (row,) = service.http.get("/sessions/recent").json()
        assert "ended_at" not in row

        with running(service, tmp_path) as (program, process):
            again = program.line("goes on after turn 3")
            assert again.split()[1] == session.split()[1] == row["id"]
            program.line("It says: The agent was started anew")
            say(process, "what do you know of the disk?")
            assert program.line("Auto-captured") == (
                "- [bugfix] Auto-captured: bash — echo fatal: no disk: fatal: no disk"
            )
            program.line("turn 4 is over")
            stdin(process).close()
            assert program.wait() == 0

        (row,) = service.http.get("/sessions/recent").json()
    assert (
        row["summary"]
        == program.lines[-1]
        == (
            "Session: 12 messages (4 user, 6 assistant). "
            "Started with: hello Ended with: what do you know of the disk?"
        )
    )


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_agent_that_is_told_to_stop_ends_its_session(
    number: signal.Signals, tmp_path: Path
) -> None:
    with serving(tmp_path / "memory.db") as service:
        with running(service, tmp_path) as (program, process):
            say(process, "hello")
            program.line("turn 1 is over")
            program.send(number)
            program.wait()
        (row,) = service.http.get("/sessions/recent").json()
    assert row["summary"].startswith("Session: 2 messages")
