"""The rows of a tenant's database file, and a file that is made of rows."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

from ...engine.shared.stems import rules
from ...errors import Unavailable
from ...recall.text.features import Features
from ...sqlite.base.connection import CHANGING, connect, read_only, use_wal
from ...sqlite.base.copies import require_one_name
from ...sqlite.base.errors import refusing, translated
from ...sqlite.fts.index import make_index
from ...sqlite.schema.migrate import make_schema, newest_format, planned, require_small_ids
from ..files.atomic import drafts, make_folder, os_errors_as, placed, private_file, sync
from .tables import CopyRefused, Row, Table

TIMEOUT = timedelta(seconds=5)  # with another process that holds a lock


class SqliteRows:
    """Rows on a connection on which a transaction has begun."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database

    def rows(self, table: Table) -> Iterator[Row]:
        truths = [place for place, it in enumerate(table.types) if it == "boolean"]
        try:
            for row in self.database.execute(table.select):
                yield _with_truths(row, truths) if truths else row
        except sqlite3.OperationalError as error:
            if hasattr(error, "sqlite_errorcode"):  # which Python's own, of decoding, has not
                raise
            # Without its cause, which quotes the text.
            raise CopyRefused(
                f"A text in the table {table.name} is no UTF-8; nothing of the tenant was copied. "
                "`agentops-memory doctor --fix` mends the file."
            ) from None

    def last_ids(self) -> Mapping[str, int]:
        return dict(self.database.execute("SELECT name, seq FROM sqlite_sequence"))


class NewFile(SqliteRows):
    """A file that is being made; it has the schema without its triggers, which would count."""

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__(database)
        make_schema(database)
        self._triggers = database.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in self._triggers:
            database.execute(f"DROP TRIGGER {name}")

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        columns = ", ".join(f'"{it}"' for it in table.columns)
        places = ", ".join("?" for _ in table.columns)
        self.database.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({places})", rows)

    def finish(self, last_ids: Mapping[str, int], features: Features) -> None:
        for _, sql in self._triggers:
            self.database.execute(sql)
        for table in _counting(self.database) & last_ids.keys():
            self.database.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            self.database.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last_ids[table])
            )
        make_index(self.database, rules(features))


@contextmanager
def opened_file(path: Path, features: Features) -> Iterator[SqliteRows]:
    """The rows of a file as they are now, while others may be changing it.

    StartRefused where it cannot be read, CopyRefused where it has another format.
    """
    require_one_name(path)
    plan = planned(path, features)
    if plan.before != newest_format():
        raise CopyRefused(
            f"{path} has format {plan.before}, and {newest_format()} is copied: `agentops-memory "
            "migrate` upgrades it."
        )
    with (
        refusing(path),
        # To write, too: else the log that SQLite makes beside the file would stay there.
        closing(connect(path, busy_timeout=TIMEOUT, mode=CHANGING, is_strict=True)) as database,
    ):
        read_only(database)
        database.execute("BEGIN")
        yield SqliteRows(database)


@contextmanager
def new_file(path: Path, features: Features) -> Iterator[NewFile]:
    """Where rows become a file that has its name at the end, on disk; a failed one is removed."""
    with translated(), os_errors_as(Unavailable, f"The database {path} cannot be made"):
        make_folder(path.parent)
        with drafts(path.parent) as folder:
            draft = folder / path.name
            with private_file(draft, os.O_RDWR | os.O_EXCL, like=path.parent):
                pass
            with closing(connect(draft, features=features)) as database:
                # A draft that is not whole is of no use to anybody.
                database.execute("PRAGMA journal_mode = OFF")
                database.execute("PRAGMA synchronous = OFF")
                database.execute("BEGIN")
                yield NewFile(database)
                require_small_ids(database, path)
                database.execute("COMMIT")
                database.execute("PRAGMA synchronous = FULL")
                use_wal(database, TIMEOUT)
            sync(draft)
            placed(draft, path)


def _counting(database: sqlite3.Connection) -> set[str]:
    """The tables that never give out an id again."""
    rows = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '% AUTOINCREMENT%'"
    )
    return {name for (name,) in rows}


def _with_truths(row: Row, places: Iterable[int]) -> Row:
    values = list(row)
    for place in places:
        values[place] = bool(values[place])
    return tuple(values)
