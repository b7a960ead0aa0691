"""A restore that is killed before each of its lines in turn; run in a process of its own."""

import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from agentops_memory.engine import files as atomic
from agentops_memory.operations import restore as restores
from agentops_memory.settings import settings
from agentops_memory.sqlite import open_files, snapshots as replacing

from .archives import at
from .killing import die_before, ended

TRACED = {module.__file__ for module in (open_files, replacing, atomic)}


def before_each_line(archive: Path, path: Path) -> None:
    """Print how many names the database has when it was killed, and after it was opened again."""
    line, code = 0, -signal.SIGKILL
    while code:
        line += 1
        code = ended(lambda: _restore(archive, path, line))  # noqa: B023 - called at once
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


def _restore(archive: Path, path: Path, line: int) -> None:
    with restores.prepared(settings({"MEMORY_DB_PATH": str(path)}), archive) as ready:
        die_before(line, TRACED)
        ready.carry_out(at=datetime.now(UTC), by={"user": "tester"}, is_forced=True)
        sys.settrace(None)
