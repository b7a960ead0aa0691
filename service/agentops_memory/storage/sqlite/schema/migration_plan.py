"""What a start would do to a file to bring it up to date, told and tried before it is done."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ....domain.errors import StartRefused, Unavailable
from ....domain.text.features import Features
from ....files.atomic import drafts
from ..base.checks import log_size, open_read_only
from ..base.connection import connect
from ..base.dialect import rules
from ..base.errors import refusing
from ..fts.index import is_by_rules
from . import upgrade
from .migrate import is_used, migrated, newest_format, version_of

SPACE_NEEDED = 4  # times the file's size: the log of what is written anew, and what it grows by
SPACE_AT_LEAST = 2 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a start would do to one file."""

    path: Path
    before: int  # the number of its format; 0 for the original's, and for an empty one
    after: int
    is_original: bool
    makes_index: bool  # anew
    size: int  # bytes
    free: int  # bytes where the file lies

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after or self.makes_index

    @property
    def needed(self) -> int:
        """The bytes that must be free for it; rather too many."""
        if not self.is_due:
            return 0
        return upgrade.needed(self.size) if self.is_original else _needed(self.size)

    @property
    def has_room(self) -> bool:
        return self.free >= self.needed

    @property
    def has_room_for_trial(self) -> bool:
        """Whether there is room for a copy, too, on which it can be tried."""
        return self.free >= self.needed + self.size + SPACE_AT_LEAST


def planned(path: Path, features: Features) -> Plan:
    """What a start would do; StartRefused for a file that it would refuse. Nothing is changed."""
    if not path.is_file():
        raise StartRefused(f"There is no database at {path}.")
    path = Path(os.path.realpath(path))  # where SQLite has the log
    with refusing(path), open_read_only(path, features) as database:
        before, after = version_of(database), newest_format()
        is_original = not before and upgrade.is_original(database)
        if before > after:
            raise StartRefused(
                f"{path} has format {before}, made by a newer version of this program; this one "
                f"knows formats up to {after}."
            )
        if not (before or is_original) and is_used(database):
            raise StartRefused(f"{path} is a database of another program.")
        return Plan(
            path=path,
            before=before,
            after=after,
            is_original=is_original,
            makes_index=before != after or not is_by_rules(database, rules(features)),
            size=path.stat().st_size + (log_size(path) or 0),
            free=shutil.disk_usage(path.parent).free,
        )


def tried(plan: Plan, now: datetime, features: Features) -> timedelta:
    """How long it takes on a copy beside the file, which is removed again.

    Refused as the start would be, and with Unavailable when what came of it is not sound.
    """
    with refusing(plan.path), _copied(plan.path, features) as copy:
        begun = time.monotonic()
        migrated(copy, now, features)
        took = timedelta(seconds=time.monotonic() - begun)
        with closing(connect(copy, features=features)) as database:
            found = database.execute("PRAGMA integrity_check(1)").fetchall()
        if found != [("ok",)]:
            raise Unavailable(f"A copy of {plan.path} was damaged after it: {found[0][0]}.")
        return took


@contextmanager
def _copied(path: Path, features: Features) -> Iterator[Path]:
    with drafts(path.parent) as folder:
        copy = folder / path.name
        with open_read_only(path, features) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        yield copy


def _needed(size: int) -> int:
    return size * SPACE_NEEDED + SPACE_AT_LEAST
