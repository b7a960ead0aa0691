"""The agent of the examples does what the guide says, also when it is killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..docs.test_docs import ROOT
from ..support.forks import SOURCES
from ..support.service import serving

AGENT = [sys.executable, str(ROOT / "docs" / "examples" / "agent.py"), "agent.checkpoint"]


@pytest.mark.heavy
def test_an_agent_that_is_killed_while_its_tool_runs_goes_on_and_ends_its_session(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "memory.db") as service:
        variables = os.environ | {"MEMORY_URL": service.url, "PYTHONPATH": SOURCES}
        killed, resumed = (
            subprocess.run(
                AGENT, cwd=tmp_path, env=variables, input="\n".join(prompts), text=True,
                capture_output=True, check=False, timeout=60,
            )
            for prompts in (
                ("hello", "run echo fatal: no disk", "run kill -KILL $PPID"),
                ("what do you know of the disk?",),
            )
        )  # fmt: skip
        (row,) = service.http.get("/sessions/recent").json()

    assert (killed.returncode, resumed.returncode) == (-9, 0), resumed.stderr
    assert killed.stdout.startswith(f"session {row['id']} goes on after turn 0\n")
    assert "turn 2 is over" in killed.stdout
    assert resumed.stdout.startswith(
        f"session {row['id']} goes on after turn 3\nIt says: The agent was started anew"
    )
    saved = "- [bugfix] Auto-captured: bash — echo fatal: no disk: fatal: no disk\n"
    assert saved in resumed.stdout
    assert row["summary"] == (
        "Session: 12 messages (4 user, 6 assistant). "
        "Started with: hello Ended with: what do you know of the disk?"
    )
