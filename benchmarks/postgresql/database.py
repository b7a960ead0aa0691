"""A PostgreSQL for a run: `PGURL`, else a cluster that is made for it; and databases there."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL

import psycopg
from tests.support import postgres

from agentops_memory.operations.copying import copied
from agentops_memory.settings import settings

from .processor import children, parent

# As a database has it that keeps what it says; the rest is PostgreSQL's own.
DURABLE = (
    "fsync=on", "autovacuum=on", "jit=off", "shared_buffers=256MB", "max_wal_size=4GB",
    "listen_addresses=",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database that holds what a file of SQLite holds."""

    url: str
    name: str
    server: int  # its process

    def backends(self) -> list[int]:
        """The processes that serve it now."""
        return [pid for pid, title in children(self.server) if f" {self.name} " in title]

    def size(self) -> int:
        """Bytes on disk."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        return int(row[0]) if row else 0


@contextmanager
def server() -> Iterator[str]:
    """The URL of a database where others can be made."""
    if given := os.environ.get("PGURL"):
        yield given
        return
    if not postgres.is_found():
        raise SystemExit(postgres.NOT_FOUND)
    folder = postgres.owned_folder()
    try:
        command, user = postgres.made(folder, *DURABLE), postgres.user()
        with subprocess.Popen(command, cwd="/", user=user, stdout=DEVNULL, stderr=DEVNULL) as ours:
            try:
                ready = (postgres.binaries() / "pg_isready", "-q", "-h", folder)
                while ours.poll() is None and subprocess.run(ready, check=False).returncode:
                    pass
                yield postgres.at(folder)
            finally:
                ours.send_signal(signal.SIGINT)
    finally:
        shutil.rmtree(folder)


@contextmanager
def filled(server_url: str, path: Path, name: str) -> Iterator[Database]:
    """A database with all that a file holds, which goes away at the end."""
    name = f"bench_{os.getpid()}_{name}"
    url = postgres.of(server_url, name)
    postgres.ordered(server_url, f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
    try:
        chosen = settings({"MEMORY_DB_PATH": str(path), "MEMORY_DATABASE_URL": url})
        for _ in copied(chosen, (), to_files=False, at=datetime.now(UTC), by={}):
            pass
        postgres.ordered(url, "CHECKPOINT")
        yield Database(url=url, name=name, server=_process(url))
    finally:
        postgres.ordered(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _process(url: str) -> int:
    """The server's process."""
    with psycopg.connect(url) as connection:
        found = parent(connection.info.backend_pid)
    if found is None:
        raise SystemExit("The database is on another machine: its processor time is not seen.")
    return found
