"""Clusters of a test's own: killed, started again, with a standby that is promoted."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL

import psycopg

from .postgres import OWNER, as_owner, at, binaries, command, made, ordered, owned_folder, user
from .process import DEADLINE, until

QUICK = (
    "autovacuum=off", "jit=off", "max_connections=100", "shared_buffers=64MB",
    "listen_addresses=", "wal_level=replica",
)  # fmt: skip
STANDBY = "standby"


class Server:
    """One server of PostgreSQL, in a folder that its socket lies in."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.folder = folder
        self.url = at(folder)
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Server":
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd="/", user=user(), stdout=DEVNULL, stderr=log
            )
        until(self.is_ready)
        return self

    def is_ready(self) -> bool:
        ready = (binaries() / "pg_isready", "-q", "-h", self.folder)
        return subprocess.run(ready, check=False).returncode == 0

    def kill(self) -> None:
        """As if the machine lost its power: all its processes end at once."""
        assert self._process is not None
        pid = self._process.pid
        told = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        for number in (pid, *map(int, told.split())):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self._process.wait(DEADLINE)
        until(lambda: not any(Path(f"/proc/{it}").exists() for it in told.split()))
        (self.folder / ".s.PGSQL.5432").unlink(missing_ok=True)

    def stop(self) -> None:
        """As an operator does who does not wait for clients."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(DEADLINE)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(DEADLINE)
        shutil.rmtree(self.folder)

    def promote(self) -> None:
        """Let a standby be the primary; it is, when this returns."""
        as_owner(binaries() / "pg_ctl", "promote", "-w", "-D", self.folder / "data")


@contextmanager
def server(*settings: str) -> Iterator[Server]:
    """A server that keeps what it has acknowledged; it runs."""
    folder = owned_folder()
    with ExitStack() as stack:
        running = Server(folder, made(folder, *QUICK, *settings))
        stack.callback(running.end)
        yield running.start()


@contextmanager
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary, and the standby that each of its commits waits for."""
    with server() as primary, ExitStack() as stack:
        folder = owned_folder()
        as_owner(
            binaries() / "pg_basebackup", "-h", primary.folder, "-U", OWNER,
            "-D", folder / "data", "-R", "-X", "stream", "-c", "fast",
        )  # fmt: skip
        standby = Server(folder, command(folder, *QUICK, f"cluster_name={STANDBY}"))
        stack.callback(standby.end)
        standby.start()
        ordered(
            primary.url,
            f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'",
            "SELECT pg_reload_conf()",
        )
        until(lambda: _is_followed(primary))
        yield primary, standby


def of_both(primary: Server, standby: Server) -> str:
    """The URL of whichever of them takes writes."""
    hosts = f"{primary.folder},{standby.folder}"
    return f"{at(Path(hosts))}&target_session_attrs=read-write"


def _is_followed(primary: Server) -> bool:
    with psycopg.connect(primary.url) as connection:
        found = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
    return found == [("sync",)]
