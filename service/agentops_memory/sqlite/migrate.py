"""Migrations of a file to the newest schema, safe if several processes start at once, and their
plan; the check of all columns of all tables for damage; and the upgrade of the original's database.

A database of the original service is upgraded in place; a copy of it is kept in its folder.
"""

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from itertools import chain, islice
from pathlib import Path

from .. import __version__
from ..engine.engine import noop
from ..engine.files import private_file
from ..errors import StartRefused
from ..light import dataclass
from ..memory.damage import MOST_TOLD, RowDamage, TableCheck, checks_of
from ..memory.rows import instant, micros, parsed, tag_array, uid_of
from ..memory.space import UNKNOWN_PROJECT, project_name
from ..recall.text import clean, content_hash
from ..recall.visibility import MOST_IDS
from . import connection as db
from .dialect import read_text, refusing, run
from .index import Index, is_by_rules
from .open_files import kept_copy, require_one_name, vacuum_remains

MIGRATIONS = Path(__file__).with_name("migrations")
TIMEOUT = timedelta(seconds=60)  # to wait for another process, which may be migrating

OnUpgrade = Callable[[], object]
"""Called before a non-empty file is upgraded or rewritten, which may take long."""
# The partition of a space; -1, an invalid number, for a partition that does not exist.
_KNOWN_PARTITION = """CASE WHEN area <= 0 OR partition IN (SELECT number FROM partitions)
                     THEN partition
                     ELSE -1 END"""
_COLUMNS = """SELECT t.name, c.name, c.type, NOT (c."notnull" OR c.pk)
                FROM sqlite_schema t
                JOIN pragma_table_info(t.name) c
               WHERE t.type = 'table' AND t.rootpage > 0
                     AND t.name NOT GLOB 'sqlite_*' AND t.name NOT GLOB 'memories_fts_*'
            ORDER BY t.name, c.cid"""
log = logging.getLogger(__name__)
ANY_NUMBER = -1  # any number of arguments


def require_current(path: Path, *, may_be_new: bool = False) -> None:
    """Raise StartRefused for a file that is missing, or that a start would change.

    With `may_be_new` an empty file passes: another program may be about to create the database.
    """
    _require_file(path)
    require_one_name(path)
    with (
        refusing(path),
        closing(db.connect(path, busy_timeout=TIMEOUT)) as database,
    ):
        database.execute("BEGIN")  # one state, although another program may be creating it
        if may_be_new and not version_of(database) and not is_used(database):
            return
        if not _is_current(database, path):
            raise StartRefused(
                f"{path} has an older format, or its index was built with other rules. "
                "Start the service on it once, with the settings that it will have."
            )


def migrated(path: Path, now: datetime, on_upgrade: OnUpgrade = noop) -> None:
    """Create the file if it is missing, upgrade it if it is the original's, and migrate it.

    An index that was built by other rules is rebuilt.
    Raises StartRefused if the file cannot be used; the file is then left unchanged.
    """
    with refusing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # An empty file, only for its owner; SQLite's own files get the same mode.
        with suppress(FileExistsError), private_file(path, os.O_RDWR | os.O_EXCL):
            pass
        require_one_name(path)
        with closing(db.connect(path, busy_timeout=TIMEOUT)) as database:
            if not _is_current(database, path):
                if is_used(database):
                    on_upgrade()
                _migrate(database, path, now)
            db.use_wal(database, TIMEOUT)
            vacuum_remains(database, path, on_upgrade)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    before: int  # the format's number; 0 for the original's database, or an empty file
    after: int
    is_original: bool
    is_due: bool  # whether the file is migrated, or only its index rebuilt


def planned(path: Path) -> Plan:
    """Return what a start would do, without changes; StartRefused if it would be refused."""
    _require_file(path)
    path = Path(os.path.realpath(path))  # where SQLite keeps the log
    with refusing(path), db.open_read_only(path) as database:
        is_due, before = not _is_current(database, path), version_of(database)
        original = not before and is_original(database)
        return Plan(before=before, after=newest_format(), is_original=original, is_due=is_due)


def statements(number: int) -> Sequence[str]:
    """Return the statements of a migration; `executescript` would commit."""
    return _split(scripts()[number - 1])


def apply_migrations(database: sqlite3.Connection, after: int = 0) -> None:
    for number in range(after + 1, newest_format() + 1):
        for statement in statements(number):
            database.execute(statement)


def make_schema(database: sqlite3.Connection, after: int = 0) -> None:
    """Run the migrations after number `after`, and set the file's format."""
    apply_migrations(database, after)
    database.execute(f"PRAGMA application_id = {db.APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {newest_format()}")


def require_small_ids(database: sqlite3.Connection, path: Path) -> None:
    """Raise StartRefused for too large ids: the index numbers its rows by area and id."""
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'memories'").fetchone():
        return
    ((used,),) = database.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'memories'")
    if used is not None and used >= MOST_IDS:
        raise StartRefused(
            f"{path} has observations with ids up to {used:,}; ids must be below {MOST_IDS:,}. "
            "Nothing was changed. Export it with the program that made it, and import that."
        )


def _migrate(database: db.Database, path: Path, now: datetime) -> None:
    database.execute("PRAGMA foreign_keys = OFF")  # a step may rebuild a table that others refer to
    database.execute("BEGIN IMMEDIATE")
    try:
        if not _is_current(database, path):
            version = version_of(database)
            if version == 0 and is_original(database):
                upgrade(database, path, statements(1), now)
                version = 1
            require_small_ids(database, path)
            make_schema(database, after=version)
        if not is_by_rules(database):
            Index(database).recreate_all()
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise StartRefused(f"There is no database at {path}.")


def _is_current(database: sqlite3.Connection, path: Path) -> bool:
    """Whether a start would change nothing; StartRefused if the file is of another program."""
    version, newest = version_of(database), newest_format()
    if version > newest:
        raise StartRefused(
            f"{path} has format {version}, made by a newer version of this program; "
            f"agentops-memory {__version__} supports formats up to {newest}. "
            "Start the newer version, or restore a backup."
        )
    if not version and is_used(database) and not is_original(database):
        raise StartRefused(f"{path} is a database of another program.")
    return version == newest and is_by_rules(database)


def version_of(database: sqlite3.Connection) -> int:
    """Return the number of the last migration, or 0 for a file that is not (yet) ours."""
    if database.execute("PRAGMA application_id").fetchone()[0] != db.APPLICATION_ID:
        return 0
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def is_used(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None


def newest_format() -> int:
    return len(scripts())


@cache
def scripts() -> tuple[str, ...]:
    """Return the migrations, in order; cached, as each probe needs their number."""
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


def damaged(database: sqlite3.Connection, most: int = MOST_TOLD) -> list[RowDamage]:
    """Return the first damaged rows in a file of ours, table by table."""
    with undecoded(database):
        damage = (it.found(database.execute(statement)) for it, statement in checks(database))
        return list(islice(chain.from_iterable(damage), most))


def checks(database: sqlite3.Connection) -> Iterator[tuple[TableCheck, str]]:
    """Yield a check for each table of a file, and the statement that reads it without indexes.

    The file's format may be an older one.
    """
    for check in checks_of(database.execute(_COLUMNS).fetchall()):
        statement = check.selecting("rowid")
        if check.table == "spaces":
            statement = statement.replace('"partition"', _KNOWN_PARTITION)
        yield check, f"{statement} NOT INDEXED"


@contextmanager
def undecoded(database: sqlite3.Connection) -> Iterator[None]:
    """Within, text that is not UTF-8 is read as `NotText`."""
    before, database.text_factory = database.text_factory, read_text
    try:
        yield
    finally:
        database.text_factory = before


def is_original(database: sqlite3.Connection) -> bool:
    """Whether the file has the original's tables, with every column that is read."""
    columns_of = "SELECT name FROM pragma_table_info(?)"
    return all(
        names <= {name for (name,) in database.execute(columns_of, (table,))}
        for table, names in _READ.items()
    )


def upgrade(database: sqlite3.Connection, path: Path, schema: Iterable[str], now: datetime) -> None:
    """Rewrite the original's rows in our schema, within the transaction that has begun.

    The copy is made while this transaction holds the write lock. Only the rows of the old tables
    are read, as the file may be damaged, and their pages stay unused until `vacuum_remains`.
    """
    log.warning("upgrading a database of the original service", extra={"path": str(path)})
    copy = kept_copy(path)
    _add_functions(database, now)
    run(database, db.drop_statements(["observations_fts"]))
    run(database, [*_RENAME, *schema, *_CONVERT])
    ((displaced,),) = database.execute(
        """SELECT (SELECT count(*) FROM old WHERE key IS NOT NULL AND deleted_at IS NULL)
                - (SELECT count(*) FROM key_holders)"""
    )
    rows = database.execute(
        """SELECT name
             FROM sqlite_schema
            WHERE type = 'table'
              AND (name IN ('original_observations', 'original_sessions')
                   OR name GLOB 'observations_fts_*')"""
    )
    run(database, [*_TIDY, *db.drop_statements(name for (name,) in rows.fetchall())])
    fields = {"copy": str(copy), "memories_that_lost_a_shared_topic_key": displaced}
    log.warning("upgraded a database of the original service", extra=fields)


def _add_functions(database: sqlite3.Connection, now: datetime) -> None:
    """Add the functions that the statements call; each accepts any value of a column."""
    functions: dict[str, tuple[int, Callable[..., str | int | None]]] = {
        "as_text": (1, lambda value: None if value is None else _text(value)),
        "as_project": (1, lambda value: project_name(_text(value)) or UNKNOWN_PROJECT),
        "as_tags": (1, lambda value: tag_array(_tags(_text(value)))),
        "as_hash": (1, content_hash),
        "as_micros": (
            ANY_NUMBER,
            lambda *values: micros(next(filter(None, map(parsed, map(_text, values))), now)),
        ),
        "uid_at": (1, lambda value: uid_of(instant(value))),
    }
    for name, (arguments, function) in functions.items():
        database.create_function(name, arguments, function)


def _tags(array: str) -> list[str]:
    """Return the texts of a JSON array of the original, or none if it is not an array."""
    try:
        tags = json.loads(array)
    except (ValueError, RecursionError):
        return []
    return [clean(tag) for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def _text(value: bytes | None) -> str:
    return "" if value is None else clean(value.decode("utf-8", "replace"))


def _of(function: str, *columns: str) -> str:
    """Return a call on columns as bytes: text that is not UTF-8 would fail before the call."""
    return f"{function}({', '.join(f'CAST({column} AS BLOB)' for column in columns)})"


_READ = {
    "sessions": {"id", "project", "started_at", "ended_at", "summary", "message_count"},
    "observations": {
        *("id", "session_id", "type", "title", "content", "tags", "project", "scope", "topic_key"),
        *("revision_count", "duplicate_count", "last_seen_at", "promoted_to"),
        *("created_at", "updated_at", "deleted_at"),
    },
}

_RENAME = (
    "PRAGMA legacy_alter_table = ON",  # else triggers and references change to the new names
    "ALTER TABLE sessions RENAME TO original_sessions",
    "ALTER TABLE observations RENAME TO original_observations",
    "PRAGMA legacy_alter_table = OFF",
)

# The converted rows: a view that all steps read in order of ids, so memory holds a row at a time.
_OLD = f"""CREATE TEMP VIEW old AS
    SELECT id,
           coalesce({_of("as_text", "session_id")}, 'unknown') AS session_id,
           coalesce({_of("as_text", "type")}, '') AS type,
           coalesce({_of("as_text", "title")}, '') AS title,
           coalesce({_of("as_text", "content")}, '') AS content,
           {_of("as_tags", "tags")} AS tags,
           {_of("as_project", "project")} AS project,
           coalesce(nullif({_of("as_text", "scope")}, ''), 'project') AS scope,
           nullif({_of("as_text", "topic_key")}, '') AS key,
           max(CAST(coalesce(revision_count, 1) AS INTEGER), 1) AS revision,
           max(CAST(coalesce(duplicate_count, 1) AS INTEGER), 1) AS duplicates,
           {_of("as_micros", "last_seen_at", "created_at", "updated_at")} AS last_seen_at,
           nullif({_of("as_text", "promoted_to")}, '') AS promoted_to,
           {_of("as_micros", "created_at", "updated_at")} AS created_at,
           {_of("as_micros", "updated_at", "created_at")} AS updated_at,
           CASE WHEN nullif(deleted_at, '') IS NOT NULL
                THEN {_of("as_micros", "deleted_at", "updated_at", "created_at")} END
           AS deleted_at
      FROM main.original_observations NOT INDEXED"""

_CONVERT = (
    _OLD,
    "INSERT INTO spaces (project, scope) SELECT DISTINCT project, scope FROM old",
    f"""INSERT INTO sessions (id, project, started_at, ended_at, summary, message_count)
        SELECT {_of("as_text", "id")}, {_of("as_project", "project")},
               {_of("as_micros", "started_at", "ended_at")},
               CASE WHEN nullif(ended_at, '') IS NOT NULL
                    THEN {_of("as_micros", "ended_at", "started_at")} END,
               coalesce({_of("as_text", "summary")}, ''),
               max(CAST(coalesce(message_count, 0) AS INTEGER), 0)
          FROM original_sessions NOT INDEXED
         WHERE id IS NOT NULL
      ORDER BY rowid
            ON CONFLICT DO NOTHING""",
    """INSERT INTO sessions (id, project, started_at)
       SELECT session_id, project, created_at
         FROM old
     ORDER BY id
           ON CONFLICT DO NOTHING""",
    # If live memories now share a key in a space, the one updated last keeps it.
    """CREATE TABLE key_holders (
           space_id INTEGER, key TEXT, id INTEGER, updated_at INTEGER,
           PRIMARY KEY (space_id, key)
       ) WITHOUT ROWID""",
    """INSERT INTO key_holders (space_id, key, id, updated_at)
       SELECT (SELECT s.id FROM spaces s WHERE s.project = old.project AND s.scope = old.scope),
              key, id, updated_at
         FROM old
        WHERE key IS NOT NULL AND deleted_at IS NULL
           ON CONFLICT DO UPDATE
          SET id = excluded.id, updated_at = excluded.updated_at
        WHERE (excluded.updated_at, excluded.id) > (updated_at, id)""",
    """INSERT INTO memories (id, uid, space_id, session_id, key, type, title, content, tags,
                             content_hash, revision, duplicates, last_seen_at, promoted_to,
                             created_at, updated_at, deleted_at)
       SELECT id, uid_at(created_at),
              (SELECT s.id FROM spaces s WHERE s.project = old.project AND s.scope = old.scope),
              session_id,
              CASE WHEN deleted_at IS NOT NULL OR id IN (SELECT id FROM key_holders) THEN key END,
              type, title, content, tags, as_hash(content), revision, duplicates, last_seen_at,
              promoted_to, created_at, updated_at, deleted_at
         FROM old
     ORDER BY id""",
    """INSERT INTO revisions (memory_id, number, deed, at)
       SELECT id, revision,
              CASE WHEN deleted_at IS NOT NULL THEN 'deleted'
                   WHEN revision = 1 THEN 'created' ELSE 'updated' END,
              coalesce(deleted_at, updated_at)
         FROM memories
        WHERE deleted_at IS NOT NULL OR revision > 1""",
    # Ids are never reused.
    """UPDATE sqlite_sequence
          SET seq = max(seq, coalesce((SELECT seq
                                         FROM sqlite_sequence
                                        WHERE name = 'original_observations'), 0))
        WHERE name = 'memories'""",
)

_TIDY = (
    # The copy keeps the old rows anyway, and overwriting them with zeros would fill the log.
    "PRAGMA secure_delete = OFF",
    "DROP VIEW temp.old",
    "DROP TABLE key_holders",
    "DELETE FROM sqlite_sequence WHERE name = 'original_observations'",
)
