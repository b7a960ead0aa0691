"""Repairs: rebuild what follows from the rows, and move damaged rows out; all or nothing.

A repair is committed only if SQLite's check of the file then passes.
"""

import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ..engine.engine import Sealer
from ..engine.files import private_file
from ..errors import Unavailable, reason
from ..light import dataclass
from ..memory.access import TenantId
from ..memory.agent_memory import Access
from ..memory.damage import DERIVED, Fix, TableCheck, named, some_of
from ..memory.memory import undeleted
from ..memory.rows import micros, rendered
from ..memory.space import GLOBAL_AREA, GLOBAL_SCOPE, UNINDEXED_AREA, SpaceKind
from .connection import CHANGING, Database, change, connect, drop_statements, faults_of, tables
from .dialect import NotText, run
from .index import Index
from .migrate import checks, damaged, undecoded
from .open_files import BEFORE_FIX, QUARANTINE, kept_copy, vacuum_remains

POSITION = {"area", "partition"}  # columns of a space that can be computed again

# If a row that extends another is removed, the other goes too: it would be read as another kind of
# thing, or without the restriction that the damaged row has held.
OWNERS: Mapping[str, tuple[str, str]] = {
    "lifecycles": ("memories", "memory_id"),
    "agent_memories": ("memories", "memory_id"),
    "ref_entries": ("memories", "memory_id"),
    "seals": ("memories", "memory_id"),
    "versions": ("memories", "memory_id"),
    "stores": ("spaces", "space_id"),
    "agent_spaces": ("spaces", "space_id"),
    "refs": ("spaces", "space_id"),
    "coordinators": ("intents", "intent"),
}
PERMISSIONS = {"namespaces": "name", "namespace_access": "namespace"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A database file to examine, and the settings that it is checked against."""

    tenant: TenantId
    path: Path
    sealer: Sealer
    now: datetime
    quota: int | None  # bytes
    is_thorough: bool

    def fix(self, repair: "Repair", *args: object) -> Fix:
        return partial(repaired, self, repair, *args)


class Quarantine:
    """Moves damaged rows out of a database, in a transaction without foreign key checks."""

    def __init__(self, database: sqlite3.Connection, now: datetime) -> None:
        self._database = database
        self._now = now
        self.damaged: list[str] = []  # table, key and columns of each row
        self.rows: list[Mapping[str, object]] = []  # removed rows, with dependent ones
        self.are_positions_reset = False
        self._closed: set[object] = set()  # namespaces that have lost permissions
        # By table, the references to its rows: table, column, and this table's column.
        self._references: dict[str, list[tuple[str, str, str]]] = defaultdict(list)

    def remove_damaged(self) -> None:
        """Remove every damaged row; if a space's position is damaged, reset all positions."""
        database = self._database
        rows = database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        triggers = dict(rows.fetchall())
        # Triggers would count damaged values, and an index may differ from its row.
        run(database, (f"DROP TRIGGER {name}" for name in triggers))
        database.execute("REINDEX")
        with undecoded(database):
            for table in tables(database):
                references = database.execute(
                    'SELECT "table", "from", "to" FROM pragma_foreign_key_list(?)', (table,)
                )
                for parent, column, its in references.fetchall():
                    if (table, parent) != ("memories", "sessions"):  # served without a session
                        self._references[parent].append((table, column, its))
            for check, statement in checks(database):
                self._remove_damaged(check, statement)
        for namespace in self._closed:
            self._close(namespace)
        if self.are_positions_reset:
            database.execute(_POSITIONS)
        run(database, [*_COUNTS, *triggers.values()])

    def write(self, path: Path) -> Path:
        """Append the removed rows to the quarantine file, as JSON lines, and sync it; return it."""
        file = path.with_name(f"{path.name}.{QUARANTINE}")
        lines = (f"{json.dumps(row, ensure_ascii=False)}\n" for row in self.rows)
        with private_file(file, os.O_WRONLY | os.O_APPEND) as descriptor:
            with os.fdopen(descriptor, "w", encoding="utf-8", closefd=False) as opened:
                opened.writelines(lines)
            os.fsync(descriptor)
        return file

    def _remove_damaged(self, check: TableCheck, statement: str) -> None:
        for key, *values in self._database.execute(statement).fetchall():
            if not (wrong := check.damaged(values)):
                continue
            self.damaged.append(f"{check.table} {named(key)}: {', '.join(wrong)}")
            if check.table == "spaces" and POSITION.issuperset(wrong):
                self.are_positions_reset = True
            elif keys := self._keys(check.table):
                # The `+` removes a column's type, so that the stored value is compared as it is.
                row = dict(zip(check.names, values, strict=True))
                self._remove(check.table, {f"+{name}": row[name] for name in keys})
            else:
                self._remove(check.table, {"rowid": key})

    def _keys(self, table: str) -> list[str]:
        """Return the primary key of a table without rowid; empty for other tables."""
        rows = self._database.execute(
            """SELECT c.name
                 FROM pragma_table_list(:table) t, pragma_table_info(:table) c
                WHERE t.wr AND c.pk""",
            {"table": table},
        )
        return [name for (name,) in rows]

    def _remove(self, table: str, key: Mapping[str, object]) -> None:
        """Remove the rows with these values, and the rows that refer to them or own them."""
        equal = (
            f"{name} IS {'CAST(? AS TEXT)' if isinstance(value, NotText) else '?'}"
            for name, value in key.items()
        )
        which, values = f'FROM "{table}" WHERE {" AND ".join(equal)}', [*key.values()]
        cursor = self._database.execute(f"SELECT * {which}", values)
        names = [name for name, *_ in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        # Not RETURNING, which would search for a key again, converted to the column's type.
        self._database.execute(f"DELETE {which}", values)
        for row in rows:
            if table not in DERIVED:
                columns = {
                    name: {"hex": it.hex()} if isinstance(it, bytes) else it
                    for name, it in row.items()
                }
                self.rows.append({"at": rendered(self._now), "table": table, "row": columns})
            for child, its, of in self._references[table]:
                self._remove(child, {its: row[of]})
            if table in OWNERS:
                owner, by = OWNERS[table]
                self._remove(owner, {"id": row[by]})
            if table in PERMISSIONS:
                self._closed.add(row[PERMISSIONS[table]])

    def _close(self, namespace: object) -> None:
        """Set a namespace's default access to none; explicit permissions stay."""
        if isinstance(namespace, str):
            self._database.execute(
                """INSERT INTO namespaces (name, default_access, version, created_at, updated_at)
                   VALUES (:name, :access, 1, :now, :now)
                       ON CONFLICT (name) DO UPDATE SET default_access = :access""",
                {"name": namespace, "access": int(Access.NONE), "now": micros(self._now)},
            )


# Positions as for new spaces: a project, a store, a ref and one agent's tier have an area each.
# They are computed for all spaces, as the damaged rows' own positions cannot be trusted.
_POSITIONS = f"""
    UPDATE spaces
       SET area = CASE WHEN scope = '{GLOBAL_SCOPE}' THEN {GLOBAL_AREA}
                       WHEN kind = '{SpaceKind.WORKING}' THEN {UNINDEXED_AREA}
                       ELSE coalesce((SELECT min(o.id)
                                        FROM spaces o
                                       WHERE o.project = spaces.project
                                             AND o.scope <> '{GLOBAL_SCOPE}'),
                                     (SELECT min(o.space_id)
                                        FROM agent_spaces p
                                        JOIN agent_spaces o ON o.tier = p.tier
                                                               AND o.agent = p.agent
                                       WHERE p.space_id = spaces.id AND p.agent <> ''),
                                     id)
                  END"""

_COUNTS = (
    f"""
    UPDATE stores
       SET (entries, size) = (SELECT count(*), coalesce(sum(length(CAST(m.content AS BLOB))), 0)
                                FROM memories m
                               WHERE m.space_id = stores.space_id AND {undeleted("m")})""",
    f"""
    UPDATE refs
       SET (entries, size) = (SELECT count(*), coalesce(sum(e.size), 0)
                                FROM ref_entries e
                                JOIN memories m ON m.id = e.memory_id
                               WHERE e.space_id = refs.space_id AND {undeleted("m")})""",
)


STILL_DAMAGED = "The file would still be damaged, so it was left unchanged."
TIMEOUT = timedelta(seconds=10)  # to wait for another process's transaction


Repair = Callable[..., str]
"""Repairs the file of a subject within a transaction; returns a sentence about what was done."""


def repaired(subject: Subject, repair: Repair, *args: object) -> str:
    """Run a repair; its change is committed if the file is undamaged at its end, else undone."""
    path = subject.path
    opening = partial(connect, busy_timeout=TIMEOUT, mode=CHANGING)
    with _explained(), closing(opening(path)) as database:
        # Referenced rows may be missing already; a repair must not fail for that.
        database.execute("PRAGMA foreign_keys = OFF")
        with change(database, time.monotonic() + TIMEOUT.total_seconds()):
            done = repair(database, path, *args)
            if faults_of(database):
                raise Unavailable(STILL_DAMAGED)
        vacuum_remains(database, path)
    return done


def make_partition(database: Database, _: Path, number: int) -> str:
    Index(database).recreate(number)
    return f"Partition {number} was recreated."


def reindex(
    database: sqlite3.Connection, _: Path, missing: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Rebuild all indexes, and create missing ones by their statements."""
    rows = database.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    )
    indexes = {**dict(rows.fetchall()), **missing}
    run(database, [*drop_statements(indexes), *indexes.values()])
    database.execute("REINDEX")  # the indexes of constraints
    database.execute("INSERT INTO remains (one) VALUES (1) ON CONFLICT DO NOTHING")
    return "All ordinary indexes were rebuilt."


def quarantine(database: Database, path: Path, now: datetime) -> str:
    """Move damaged rows from the file to the quarantine file; keep a copy of the old file."""
    copy = kept_copy(path, BEFORE_FIX)
    removed = Quarantine(database, now)
    removed.remove_damaged()
    Index(database).recreate_all()
    if damaged(database, most=1):
        raise Unavailable(STILL_DAMAGED)
    return (
        f"Moved to {removed.write(path)}: {len(removed.rows):,} rows, the damaged ones and those "
        f"that depend on them. Damaged: {some_of(removed.damaged)}. The index was rebuilt. A copy "
        f"of the file as it was before is {copy}."
    )


def remove_orphans(database: sqlite3.Connection, path: Path) -> str:
    """Remove rows about missing memories; keep a copy of the old file."""
    copy, before = kept_copy(path, BEFORE_FIX), database.total_changes
    for table in tables(database):
        references = database.execute(
            """SELECT "from"
                 FROM pragma_foreign_key_list(?)
                WHERE "table" = 'memories' AND on_delete = 'CASCADE'""",
            (table,),
        )
        for (column,) in references.fetchall():
            database.execute(f"DELETE FROM {table} WHERE {column} NOT IN (SELECT id FROM memories)")
    removed = database.total_changes - before
    return f"Removed {removed:,} rows. A copy of the file as it was before is {copy}."


def is_exact(path: Path, number: int) -> bool:
    """Whether a partition matches the memories exactly; nothing is changed.

    SQLite needs the write lock for it, and waits until another process releases it.
    """
    opening = partial(connect, busy_timeout=TIMEOUT, mode=CHANGING)
    with closing(opening(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            return Index(database).is_exact(number)
        finally:
            database.execute("ROLLBACK")


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Unavailable(f"SQLite refuses: {reason(error)}.") from error
