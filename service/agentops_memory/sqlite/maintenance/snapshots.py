"""A consistent copy of a database in use, as one file that was opened and found to be good."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from ...engine.files import private_file, sync
from ...errors import Busy, Refusal
from ...secrets.sanitizing import reason
from ..base.checks import faults_of
from ..base.connection import CHANGING, connect
from ..base.copies import require_one_name
from ..base.errors import primary_code
from ..schema.contents import Contents, contents
from ..schema.upgrade import is_original
from .damaged_rows import damaged

TIMEOUT = timedelta(seconds=5)  # with another process that holds a lock
OFTEN = 10_000  # virtual machine steps between two calls of `alive`


class SnapshotRefused(Refusal):
    """There is no good copy of the database; the sentence says why."""

    code = "backup_refused"


def snapshot(source: Path, target: Path, alive: Callable[[], object]) -> Contents:
    """Copy what the source holds now into a new file, on disk when this returns.

    A read transaction of its own: no write waits for it. Pages that nothing uses are
    left out, so what was erased from the source is not in the copy either. `alive` is called
    often; what it raises ends the copying. SnapshotRefused, or Busy; the target is then of no use.
    """
    try:
        with private_file(target, os.O_RDWR | os.O_EXCL), closing(_opened(source)) as database:
            _copy(database, target, alive)
        sync(target)
    except sqlite3.Error as error:
        raise _refusal(source, error) from error
    return verified(target)


def verified(path: Path) -> Contents:
    """What a database holds that nobody else uses; SnapshotRefused if it is damaged."""
    try:
        with closing(_opened(path)) as database:
            found = contents(database)
            is_used = database.execute("SELECT 1 FROM sqlite_schema").fetchone()
            if is_used and not found.format and not is_original(database):
                raise SnapshotRefused(f"{path} is a database of another program.")
            _require_sound(database, found, path)
            values = damaged(database) if found.format else ()
            return found.model_copy(update={"damaged": tuple(map(str, values))})
    except sqlite3.Error as error:
        raise _refusal(path, error) from error


def _opened(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there: to open one that is gone would make it."""
    if not path.is_file():
        raise SnapshotRefused(f"There is no database at {path}.")
    require_one_name(path)
    return connect(path, busy_timeout=TIMEOUT, mode=CHANGING)


def _copy(database: sqlite3.Connection, target: Path, alive: Callable[[], object]) -> None:
    raised: list[BaseException] = []

    def is_over() -> bool:
        try:
            alive()
        except BaseException as error:  # noqa: BLE001 - raised once SQLite has stopped
            raised.append(error)
        return bool(raised)

    database.set_progress_handler(is_over, OFTEN)
    try:
        # As bytes: a name need not be UTF-8.
        database.execute("VACUUM INTO CAST(? AS TEXT)", (os.fsencode(target.absolute()),))
    except sqlite3.Error:
        if raised:
            raise raised[0] from None
        raise


def _require_sound(database: sqlite3.Connection, found: Contents, path: Path) -> None:
    faults = faults_of(database, "integrity_check")
    if found.format:  # the original kept to no references
        strays = database.execute("PRAGMA foreign_key_check").fetchmany(1)
        faults += [f"a row of {row[0]} without its parent" for row in strays]
    if faults:
        raise SnapshotRefused(f"The database {path} is damaged: {faults[0]}.")


def _refusal(path: Path, error: sqlite3.Error) -> Refusal:
    match primary_code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Busy(f"The database {path} is locked by another process; try again.")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return SnapshotRefused(f"The database {path} is damaged: {reason(error)}.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
            return SnapshotRefused(
                f"The database {path} cannot be read by a user who may not write it and its folder."
            )
        case _:
            return SnapshotRefused(f"The database {path} cannot be copied: {reason(error)}.")
