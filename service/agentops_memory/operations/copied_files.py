"""The files of a service: a database of SQLite for each tenant, the keys and the audit."""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..engine.engine import noop
from ..engine.files import drafts, make_folder, os_errors_as, placed, private_file, sync
from ..errors import Refusal, Unavailable
from ..light import dataclass, field
from ..memory.access import TenantId
from ..recall.features import Features
from ..recall.stems import rules
from ..recall.text import clean
from ..sqlite.connection import CHANGING, connect, read_only, use_wal
from ..sqlite.dialect import refusing, translated
from ..sqlite.index import make_index
from ..sqlite.migrate import make_schema, newest_format, planned, require_small_ids
from ..sqlite.open_files import require_one_name
from ..sqlite.tenants import tenant_file, tenants_of
from .files.keys import KeyFile

SUM = 1 << 128  # digests of rows are added up below it, in whatever order they come

Row = tuple[Any, ...]
Project = str | None
"""A project's name; None for what a tenant has in no project."""


class CopyRefused(Refusal):
    """Nothing can be copied, or what was copied is not kept; the sentence says why."""

    code = "copy_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, which has the same columns in the same order in both engines."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]  # of PostgreSQL

    @property
    def select(self) -> str:
        """The statement for its rows, each with its project at the end."""
        projects = (sql for column, sql in _PROJECTS.items() if column in self.columns)
        return f"SELECT {self.names}, {next(projects, 'NULL')} FROM {self.name} t ORDER BY 1"

    @property
    def names(self) -> str:
        return ", ".join(f'"{it}"' for it in self.columns)


_OF_A_MEMORY = """(SELECT s.project
                     FROM memories m
                     JOIN spaces s ON s.id = m.space_id
                    WHERE m.id = t.{})""".format
_PROJECTS = {
    "project": "t.project",
    "space_id": "(SELECT s.project FROM spaces s WHERE s.id = t.space_id)",
    "memory_id": _OF_A_MEMORY("memory_id"),
    "newer_id": _OF_A_MEMORY("newer_id"),
    "later_id": _OF_A_MEMORY("later_id"),
    "session": "(SELECT s.project FROM sessions s WHERE s.number = t.session)",
}
"""By a column that a table may have: the project of a row. The first counts that is there."""


@dataclass(slots=True)
class Tally:
    """How many rows each table has, and the digest of each project's rows of all tables."""

    counts: dict[str, int] = field(default_factory=dict)
    sums: Counter[Project] = field(default_factory=Counter)
    # Told of every thousand rows.
    advance: Callable[[int], None] = field(default=noop, compare=False)

    def counting(self, table: Table, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows of a table without their projects, which are counted as they pass."""
        count, name = 0, table.name.encode()
        for *values, project in rows:
            count += 1
            if not count % 1000:
                self.advance(1000)
            digest = blake2b(name + repr(values).encode(), digest_size=16).digest()
            self.sums[project] = (self.sums[project] + int.from_bytes(digest)) % SUM
            yield tuple(values)
        self.counts[table.name] = count

    @property
    def digests(self) -> dict[Project, str]:
        return {project: f"{it:032x}" for project, it in self.sums.items()}

    def require(self, other: "Tally") -> None:
        """CopyRefused if another tally is not the same."""
        tables = sorted(it for it in self.counts if self.counts[it] != other.counts.get(it))
        projects = self.sums.keys() | other.sums.keys()
        differing = sum(self.sums[it] != other.sums[it] for it in projects)
        if tables or differing:
            where = f"in the tables {', '.join(tables)}" if tables else f"in {differing} projects"
            raise CopyRefused(f"The copy differs {where}; it was discarded.")


TIMEOUT = timedelta(seconds=5)  # with another process that holds a lock


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a database file, in a transaction."""

    database: sqlite3.Connection
    tables: Sequence[Table] = ()  # the database on the other side says which there are

    def read(self, table: Table) -> Iterator[Row]:
        truths = [number for number, it in enumerate(table.types) if it == "boolean"]
        try:
            for row in self.database.execute(table.select):
                values = list(row)
                for number in truths:
                    values[number] = bool(values[number])
                yield tuple(values)
        except sqlite3.OperationalError as error:
            if hasattr(error, "sqlite_errorcode"):  # which Python's own, of decoding, has not
                raise
            raise CopyRefused(  # without its cause, which quotes the text
                f"A text in the table {table.name} is not UTF-8; nothing of the tenant was copied. "
                "`agentops-memory doctor --fix` repairs the file."
            ) from None

    def count(self, table: Table) -> int:
        count: int = self.database.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]
        return count

    def last_ids(self) -> Mapping[str, int]:
        return dict(self.database.execute("SELECT name, seq FROM sqlite_sequence"))

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        values = ", ".join("?" for _ in table.columns)
        self.database.executemany(
            f"INSERT INTO {table.name} ({table.names}) VALUES ({values})", rows
        )

    def finish(self, last_ids: Mapping[str, int], features: Features) -> None:
        counting = self.database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '% AUTOINCREMENT%'"
        )
        for (table,) in counting.fetchall():
            if last := last_ids.get(table):
                self.database.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
                self.database.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, last))
        make_index(self.database, rules(features))


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    path: Path  # of the default tenant's database
    keys: KeyFile
    audit: Path
    features: Features

    @property
    def where(self) -> str:
        return f"at {self.path}"

    def tenants(self) -> Sequence[TenantId]:
        return tenants_of(self.path)

    def holds(self, tenant: TenantId) -> bool:
        return tenant_file(self.path, tenant).exists()

    @contextmanager
    def rows(self, tenant: TenantId) -> Iterator[FileRows]:
        """The rows of a tenant as they are now, while others may be changing them.

        StartRefused where the file cannot be read, CopyRefused where it has another format.
        """
        path = tenant_file(self.path, tenant)
        require_one_name(path)
        plan = planned(path, self.features)
        if plan.before != newest_format():
            raise CopyRefused(
                f"{path} has format {plan.before}, but only {newest_format()} can be copied: "
                "`agentops-memory migrate` upgrades it."
            )
        with (
            refusing(path),
            # To write, too: else the log that SQLite makes beside the file would stay there.
            closing(connect(path, busy_timeout=TIMEOUT, mode=CHANGING, is_strict=True)) as database,
        ):
            read_only(database)
            database.execute("BEGIN")
            yield FileRows(database)

    @contextmanager
    def filled(self, tenant: TenantId) -> Iterator[FileRows]:
        """Where rows become a file that has its name at the end, on disk, unless anything raises.

        Until the end it is without its triggers, which would count what is counted already.
        """
        path = tenant_file(self.path, tenant)
        with translated(), os_errors_as(Unavailable, f"The database {path} cannot be created"):
            make_folder(path.parent)
            with drafts(path.parent) as folder:
                draft = folder / path.name
                with private_file(draft, os.O_RDWR | os.O_EXCL, like=path.parent):
                    pass
                with closing(connect(draft, features=self.features)) as database:
                    database.execute("BEGIN")
                    make_schema(database)
                    triggers = database.execute(
                        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
                    ).fetchall()
                    for name, _ in triggers:
                        database.execute(f"DROP TRIGGER {name}")
                    yield FileRows(database)
                    for _, sql in triggers:
                        database.execute(sql)
                    require_small_ids(database, path)
                    database.execute("COMMIT")
                    use_wal(database, TIMEOUT)
                sync(draft)
                placed(draft, path)

    def audit_lines(self) -> Iterator[str]:
        with suppress(FileNotFoundError), self.audit.open("rb") as lines:
            for line in lines:
                yield clean(line.rstrip(b"\n").decode("utf-8", "replace"))

    def put_audit(self, lines: Iterable[str]) -> None:
        with (
            os_errors_as(Unavailable, f"The audit file {self.audit} cannot be written"),
            private_file(self.audit, os.O_WRONLY | os.O_TRUNC, like=self.audit.parent) as made,
        ):
            with os.fdopen(os.dup(made), "wb") as file:
                file.writelines(f"{line}\n".encode() for line in lines)
            os.fsync(made)
