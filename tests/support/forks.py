"""Processes that are forked, as to start Python and load the program takes too long."""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
        self,
        code: str,
        arguments: Sequence[str],
        variables: Mapping[str, str],
        *,
        cwd: Path | None = None,
    ) -> None:
        folder = str(cwd or Path.cwd())
        order = {"code": code, "arguments": arguments, "variables": variables, "cwd": folder}
        (self.stdout, printed), (self.stderr, complained) = _pipe(), _pipe()
        with _making, printed, complained:
            self._keeper = _nursery().ordered(json.dumps(order), printed, complained)
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

    def ordered(self, order: str, *files: IO[str]) -> socket.socket:
        """Have a process made with these files as its output; where its keeper reports."""
        report, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            handed = [theirs.fileno(), *(file.fileno() for file in files)]
            socket.send_fds(self._orders, [order.encode()], handed)
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
