"""A PostgreSQL for a run of the tests: `PGURL`, else a cluster made from Debian's `initdb`.

The cluster is made by the first test that needs it, for all of the run's processes. Its keeper
stops it and removes it as soon as pytest has ended, however that was.
"""

import fcntl
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from subprocess import DEVNULL
from urllib.parse import urlsplit

import psycopg

from .forks import ROOT

NOT_FOUND = "PostgreSQL was not found (PGURL, or Debian's postgresql)"
OWNER = "postgres"  # initdb refuses root
STARTED = b"started"
FAST = (
    "fsync=off", "full_page_writes=off", "synchronous_commit=off", "autovacuum=off", "jit=off",
    "max_connections=300", "shared_buffers=64MB", "max_wal_size=256MB", "wal_level=minimal",
    "max_wal_senders=0", "listen_addresses=",
)  # fmt: skip


def is_found() -> bool:
    """Whether there is one to be had."""
    return "PGURL" in os.environ or _binaries() is not None


def cluster(run: Path) -> str:
    """The URL of the run's cluster, started if it is not yet; `run` is what the run's tests share.

    It ends in the name of a database; the role there may make others.
    """
    if given := os.environ.get("PGURL"):
        return given
    place = run / "postgresql"
    with (run / "postgresql.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            place.write_text(str(_started()))
    return at(Path(place.read_text()))


def at(folder: Path) -> str:
    """The URL of the cluster whose socket lies in a folder."""
    return f"postgresql://{OWNER}@/{OWNER}?host={folder}"


def of(url: str, database: str) -> str:
    """The URL of another database of the same cluster."""
    return urlsplit(url)._replace(path=f"/{database}").geturl()


def ordered(url: str, *statements: str) -> None:
    """Run statements, each by itself."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def binaries() -> Path:
    """The folder of `initdb` and its like."""
    found = _binaries()
    assert found is not None, NOT_FOUND
    return found


@cache
def _binaries() -> Path | None:
    if os.geteuid() == 0 and not _is_user(OWNER):
        return None
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted((path.parent for path in debian), key=lambda path: float(path.parent.name))
    return newest[-1] if newest else None


def _is_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


def made(folder: Path, *settings: str) -> list[str]:
    """A new cluster in a folder of its owner; the command that runs it until it is interrupted."""
    data = folder / "data"
    as_owner(
        binaries() / "initdb", "-D", data, "-U", OWNER, "-A", "trust", "-E", "UTF8",
        "--locale=C.UTF-8", "--no-sync", "--no-instructions",
    )  # fmt: skip
    return command(folder, *settings)


def command(folder: Path, *settings: str) -> list[str]:
    """The command that runs the cluster in a folder until it is interrupted."""
    options = [part for setting in settings for part in ("-c", setting)]
    return [str(binaries() / "postgres"), "-D", str(folder / "data"), "-k", str(folder), *options]


def owned_folder() -> Path:
    """A new folder that the cluster's owner may use; its path is short, as that of a socket is."""
    folder = Path(tempfile.mkdtemp(prefix="memory-pg-"))
    give(folder)
    return folder


def give(folder: Path) -> None:
    """Let the folder be its who owns clusters."""
    if os.geteuid() == 0:
        shutil.chown(folder, OWNER)


def as_owner(*command: str | Path) -> None:
    """Run a command as who owns clusters."""
    subprocess.run(command, check=True, capture_output=True, cwd="/", user=user())


def user() -> str | None:
    """Whom a process of a cluster is to run as, where it must be another."""
    return OWNER if os.geteuid() == 0 else None


def _started() -> Path:
    """The folder of a cluster that runs, with a keeper beside it."""
    folder = owned_folder()
    pytest = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    keeper = [sys.executable, "-m", "tests.support.postgres", str(folder), str(pytest)]
    told = subprocess.run(
        keeper, cwd=ROOT, stdout=subprocess.PIPE, stderr=DEVNULL, check=True, start_new_session=True
    )
    assert told.stdout == STARTED, "the cluster did not start"
    return folder


def _keep(folder: Path, pytest: int) -> None:
    """Run a cluster until this process has ended; say when it takes connections."""
    try:
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(
                made(folder, *FAST), cwd="/", user=user(), stdout=DEVNULL, stderr=log
            ) as server,
        ):
            try:
                ready = (binaries() / "pg_isready", "-q", "-h", folder)
                while server.poll() is None and subprocess.run(ready, check=False).returncode:
                    pass
                os.write(1, STARTED)
                os.close(1)  # who started us waits for that
                select.select([os.pidfd_open(pytest)], [], [])
            finally:
                server.send_signal(signal.SIGQUIT)  # at once, as nothing of it is kept
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__" and os.fork() == 0:
    _keep(Path(sys.argv[1]), int(sys.argv[2]))
