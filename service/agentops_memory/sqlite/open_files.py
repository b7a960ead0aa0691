"""Which files a database's connections have open, and whether these are the ones at its path.

SQLite opens the write-ahead log (`-wal`) and its shared memory (`-shm`) once and never looks
again. Where one of them is removed or replaced, what is committed goes where the next process
does not look, or two processes write over each other's commits. Under a second name of the
database it would keep a second log; so a file has one name, but for the copies kept beside it.
"""

import fcntl
import logging
import os
import shutil
import sqlite3
import stat
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from filecmp import cmp
from itertools import chain, count
from pathlib import Path

from ..engine.files import remove_leftovers, sync
from ..errors import StartRefused, Unavailable
from ..light import dataclass
from .connection import WriterThread, wait_at_most
from .dialect import refusing

GONE = "The database file is gone, or another one is in its place."
LINKED = "The database file has a second name (a hard link); remove one of the two."
LOG_GONE = (
    "The write-ahead log of the database is gone, or another one is in its place; "
    "restart the service."
)

FileId = tuple[int, int]
"""Device and inode: which file it is, whatever path led to it."""

EVERY = 32  # batches between two looks, which copy what they can: a small disk holds the log
LONG = 5000  # pages (20 MiB) after which it is to be restarted
TIMEOUT = timedelta(milliseconds=250)  # with reads that began before

SHARED_RANGE = (0x40000000 + 2, 510)  # of SQLite's locks: https://sqlite.org/lockingv3.html

log = logging.getLogger(__name__)


class OpenFiles:
    """The database file that connections have open, its log, and the log's shared memory."""

    def __init__(self, path: Path, file: FileId | None, database: sqlite3.Connection) -> None:
        """Those of a connection to the file, which has its log open from now on.

        StartRefused if they are not at their paths.
        """
        with refusing(path):
            database.execute("SELECT 1 FROM sqlite_schema").fetchone()
        self.path = path
        real = os.path.realpath(path)  # SQLite keeps its own there, whatever links lead to it
        self._path, self.log, self._memory = str(path), f"{real}-wal", f"{real}-shm"
        names = (self._path, self.log, self._memory)
        self._opened = {it: identity for it in names if (identity := _identity(it)) is not None}
        if len(self._opened) < len(names) or self._opened[self._path][:2] != file:
            raise StartRefused(f"{path} was replaced while it was opened.")
        self.database = file
        self._complaint = ""
        self._is_rescued = False

    @property
    def were_same(self) -> bool:
        """Whether they were when that was last required."""
        return not self._complaint

    def are_same(self) -> bool:
        """Whether the paths lead to the files that are open, and none has another name by now."""
        return [*map(_identity, self._opened)] == [*self._opened.values()]

    def require_same(self) -> None:
        """Refuse with Unavailable a change that the next process would not find.

        To be called before a commit, and again before it is acknowledged.
        """
        if self.are_same():
            self._complaint, self._is_rescued = "", False
            return
        if file_id(self._path) != self.database:
            fault = GONE
        elif _identity(self._path) == self._opened[self._path]:
            fault = LOG_GONE
        else:
            fault = LINKED
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
        file = file_id(name)
        return file is not None and file != self._opened[name][:2]


@dataclass(slots=True, eq=False)
class WriteAheadLog:
    """The log of one writer.

    SQLite checkpoints it by itself while others read, but restarts it only when no read needs
    it: where each write finds a read under way, it grows. So now and then the writer waits for
    the reads that run. What holds the log for long, as a replicator does that copies it, is not
    waited for again before the log has grown by as much once more.
    """

    _writer: WriterThread
    _files: OpenFiles
    _batches: int = 0
    _stuck_at: int = 0  # pages at which it could not be restarted

    async def after_batch(self) -> None:
        """To be called after each batch. A log whose file is gone is copied while that is safe."""
        if not self._files.were_same:
            await self._writer.run(self._files.rescue)
            return
        self._batches += 1
        if self._batches % EVERY:
            return
        pages = await self._writer.run(_pages)
        if pages < self._stuck_at:
            self._stuck_at = 0  # another process has restarted it
        if pages >= self._stuck_at + LONG:
            self._stuck_at = 0 if await self._writer.run(restarted) else pages


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
    wait_at_most(database, timeout.total_seconds())
    (is_blocked, *_) = database.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return not is_blocked


def file_id(path: str | Path) -> FileId | None:
    identity = _identity(path)
    return identity and identity[:2]


def _identity(name: str | Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(name)  # noqa: PTH116 - twice as fast, and on the way of every commit
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_nlink


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
            status = os.fstat(descriptor)
            _descriptors[status.st_dev, status.st_ino].append(descriptor)
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


SUFFIX = "before-upgrade"
RESTORED = "before-restore"
MENDED = "before-fix"
QUARANTINE = "quarantine"  # rows that `doctor --fix` has taken out
LINKED_TIMEOUT = timedelta(seconds=1)  # with another command that removes further names
REMEDY = (
    "Each has a write-ahead log of its own, so that programs would overwrite each other's commits. "
    "Stop them, find the names with `find / -xdev -samefile`, and remove all but one."
)


def kept_copy(
    path: Path, contents: Callable[[sqlite3.Connection], object], suffix: str = SUFFIX
) -> Path:
    """A copy of the file beside it, as one file; an identical earlier copy serves as well.

    The caller holds the write lock, so that one process at a time copies and
    nothing changes meanwhile. Refused with StartRefused when `contents` differ.
    """
    draft = draft_of(path)
    draft.unlink(missing_ok=True)  # a process that was killed left it
    try:
        # The backup API reads the WAL too, which a plain copy of the file would miss.
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
            # The copy is one file, whatever the journal mode of the original.
            target.execute("PRAGMA journal_mode = DELETE")
            if contents(source) != contents(target):
                raise StartRefused(f"A copy of {path} could not be made; nothing was changed.")
        shutil.copymode(path, draft)
        sync(draft)
        copies = numbered(path.with_name(f"{path.name}.{suffix}"))
        while os.path.lexists(copy := next(copies)):
            if copy.is_file() and cmp(copy, draft, shallow=False):
                return copy
        draft.rename(copy)
        sync(copy.parent)
        return copy
    finally:
        draft.unlink(missing_ok=True)


def draft_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.{SUFFIX}.part")


def copies_of(path: Path) -> list[Path]:
    """The copies that lie beside the file, by name."""
    names = tuple(f"{path.name}.{suffix}" for suffix in (SUFFIX, RESTORED, MENDED))
    numbered = tuple(f"{name}-" for name in names)
    every = (*names, f"{path.name}.{QUARANTINE}", draft_of(path).name)
    beside = sorted(path.parent.iterdir())
    return [it for it in beside if it.name in every or it.name.startswith(numbered)]


def kept_name(path: Path) -> Path:
    """A second name of a file that is to be replaced; none of those that are taken by another.

    The file is under both names then, and on disk under the second.
    """
    names = numbered(path.with_name(f"{path.name}.{RESTORED}"))
    while os.path.lexists(name := next(names)) and not name.samefile(path):
        pass
    if not os.path.lexists(name):  # else a process was killed before it went on
        name.hardlink_to(path)
    sync(path.parent)
    return name


def numbered(name: Path) -> Iterator[Path]:
    """The name, and then with `-2`, `-3` and so on at its end."""
    return chain([name], (name.with_name(f"{name.name}-{number}") for number in count(2)))


def names_of(path: Path) -> int:
    """How many names the file at the path has; 0 if there is none, or it is no file."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_nlink if stat.S_ISREG(status.st_mode) else 0
    return 0


def require_one_name(path: Path) -> None:
    """Refuse with StartRefused a file with further names; those of a killed restore are removed.

    To be called before a connection is made, which would create a log beside each name.
    """
    if names_of(path) <= 1:
        return
    real = Path(os.path.realpath(path))
    remove_leftovers(real.parent)  # a draft that has its name already
    if any(_second_names(real)):
        # A restore that runs has the file locked until the second name is the only one.
        timeout = LINKED_TIMEOUT.total_seconds()
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(real, isolation_level=None, timeout=timeout)) as database,
        ):
            database.execute("BEGIN IMMEDIATE")
            for name in _second_names(real):
                name.unlink()
            sync(real.parent)
    if (names := names_of(path)) > 1:
        raise StartRefused(f"{path} has {names} names (hard links). {REMEDY}")


def _second_names(path: Path) -> Iterator[Path]:
    """Under which a restore keeps the file that it is about to replace."""
    with suppress(FileNotFoundError):
        file = path.stat()
        yield from (it for it in copies_of(path) if os.path.samestat(it.lstat(), file))
