"""A consistent copy of a database in use, as one file that was opened and found to be good."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from ...errors import Busy, Refusal
from ...operations.files.atomic import private_file, sync
from ...secrets.sanitizing import reason
from ..base.checks import faults_of
from ..base.connection import CHANGING, connect
from ..base.copies import require_one_name
from ..base.errors import primary_code
from ..schema.contents import Contents, contents
from ..schema.upgrade import is_original
from .values import damaged

TIMEOUT = timedelta(seconds=5)  # with another process that holds a lock
OFTEN = 10_000  # virtual machine steps between two looks at how far it is

Progress = Callable[[float], None]
"""Is told which part of the work is done."""


class SnapshotRefused(Refusal):
    """There is no good copy of the database; the sentence says why."""

    code = "backup_refused"


def snapshot(source: Path, target: Path, progress: Progress) -> Contents:
    """Copy what the source holds now into a new file, on disk when this returns.

    A read transaction of its own: no write waits for it. Pages that nothing uses are
    left out, so what was erased from the source is not in the copy either. `progress` hears
    parts of one. SnapshotRefused, or Busy; the target is then of no use.
    """
    try:
        with private_file(target, os.O_RDWR | os.O_EXCL), closing(_opened(source)) as database:
            _copy(database, target, progress)
        sync(target)
        return verified(target)
    except sqlite3.Error as error:
        raise _refusal(source, error) from error


def verified(path: Path) -> Contents:
    """What a database holds that nobody else uses; SnapshotRefused if it is damaged."""
    try:
        with closing(_opened(path)) as database:
            found = contents(database)
            _require_known(database, found, path)
            _require_sound(database, found, path)
            values = damaged(database) if found.format else ()
            return replace(found, damaged=tuple(map(str, values)))
    except sqlite3.Error as error:
        raise _refusal(path, error) from error


def _opened(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there: to open one that is gone would make it."""
    if not path.is_file():
        raise SnapshotRefused(f"There is no database at {path}.")
    require_one_name(path)
    return connect(path, busy_timeout=TIMEOUT, mode=CHANGING)


def _copy(database: sqlite3.Connection, target: Path, progress: Progress) -> None:
    ((pages, unused, size),) = database.execute(
        """SELECT p.page_count, f.freelist_count, s.page_size
             FROM pragma_page_count p, pragma_freelist_count f, pragma_page_size s"""
    )
    total = max((pages - unused) * size, 1)
    raised: list[BaseException] = []

    def report() -> int:
        try:
            progress(min(target.stat().st_size / total, 1.0))
        except BaseException as error:  # noqa: BLE001 - raised once SQLite has stopped
            raised.append(error)
        return len(raised)

    database.set_progress_handler(report, OFTEN)
    try:
        # As bytes: a name need not be UTF-8.
        database.execute("VACUUM INTO CAST(? AS TEXT)", (os.fsencode(target.absolute()),))
    finally:
        database.set_progress_handler(None, 0)
        if raised:
            raise raised[0]


def _require_known(database: sqlite3.Connection, found: Contents, path: Path) -> None:
    is_used = database.execute("SELECT 1 FROM sqlite_schema").fetchone()
    if is_used and not found.format and not is_original(database):
        raise SnapshotRefused(f"{path} is a database of another program.")


def _require_sound(database: sqlite3.Connection, found: Contents, path: Path) -> None:
    faults = faults_of(database, "integrity_check")
    if found.format:  # the original kept to no references
        strays = database.execute("PRAGMA foreign_key_check").fetchmany(1)
        faults += [f"a row of {row[0]} without its parent" for row in strays]
    if faults:
        raise SnapshotRefused(f"The database {path} is damaged: {faults[0]}.")


def _refusal(path: Path, error: sqlite3.Error) -> Refusal:
    if primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy(f"The database {path} is locked by another process; try again.")
    if primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return SnapshotRefused(f"The database {path} is damaged: {reason(error)}.")
    if primary_code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return SnapshotRefused(
            f"The database {path} cannot be read by a user who may not write it and its folder."
        )
    return SnapshotRefused(f"The database {path} cannot be copied: {reason(error)}.")
