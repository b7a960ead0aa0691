"""The files that a database's connections have open; its log, its copies and its free space.

SQLite opens the write-ahead log (`-wal`) and its shared memory (`-shm`) once and never looks again.
If one of them is removed or replaced, commits go to a file that the next process does not read, or
two processes overwrite each other's commits. A second name of the database would have a second log,
so the file has one name, except while a restore keeps it.

The free space is zeroed, so that no deleted data can be read there. SQLite overwrites deleted data
with zeros (`secure_delete`). But when it moves rows to another page, a copy of them stays in the
free space of the old page, and no later deletion reaches it. SQLite has no statement for that, so
this module writes into the file itself, in steps on the writer's thread: under the write lock, with
an empty log, and only into bytes that no page uses.
"""

import asyncio
import fcntl
import logging
import os
import shutil
import sqlite3
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from filecmp import cmp
from itertools import chain, count
from pathlib import Path

from ..engine.engine import noop
from ..engine.files import leftovers, sync
from ..errors import StartRefused, Unavailable, reason
from ..light import dataclass, field
from . import connection as db
from .dialect import primary_code, refusing

GONE = "The database file is gone, or another one is in its place."
LINKED = "The database file has a second name (a hard link); remove one of the two."
LOG_GONE = (
    "The write-ahead log of the database is gone, or another one is in its place; "
    "restart the service."
)

FileId = tuple[int, int]
"""Device and inode, which identify a file under any path."""

EVERY = 32  # batches between two passive checkpoints, so that the log fits on a small disk
LONG = 5000  # pages (20 MiB) of the log at which it is restarted
TIMEOUT = timedelta(milliseconds=250)  # how long to wait for reads that began before

SHARED_RANGE = (0x40000000 + 2, 510)  # SQLite's shared lock: https://sqlite.org/lockingv3.html

log = logging.getLogger(__name__)
_users: Counter[FileId | None] = Counter()
_descriptors: defaultdict[FileId | None, list[int]] = defaultdict(list)
_guard = threading.Lock()
SUFFIX = "before-upgrade"
BEFORE_RESTORE = "before-restore"
BEFORE_FIX = "before-fix"
QUARANTINE = "quarantine"  # rows that `doctor --fix` has moved out
LINKED_TIMEOUT = timedelta(seconds=1)  # to wait for another command that removes names
REMEDY = (
    "Each has a write-ahead log of its own, so that programs would overwrite each other's commits. "
    "Stop them, find the names with `find / -xdev -samefile`, and remove all but one."
)
# Settings of the walk over the free space.
READS = timedelta(milliseconds=25)  # how long a step waits for reads; saves wait with it
WRITES = timedelta(milliseconds=100)  # for another process's writes; saves would wait anyway
TRIES = 8  # consecutive delays after which a walk ends
PAGES = 1024  # pages of one step: 10 ms
MOST_PAGES = 1 << 25  # in larger files an overflow page may begin like a page of rows
FIRST_PAGE = 2  # page 1 has the schema, and no user's text
LOG_HEADER = 32  # bytes: https://sqlite.org/fileformat2.html#walformat
FRAME_HEADER = 24  # bytes before each page in the log
LEAST_FREE = 4  # bytes of a free block: the offset of the next one, and its own size
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}  # bytes of a page's header, by the kind of b-tree page


class OpenFiles:
    """The database file that connections have open, its log, and the log's shared memory."""

    def __init__(self, path: Path, file: FileId | None, database: db.Database) -> None:
        """Note the files of a connection, which opens its log now.

        Raises StartRefused if they are not at their paths.
        """
        with refusing(path):
            database.execute("SELECT 1 FROM sqlite_schema").fetchone()
        self.path = path
        real = os.path.realpath(path)  # SQLite resolves symbolic links for its own files
        self._path, self.log, self._memory = str(path), f"{real}-wal", f"{real}-shm"
        names = (self._path, self.log, self._memory)
        self._opened = {it: identity for it in names if (identity := _identity(it)) is not None}
        if len(self._opened) < len(names) or self._opened[self._path][:2] != file:
            raise StartRefused(f"{path} was replaced while it was opened.")
        self.database = file
        self.fault = ""  # the fault that the last `require_same` found
        self._is_rescued = False

    def are_same(self) -> bool:
        """Whether the paths still lead to the open files, and none has got a second name."""
        return [*map(_identity, self._opened)] == [*self._opened.values()]

    def require_same(self) -> None:
        """Raise Unavailable if the next process would not find a commit.

        To be called before a commit, and again before it is acknowledged.
        """
        if self.are_same():
            self.fault, self._is_rescued = "", False
            return
        if file_id(self._path) != self.database:
            fault = GONE
        elif _identity(self._path) == self._opened[self._path]:
            fault = LOG_GONE
        else:
            fault = LINKED
        if fault != self.fault:
            log.error("saves are refused: %s", fault, extra={"path": self._path})
        self.fault = fault
        raise Unavailable(fault)

    def require_own_log(self) -> None:
        """Raise Unavailable if another log may be in use, so that a read may be outdated."""
        if self.has_another_log():
            raise Unavailable(LOG_GONE)

    def has_another_log(self) -> bool:
        """Whether another process may commit into the same file through another log.

        This process then no longer knows which pages are valid. An empty log was opened, but
        nothing was committed into it.
        """
        is_replaced = self._is_replaced(self._memory) or (
            self._is_replaced(self.log) and size_at(self.log) > 0
        )
        return is_replaced and file_id(self._path) == self.database

    def rescue(self, database: db.Database) -> None:
        """Copy the open log into the database file, where the next process finds the commits.

        Do nothing if another log is in use: pages committed through it would be overwritten.
        """
        if self._is_rescued or self.has_another_log():
            return
        with suppress(sqlite3.Error):  # the next refused commit retries
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

    SQLite checkpoints it while others read, but restarts it only when no read needs it: if there
    is always a read in progress, it grows. So the writer sometimes waits for running reads. If a
    reader holds the log for long, such as a replicator that copies it, the writer waits again only
    once the log has grown by the same amount again.
    """

    _writer: db.WriterThread
    _files: OpenFiles
    _batches: int = 0
    _stuck_at: int = 0  # pages at which the last restart failed

    async def after_batch(self) -> None:
        """Check the log after a batch; if its file is gone, copy it while that is safe."""
        if self._files.fault:
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


def _pages(database: db.Database) -> int:
    """Return the pages of the log, after a passive checkpoint."""
    with suppress(sqlite3.Error):
        _, pages, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(pages)
    return 0


def restarted(database: db.Database) -> bool:
    with suppress(sqlite3.Error):  # a long read, or another process
        return checkpointed(database, "RESTART", TIMEOUT)
    return False


def checkpointed(database: db.Database, mode: str, timeout: timedelta) -> bool:
    """Copy the whole log into the file; return False if a read needs the log for longer."""
    db.set_pragma(database, "busy_timeout", round(1000 * timeout.total_seconds()))
    (is_blocked, *_) = database.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return not is_blocked


def vacuum_remains(
    database: db.Database, path: Path, on_rewrite: Callable[[], object] = noop
) -> bool:
    """Vacuum the file if its free pages may have deleted data; return False on failure."""
    if database.execute("SELECT 1 FROM remains").fetchone() is None:
        return True
    on_rewrite()
    folder = str(path.parent.absolute()).replace("'", "''")
    try:
        # Use the disk, as memory may be short, and the file's folder, which surely exists.
        database.execute("PRAGMA temp_store = FILE")
        database.execute(f"PRAGMA temp_store_directory = '{folder}'")
        database.execute("PRAGMA auto_vacuum = NONE")
        database.execute("VACUUM")
        database.execute("DELETE FROM remains")
    except sqlite3.Error as error:
        log.warning("the file keeps its unused pages", extra={"reason": reason(error)})
        return False
    return True


def file_id(path: str | Path) -> FileId | None:
    identity = _identity(path)
    return identity and identity[:2]


def _identity(name: str | Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(name)  # noqa: PTH116 - twice as fast, and every commit calls it
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_nlink


def size_at(name: str | Path) -> int:
    with suppress(OSError):
        return os.stat(name).st_size  # noqa: PTH116 - as above
    return 0


# A process loses all its POSIX locks on a file when it closes any descriptor of the file, and
# SQLite's locks are of this kind. So our own descriptors stay open as long as any connection to the
# file does.
@contextmanager
def in_use(file: FileId | None) -> Iterator[None]:
    """Keep descriptors of a file open; enter before its first connection, exit after its last."""
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
    """Return the file's descriptor to read and write, never to close; Unavailable if it is gone."""
    with _guard:
        if not _descriptors[files.database]:
            descriptor = os.open(files.path, os.O_RDWR | os.O_CLOEXEC)
            status = os.fstat(descriptor)
            _descriptors[status.st_dev, status.st_ino].append(descriptor)
        for descriptor in _descriptors[files.database]:
            return descriptor
    raise Unavailable(GONE)


def protect_log(files: OpenFiles) -> None:
    """Prevent SQLite from copying and removing the log when the last connection closes.

    SQLite does that by name, under an exclusive lock. A shared lock of another owner (`F_OFD`,
    only on Linux) prevents it, until the last connection is closed.
    """
    lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, *SHARED_RANGE, 0)
    with suppress(AttributeError, OSError, Unavailable):
        fcntl.fcntl(descriptor_of(files), fcntl.F_OFD_SETLK, lock)


def kept_copy(path: Path, suffix: str = SUFFIX) -> Path:
    """Copy the database to one file in its folder, unless an identical copy exists; return it.

    The caller holds the write lock, so that one process at a time copies and nothing changes
    meanwhile. Raises StartRefused if the rows of a table differ.
    """
    draft = draft_of(path)
    draft.unlink(missing_ok=True)  # left by a process that was killed
    try:
        # The backup API reads the WAL too, which a plain copy of the file would miss.
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
            # The copy is one file, whatever the journal mode of the original.
            target.execute("PRAGMA journal_mode = DELETE")
            if any(db.sums_of(source, it) != db.sums_of(target, it) for it in db.tables(source)):
                raise StartRefused(f"A copy of {path} could not be made; nothing was changed.")
        shutil.copymode(path, draft)
        sync(draft)
        copy = free_name(
            path.with_name(f"{path.name}.{suffix}"),
            lambda it: it.is_file() and cmp(it, draft, shallow=False),
        )
        if not os.path.lexists(copy):
            draft.rename(copy)
            sync(copy.parent)
        return copy
    finally:
        draft.unlink(missing_ok=True)


def draft_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.{SUFFIX}.part")


def copies_of(path: Path) -> list[Path]:
    """Return the kept copies in the file's folder, by name."""
    names = tuple(f"{path.name}.{suffix}" for suffix in (SUFFIX, BEFORE_RESTORE, BEFORE_FIX))
    numbered = tuple(f"{name}-" for name in names)
    every = (*names, f"{path.name}.{QUARANTINE}", draft_of(path).name)
    beside = sorted(path.parent.iterdir())
    return [it for it in beside if it.name in every or it.name.startswith(numbered)]


def kept_name(path: Path) -> Path:
    """Give a file that is to be replaced a free second name, and return the name.

    The file then has both names, and the second one is synced to the disk.
    """
    name = free_name(path.with_name(f"{path.name}.{BEFORE_RESTORE}"), path.samefile)
    if not os.path.lexists(name):  # else a killed process has linked it
        name.hardlink_to(path)
    sync(path.parent)
    return name


def free_name(name: Path, is_usable: Callable[[Path], bool] = lambda _: False) -> Path:
    """Return the first of the name, `name-2` and so on that is free, or an existing usable one."""
    names = chain([name], (name.with_name(f"{name.name}-{number}") for number in count(2)))
    return next(it for it in names if not os.path.lexists(it) or is_usable(it))


def names_of(path: Path) -> int:
    """Return the number of names of the file at the path, or 0 if there is no regular file."""
    identity = _identity(path) if path.is_file() else None
    return identity[2] if identity else 0


def require_one_name(path: Path) -> None:
    """Raise StartRefused if a file has further names, after removing those of a killed restore.

    To be called before connecting, which would create a log for each name.
    """
    if names_of(path) <= 1:
        return
    real = Path(os.path.realpath(path))
    leftovers(real.parent, remove=True)  # a draft that was linked already
    if any(_second_names(real)):
        # A running restore holds a lock on the file until the second name is its only one.
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
    """Yield the names under which a restore keeps the file that it is about to replace."""
    with suppress(FileNotFoundError):
        file = path.stat()
        yield from (it for it in copies_of(path) if os.path.samestat(it.lstat(), file))


async def scrubbed(writer: db.WriterThread, files: OpenFiles) -> bool:
    """Zero the free space and truncate the log; return False while something prevents that."""

    def is_without_remains() -> bool:
        # Not on the writer's connection: a vacuum sets the folder of temporary files, which would
        # drop the connection's temporary triggers.
        with closing(db.connect(files.path, busy_timeout=WRITES)) as own:
            return vacuum_remains(own, files.path)

    if not await writer.run(lambda _: files.are_same() and is_without_remains()):
        return False
    walk, tries = Walk(files), TRIES
    while tries:
        if not await writer.run(walk.step):
            tries -= 1
            await asyncio.sleep(READS.total_seconds())
        elif walk.is_done:
            return True
        else:
            tries = TRIES
    return False


@dataclass(slots=True, eq=False)
class Walk:
    """A walk over a file, in steps; pages that change after their step are scrubbed again.

    Such a page may get old data: SQLite exchanges the numbers of pages when it balances them.
    """

    _files: OpenFiles
    is_done: bool = False
    _next: int = FIRST_PAGE
    _changed: set[int] = field(default_factory=set)
    _log: bytes = b""  # the header of the log with all changes since the last step
    _version: int = -1  # data_version, which changes when another connection writes

    def step(self, database: db.Database) -> bool:
        """Do a step; False if a read needs the log, another process writes, or files were replaced.

        Once it is done, data deleted before this step is neither in the file nor in its log.
        """
        if not self._files.are_same():
            return False
        log, changed = _logged(self._files.log)
        if log == self._log:
            self._changed |= changed
        else:
            self._restart()
        try:
            return checkpointed(database, "TRUNCATE", READS) and self._stepped(database)
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            return False

    def _stepped(self, database: db.Database) -> bool:
        with db.change(database, time.monotonic() + WRITES.total_seconds()):
            ((version,),) = database.execute("PRAGMA data_version")
            if version != self._version:
                self._restart()
                self._version = version
            log, _ = _logged(self._files.log)
            if log or not self._files.are_same():
                return False  # another process has written
            if not self._scrub(database):
                return False
            # A commit: other connections reread their cached pages before writing.
            database.execute(f"PRAGMA application_id = {db.APPLICATION_ID}")
        database.execute("PRAGMA shrink_memory")  # and so does this connection
        self._log, _ = _logged(self._files.log)
        return True

    def _restart(self) -> None:
        self._next = FIRST_PAGE
        self._changed.clear()

    def _scrub(self, database: db.Database) -> bool:
        ((size,),) = database.execute("PRAGMA page_size")
        ((has_page_map,),) = database.execute("PRAGMA auto_vacuum")
        file = descriptor_of(self._files)
        end = os.fstat(file).st_size // size + 1
        if has_page_map or end > MOST_PAGES:
            return False  # nothing says which pages hold rows
        until = min(self._next + PAGES, end)
        _zero(file, size, self._changed.intersection(range(FIRST_PAGE, self._next)))
        _zero(file, size, range(self._next, until))
        self._changed.clear()
        self._next, self.is_done = until, until == end
        return True


def _logged(name: str) -> tuple[bytes, set[int]]:
    """Return a log's header, which is unique, and its pages; both are empty for an empty log."""
    pages = set[int]()
    with Path(name).open("rb") as log:
        header = log.read(LOG_HEADER)
        size, salts = int.from_bytes(header[8:12]), header[16:24]
        while len(frame := log.read(FRAME_HEADER)) == FRAME_HEADER and frame[8:16] == salts:
            pages.add(int.from_bytes(frame[:4]))
            log.seek(size, os.SEEK_CUR)
    return header, pages


def _zero(file: int, size: int, pages: Iterable[int]) -> None:
    is_changed = False
    for offset in (size * (page - 1) for page in pages):
        content = os.pread(file, size, offset)
        for start, end in _free(content):
            if content[start:end].strip(b"\0"):
                os.pwrite(file, bytes(end - start), offset + start)
                is_changed = True
    if is_changed:
        os.fsync(file)


def _free(page: bytes) -> list[tuple[int, int]]:
    """Return the free parts of a page of rows; on any inconsistency there are none."""
    header = _HEADERS.get(page[0])
    if header is None:
        return []
    block, rows, begin = struct.unpack_from(">HHH", page, 1)
    spans = [(header + 2 * rows, begin or 1 << 16)]
    while block:
        last = spans[-1][1]
        if not last <= block <= len(page) - LEAST_FREE:
            return []
        following, size = struct.unpack_from(">HH", page, block)
        spans.append((block + LEAST_FREE, block + size))
        block = following
    is_consistent = all(start <= end <= len(page) for start, end in spans)
    return spans if is_consistent else []
