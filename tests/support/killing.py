"""Processes that store a state and are killed while they do; run in one of its own, which forks."""

import os
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

from agentops_memory_client import client
from agentops_memory_client.runtime import ChatMessage, WorkingMemory, working_memory

LARGE = "what takes a while to write " * 5_000  # 140 KB


def state(turn: int) -> WorkingMemory:
    message = ChatMessage.user(f"This is turn {turn}.")
    return WorkingMemory([message], turn=turn, extra={"told": turn, "large": LARGE})


def turn_at(path: Path) -> int:
    """The turn that is stored; the whole state must be of it."""
    found = WorkingMemory.restore(path)
    expected = state(found.turn)
    assert (found.messages, found.extra) == (expected.messages, expected.extra)
    return found.turn


def at_each_line(path: Path) -> None:
    """Print each turn that is found when the process dies at the first line, the second, ..."""
    documents = [state(n).snapshot() for n in (1, 2)]
    line, code = 0, -signal.SIGKILL
    while code:
        line += 1
        working_memory.write(path, documents[0])
        code = ended(lambda: _store(path, documents[1], line))  # noqa: B023 - called at once
        assert code in (0, -signal.SIGKILL)
        print(turn_at(path))  # noqa: T201
        state(3).checkpoint(path)
        assert turn_at(path) == 3


def ended(work: Callable[[], None]) -> int:
    """How a process ends that does this."""
    if (pid := os.fork()) == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def die_before(line: int, files: Collection[str | None]) -> None:
    """Let this process die before it has run so many lines of these files from now on."""
    left = line

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        left -= event == "line"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return traced

    sys.settrace(traced)


def _store(path: Path, document: bytes, line: int) -> None:
    die_before(line, [working_memory.__file__, client.__file__])
    working_memory.write(path, document)
