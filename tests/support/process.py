"""The real program as a process of its own, on a free port, over a file of the test."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from .engines import command, rows, storage_at, told_of
from .forks import PROGRAM, SOURCES, Forked
from .service import PLAIN, observation

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0  # seconds; whatever a test waits for comes long before
CLIENTS = 8
ANEW = ("env",)  # a command that starts another as it is
NOTHING: Mapping[str, str] = {}

T = TypeVar("T")


class Program:
    """A process that runs `agentops-memory`, the lines that it has printed, and its client."""

    def __init__(self, process: "subprocess.Popen[str] | Forked") -> None:
        self._process = process
        self._printed = threading.Condition()
        self._ended = False
        self.lines: list[str] = []
        self.output = ""
        self.errors = ""
        self._listeners = [
            threading.Thread(target=self._listen),
            threading.Thread(target=self._note),
        ]
        for listener in self._listeners:
            listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, pattern: str) -> str:
        """The first printed line in which the pattern occurs; waits for it."""
        with self._printed:
            self._printed.wait_for(lambda: self._ended or self._found(pattern), DEADLINE)
            found = self._found(pattern)
        assert found is not None, (pattern, self.lines, self.errors)
        return found

    def client(self, *, timeout: float = DEADLINE) -> httpx.Client:
        """A client of the service; waits for its start-up line."""
        fields: dict[str, Any] = json.loads(self.line('"serving on http'))
        return httpx.Client(base_url=f"http://{fields['listen']}", timeout=timeout, verify=PLAIN)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout: float = DEADLINE) -> int:
        """The exit code, once the process has ended and all its lines are read."""
        code = self._process.wait(timeout)
        for listener in self._listeners:
            listener.join(timeout)
        return code

    def end(self) -> None:
        """Kill the process if it still runs, and close its pipes."""
        self._process.kill()
        self.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _found(self, pattern: str) -> str | None:
        return next((line for line in self.lines if re.search(pattern, line)), None)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._printed:
                self.output += line
                self.lines.append(line.rstrip())
                self._printed.notify_all()
        with self._printed:
            self._ended = True
            self._printed.notify_all()

    def _note(self) -> None:
        assert self._process.stderr is not None
        self.errors = self._process.stderr.read()


@contextmanager
def program(
    *arguments: str, variables: Mapping[str, str] = NOTHING, cwd: Path | None = None,
    within: Sequence[str] = (), code: str = PROGRAM,
) -> Iterator[Program]:  # fmt: skip
    """The program with these arguments and variables; killed at the end if it still runs.

    It is a fork of a process that has loaded it already, unless `within` is a command that
    runs it (`("unshare", "--mount")`, or `ANEW`), or a variable is one of Python's own.
    """
    given, told = command(arguments, variables)
    own = environment(told)
    if within or any(name.startswith("PYTHON") for name in told):
        running = Program(_anew([*within, sys.executable, "-c", code, *given], own, cwd))
    else:
        running = Program(Forked(code, given, own, cwd=cwd))
    try:
        yield running
    finally:
        running.end()


def _anew(
    command: Sequence[str], variables: Mapping[str, str], cwd: Path | None
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command, env=variables, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@contextmanager
def served(
    path: Path, *, within: Sequence[str] = (), **variables: str
) -> Iterator[tuple[Program, httpx.Client]]:
    """The service over the file, and a client of it."""
    own = {**ANY_PORT, **storage_at(path), **variables}
    with (
        program("serve", variables=own, within=within) as running,
        running.client() as http,
        told_of(path, str(http.base_url)),
    ):
        yield running, http


def run(
    *arguments: str, variables: Mapping[str, str] = NOTHING, cwd: Path | None = None,
    code: str = PROGRAM,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """The program, run to its end."""
    with program(*arguments, variables=variables, cwd=cwd, code=code) as done:
        ended = done.wait()
    return subprocess.CompletedProcess(arguments, ended, done.output, done.errors)


ANY_PORT: Mapping[str, str] = {"MEMORY_LISTEN": "127.0.0.1:0"}


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment that holds these variables and nothing else of ours."""
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCES}
    return {**kept, "PYTHONUNBUFFERED": "1", **variables}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def until(condition: Callable[[], T]) -> T:
    """What the condition answers once it is true; asked again and again until the deadline."""
    end, pause = time.monotonic() + DEADLINE, threading.Event()
    while not (answer := condition()):
        assert time.monotonic() < end, "it did not come true in time"
        pause.wait(0.005)
    return answer


class Load:
    """Clients that save without pause: what was acknowledged, what refused, what got no answer."""

    def __init__(
        self, url: str, *, saves: int = 1000, about: str = "save", **fields: object
    ) -> None:
        self._url = url
        self._about = about  # what tells the contents of one load from those of another
        self._fields = fields
        self._numbers = iter(range(saves))
        self._progress = threading.Condition()
        self._clients = [threading.Thread(target=self._save) for _ in range(CLIENTS)]
        self.answers: list[dict[str, Any]] = []
        self.acknowledged: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.unanswered: set[str] = set()

    def start(self) -> "Load":
        for client in self._clients:
            client.start()
        return self

    def reach(self, count: int) -> None:
        """Wait until so many saves are acknowledged."""
        with self._progress:
            assert self._progress.wait_for(lambda: len(self.acknowledged) >= count, DEADLINE)

    def join(self) -> None:
        """Wait until each client has ended: with the last save, or with its connection."""
        for client in self._clients:
            client.join(DEADLINE)
            assert not client.is_alive()

    def _save(self) -> None:
        with httpx.Client(base_url=self._url, timeout=DEADLINE, verify=PLAIN) as http:
            while (content := self._next()) is not None:
                body = observation(content, **self._fields)
                try:
                    answer = http.post("/observations", json=body)
                except httpx.TransportError:
                    self.unanswered.add(content)
                    return
                self._record(content, answer)

    def _next(self) -> str | None:
        with self._progress:
            number = next(self._numbers, None)
        return None if number is None else f"What {self._about} {number} has learned"

    def _record(self, content: str, answer: httpx.Response) -> None:
        with self._progress:
            if answer.status_code == 201:
                self.answers.append(answer.json())
                self.acknowledged[content] = self.answers[-1]["id"]
            else:
                self.refused[content] = answer.status_code
            self._progress.notify_all()


def stored(path: Path) -> dict[str, int]:
    """The ids of the live memories in a file, by their contents."""
    return dict(rows(path, "SELECT content, id FROM memories WHERE deleted_at IS NULL"))
