"""The service as a process of its own: started, watched, ended."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import SERVICE
from .client import Client, get

PATIENCE = 60.0  # seconds until a start has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A service that answers."""

    port: int
    pid: int
    started_in: float  # seconds from exec to the first answer of /health

    def memory(self) -> tuple[float, float]:
        """Resident now and at its peak, in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines()
        kibibytes = {
            name: int(value.split()[0])
            for name, value in (line.split(":", 1) for line in lines)
            if name in ("VmRSS", "VmHWM")
        }
        return kibibytes["VmRSS"] / 1024, kibibytes["VmHWM"] / 1024


@contextmanager
def running(path: Path) -> Iterator[Running]:
    """The service over the file, on a free port; its log is dropped."""
    port = _free_port()
    environment = os.environ | {
        "PYTHONPATH": str(SERVICE),
        "MEMORY_LISTEN": f"127.0.0.1:{port}",
        "MEMORY_DB_PATH": str(path),
        "MEMORY_DRAIN": "0",
    }
    began = time.perf_counter()
    command = [sys.executable, "-m", "agentops_memory"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            _await_health(port, began)
            yield Running(port=port, pid=process.pid, started_in=time.perf_counter() - began)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _await_health(port: int, began: float) -> None:
    while time.perf_counter() - began < PATIENCE:
        try:
            # While a file is brought up to date, /health answers and nothing else does.
            client = Client(port)
        except ConnectionRefusedError:
            time.sleep(0.002)
        else:
            client.ask(get("/health"))
            client.close()
            return
    raise SystemExit("The service does not start.")
