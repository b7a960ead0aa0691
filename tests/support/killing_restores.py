"""A restore that is killed before each of its lines in turn; run in a process of its own."""

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from agentops_memory.engine import files as atomic
from agentops_memory.operations import restore as restores
from agentops_memory.settings.settings import settings
from agentops_memory.sqlite import open_files
from agentops_memory.sqlite import snapshots as replacing

from .archives import at

TRACED = {module.__file__ for module in (open_files, replacing, atomic)}


def before_each_line(archive: Path, path: Path) -> None:
    """Print how many names the database has when it was killed, and after it was opened again."""
    line, code = 0, -signal.SIGKILL
    while code:
        line += 1
        code = _ended(archive, path, line)
        assert code in (0, -signal.SIGKILL)
        left = _names(path)
        at(path).say("save", "Title", f"About {line}", "--project", "shop")
        print(left, _names(path), flush=True)  # noqa: T201
        for name in open_files.copies_of(path):
            name.unlink()
        if not path.with_name("kept").exists():
            path.unlink()


def _names(path: Path) -> int:
    return path.stat().st_nlink if path.exists() else 0


def _ended(archive: Path, path: Path, line: int) -> int:
    """How a process ends that restores, and dies before this line."""
    if (pid := os.fork()) == 0:
        _restore(archive, path, line)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _restore(archive: Path, path: Path, line: int) -> None:
    left = line

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in TRACED:
            return None
        left -= event == "line"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return traced

    with restores.prepared(settings({"MEMORY_DB_PATH": str(path)}), archive) as ready:
        sys.settrace(traced)
        ready.carry_out(at=datetime.now(UTC), by={"user": "tester"}, is_forced=True)
        sys.settrace(None)
