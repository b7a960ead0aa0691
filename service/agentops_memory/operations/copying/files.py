"""The files of a service: a database of SQLite for each tenant, the keys and the audit."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from ...engine.shared.stems import rules
from ...errors import Unavailable
from ...memory.model.access import TenantId
from ...recall.text.features import Features
from ...recall.text.normalization import clean
from ...sqlite.base.connection import CHANGING, connect, read_only, use_wal
from ...sqlite.base.copies import require_one_name
from ...sqlite.base.errors import refusing, translated
from ...sqlite.engine.tenant_files import tenants_of
from ...sqlite.engine.tenants import tenant_file
from ...sqlite.fts.index import make_index
from ...sqlite.schema.migrate import make_schema, newest_format, planned, require_small_ids
from ..files.atomic import drafts, make_folder, os_errors_as, placed, private_file, sync
from ..files.keys import KeyFile
from . import CopyRefused, Row, Table

TIMEOUT = timedelta(seconds=5)  # with another process that holds a lock


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a database file, in a transaction."""

    database: sqlite3.Connection
    tables: Sequence[Table] = ()  # the database on the other side says which there are

    def read(self, table: Table) -> Iterator[Row]:
        truths = [place for place, it in enumerate(table.types) if it == "boolean"]
        try:
            for row in self.database.execute(table.select):
                values = list(row)
                for place in truths:
                    values[place] = bool(values[place])
                yield tuple(values)
        except sqlite3.OperationalError as error:
            if hasattr(error, "sqlite_errorcode"):  # which Python's own, of decoding, has not
                raise
            raise CopyRefused(  # without its cause, which quotes the text
                f"A text in the table {table.name} is no UTF-8; nothing of the tenant was copied. "
                "`agentops-memory doctor --fix` mends the file."
            ) from None

    def last_ids(self) -> Mapping[str, int]:
        return dict(self.database.execute("SELECT name, seq FROM sqlite_sequence"))

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        places = ", ".join("?" for _ in table.columns)
        self.database.executemany(
            f"INSERT INTO {table.name} ({table.names}) VALUES ({places})", rows
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
                f"{path} has format {plan.before}, and {newest_format()} is copied: "
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
        with translated(), os_errors_as(Unavailable, f"The database {path} cannot be made"):
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
