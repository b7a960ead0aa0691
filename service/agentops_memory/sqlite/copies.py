"""Copies of a database file and further names of it, beside it; but for those it has one name.

Under a second name SQLite would keep a second log beside the file.
"""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from filecmp import cmp
from itertools import chain, count
from pathlib import Path

from ..engine.files import remove_leftovers, sync
from ..errors import StartRefused

SUFFIX = "before-upgrade"
RESTORED = "before-restore"
MENDED = "before-fix"
QUARANTINE = "quarantine"  # rows that `doctor --fix` has taken out
TIMEOUT = timedelta(seconds=1)  # with another command that removes further names
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
        _copy(path, draft, contents)
        return _kept(draft, path.with_name(f"{path.name}.{suffix}"))
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
    for name in numbered(path.with_name(f"{path.name}.{RESTORED}")):
        if not os.path.lexists(name):
            name.hardlink_to(path)
        elif not name.samefile(path):  # else a process was killed before it went on
            continue
        sync(path.parent)
        return name
    raise AssertionError("There is always a further name.")


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

    To be asked before a connection is made, which would make a log beside each name.
    """
    if names_of(path) <= 1:
        return
    _remove_leftovers(Path(os.path.realpath(path)))
    if (names := names_of(path)) > 1:
        raise StartRefused(f"{path} has {names} names (hard links). {REMEDY}")


def _copy(path: Path, draft: Path, contents: Callable[[sqlite3.Connection], object]) -> None:
    # The backup API reads the WAL too, which a plain copy of the file would miss.
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(draft)) as target:
        source.backup(target)
        # The copy is one file, whatever the journal mode of the original.
        target.execute("PRAGMA journal_mode = DELETE")
        if contents(source) != contents(target):
            raise StartRefused(f"A copy of {path} could not be made; nothing was changed.")
    shutil.copymode(path, draft)
    sync(draft)


def _kept(draft: Path, name: Path) -> Path:
    for copy in numbered(name):
        if not os.path.lexists(copy):
            draft.rename(copy)
            sync(copy.parent)
            return copy
        if copy.is_file() and cmp(copy, draft, shallow=False):
            return copy
    raise AssertionError("There is always a further name.")


def _remove_leftovers(path: Path) -> None:
    remove_leftovers(path.parent)  # a draft that has its name already
    if not any(_second_names(path)):
        return
    # A restore that runs has the file locked until the second name is the only one.
    timeout = TIMEOUT.total_seconds()
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(path, isolation_level=None, timeout=timeout)) as database,
    ):
        database.execute("BEGIN IMMEDIATE")
        for name in _second_names(path):
            name.unlink()
        sync(path.parent)


def _second_names(path: Path) -> Iterator[Path]:
    """Under which a restore keeps the file that it is about to replace."""
    with suppress(FileNotFoundError):
        file = path.stat()
        yield from (it for it in copies_of(path) if os.path.samestat(it.lstat(), file))
