"""Processes that store a state and are killed while they do; run in one of its own, which forks.

Each function ends with an error unless the state before or the one after is there, whole.
"""

import os
import random
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

from agentops_memory_client.runtime import ChatMessage, WorkingMemory, working_memory

KILLS = 20
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


def at_each_line(path: Path, *, is_stale: bool) -> None:
    """Print each turn that is found when the process dies at the first line, the second, ..."""
    draft, documents = path.with_name(f".{path.name}.new"), [state(n).snapshot() for n in (1, 2)]
    line, code = 0, -signal.SIGKILL
    while code:
        line += 1
        working_memory.write(path, documents[0])
        if is_stale:
            draft.write_text("of another that was killed")
        code = ended(lambda: _store(path, documents[1], line))  # noqa: B023 - called at once
        assert code in (0, -signal.SIGKILL)
        print(turn_at(path))  # noqa: T201
        state(3).checkpoint(path)
        assert turn_at(path) == 3
        assert [*path.parent.iterdir()] == [path]


def at_any_moment(path: Path) -> None:
    """Kill a process that stores one state after another; what it has told is never lost."""
    chance, stored = random.Random(7), 0  # noqa: S311 - no secret
    state(stored).checkpoint(path)
    for _ in range(KILLS):
        told, tell = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(told)  # so that it ends when nobody hears it
            _keep_storing(path, stored, tell)
        for _ in range(chance.randrange(1, 4)):
            stored = int(os.read(told, 20))
        for _ in range(chance.randrange(4)):
            assert turn_at(path) >= stored
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(told)
        os.close(tell)
        assert turn_at(path) >= stored
        stored = turn_at(path)


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
    die_before(line, [working_memory.__file__])
    working_memory.write(path, document)


def _keep_storing(path: Path, turn: int, tell: int) -> None:
    while True:
        turn += 1
        state(turn).checkpoint(path)
        os.write(tell, f"{turn:20}".encode())
