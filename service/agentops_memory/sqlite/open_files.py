"""Which files a database's connections have open, and whether these are the ones at its path.

SQLite opens the write-ahead log (`-wal`) and its shared memory (`-shm`) once and never looks
again. Where one of them is removed or replaced, what is committed goes where the next process
does not look, or two processes write over each other's commits.
"""

import fcntl
import logging
import os
import sqlite3
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from ..errors import StartRefused, Unavailable
from .connection import Connection
from .dialect import refusing

GONE = "The database file is gone, or another one is in its place."
LINKED = "The database file has a second name (a hard link); remove one of the two."
LOG_GONE = (
    "The write-ahead log of the database is gone, or another one is in its place; "
    "restart the service."
)

FileId = tuple[int, int]
"""Device and inode: which file it is, whatever path led to it."""

EVERY = 32  # batches between two looks at the log
LONG = 5000  # pages (20 MiB) after which it is to be restarted
TIMEOUT = timedelta(milliseconds=250)  # with reads that began before

SHARED_RANGE = (0x40000000 + 2, 510)  # of SQLite's locks: https://sqlite.org/lockingv3.html

log = logging.getLogger(__name__)


class OpenFiles:
    """The database file that connections have open, its log, and the log's shared memory."""

    def __init__(self, path: Path, file: FileId | None) -> None:
        self.path = path
        real = os.path.realpath(path)  # SQLite keeps its own there, whatever links lead to it
        self._path, self.log, self._memory = str(path), f"{real}-wal", f"{real}-shm"
        found = {it: _identity(it) for it in (self._path, self.log, self._memory)}
        self._opened = {name: identity for name, identity in found.items() if identity is not None}
        if len(self._opened) < len(found) or self._opened[self._path][:2] != file:
            raise StartRefused(f"{path} was replaced while it was opened.")
        self.database = file
        self._complaint = ""
        self._is_rescued = False

    @classmethod
    def of(cls, path: Path, file: FileId | None, database: sqlite3.Connection) -> "OpenFiles":
        """Those of a connection to the file, which has its log open from now on.

        StartRefused if they are not at their paths.
        """
        with refusing(path):
            database.execute("SELECT 1 FROM sqlite_schema").fetchone()
        return cls(path, file)

    @property
    def were_in_place(self) -> bool:
        """Whether they were when that was last required."""
        return not self._complaint

    def are_in_place(self) -> bool:
        """Whether the paths lead to the files that are open, and none has another name by now."""
        return all(_identity(name) == opened for name, opened in self._opened.items())

    def require_in_place(self) -> None:
        """Refuse with Unavailable a change that the next process would not find.

        To be asked before a commit, and once more before that is acknowledged.
        """
        if self.are_in_place():
            self._complaint, self._is_rescued = "", False
            return
        fault = self._fault()
        if fault != self._complaint:
            log.error("saves are refused: %s", fault, extra={"path": self._path})
        self._complaint = fault
        raise Unavailable(fault)

    def require_own_log(self) -> None:
        """Refuse with Unavailable what was read once another log may be in use."""
        if self.has_another_log():
            raise Unavailable(LOG_GONE)

    def has_another_log(self) -> bool:
        """Whether another process may commit into the same file by a log that is not this one.

        From then on nobody here knows which pages are valid. A log without a byte was opened,
        but nothing was committed into it.
        """
        is_replaced = self._is_replaced(self._memory) or (
            self._is_replaced(self.log) and size_at(self.log) > 0
        )
        return is_replaced and file_id(self._path) == self.database

    def rescue(self, database: sqlite3.Connection) -> None:
        """Copy what the open log holds into the database file, where the next process finds it.

        Not once another log is in use: pages that were committed by it would be overwritten.
        """
        if self._is_rescued or self.has_another_log():
            return
        with suppress(sqlite3.Error):  # the next refused commit tries it again
            _, pages, copied = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._is_rescued = pages == copied
        if self._is_rescued:
            fields = {"path": self._path}
            log.warning("all commits were copied into the database file", extra=fields)

    def _is_replaced(self, name: str) -> bool:
        found = _identity(name)
        return found is not None and found[:2] != self._opened[name][:2]

    def _fault(self) -> str:
        if file_id(self._path) != self.database:
            return GONE
        return LOG_GONE if _identity(self._path) == self._opened[self._path] else LINKED


@dataclass(slots=True, eq=False)
class WriteAheadLog:
    """The log of one writer.

    SQLite checkpoints it by itself while others read, but restarts it only when no read needs
    it: where each write finds a read under way, it grows. So now and then the writer waits for
    the reads that run. What holds the log for long, as a replicator does that copies it, is not
    waited for again before the log has grown by as much once more.
    """

    _writer: Connection
    _files: OpenFiles
    _batches: int = 0
    _held_at: int = 0  # pages at which it could not be restarted

    async def after_batch(self) -> None:
        """To be called after each batch. A log whose file is gone is copied while that is safe."""
        if not self._files.were_in_place:
            await self._writer.run(self._files.rescue)
            return
        self._batches += 1
        if self._batches % EVERY:
            return
        pages = await self._writer.run(_pages)
        if pages < self._held_at:
            self._held_at = 0  # another process has restarted it
        if pages >= self._held_at + LONG:
            self._held_at = 0 if await self._writer.run(restarted) else pages


def _pages(database: sqlite3.Connection) -> int:
    """How long the log is, after what can be copied was copied."""
    with suppress(sqlite3.Error):
        _, pages, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(pages)
    return 0


def restarted(database: sqlite3.Connection) -> bool:
    with suppress(sqlite3.Error):  # a long read, or another process
        return checkpointed(database, "RESTART", TIMEOUT)
    return False


def checkpointed(database: sqlite3.Connection, mode: str, timeout: timedelta) -> bool:
    """Copy the whole log into the file; false where a read needs the log for longer."""
    database.execute(f"PRAGMA busy_timeout = {timeout.total_seconds() * 1000:.0f}")
    (is_blocked, *_) = database.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return not is_blocked


def file_id(path: str | Path) -> FileId | None:
    identity = _identity(path)
    return identity and identity[:2]


def _identity(name: str | Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116 - twice as fast, and on the way of every commit
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_nlink


def size_at(name: str | Path) -> int:
    with suppress(OSError):
        return os.stat(name).st_size  # noqa: PTH116 - as above
    return 0


# A process loses all its POSIX locks on a file with the first descriptor of it that it closes,
# and SQLite's are such. So what is opened beside SQLite stays open for as long as anybody has
# a connection to the file.


@contextmanager
def in_use(file: FileId | None) -> Iterator[None]:
    """To be entered before the first connection to a file, and left after the last is closed."""
    with _guard:
        _users[file] += 1
    try:
        yield
    finally:
        with _guard:
            _users[file] -= 1
            if not _users[file]:
                del _users[file]
                for descriptor in _descriptors.pop(file, []):
                    os.close(descriptor)


def descriptor_of(files: OpenFiles) -> int:
    """Of the database file, to read and write; nobody closes it. Unavailable if it is gone."""
    with _guard:
        if not _descriptors[files.database]:
            descriptor = os.open(files.path, os.O_RDWR | os.O_CLOEXEC)
            found = os.fstat(descriptor)
            _descriptors[found.st_dev, found.st_ino].append(descriptor)
        for descriptor in _descriptors[files.database]:
            return descriptor
    raise Unavailable(GONE)


def protect_log(files: OpenFiles) -> None:
    """See to it that SQLite, with the last connection, does not copy and remove the file's log.

    It does that under an exclusive lock, and by name. A shared lock of another owner (`F_OFD`,
    which Linux has alone) keeps it from that, until the last connection is closed.
    """
    lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, *SHARED_RANGE, 0)
    with suppress(AttributeError, OSError, Unavailable):
        fcntl.fcntl(descriptor_of(files), fcntl.F_OFD_SETLK, lock)


_users: Counter[FileId | None] = Counter()
_descriptors: defaultdict[FileId | None, list[int]] = defaultdict(list)
_guard = threading.Lock()
