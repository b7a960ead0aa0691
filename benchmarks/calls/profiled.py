"""`profiled.py ADDRESS FOLDER PYTHON -m MODULE`: a program whose calls are recorded on request.

It stands alone, as it is run by its path: the program finds no module of ours but its own.
"""

import dis
import runpy
import sys
import threading
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import Connection, Listener
from types import CodeType, FrameType

INLINED = frozenset(("<listcomp>", "<dictcomp>", "<setcomp>"))  # no frames since Python 3.12

Call = tuple[str, str, str | None]
"""The file, the function, and the file of the caller: None where an event loop or a thread is."""


class Recorder:
    """A profiler of the functions whose source lies in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._calls: list[Call] = []
        self._idle: frozenset[FrameType] = frozenset()
        self._is_on = False

    def begin(self) -> None:
        """Record from now on."""
        self._calls = []
        self._idle = frozenset(_standing())
        self._is_on = True

    def end(self) -> list[Call]:
        """What was called since the beginning."""
        self._is_on = False
        return self._calls

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_on and event == "call" and self._is_ours(frame) and _is_call(frame):
            self._calls.append((self._file(frame), _function(frame.f_code), self._caller(frame)))

    def _is_ours(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._folder)

    def _file(self, frame: FrameType) -> str:
        return frame.f_code.co_filename.removeprefix(self._folder)

    def _caller(self, frame: FrameType) -> str | None:
        """The file that called, though it be through a library."""
        for caller in _stack(frame.f_back):
            if caller in self._idle:
                return None
            if self._is_ours(caller):
                return self._file(caller)
        return None


def main() -> None:
    """Run the program under the profiler, all of its threads too."""
    _, address, folder, _python, _m, module, *arguments = sys.argv
    recorder = Recorder(folder)
    listener = Listener(address)
    threading.Thread(target=_obey, args=(listener, recorder), daemon=True).start()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _obey(listener: Listener, recorder: Recorder) -> None:
    """Begin and end in turns, until nobody asks any more."""
    with listener.accept() as connection:
        while _is_asked(connection):
            recorder.begin()
            connection.send([])
            if _is_asked(connection):
                connection.send(recorder.end())


def _is_asked(connection: Connection) -> bool:
    try:
        connection.recv()
    except EOFError:
        return False
    return True


def _standing() -> Iterator[FrameType]:
    """The frames of all threads: those that wait where the service is idle."""
    for newest in sys._current_frames().values():  # noqa: SLF001 - documented, for debuggers
        yield from _stack(newest)


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_call(frame: FrameType) -> bool:
    """Whether a function begins: a coroutine that goes on is no call."""
    code = frame.f_code
    return code.co_name not in INLINED and frame.f_lasti <= _entry(code)


@cache
def _entry(code: CodeType) -> int:
    """The offset of the instruction that a function begins with."""
    return next(step.offset for step in dis.get_instructions(code) if step.opname == "RESUME")


def _function(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}:{code.co_qualname}"


if __name__ == "__main__":
    main()
