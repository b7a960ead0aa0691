"""The free space of a database file is scrubbed: nothing that was deleted can be read there.

SQLite writes zeros over what is deleted (`secure_delete`). But when it moves rows to another page,
a copy of them stays in the free space of the old one, and no later deletion knows of it. It has
no statement for that, so this writes into the file itself: while it holds the lock of writers, with
an empty log, and nothing but bytes that no page uses.
"""

import asyncio
import os
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from itertools import groupby
from pathlib import Path

from ..base.connection import APPLICATION_ID, Connection, change
from ..base.errors import primary_code
from ..base.open_files import OpenFiles, descriptor_of
from ..schema.migrate import vacuum_remains

TIMEOUT = timedelta(milliseconds=50)  # with reads that need the log, and with other processes
TRIES = 3  # held back so often, a walk is given up
PAGES = 1024  # looked at while changes wait
MOST_PAGES = 1 << 25  # from here on, an overflow page may begin like a page of rows
FIRST_PAGE = 2  # the one before holds the schema, and no user's text
LOG_HEADER = 32  # bytes
LOG_IDENTITY = 24  # bytes of it that say which log this is
FRAME_HEADER = 24  # bytes before each page in the log
LEAST_FREE = 4  # bytes of a free block: the place of the next one, and its own size

_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}  # bytes of a page's header, by the kind of b-tree page
_HEAD = struct.Struct(">BHHHB")  # kind, first free block, rows, beginning of the rows, fragments
_FREE = struct.Struct(">HH")

Span = tuple[int, int]


class FreeSpace:
    """The free bytes of a file's pages; `writer` is the one connection that writes."""

    def __init__(self, writer: Connection, path: Path, files: OpenFiles) -> None:
        self._writer = writer
        self._path = path
        self._files = files

    async def scrub(self) -> bool:
        """Write zeros over them, and truncate the log; false while something holds that back."""
        if not self._files.are_in_place():
            return False
        if not await self._writer.run(partial(vacuum_remains, path=self._path)):
            return False
        walk, tries = Walk(self._path, self._files), TRIES
        while tries:
            match await self._writer.run(walk.step):
                case WalkState.DONE:
                    return True
                case WalkState.HELD_BACK:
                    tries -= 1
                    await asyncio.sleep(TIMEOUT.total_seconds())
        return False


class WalkState(Enum):
    HELD_BACK = auto()
    MORE = auto()
    DONE = auto()


class Walk:
    """One walk over a file, in steps; a page that changes behind it is walked again.

    All steps run on the one connection of this process that writes, between its
    transactions.
    """

    def __init__(self, path: Path, files: OpenFiles) -> None:
        self._files = files  # that the connection has open: the paths may lead to others by now
        self._log = _WalFile(path)
        self._next = FIRST_PAGE
        self._again: set[int] = set()
        self._identity = b""  # of the log after the last step
        self._version = -1  # of the data, which differs when another connection has written

    def step(self, database: sqlite3.Connection) -> WalkState:
        """Go on. Once DONE, what was deleted before this step is neither in the file nor its log.

        HELD_BACK while a read needs the log, or another process writes; and for good
        when the paths lead to other files.
        """
        if not self._files.are_in_place():
            return WalkState.HELD_BACK
        self._note_changes()
        try:
            return self._stepped(database) if _truncate_log(database) else WalkState.HELD_BACK
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            return WalkState.HELD_BACK

    def _stepped(self, database: sqlite3.Connection) -> WalkState:
        with change(database, time.monotonic() + TIMEOUT.total_seconds()):
            ((version,),) = database.execute("PRAGMA data_version")
            if version != self._version:
                self._begin_again()
                self._version = version
            if self._log.identity() or not self._files.are_in_place():
                return WalkState.HELD_BACK  # another process was quicker
            came = self._scrub(database)
            # A commit: whoever else has pages in memory reads them again before writing.
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute("PRAGMA shrink_memory")  # and so does this connection
        self._identity = self._log.identity()
        return came

    def _note_changes(self) -> None:
        if self._identity and self._log.identity() == self._identity:
            self._again.update(page for page in self._log.pages() if page < self._next)
        else:
            self._begin_again()

    def _begin_again(self) -> None:
        self._next = FIRST_PAGE
        self._again.clear()

    def _scrub(self, database: sqlite3.Connection) -> WalkState:
        ((size,),) = database.execute("PRAGMA page_size")
        ((page_map,),) = database.execute("PRAGMA auto_vacuum")
        file = descriptor_of(self._files.database)
        end = os.fstat(file).st_size // size + 1
        if page_map or end > MOST_PAGES:
            return WalkState.HELD_BACK  # which page is one of rows cannot be told
        until = min(self._next + PAGES, end)
        pages = {page for page in self._again if FIRST_PAGE <= page < end}
        _scrub_pages(file, size, pages.union(range(self._next, until)))
        self._again.clear()
        self._next = max(self._next, until)
        return WalkState.DONE if self._next >= end else WalkState.MORE


class _WalFile:
    """The write-ahead log as a file: https://sqlite.org/fileformat2.html#walformat."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}-wal")

    def identity(self) -> bytes:
        """What differs from one log to the next in the same file; nothing for an empty one."""
        try:
            with self._path.open("rb") as log:
                return log.read(LOG_IDENTITY)
        except FileNotFoundError:
            return b""

    def pages(self) -> Iterator[int]:
        with self._path.open("rb") as log:
            header = log.read(LOG_HEADER)
            (size,), salt = struct.unpack_from(">I", header, 8), header[16:24]
            while frame := log.read(FRAME_HEADER):
                if frame[8:16] != salt:
                    return
                yield struct.unpack_from(">I", frame)[0]
                log.seek(size, os.SEEK_CUR)


def _truncate_log(database: sqlite3.Connection) -> bool:
    (_, pages, copied) = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if copied < pages:
        return False  # a read of an older state: no use to wait for it, while changes wait
    database.execute(f"PRAGMA busy_timeout = {TIMEOUT.total_seconds() * 1000:.0f}")
    (is_blocked, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not is_blocked


def _scrub_pages(file: int, size: int, pages: Iterable[int]) -> None:
    is_changed = False
    for first, count in _runs(pages):
        block = os.pread(file, count * size, (first - 1) * size)
        for place in range(0, len(block), size):
            for start, end in dirty_spans(block[place : place + size]):
                os.pwrite(file, bytes(end - start), (first - 1) * size + place + start)
                is_changed = True
    if is_changed:
        os.fsync(file)


def _runs(pages: Iterable[int]) -> Iterator[tuple[int, int]]:
    for _, run in groupby(enumerate(sorted(pages)), lambda pair: pair[1] - pair[0]):
        members = [page for _, page in run]
        yield members[0], len(members)


def dirty_spans(page: bytes) -> list[Span]:
    """The free parts of a page that are not all zero; none of one that is no b-tree's.

    Not for the first page of a file. What cannot be understood counts as used.
    """
    if page[0] not in _HEADERS:
        return []
    return [(start, end) for start, end in _free(page) if page[start:end].strip(b"\0")]


def _free(page: bytes) -> list[Span]:
    kind, free, rows, begin, _ = _HEAD.unpack_from(page)
    gap = _HEADERS[kind] + 2 * rows
    begin = begin or 1 << 16
    if not gap <= begin <= len(page):
        return []
    spans, least = [(gap, begin)], begin
    while free:
        if not least <= free <= len(page) - LEAST_FREE:
            return []
        following, size = _FREE.unpack_from(page, free)
        if size < LEAST_FREE or free + size > len(page):
            return []
        spans.append((free + LEAST_FREE, free + size))
        free, least = following, free + size
    return spans
