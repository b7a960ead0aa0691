"""Clusters of a test's own, killed or promoted, and a way on which a commit is cut."""

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from subprocess import DEVNULL

import psycopg
from psycopg.conninfo import conninfo_to_dict

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


CHUNK = 64 * 1024
DONE = b"COMMIT\0"  # with which the server tells of a commit


class Cut(Enum):
    """When a connection is cut."""

    BEFORE = "before the server hears of the commit"
    AFTER = "before the client hears of it"


class Way:
    """Where clients connect instead; each connection is carried to the server."""

    def __init__(self, server: str) -> None:
        given = conninfo_to_dict(server)
        host, number = str(given["host"]), str(given.get("port", 5432))
        self._server = (host, number)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        user, password = given.get("user"), given.get("password")
        who = f"{user}:{password}" if password else user
        plain = "sslmode=disable&gssencmode=disable"  # so that it can be read
        self.url = f"postgresql://{who}@127.0.0.1:{port}/{given['dbname']}?{plain}"
        self._next: Cut | None = None
        self._lock = threading.Lock()
        self.cuts = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def cut(self, when: Cut) -> None:
        """Cut the next connection that commits a write."""
        self._next = when

    def close(self) -> None:
        self._listener.close()

    def taken(self) -> Cut | None:
        """How the connection that asks is to be cut; the next one is not."""
        with self._lock:
            when, self._next = self._next, None
            self.cuts += when is not None
            return when

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                _Carried(self, client, self._connected())

    def _connected(self) -> socket.socket:
        host, number = self._server
        if not host.startswith("/"):
            return socket.create_connection((host, int(number)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(host) / f".s.PGSQL.{number}"))
        return server


class _Carried:
    """One connection, carried both ways until it is cut or closed."""

    def __init__(self, way: Way, client: socket.socket, server: socket.socket) -> None:
        self._way, self._client, self._server = way, client, server
        self._statements = dict[bytes, bytes]()  # by their names
        self._writes = False
        self._ends_when_done = False
        for carry in (self._ask, self._answer):
            threading.Thread(target=carry, daemon=True).start()

    def _ask(self) -> None:
        waiting, has_begun = b"", False
        with suppress(OSError):
            while chunk := self._client.recv(CHUNK):
                waiting += chunk
                while message := _first(waiting, has_begun=has_begun):
                    waiting = waiting[len(message) :]
                    if has_begun and self._ends_with(message):
                        break
                    has_begun = True
                    self._server.sendall(message)
        self._end()

    def _ends_with(self, message: bytes) -> bool:
        """Whether the connection ends before this message of the client."""
        kind, body = message[:1], message[5:]
        if kind == b"P":
            name, statement, _ = body.split(b"\0", 2)
            self._statements[name] = statement
        if kind != b"B":
            return False
        statement = self._statements.get(body.split(b"\0", 2)[1], b"")
        if statement.startswith(b"BEGIN"):
            self._writes = b"READ COMMITTED" in statement
        if statement != b"COMMIT" or not self._writes:
            return False
        when = self._way.taken()
        self._ends_when_done = when is Cut.AFTER
        if when is Cut.BEFORE:
            self._end()
        return when is Cut.BEFORE

    def _answer(self) -> None:
        with suppress(OSError):
            while chunk := self._server.recv(CHUNK):
                if self._ends_when_done and DONE in chunk:
                    break
                self._client.sendall(chunk)
        self._end()

    def _end(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _first(waiting: bytes, *, has_begun: bool) -> bytes:
    """The first message, if it is there in full. The very first of all has no type."""
    at = int(has_begun)
    if len(waiting) < at + 4:
        return b""
    length = at + int.from_bytes(waiting[at : at + 4])
    return waiting[:length] if len(waiting) >= length else b""


@contextmanager
def way(server: str) -> Iterator[Way]:
    """A way to the server at a URL."""
    carrying = Way(server)
    try:
        yield carrying
    finally:
        carrying.close()
