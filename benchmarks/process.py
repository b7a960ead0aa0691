"""The service as a process of its own: started, watched, ended."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import SOURCES
from .client import Client, Request, get

TIMEOUT = 60.0  # seconds until a start has failed
FIRST = get("/context", project="project-0", query="Which lock does the import hold?")
NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A service that answers."""

    port: int
    pid: int
    path: Path
    started_in: float  # seconds from exec to the first answer

    def memory(self) -> tuple[float, float]:
        """Resident now and at its peak, in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines()
        kibibytes = {
            name: int(value.split()[0])
            for name, value in (line.split(":", 1) for line in lines)
            if name in ("VmRSS", "VmHWM")
        }
        return kibibytes["VmRSS"] / 1024, kibibytes["VmHWM"] / 1024

    def wal(self) -> float:
        """The size of the write-ahead log, in MiB."""
        return self.path.with_name(f"{self.path.name}-wal").stat().st_size / (1 << 20)


@contextmanager
def running(
    path: Path,
    under: Sequence[str] = (),
    *,
    first: Request = FIRST,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[Running]:
    """The service over the file, on a free port, open; its log is dropped.

    It is started by the command `under`, if there is one, which becomes the service,
    and asked `first` until it answers.
    """
    port = _free_port()
    environment = os.environ | {
        "PYTHONPATH": SOURCES,
        "MEMORY_LISTEN": f"127.0.0.1:{port}",
        "MEMORY_DB_PATH": str(path),
        "MEMORY_DRAIN": "0",
        **settings,
    }
    began = time.perf_counter()
    command = [*under, sys.executable, "-m", "agentops_memory"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            _await_answer(process, port, first, began)
            started_in = time.perf_counter() - began
            yield Running(port=port, pid=process.pid, path=path, started_in=started_in)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _await_answer(
    process: subprocess.Popen[bytes], port: int, first: Request, began: float
) -> None:
    """Until the file is open: before, /health answers and everything else is refused."""
    while time.perf_counter() - began < TIMEOUT and process.poll() is None:
        if _answers(port, first):
            return
        time.sleep(0.002)
    raise SystemExit("The service does not start.")


def _answers(port: int, first: Request) -> bool:
    try:
        client = Client(port)
    except ConnectionRefusedError:
        return False
    with closing(client):
        answer = client.answer(first)
    return answer.status != 503 and bool(answer.good())
