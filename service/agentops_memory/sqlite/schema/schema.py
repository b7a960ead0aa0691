"""The schema that a file should have, compared with the one that it has."""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..base.connection import connect
from ..fts.partitions import Partitions, table, text_of
from .migrate import apply_migrations, scripts

Part = tuple[str, str]
"""What a part of a schema is, such as `index`, and its name."""

IN_MEMORY = Path(":memory:")
SQLITES_OWN = "sqlite_"  # names begin so
ERASED = "the tenant was erased"  # stands in the triggers of a tenant that is being erased


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    missing: Mapping[Part, str]  # with the statement that makes it
    changed: frozenset[Part]
    further: Mapping[Part, str]

    @property
    def missing_indexes(self) -> dict[str, str]:
        """Ordinary indexes that are to be made, with their statements."""
        return {name: sql for (kind, name), sql in self.missing.items() if kind == "index"}

    @property
    def is_of_an_erased_tenant(self) -> bool:
        return any(kind == "trigger" and ERASED in sql for (kind, _), sql in self.further.items())

    @property
    def broken_partitions(self) -> frozenset[int]:
        """Partitions of the full-text index whose tables or views are not as they should be."""
        names = (name for _, name in (*self.missing, *self.changed))
        return frozenset(number for it in names if (number := partition_of(it)) is not None)


def difference(database: sqlite3.Connection) -> Difference:
    """How the schema differs from that of the migrations, with the partitions that it names."""
    there = _parts(database)
    due = _due(tuple(Partitions(database, is_alone=False).all()), scripts())
    return Difference(
        missing={part: sql for part, sql in due.items() if part not in there},
        changed=frozenset(
            part for part in due.keys() & there.keys() if _plain(due[part]) != _plain(there[part])
        ),
        further={part: sql for part, sql in there.items() if part not in due},
    )


def shown(parts: Iterable[Part]) -> str:
    return ", ".join(f"the {kind} {name}" for kind, name in sorted(parts))


def tables(database: sqlite3.Connection) -> Iterator[str]:
    rows = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name"
    )
    return (name for (name,) in rows.fetchall())


def ordinary_indexes(database: sqlite3.Connection) -> dict[str, str]:
    return dict(
        database.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
    )


def partition_of(name: str) -> int | None:
    """The partition whose table or view this is; None for any other name."""
    match = _PARTITION.fullmatch(name)
    return int(match[1]) if match else None


@lru_cache(maxsize=16)  # it is asked for twice of each file, and files of many tenants are alike
def _due(partitions: tuple[int, ...], _: tuple[str, ...]) -> Mapping[Part, str]:
    with closing(connect(IN_MEMORY)) as database:
        apply_migrations(database)
        making = Partitions(database, is_alone=True)
        for number in partitions:
            making.make(number)
        return _parts(database)


def _parts(database: sqlite3.Connection) -> dict[Part, str]:
    rows = database.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema")
    return {(kind, name): sql for kind, name, sql in rows if not name.startswith(SQLITES_OWN)}


def _plain(sql: str) -> str:
    return " ".join(sql.replace('"', "").split())


_PARTITION = re.compile(rf"(?:{table(0)[:-1]}|{text_of(0)[:-1]})(\d+)(?:_[a-z]+)?")
