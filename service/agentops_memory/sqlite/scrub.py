"""The free space of a database file is zeroed: nothing that was deleted can be read there.

SQLite writes zeros over what is deleted (`secure_delete`). But when it moves rows to another page,
a copy of them stays in the free space of the old one, and no later deletion knows of it. It has
no statement for that, so this writes into the file itself, in steps on the thread that writes:
under the lock of writers, with an empty log, and nothing but bytes that no page uses.
"""

import asyncio
import os
import sqlite3
import struct
import time
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from ..light import dataclass, field
from .connection import APPLICATION_ID, WriterThread, change, connect
from .dialect import primary_code
from .migrate import vacuum_remains
from .open_files import OpenFiles, checkpointed, descriptor_of

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
