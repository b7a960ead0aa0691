"""Processes that are forked, as to start Python and load the program takes too long."""

import atexit
import functools
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .nursery import MOST

ROOT = Path(__file__).parents[2]
SOURCES = os.pathsep.join([str(ROOT / "service"), str(ROOT / "service" / "client")])
PROGRAM = "import runpy; runpy.run_module('agentops_memory', run_name='__main__', alter_sys=True)"

_making = threading.Lock()


class Forked:
    """A process that runs Python code in a fork of the nursery; used as a `Popen` is."""

    def __init__(
        self, code: str, arguments: Sequence[str], variables: Mapping[str, str], *,
        cwd: Path | None = None,
    ) -> None:  # fmt: skip
        folder = str(cwd or Path.cwd())
        order = {"code": code, "arguments": arguments, "variables": variables, "cwd": folder}
        (self.stdout, printed), (self.stderr, complained) = _pipe(), _pipe()
        with _making, printed, complained:
            self._keeper = _nursery().ordered(
                json.dumps(order), printed.fileno(), complained.fileno()
            )
        self._code: int | None = None
        self.pid = int(self._keeper.recv(MOST))

    def send_signal(self, number: signal.Signals) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """The exit code; that of a signal is negative."""
        if self._code is None:
            self._keeper.settimeout(timeout)
            self._code = int(self._keeper.recv(MOST))
            self._keeper.close()
        return self._code


@contextmanager
def forking_command(folder: Path) -> Iterator[str]:
    """A command that does in a shell what the program does, in a fork; its socket lies there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "forks"))
        listener.listen()
        serving = threading.Thread(target=_fork_for_each, args=[listener])
        serving.start()
        try:
            stub = str(Path(__file__).with_name("forked_command.py"))
            yield shlex.join([sys.executable, "-IS", stub, str(folder / "forks")])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def _fork_for_each(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=_fork_for, args=[caller]).start()


def _fork_for(caller: socket.socket) -> None:
    with caller:
        order, files, _, _ = socket.recv_fds(caller, MOST, 3)
        with _making:
            keeper = _nursery().ordered(json.dumps({"code": PROGRAM, **json.loads(order)}), *files)
        for file in files:
            os.close(file)
        with keeper:
            keeper.recv(MOST)
            caller.send(keeper.recv(MOST))


class _Nursery:
    """The process that others are forked from; it ends with this one."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        paths = os.pathsep.join([SOURCES, str(ROOT)])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"},
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        atexit.register(self.end)

    def ordered(self, order: str, *files: int) -> socket.socket:
        """Have a process made with these files as its own; where its keeper reports."""
        report, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._orders, [order.encode()], [theirs.fileno(), *files])
        return report

    def end(self) -> None:
        self._orders.close()
        self._process.wait()


@functools.cache
def _nursery() -> _Nursery:
    return _Nursery()


def _pipe() -> tuple[IO[str], IO[str]]:
    reader, writer = os.pipe()
    return os.fdopen(reader), os.fdopen(writer, "w")
