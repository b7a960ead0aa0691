"""Bringing a file to the newest schema, safe when several processes start at once."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path

from .... import __version__
from ....domain.errors import StartRefused
from ....domain.ports.maintenance import noop
from ....domain.text.features import ALL, Features
from ....files.atomic import private_file
from ..base.connection import APPLICATION_ID, connect, use_wal
from ..base.copies import require_one_name
from ..base.dialect import rules
from ..base.errors import refusing
from ..fts.index import bring_to_rules, is_by_rules
from ..fts.partitions import MOST_IDS
from . import upgrade

__all__ = ["StartRefused", "migrated", "statements"]

MIGRATIONS = resources.files(__package__) / "migrations"
TIMEOUT = timedelta(seconds=60)  # another process may be migrating

OnUpgrade = Callable[[], None]
"""Called before a file that is not empty is upgraded or rewritten: that may take long."""


def require_current(path: Path, features: Features = ALL, *, may_be_new: bool = False) -> None:
    """Refuse a file that is missing, or that a start would change, with StartRefused.

    One that nothing was stored in yet may be what another program is about to make.
    """
    if not path.is_file():
        raise StartRefused(f"There is no database at {path}.")
    require_one_name(path)
    with (
        refusing(path),
        closing(connect(path, busy_timeout=TIMEOUT, features=features)) as database,
    ):
        database.execute("BEGIN")  # one state, although another program may be making it
        if may_be_new and not version_of(database) and not is_used(database):
            return
        if not version_of(database) and is_used(database) and not upgrade.is_original(database):
            raise StartRefused(f"{path} is a database of another program.")
        if not _is_current(database, features):
            raise StartRefused(
                f"{path} is of an older format, or its index was made by other rules. "
                "Start the service on it once, with the settings that it is to have."
            )


def migrated(
    path: Path, now: datetime, features: Features = ALL, on_upgrade: OnUpgrade = noop
) -> None:
    """Make the file if it is missing, upgrade it if it is the original's, and migrate it.

    An index that was made by other rules is rebuilt.
    Refused with StartRefused when the file cannot be used; then it stays as it is.
    """
    with refusing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_private(path)
        require_one_name(path)
        with closing(connect(path, busy_timeout=TIMEOUT, features=features)) as database:
            if not _is_current(database, features):
                if is_used(database):
                    on_upgrade()
                _migrate(database, path, now, features)
            use_wal(database, TIMEOUT)
            vacuum_remains(database, path, on_upgrade)


def has_newest_format(database: sqlite3.Connection) -> bool:
    """Whether the file is as this program makes it."""
    return version_of(database) == newest_format()


def vacuum_remains(database: sqlite3.Connection, path: Path, on_rewrite: OnUpgrade = noop) -> bool:
    """Vacuum the file if its free pages may hold what was deleted; whether they do not now."""
    if database.execute("SELECT 1 FROM remains").fetchone() is None:
        return True
    on_rewrite()
    if not upgrade.vacuum(database, path):
        return False
    database.execute("DELETE FROM remains")
    return True


def statements(number: int) -> Iterator[str]:
    """The statements of a migration, one by one: `executescript` would commit."""
    statement = ""
    for line in _scripts()[number - 1].splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def apply_migrations(database: sqlite3.Connection, after: int = 0) -> None:
    """Run every migration after one, or all of them."""
    for number in range(after + 1, newest_format() + 1):
        for statement in statements(number):
            database.execute(statement)


def _make_private(path: Path) -> None:
    """Make an empty file, for its owner alone; one that is there keeps its mode.

    What SQLite puts beside it gets the same mode.
    """
    with suppress(FileExistsError), private_file(path, os.O_RDWR | os.O_EXCL):
        pass


def _migrate(database: sqlite3.Connection, path: Path, now: datetime, features: Features) -> None:
    """Bring the file up to date, whole or not at all."""
    database.execute("PRAGMA foreign_keys = OFF")
    database.execute("BEGIN IMMEDIATE")
    try:
        if not _is_current(database, features):
            _step(database, path, now)
        bring_to_rules(database, rules(features))
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _step(database: sqlite3.Connection, path: Path, now: datetime) -> None:
    version = version_of(database)
    if version == 0 and upgrade.is_original(database):
        upgrade.upgrade(database, path, statements(1), now)
        version = 1
    elif version == 0 and is_used(database):
        raise StartRefused(f"{path} is a database of another program.")
    _require_small_ids(database, path)
    apply_migrations(database, after=version)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {len(_scripts())}")


def _require_small_ids(database: sqlite3.Connection, path: Path) -> None:
    """The index numbers its rows by area and id: an id that is too large would be another's."""
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'memories'").fetchone():
        return
    (used,) = database.execute(
        "SELECT max(seq) FROM sqlite_sequence WHERE name = 'memories'"
    ).fetchone()
    if used is not None and used >= MOST_IDS:
        raise StartRefused(
            f"{path} has observations with ids up to {used:,}; ids must be below {MOST_IDS:,}. "
            "Nothing was changed. Export it with the program that made it, and import that."
        )


def _is_current(database: sqlite3.Connection, features: Features) -> bool:
    newest = newest_format()
    version = version_of(database)
    if version > newest:
        raise StartRefused(
            f"The database has format {version}, made by a newer version of this program; "
            f"agentops-memory {__version__} knows formats up to {newest}. "
            "Start the newer version, or restore a backup."
        )
    return version == newest and is_by_rules(database, rules(features))


def version_of(database: sqlite3.Connection) -> int:
    """The number of the last migration; 0 for a file that is not, or not yet, ours."""
    if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return 0
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def is_used(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None


def newest_format() -> int:
    """The newest format of a file that this program knows."""
    return len(_scripts())


def _scripts() -> list[str]:
    scripts = [script for script in MIGRATIONS.iterdir() if script.name.endswith(".sql")]
    return [script.read_text("utf-8") for script in sorted(scripts, key=lambda it: it.name)]
