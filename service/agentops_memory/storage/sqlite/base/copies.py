"""A checked, synced copy of a database file, under a name that overwrites nothing."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from ....domain.errors import StartRefused
from ....files.atomic import sync

SUFFIX = "before-upgrade"
RESTORED = "before-restore"
MENDED = "before-fix"


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
        return _kept(draft, path, suffix)
    finally:
        draft.unlink(missing_ok=True)


def draft_of(path: Path) -> Path:
    """Where a copy is made, before it has its name."""
    return path.with_name(f"{path.name}.{SUFFIX}.part")


def copies_of(path: Path) -> list[Path]:
    """The copies that lie beside the file, by name."""
    names = tuple(f"{path.name}.{suffix}" for suffix in (SUFFIX, RESTORED, MENDED))
    numbered = tuple(f"{name}-" for name in names)
    every = (*names, draft_of(path).name)
    beside = sorted(path.parent.iterdir())
    return [it for it in beside if it.name in every or it.name.startswith(numbered)]


def kept_name(path: Path) -> Path:
    """A second name of a file that is to be replaced; none of those that are taken by another.

    The file is under both names then, and on disk under the second.
    """
    for name in _names(path, RESTORED):
        try:
            name.hardlink_to(path)
        except FileExistsError:
            if not name.samefile(path):  # else a process was killed before it went on
                continue
        sync(path.parent)
        return name
    raise AssertionError("There is always a further name.")


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


def _kept(draft: Path, path: Path, suffix: str) -> Path:
    for copy in _names(path, suffix):
        if not os.path.lexists(copy):
            draft.rename(copy)
            sync(path.parent)
            return copy
        if copy.is_file() and _same_bytes(copy, draft):
            return copy
    raise AssertionError("There is always a further name.")


def _names(path: Path, suffix: str) -> Iterator[Path]:
    yield path.with_name(f"{path.name}.{suffix}")
    number = 2
    while True:
        yield path.with_name(f"{path.name}.{suffix}-{number}")
        number += 1


def _same_bytes(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as a, other.open("rb") as b:
        while block := a.read(1 << 20):
            if block != b.read(1 << 20):
                return False
    return True
