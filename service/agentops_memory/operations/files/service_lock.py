"""The lock of the service on a database: one at a time, with its name.

It is the kernel's (`flock`), so a process that dies lets go of it, and it holds between the
containers of one machine. The file stays for good: removing it would let a second service in.
"""

import asyncio
import fcntl
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ...engine.engine import noop
from ...engine.files import has_locked, is_at, opened, os_errors_as, private_file
from ...errors import StartRefused
from ...memory.rows import parsed, rendered

log = logging.getLogger(__name__)

LOOKED_AT = timedelta(milliseconds=5)  # a process that only checks holds the lock for a moment
RETRY = timedelta(milliseconds=100)  # after which it is tried again whether the other has ended
LONGEST = 4096  # bytes of a record
LONGER = "Or let this one wait longer for it, with MEMORY_LOCK_WAIT."

OnWait = Callable[[str], None]
"""Gets what is waited for; nothing once that is over."""


UNNAMED = "another service"
"""One whose name cannot be read: it has just come, or the disk was full."""


class InUse(StartRefused):
    """Another service has the database."""

    def __init__(self, database: Path, holder: str) -> None:
        super().__init__(f"The database {database} is served by {holder}. End that service first.")
        self.holder = holder


@asynccontextmanager
async def service_lock_within(
    database: Path, wait: timedelta, on_wait: OnWait | None = None
) -> AsyncIterator[None]:
    """Inside, this service has the database alone; StartRefused when another keeps it too long."""
    loop, notify = asyncio.get_running_loop(), on_wait or noop
    began, end = loop.time(), loop.time() + wait.total_seconds()
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(service_lock(database))
                break
            except InUse as refusal:
                if loop.time() >= end:
                    raise StartRefused(f"{refusal} {LONGER}") from refusal
                if loop.time() - began < RETRY.total_seconds():
                    log.warning(
                        "another service has the database open; waiting for it to stop",
                        extra={"holder": refusal.holder, "seconds": wait.total_seconds()},
                    )
                notify(
                    f"Another service has the database: {refusal.holder}. This one waits for it."
                )
            await asyncio.sleep(min(RETRY.total_seconds(), end - loop.time()))
        notify("")
        yield


@contextmanager
def service_lock(database: Path) -> Iterator[None]:
    """Inside, no other service can have the database; InUse at once if one has it now.

    StartRefused if there can be no lock beside the file.
    """
    lock = _lock_of(database)
    with ExitStack() as stack:
        with os_errors_as(StartRefused, f"The lock {lock} cannot be taken"):
            lock.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(private_file(lock, os.O_RDWR, like=lock.parent))
            if not has_locked(file, fcntl.LOCK_EX, LOOKED_AT):
                raise InUse(database, _record(file))
            if not is_at(lock, file):  # it was removed meanwhile, and another may be there
                raise InUse(database, UNNAMED)
            _note(file)
        stack.callback(_forget, file)
        yield


def holder(database: Path) -> str | None:
    """Who has the database now; none if nobody has. StartRefused if the lock cannot be read."""
    lock = _lock_of(database)
    with os_errors_as(StartRefused, f"The lock {lock} cannot be taken"):
        if not lock.exists():
            return None
        with opened(lock, os.O_NOFOLLOW) as file:
            return None if has_locked(file, fcntl.LOCK_SH) else _record(file)


def _lock_of(database: Path) -> Path:
    """Beside the file itself, whatever links lead to it."""
    return Path(f"{os.path.realpath(database)}.lock")


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


def _record(file: int) -> str:
    """The host, which is a container's name or a pod's, with the process and when it came."""
    try:
        record = json.loads(os.pread(file, LONGEST, 0))
        host, pid, since = record["host"], record["pid"], parsed(str(record["since"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return UNNAMED
    if not (isinstance(host, str) and host.isprintable() and isinstance(pid, int) and since):
        return UNNAMED
    return f"{host} (process {pid}), since {rendered(since)}"
