"""The lock of whoever serves a database: one service at a time, by name.

It is the kernel's (`flock`), so a process that dies lets go of it, and it holds between the
containers of one machine. The file stays for good: removing it would let a second service in.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..domain.errors import StartRefused
from ..domain.text.instants import parsed, rendered
from .audit import private_file

TRIES = 3  # whoever only looks holds the lock for a moment
PAUSE = 0.002  # seconds
LONGEST = 4096  # bytes of a record


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The service that has a database."""

    host: str  # in a container its name, in a pod the pod's
    pid: int
    since: datetime

    def __str__(self) -> str:
        if self == UNNAMED:
            return self.host
        return f"{self.host} (process {self.pid}), since {rendered(self.since)}"


UNNAMED = Holder(host="another service", pid=0, since=datetime.fromtimestamp(0, UTC))
"""One whose name cannot be read: it has just come, or the disk was full."""


class InUse(StartRefused):
    """Another service has the database."""

    def __init__(self, database: Path, holder: Holder) -> None:
        super().__init__(f"The database {database} is served by {holder}. End that service first.")
        self.holder = holder


@contextmanager
def served_alone(database: Path) -> Iterator[None]:
    """Inside, no other service can have the database; InUse at once if one has it now.

    StartRefused if there can be no lock beside the file.
    """
    lock = _lock_of(database)
    with ExitStack() as held:
        with _explained(lock):
            file = held.enter_context(_made(lock))
            if not _is_taken(file, fcntl.LOCK_EX, TRIES):
                raise InUse(database, _record(file))
            if not _is_at(lock, file):  # it was removed meanwhile, and another may be there
                raise InUse(database, UNNAMED)
            _note(file)
        held.callback(_forget, file)
        yield


def holder(database: Path) -> Holder | None:
    """Who has the database now; none if nobody has. StartRefused if the lock cannot be read."""
    lock = _lock_of(database)
    with _explained(lock):
        if not lock.exists():
            return None
        with _opened(lock) as file:
            return None if _is_taken(file, fcntl.LOCK_SH) else _record(file)


def _lock_of(database: Path) -> Path:
    """Beside the file itself, whatever links lead to it."""
    found = Path(os.path.realpath(database))
    return found.with_name(f"{found.name}.lock")


@contextmanager
def _made(lock: Path) -> Iterator[int]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with private_file(lock, os.O_RDWR, like=lock.parent) as file:
        yield file


@contextmanager
def _opened(lock: Path) -> Iterator[int]:
    file = os.open(lock, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield file
    finally:
        os.close(file)


def _is_taken(file: int, kind: int, tries: int = 1) -> bool:
    """Whether the lock is ours now."""
    for left in reversed(range(tries)):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE if left else 0)
        else:
            return True
    return False


def _is_at(path: Path, file: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file))
    return False


def _note(file: int) -> None:
    """Write down who holds the lock; on a full disk nobody can tell."""
    holder = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": rendered(datetime.now(UTC)),
    }
    _forget(file)
    with suppress(OSError):
        os.pwrite(file, json.dumps(holder).encode(), 0)


def _forget(file: int) -> None:
    with suppress(OSError):
        os.ftruncate(file, 0)


def _record(file: int) -> Holder:
    """Who has written into the lock."""
    try:
        record = json.loads(os.pread(file, LONGEST, 0))
        host, pid, since = record["host"], record["pid"], parsed(str(record["since"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return UNNAMED
    if not (isinstance(host, str) and host.isprintable() and isinstance(pid, int) and since):
        return UNNAMED
    return Holder(host=host, pid=pid, since=since)


@contextmanager
def _explained(lock: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StartRefused(f"The lock {lock} cannot be taken: {error.strerror}.") from error
