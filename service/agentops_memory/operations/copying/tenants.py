"""All tenants of a service, or some, are copied from its files into a database, or back.

A tenant is copied whole or not at all: into a database in one transaction, into a file as a draft
that has its name at the end. So what was interrupted is gone on with: a tenant that is there with
the same rows is left alone, and one with others is refused before anything is copied.
"""

import os
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import psycopg

from ...engine.shared.stems import rules
from ...errors import Unavailable
from ...memory.model.access import TenantId
from ...memory.model.keys import By, KeyRegistry, KeyRing
from ...memory.sql.rows import micros
from ...postgresql.keys import PostgresKeys
from ...postgresql.schema.migrate import is_made, tenants
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
from ..files.audit import written_at
from ..files.keys import KeyFile
from ..files.service_lock import service_lock
from .database import filled, opened_database, prepared_database, stored
from .tables import CopyRefused, Row, Table, Tally, copied

TIMEOUT = timedelta(seconds=5)  # with another process that holds a lock


class SqliteRows:
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
    rows = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '% AUTOINCREMENT%'"
    )
    return {name for (name,) in rows}


def _with_truths(row: Row, places: Iterable[int]) -> Row:
    values = list(row)
    for place in places:
        values[place] = bool(values[place])
    return tuple(values)


KEYS_COPIED = "keys.copied"
FIRST = datetime.fromtimestamp(0, UTC)  # of what is no line of ours and comes before all others


def copy_keys(
    source: KeyRegistry, target: KeyRegistry, tenants: Collection[TenantId], *, at: datetime, by: By
) -> None:
    """Copy the keys of some tenants, or all; the audit of the target tells which are new.

    CopyRefused where the target has others, or one of them otherwise.
    """
    ring = source.ring()
    source.require_kept(ring)
    keys = {it.id: it for it in ring.keys.values() if not tenants or it.tenant in tenants}
    there = target.ring().keys
    if any(keys.get(id_) != key for id_, key in there.items() if id_ in keys or not tenants):
        raise CopyRefused("The target has keys already, and others; nothing was copied.")
    if new := [it for it in keys.values() if it.id not in there]:
        with target.changing() as (before, put):
            ring = reduce(KeyRing.with_key, new, before)
            put(ring, at, KEYS_COPIED, by, keys=[key.id for key in new])


def audit_to_database(path: Path, connection: psycopg.Connection[Any]) -> None:
    """Copy the lines of an audit file; CopyRefused where the database has others."""
    if _are_there(_in_file(path), _in_database(connection)):
        return
    with connection.cursor().copy("COPY agentops.audit (at, line) FROM STDIN") as copy:
        at = FIRST
        for line in _in_file(path):
            at = written_at(line.encode()) or at
            copy.write_row((micros(at), line))


def audit_to_file(connection: psycopg.Connection[Any], path: Path) -> None:
    """Copy the audit of a database; CopyRefused where the file has other lines."""
    if _are_there(_in_database(connection), _in_file(path)):
        return
    with (
        os_errors_as(Unavailable, f"The audit file {path} cannot be written"),
        private_file(path, os.O_WRONLY | os.O_TRUNC, like=path.parent) as descriptor,
    ):
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.writelines(f"{line}\n".encode() for line in _in_database(connection))
        os.fsync(descriptor)


def _are_there(source: Iterable[str], target: Iterator[str]) -> bool:
    """Whether the target has the lines of the source, or begins with them; false if it has none."""
    if (first := next(target, None)) is None:
        return False
    for ours, theirs in zip_longest(source, chain([first], target)):
        if ours is None:
            break
        if ours != theirs:
            raise CopyRefused("The target has an audit already, and another; nothing was copied.")
    return True


def _in_file(path: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            yield clean(line.rstrip(b"\n").decode("utf-8", "replace"))


def _in_database(connection: psycopg.Connection[Any]) -> Iterator[str]:
    rows = connection.cursor().stream("SELECT line FROM agentops.audit ORDER BY number")
    return (line for (line,) in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    path: Path  # of the default tenant's database
    keys: KeyFile
    audit: Path
    features: Features


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A tenant that is in both places."""

    tenant: TenantId
    tally: Tally
    was_there: bool


def to_database(
    files: Files, url: str, named: Sequence[TenantId], *, at: datetime, by: By
) -> Iterator[Copied]:
    """Copy the tenants of a service, all or those that are named, each with its keys.

    The audit goes with all of them. Each is compared, and kept, before the next begins.
    CopyRefused for a database that holds anything else, StartRefused or Unavailable for one
    that cannot be used. Refused, too, while a service runs on either.
    """
    path, features = files.path, files.features
    chosen = _chosen(tenants_of(path), named, f"at {path}")
    with service_lock(path), prepared_database(url) as connection:
        there = [it for it in tenants(connection) if it in chosen or not named]
        held = [it for it in there if _is_held(connection, it)]
        _require_none_but(chosen, held, named)
        done = {}
        for tenant in set(chosen) & set(held):
            with connection.transaction():
                done[tenant] = _same(connection, tenant, tenant_file(path, tenant), features)
        if not named:
            audit_to_database(files.audit, connection)
        copy_keys(files.keys, PostgresKeys(url), named, at=at, by=by)
        for tenant in chosen:
            tally, file = done.get(tenant), tenant_file(path, tenant)
            if tally is None:
                with opened_file(file, features) as source, filled(connection, tenant) as target:
                    tally = copied(source, target, target.tables, features)
                target.vacuum()
            yield Copied(tenant=tenant, tally=tally, was_there=tenant in done)


def to_files(
    url: str, files: Files, named: Sequence[TenantId], *, at: datetime, by: By
) -> Iterator[Copied]:
    """Copy the tenants of a database to the files of a service, as above."""
    path, features = files.path, files.features
    with opened_database(url) as connection, service_lock(path):
        there = tenants(connection) if is_made(connection) else []
        chosen = _chosen(there, named, "in the database")
        _require_none_but(chosen, tenants_of(path), named)
        done = {}
        for tenant in chosen:
            file = tenant_file(path, tenant)
            if file.exists():
                done[tenant] = _same(connection, tenant, file, features)
        make_folder(path.parent)
        if not named:
            audit_to_file(connection, files.audit)
        copy_keys(PostgresKeys(url), files.keys, named, at=at, by=by)
        for tenant in chosen:
            tally, file = done.get(tenant), tenant_file(path, tenant)
            if tally is None:
                source = stored(connection, tenant)
                with new_file(file, features) as target:
                    tally = copied(source, target, source.tables, features)
            yield Copied(tenant=tenant, tally=tally, was_there=tenant in done)


def _chosen(there: Sequence[TenantId], named: Sequence[TenantId], where: str) -> Sequence[TenantId]:
    if missing := [it for it in named if it not in there]:
        raise CopyRefused(f"There is no tenant {missing[0]} {where}.")
    if not there:
        raise CopyRefused(f"There is no tenant {where}.")
    return list(dict.fromkeys(named)) or there


def _require_none_but(
    chosen: Sequence[TenantId], held: Sequence[TenantId], named: Sequence[TenantId]
) -> None:
    if (others := [it for it in held if it not in chosen]) and not named:
        raise CopyRefused(
            f"The target holds the tenant {others[0]}, which the source has not; name another, or "
            "name those that are to be copied with --tenant."
        )


def _is_held(connection: psycopg.Connection[Any], tenant: TenantId) -> bool:
    with connection.transaction():
        return not stored(connection, tenant).is_empty()


def _same(
    connection: psycopg.Connection[Any], tenant: TenantId, file: Path, features: Features
) -> Tally:
    with opened_file(file, features) as source:
        in_database = stored(connection, tenant)
        tally = Tally.of(in_database, in_database.tables)
        if Tally.of(source, in_database.tables) != tally:
            raise CopyRefused(
                f"The tenant {tenant} is in the target already, with other rows. Nothing was "
                "copied; erase it there, or name another target."
            )
    return tally
