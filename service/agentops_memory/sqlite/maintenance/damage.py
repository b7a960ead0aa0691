"""Damage of a database file: met by those who read and write, and looked for."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ...engine.callbacks import noop
from ...engine.shared.known_values import KnownValues, Value
from ...memory.model.access import Caller
from ..base.checks import is_readable
from ..base.connection import PROGRESS, connect, read_only
from ..base.errors import REMEDY, is_damage
from ..schema.schema import tables
from .values import damaged

log = logging.getLogger(__name__)

OnDamage = Callable[[Caller], None]
"""Told whose request has met damage. Any thread may tell."""


class Damage:
    """Whether one database is known to be damaged."""

    def __init__(self, path: Path, on_damage: OnDamage = noop) -> None:
        self.path = path
        self.report = on_damage  # where something else could stand in
        self.is_known = False
        self.known = KnownValues(str(path))

    def report_refusal(self, caller: Caller) -> None:
        """Something was refused for it."""
        self.note(caller, is_intact=False)
        self.report(caller)

    def note(self, caller: Caller, *, is_intact: bool) -> None:
        """Note what a look has found; the log has each change once."""
        fields = {"path": str(self.path), "tenant": caller.tenant}
        if self.is_known and is_intact:
            log.warning("the database file is whole again", extra=fields)
        elif not (self.is_known or is_intact):
            log.error("the database file is damaged: %s", REMEDY, extra=fields)
        self.is_known = not is_intact


def is_intact(path: Path, is_stopped: Callable[[], bool]) -> bool:
    """Whether every table and its indexes can be read, page by page, however long it takes.

    Pages that nothing uses are no damage.
    """
    with _interruptible(path, is_stopped) as database:
        try:
            return all(is_readable(database, name) for name in tables(database))
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return False


def damaged_at(path: Path, is_stopped: Callable[[], bool]) -> list[Value]:
    """The first of the damaged values in the file at the path, however long it takes."""
    with _interruptible(path, is_stopped) as database:
        return damaged(database)


@contextmanager
def _interruptible(path: Path, is_stopped: Callable[[], bool]) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as database:
        read_only(database)
        database.set_progress_handler(is_stopped, PROGRESS)
        yield database
