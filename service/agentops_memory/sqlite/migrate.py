"""Bringing a file to the newest schema, safe when several processes start at once, and its plan;
and its damaged rows: every column of every table, looked through.
"""

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

from .. import __version__
from ..engine.engine import noop
from ..engine.files import drafts, private_file
from ..errors import StartRefused, Unavailable
from ..light import dataclass
from ..memory.damage import BY_PLACE, DERIVED, MOST_TOLD, Column, RowDamage, TableCheck
from ..recall.features import ALL, Features
from ..recall.stems import rules
from ..recall.visibility import MOST_IDS
from . import upgrade
from .connection import APPLICATION_ID, connect, log_size, open_read_only, use_wal
from .dialect import read_text, refusing
from .index import bring_to_rules, is_by_rules
from .open_files import require_one_name
from .partitions import Partitions, table, text_of

MIGRATIONS = Path(__file__).with_name("migrations")
TIMEOUT = timedelta(seconds=60)  # another process may be migrating
SPACE_NEEDED = 4  # times the file's size: the log of what is rewritten, and what it grows by

OnUpgrade = Callable[[], object]
"""Called before a file that is not empty is upgraded or rewritten: that may take long."""


def require_current(path: Path, features: Features = ALL, *, may_be_new: bool = False) -> None:
    """Refuse a file that is missing, or that a start would change, with StartRefused.

    One that nothing was stored in yet may be what another program is about to make.
    """
    _require_file(path)
    require_one_name(path)
    with (
        refusing(path),
        closing(connect(path, busy_timeout=TIMEOUT, features=features)) as database,
    ):
        database.execute("BEGIN")  # one state, although another program may be making it
        if may_be_new and not version_of(database) and not is_used(database):
            return
        _require_ours(database, path)
        if not _is_current(database, features):
            raise StartRefused(
                f"{path} has an older format, or its index was built with other rules. "
                "Start the service on it once, with the settings that it will have."
            )


def migrated(
    path: Path, now: datetime, features: Features = ALL, on_upgrade: OnUpgrade = noop
) -> None:
    """Make the file if it is missing, upgrade it if it is the original's, and migrate it.

    An index that was made by other rules is rebuilt.
    Refused with StartRefused when the file cannot be used; then it is left unchanged.
    """
    with refusing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # An empty file, for its owner alone; what SQLite puts beside it gets the same mode.
        with suppress(FileExistsError), private_file(path, os.O_RDWR | os.O_EXCL):
            pass
        require_one_name(path)
        with closing(connect(path, busy_timeout=TIMEOUT, features=features)) as database:
            if not _is_current(database, features):
                if is_used(database):
                    on_upgrade()
                _migrate(database, path, now, features)
            use_wal(database, TIMEOUT)
            vacuum_remains(database, path, on_upgrade)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    path: Path
    before: int  # the number of its format; 0 for the original's, and for an empty one
    after: int
    is_original: bool
    makes_index: bool  # anew
    size: int  # bytes
    free: int  # bytes where the file lies
    projects: int

    @property
    def is_due(self) -> bool:
        return self.before != self.after or self.makes_index

    @property
    def needed(self) -> int:
        """The bytes that must be free for it; rather too many."""
        if not self.is_due:
            return 0
        times = upgrade.SPACE_NEEDED if self.is_original else SPACE_NEEDED
        return upgrade.needed(self.size, times, self.projects)

    @property
    def has_room(self) -> bool:
        return self.free >= self.needed

    @property
    def has_room_for_trial(self) -> bool:
        """Whether there is room for a copy, too, on which it can be tried."""
        return self.free >= self.needed + self.size + upgrade.SPACE_AT_LEAST


def planned(path: Path, features: Features) -> Plan:
    """What a start would do; StartRefused for a file that it would refuse. Nothing is changed."""
    _require_file(path)
    path = Path(os.path.realpath(path))  # where SQLite has the log
    with refusing(path), open_read_only(path, features) as database:
        before, after = version_of(database), newest_format()
        is_original = not before and upgrade.is_original(database)
        if before > after:
            raise StartRefused(
                f"{path} has format {before}, made by a newer version of this program; this one "
                f"supports formats up to {after}."
            )
        _require_ours(database, path)
        return Plan(
            path=path,
            before=before,
            after=after,
            is_original=is_original,
            makes_index=before != after or not is_by_rules(database, rules(features)),
            size=path.stat().st_size + (log_size(path) or 0),
            free=shutil.disk_usage(path.parent).free,
            projects=upgrade.projects_of(database),
        )


def tried(plan: Plan, now: datetime, features: Features) -> timedelta:
    """How long it takes on a copy beside the file, which is removed again.

    Refused as the start would be, and with Unavailable when what came of it is not sound.
    """
    with refusing(plan.path), drafts(plan.path.parent) as folder:
        copy = folder / plan.path.name
        with open_read_only(plan.path, features) as source, closing(sqlite3.connect(copy)) as made:
            source.backup(made)
        begun = time.monotonic()
        migrated(copy, now, features)
        took = timedelta(seconds=time.monotonic() - begun)
        with closing(connect(copy, features=features)) as database:
            ((fault,),) = database.execute("PRAGMA integrity_check(1)")
        if fault != "ok":
            raise Unavailable(f"A copy of {plan.path} was damaged after it: {fault}.")
        return took


def vacuum_remains(database: sqlite3.Connection, path: Path, on_rewrite: OnUpgrade = noop) -> bool:
    """Vacuum the file if its free pages may hold what was deleted; whether they do not now."""
    if database.execute("SELECT 1 FROM remains").fetchone() is None:
        return True
    on_rewrite()
    return upgrade.vacuum(database, path)


def statements(number: int) -> Sequence[str]:
    """The statements of a migration, one by one: `executescript` would commit."""
    return _split(scripts()[number - 1])


def apply_migrations(database: sqlite3.Connection, after: int = 0) -> None:
    for number in range(after + 1, newest_format() + 1):
        for statement in statements(number):
            database.execute(statement)


def make_schema(database: sqlite3.Connection, after: int = 0) -> None:
    """Run the migrations after one, or all, and let the file say so."""
    apply_migrations(database, after)
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {newest_format()}")


def require_small_ids(database: sqlite3.Connection, path: Path) -> None:
    """The index numbers its rows by area and id: an id that is too large would be another's."""
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'memories'").fetchone():
        return
    ((used,),) = database.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'memories'")
    if used is not None and used >= MOST_IDS:
        raise StartRefused(
            f"{path} has observations with ids up to {used:,}; ids must be below {MOST_IDS:,}. "
            "Nothing was changed. Export it with the program that made it, and import that."
        )


def _migrate(database: sqlite3.Connection, path: Path, now: datetime, features: Features) -> None:
    database.execute("PRAGMA foreign_keys = OFF")  # a step may rebuild a table that others name
    database.execute("BEGIN IMMEDIATE")
    try:
        if not _is_current(database, features):
            _require_ours(database, path)
            version = version_of(database)
            if version == 0 and upgrade.is_original(database):
                upgrade.upgrade(database, path, statements(1), now)
                version = 1
            require_small_ids(database, path)
            make_schema(database, after=version)
        bring_to_rules(database, rules(features))
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise StartRefused(f"There is no database at {path}.")


def _require_ours(database: sqlite3.Connection, path: Path) -> None:
    """Refuse what neither this program nor the original has made."""
    if not version_of(database) and is_used(database) and not upgrade.is_original(database):
        raise StartRefused(f"{path} is a database of another program.")


def _is_current(database: sqlite3.Connection, features: Features) -> bool:
    version, newest = version_of(database), newest_format()
    if version > newest:
        raise StartRefused(
            f"The database has format {version}, made by a newer version of this program; "
            f"agentops-memory {__version__} supports formats up to {newest}. "
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
    return len(scripts())


@cache
def scripts() -> tuple[str, ...]:
    """The migrations, in order; read once, as each probe asks how many there are."""
    return tuple(it.read_text("utf-8") for it in sorted(MIGRATIONS.glob("*.sql")))


@cache
def _split(script: str) -> Sequence[str]:
    statements, statement = [], ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return [*statements, statement] if statement.strip() else statements


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


def difference(database: sqlite3.Connection) -> Difference:
    """How the schema differs from that of the migrations, with the partitions that it names."""
    parts = _parts(database)
    due = _due(tuple(Partitions(database, is_alone=False).all()), scripts())
    return Difference(
        missing={part: sql for part, sql in due.items() if part not in parts},
        changed=frozenset(
            part for part in due.keys() & parts.keys() if _plain(due[part]) != _plain(parts[part])
        ),
        further={part: sql for part, sql in parts.items() if part not in due},
    )


def names_of_parts(parts: Iterable[Part]) -> str:
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


@lru_cache(maxsize=16)  # it is needed twice per file, and files of many tenants are alike
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


def damaged(database: sqlite3.Connection, most: int = MOST_TOLD) -> list[RowDamage]:
    """The first of the damaged rows in a file of ours, table by table."""
    with undecoded(database):
        rows = (
            row
            for check in checks(database)
            for row in check.found(database.execute(selecting(check)))
        )
        return list(islice(rows, most))


def checks(database: sqlite3.Connection) -> Iterator[TableCheck]:
    """Of the tables that a file has, whose format may be an older one."""
    for each in list(tables(database)):
        if each in DERIVED or each.startswith(("sqlite_", "memories_fts_")):
            continue
        statement = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
        rows = database.execute(statement, (each,))
        columns = [
            Column(name=name, type=type_, may_be_null=not (is_required or is_key))
            for name, type_, is_required, is_key in rows.fetchall()
        ]
        yield TableCheck(each, columns)


def selecting(check: TableCheck) -> str:
    """The statement that reads the rows of a table, and not of an index, each behind its key."""
    key = "rowid" if check.table in BY_PLACE else f'"{check.names[0]}"'
    columns = ", ".join(check.selected)
    if check.table == "spaces":
        columns = columns.replace('"partition"', _KNOWN_PARTITION)
    return f'SELECT {key}, {columns} FROM "{check.table}" NOT INDEXED'


@contextmanager
def undecoded(database: sqlite3.Connection) -> Iterator[None]:
    """Inside, a text that is no UTF-8 is read as what it is."""
    before, database.text_factory = database.text_factory, read_text
    try:
        yield
    finally:
        database.text_factory = before


# Of a partition that is not there, what no partition can be.
_KNOWN_PARTITION = """CASE WHEN area <= 0 OR partition IN (SELECT number FROM partitions)
                     THEN partition
                     ELSE -1 END"""
