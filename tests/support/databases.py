"""Databases of PostgreSQL for the tests of one process: each stands for a file that a test names.

To make one takes 60 ms of processor, to empty one takes 2. So it is emptied and used again,
unless more than rows was changed in it, or it has grown.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from . import postgres

GROWN = 32 * 1024 * 1024  # bytes, more than which a database has grown
OURS = 16_384  # the first number of what is not PostgreSQL's own

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _New:
    """What a database is before a test."""

    catalog: Rows
    rows: dict[str, bytes]  # of each table that has any
    empty: bytes  # statements that take all rows away, and begin the sequences again


@dataclass(slots=True)
class Databases:
    """The databases of a process; those in use, by the file that each stands for."""

    cluster: str  # a URL
    fill: Callable[[str], None]  # it puts what a new one holds into the database at a URL
    _count: int = 0
    _new: _New | None = None
    _free: list[str] = field(default_factory=list)
    _used: dict[Path, str] = field(default_factory=dict)
    _lookers: dict[str, psycopg.Connection[Any]] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the one of which all others are copies."""
        postgres.ordered(self.cluster, f"CREATE DATABASE {self._template} STRATEGY file_copy")
        self.fill(url := postgres.of(self.cluster, self._template))
        self._new = _looked_at(url)

    def __contains__(self, path: Path) -> bool:
        return path in self._used

    def at(self, path: Path) -> str:
        """The URL of the database that stands for a file; a new one, if there was none."""
        if path not in self._used:
            self._used[path] = self._free.pop() if self._free else self._made()
        return postgres.of(self.cluster, self._used[path])

    def renew(self, path: Path) -> None:
        """Let a database that was never used stand for a file."""
        if path in self._used:
            self.drop(self._used[path])
        self._used[path] = self._made()

    def release(self, folder: Path) -> None:
        """Empty the databases that stand for files in a folder; nobody uses them any more."""
        for path in [path for path in self._used if path.is_relative_to(folder)]:
            name = self._used.pop(path)
            if self._emptied(name):
                self._free.append(name)
            else:
                self.drop(name)

    def tables(self, folder: Path) -> Iterator[tuple[str, bytes]]:
        """The rows of each table of the databases that stand for files in a folder."""
        for path, name in self._used.items():
            if path.is_relative_to(folder):
                yield from _tables(self._looker(name))

    @contextmanager
    def blank(self) -> Iterator[str]:
        """The URL of a database of which nobody has made anything yet."""
        name = self._named()
        postgres.ordered(self.cluster, f"CREATE DATABASE {name} STRATEGY file_copy")
        try:
            yield postgres.of(self.cluster, name)
        finally:
            self.drop(name)

    def drop(self, *names: str) -> None:
        for name in self._lookers.keys() & names:
            self._lookers.pop(name).close()
        postgres.ordered(
            self.cluster, *(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)" for name in names)
        )

    def end(self) -> None:
        """Drop all of them."""
        self.drop(*self._free, *self._used.values(), self._template)
        self._used.clear()

    @property
    def _template(self) -> str:
        return f"memory_test_{os.getpid()}"

    def _named(self) -> str:
        self._count += 1
        return f"{self._template}_{self._count}"

    def _made(self) -> str:
        name = self._named()
        postgres.ordered(
            self.cluster, f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY file_copy"
        )
        return name

    def _looker(self, name: str) -> psycopg.Connection[Any]:
        """A connection that is kept, as a new one reads the catalog for 10 ms."""
        if name not in self._lookers:
            url = postgres.of(self.cluster, name)
            self._lookers[name] = psycopg.connect(url, autocommit=True)
        return self._lookers[name]

    def _emptied(self, name: str) -> bool:
        """Whether the database is as a new one again."""
        assert self._new is not None
        connection = self._looker(name)
        try:
            with connection.transaction():
                if connection.execute(_CATALOG).fetchall() != self._new.catalog:
                    return False
                if connection.execute(_SIZE).fetchall() > [(GROWN,)]:
                    return False
                connection.execute(self._new.empty)
                for table, rows in self._new.rows.items():
                    with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
                        copy.write(rows)
        except psycopg.Error:  # it has other tables, or something of the test still runs
            return False
        return True


_CATALOG = f"""
    SELECT count(*), sum(CAST(oid AS BIGINT)), sum(CAST(relfilenode AS BIGINT)), sum(relnatts),
           sum(hashtext(CAST(relname AS TEXT))),
           (SELECT sum(hashtext(CAST(attname AS TEXT))) FROM pg_attribute WHERE attrelid >= {OURS}),
           (SELECT count(*) FROM pg_constraint), (SELECT count(*) FROM pg_proc),
           (SELECT count(*) FROM pg_namespace),
           (SELECT count(*) FROM pg_db_role_setting JOIN pg_database ON oid = setdatabase
             WHERE datname = current_database())
      FROM pg_class
     WHERE oid >= {OURS}""".encode()  # fmt: skip
_SIZE = f"SELECT coalesce(sum(pg_relation_size(oid)), 0) FROM pg_class WHERE oid >= {OURS}".encode()
_NAMES = f"""
    SELECT CAST(CAST(oid AS regclass) AS TEXT)
      FROM pg_class
     WHERE oid >= {OURS} AND relkind = %s"""
_WAITS = "SET LOCAL lock_timeout = '1s'; SET LOCAL session_replication_role = replica"


def _looked_at(url: str) -> _New:
    with psycopg.connect(url) as connection:
        stored = dict(_tables(connection))
        empty = [_WAITS, *(f"DELETE FROM {table}" for table in stored)]
        for name in _names(connection, "S"):
            ((last, called),) = connection.execute(
                f"SELECT last_value, is_called FROM {name}".encode()
            )
            empty.append(f"SELECT setval('{name}', {last}, {called})")
        catalog = connection.execute(_CATALOG).fetchall()
    return _New(
        catalog=catalog,
        rows={table: rows for table, rows in stored.items() if rows},
        empty="; ".join(empty).encode(),
    )


def _tables(connection: psycopg.Connection[Any]) -> Iterator[tuple[str, bytes]]:
    """All tables, and what each holds."""
    for table in _names(connection, "r"):
        with connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copy:
            yield table, b"".join(map(bytes, copy))


def _names(connection: psycopg.Connection[Any], kind: str) -> list[str]:
    return [name for (name,) in connection.execute(_NAMES.encode(), (kind,))]
