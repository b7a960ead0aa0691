"""Keeping the write-ahead log short."""

import sqlite3
from contextlib import suppress
from datetime import timedelta

from ..base.connection import Connection
from ..base.open_files import OpenFiles

EVERY = 32  # batches between two looks at the log
LONG = 5000  # pages (20 MiB) after which it is to begin again
TIMEOUT = timedelta(milliseconds=250)  # with reads that began before


class WriteAheadLog:
    """The log of one writer.

    SQLite copies it into the file by itself, while others read. But it begins
    again only when no read needs it, and where each write finds a read under
    way, that never happens: the log grows. So now and then the writer waits for
    the reads that run; those that begin meanwhile have no need of it.

    What holds the log for long, as a replicator does that copies it, is not waited
    for again before the log has grown by as much once more.

    Where its file was removed or replaced, what it holds is copied while that is safe.
    """

    def __init__(self, writer: Connection, files: OpenFiles) -> None:
        self._writer = writer
        self._files = files
        self._batches = 0
        self._held_at = 0  # pages at which it could not begin again

    async def tend(self) -> None:
        """To be called after each batch."""
        if not self._files.were_in_place:
            await self._writer.run(self._files.rescue)
            return
        self._batches += 1
        if self._batches % EVERY:
            return
        pages = await self._writer.run(_pages)
        if pages < self._held_at:
            self._held_at = 0  # by another's doing it has begun again
        if pages >= self._held_at + LONG:
            self._held_at = 0 if await self._writer.run(has_begun_again) else pages


def _pages(database: sqlite3.Connection) -> int:
    """How long the log is, after what can be copied was copied."""
    with suppress(sqlite3.Error):
        _, pages, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(pages)
    return 0


def has_begun_again(database: sqlite3.Connection) -> bool:
    with suppress(sqlite3.Error):  # a long read, or another process
        database.execute(f"PRAGMA busy_timeout = {TIMEOUT.total_seconds() * 1000:.0f}")
        (is_blocked, *_) = database.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        return not is_blocked
    return False
