"""The lock that lets only one service at a time use a database, with the name of its holder.

It is a kernel lock (`flock`): it ends with its process, and works between the containers of one
machine. The file is never removed, because that would let a second service in.
"""

import asyncio
import fcntl
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ...engine.files import has_locked, is_at, opened, os_errors_as, private_file
from ...errors import StartRefused
from ...memory.rows import rendered

log = logging.getLogger(__name__)

CHECK_TIMEOUT = timedelta(milliseconds=5)  # a process that only checks holds the lock so briefly
RETRY = timedelta(milliseconds=100)  # interval between attempts to take the lock
LONGEST = 4096  # bytes of the holder's record
LONGER = "Or let this one wait longer for it, with MEMORY_LOCK_WAIT."

UNNAMED = "another service"
"""A holder whose record cannot be read: it has just started, or the disk was full."""


class InUse(StartRefused):
    """Another service is using the database."""

    def __init__(self, database: Path, holder: str) -> None:
        super().__init__(f"The database {database} is served by {holder}. End that service first.")
        self.holder = holder


@asynccontextmanager
async def service_lock_within(database: Path, wait: timedelta) -> AsyncIterator[None]:
    """Hold the lock on the database; StartRefused if another service keeps it for too long."""
    clock, is_logged = asyncio.get_running_loop().time, False
    end = clock() + wait.total_seconds()
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(service_lock(database))
                break
            except InUse as refusal:
                if clock() >= end:
                    raise StartRefused(f"{refusal} {LONGER}") from refusal
                if not is_logged:
                    is_logged = True
                    log.warning(
                        "another service has the database open; waiting for it to stop",
                        extra={"holder": refusal.holder, "seconds": wait.total_seconds()},
                    )
            await asyncio.sleep(min(RETRY.total_seconds(), end - clock()))
        yield


@contextmanager
def service_lock(database: Path) -> Iterator[None]:
    """Hold the lock on the database; InUse at once if another service has it.

    StartRefused if the lock file next to the database cannot be used.
    """
    lock = _lock_of(database)
    with ExitStack() as stack:
        with os_errors_as(StartRefused, f"The lock {lock} cannot be taken"):
            lock.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(private_file(lock, os.O_RDWR, like=lock.parent))
            if not has_locked(file, fcntl.LOCK_EX, CHECK_TIMEOUT):
                raise InUse(database, _record(file))
            if not is_at(lock, file):  # the file was removed or replaced meanwhile
                raise InUse(database, UNNAMED)
            _write_record(file)
        stack.callback(_clear, file)
        yield


def holder(database: Path) -> str | None:
    """Return the current holder of the lock, or None. StartRefused if the lock cannot be read."""
    lock = _lock_of(database)
    with os_errors_as(StartRefused, f"The lock {lock} cannot be taken"):
        if not lock.exists():
            return None
        with opened(lock, os.O_NOFOLLOW) as file:
            return None if has_locked(file, fcntl.LOCK_SH) else _record(file)


def _lock_of(database: Path) -> Path:
    """Return the path next to the real file, whatever links lead to it."""
    return Path(f"{os.path.realpath(database)}.lock")


def _write_record(file: int) -> None:
    """Record this process as the holder, with its host: a container or pod has its own."""
    since = rendered(datetime.now(UTC))
    holder = f"{socket.gethostname()} (process {os.getpid()}), since {since}"
    _clear(file)
    with suppress(OSError):  # on a full disk the record stays empty
        os.pwrite(file, holder.encode(), 0)


def _clear(file: int) -> None:
    with suppress(OSError):
        os.ftruncate(file, 0)


def _record(file: int) -> str:
    holder = os.pread(file, LONGEST, 0).decode(errors="replace")
    return holder if holder and holder.isprintable() else UNNAMED
