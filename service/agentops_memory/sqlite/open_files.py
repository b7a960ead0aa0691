"""Which files a database's connections have open; its log, the copies of it, and its free space.

SQLite opens the write-ahead log (`-wal`) and its shared memory (`-shm`) once and never looks again.
Where one of them is removed or replaced, what is committed goes where the next process does not
look, or two processes write over each other's commits. Under a second name of the database it would
keep a second log; so a file has one name, but for the copies kept beside it.

The free space is zeroed: nothing that was deleted can be read there. SQLite writes zeros over what
is deleted (`secure_delete`). But when it moves rows to another page, a copy of them stays in the
free space of the old one, and no later deletion knows of it. It has no statement for that, so this
writes into the file itself, in steps on the thread that writes: under the lock of writers, with an
empty log, and nothing but bytes that no page uses.
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
from ..engine.files import remove_leftovers, sync
from ..errors import StartRefused, Unavailable, reason
from ..light import dataclass, field
from .connection import APPLICATION_ID, WriterThread, change, connect, wait_at_most
from .dialect import primary_code, refusing

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
# Of the walk over the free space.
READS = timedelta(milliseconds=25)  # for which a step waits, and saves with it
WRITES = timedelta(milliseconds=100)  # of another process, for which saves would wait anyway
TRIES = 8  # after so many delays in a row, a walk ends
PAGES = 1024  # of a step: 10 ms
MOST_PAGES = 1 << 25  # from here on, an overflow page may begin like a page of rows
FIRST_PAGE = 2  # the one before holds the schema, and no user's text
LOG_HEADER = 32  # bytes: https://sqlite.org/fileformat2.html#walformat
FRAME_HEADER = 24  # bytes before each page in the log
LEAST_FREE = 4  # bytes of a free block: the place of the next one, and its own size
_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}  # bytes of a page's header, by the kind of b-tree page


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
        self.complaint = ""  # when it was last required that they are the same
        self._is_rescued = False

    def are_same(self) -> bool:
        """Whether the paths lead to the files that are open, and none has another name by now."""
        return [*map(_identity, self._opened)] == [*self._opened.values()]

    def require_same(self) -> None:
        """Refuse with Unavailable a change that the next process would not find.

        To be called before a commit, and again before it is acknowledged.
        """
        if self.are_same():
            self.complaint, self._is_rescued = "", False
            return
        if file_id(self._path) != self.database:
            fault = GONE
        elif _identity(self._path) == self._opened[self._path]:
            fault = LOG_GONE
        else:
            fault = LINKED
        if fault != self.complaint:
            log.error("saves are refused: %s", fault, extra={"path": self._path})
        self.complaint = fault
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
        if self._files.complaint:
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


def vacuum_remains(
    database: sqlite3.Connection, path: Path, on_rewrite: Callable[[], object] = noop
) -> bool:
    """Vacuum the file if its free pages may hold what was deleted; whether they do not now."""
    if database.execute("SELECT 1 FROM remains").fetchone() is None:
        return True
    on_rewrite()
    folder = str(path.parent.absolute()).replace("'", "''")
    try:
        # On disk, for memory may be short, and beside the file, the one place sure to be there.
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
    identity = _identity(path) if path.is_file() else None
    return identity[2] if identity else 0


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


async def scrubbed(writer: WriterThread, files: OpenFiles) -> bool:
    """Zero the free space and truncate the log; false while something holds that back."""

    def is_without_remains() -> bool:
        # Not on the writer's own connection: a vacuum sets where temporary files lie, and with
        # that its temporary triggers would go.
        with closing(connect(files.path, busy_timeout=WRITES)) as own:
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
    """One walk over a file, in steps; a page that changes behind it is walked again.

    It may get a copy from before: SQLite exchanges the numbers of pages when it balances them.
    """

    _files: OpenFiles
    is_done: bool = False
    _next: int = FIRST_PAGE
    _again: set[int] = field(default_factory=set)
    _log: bytes = b""  # the header of the one that holds all changes since the last step
    _version: int = -1  # of the data, which differs when another connection has written

    def step(self, database: sqlite3.Connection) -> bool:
        """Go on; false if a read needs the log, another process writes, or the files were replaced.

        Once it is done, what was deleted before this step is neither in the file nor its log.
        """
        if not self._files.are_same():
            return False
        log, changed = _logged(self._files.log)
        if log == self._log:
            self._again |= changed
        else:
            self._begin_again()
        try:
            return checkpointed(database, "TRUNCATE", READS) and self._stepped(database)
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            return False

    def _stepped(self, database: sqlite3.Connection) -> bool:
        with change(database, time.monotonic() + WRITES.total_seconds()):
            ((version,),) = database.execute("PRAGMA data_version")
            if version != self._version:
                self._begin_again()
                self._version = version
            log, _ = _logged(self._files.log)
            if log or not self._files.are_same():
                return False  # another process was quicker
            if not self._scrub(database):
                return False
            # A commit: other connections reread their cached pages before writing.
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute("PRAGMA shrink_memory")  # and so does this connection
        self._log, _ = _logged(self._files.log)
        return True

    def _begin_again(self) -> None:
        self._next = FIRST_PAGE
        self._again.clear()

    def _scrub(self, database: sqlite3.Connection) -> bool:
        ((size,),) = database.execute("PRAGMA page_size")
        ((has_page_map,),) = database.execute("PRAGMA auto_vacuum")
        file = descriptor_of(self._files)
        end = os.fstat(file).st_size // size + 1
        if has_page_map or end > MOST_PAGES:
            return False  # nothing says which pages hold rows
        until = min(self._next + PAGES, end)
        _zero(file, size, self._again.intersection(range(FIRST_PAGE, self._next)))
        _zero(file, size, range(self._next, until))
        self._again.clear()
        self._next, self.is_done = until, until == end
        return True


def _logged(name: str) -> tuple[bytes, set[int]]:
    """The header of a log, which no other has, and the pages in it; empty for an empty log."""
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
    """The free parts of a page of rows; what cannot be understood counts as used."""
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
    is_sound = all(start <= end <= len(page) for start, end in spans)
    return spans if is_sound else []
