"""A database file has one name: under a second one SQLite would keep a second log beside it."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

from ....domain.errors import StartRefused
from ....files.atomic import sync
from ....files.drafts import remove_leftovers
from .copies import copies_of

TIMEOUT = timedelta(seconds=1)  # with another command that removes them
REMEDY = (
    "Each has a write-ahead log of its own, so that programs would overwrite each other's commits. "
    "Stop them, find the names with `find / -xdev -samefile`, and remove all but one."
)


def names_of(path: Path) -> int:
    """How many names the file at the path has; 0 if there is none, or it is no file."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_nlink if stat.S_ISREG(status.st_mode) else 0
    return 0


def require_one_name(path: Path) -> None:
    """Refuse with StartRefused a file with further names; those of a killed restore are removed.

    To be asked before a connection is made, which would make a log beside each name.
    """
    if names_of(path) <= 1:
        return
    _remove_leftovers(Path(os.path.realpath(path)))
    if (names := names_of(path)) > 1:
        raise StartRefused(f"{path} has {names} names (hard links). {REMEDY}")


def _remove_leftovers(path: Path) -> None:
    remove_leftovers(path.parent)  # a draft that has its name already
    if not any(_second_names(path)):
        return
    # A restore that runs has the file locked until the second name is the only one.
    with suppress(sqlite3.Error), closing(_connection(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        for name in _second_names(path):
            name.unlink()
        sync(path.parent)


def _connection(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=TIMEOUT.total_seconds())


def _second_names(path: Path) -> Iterator[Path]:
    """Under which a restore keeps the file that it is about to replace."""
    with suppress(FileNotFoundError):
        file = path.stat()
        yield from (it for it in copies_of(path) if os.path.samestat(it.lstat(), file))
