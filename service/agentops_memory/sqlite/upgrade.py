"""A database file of the original becomes ours, in place, and a copy of it stays beside it."""

import json
import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ..errors import StartRefused, reason
from ..memory.rows import instant, micros, tag_array
from ..memory.space import MOST_PROJECTS, NUMBERS, UNKNOWN_PROJECT, IndexGroup, project_name
from ..recall.instants import parsed, uid_of
from ..recall.text import clean, content_hash
from .connection import drop_statements, log_size
from .dialect import run
from .open_files import kept_copy

log = logging.getLogger(__name__)

SPACE_NEEDED = 5  # times the file's size: the copy, the log, and what the file grows by
PRIOR_SPACE = 420 * 1024  # bytes of each partition of the index: its prior, here and in the log
SPACE_AT_LEAST = 2 * 1024 * 1024  # bytes: empty tables, and the log's index
ANY_NUMBER = -1  # of arguments


def is_original(database: sqlite3.Connection) -> bool:
    """Whether the file holds the original's tables, with every column that is read."""
    for table, columns in _READ.items():
        rows = database.execute(f"SELECT name FROM pragma_table_info('{table}')")
        if not columns <= {name for (name,) in rows}:
            return False
    return True


def upgrade(database: sqlite3.Connection, path: Path, schema: Iterable[str], now: datetime) -> None:
    """Rewrite the original's rows in our schema, within the transaction that has begun.

    The copy is made while this transaction holds the write lock, from what it sees.
    Of a file that is not sound nothing of the old tables is read but the rows. The
    pages that they took stay unused until `vacuum`.
    """
    log.warning("upgrading a database of the original service", extra={"path": str(path)})
    size = path.stat().st_size + (log_size(path) or 0)
    free = shutil.disk_usage(path.parent).free
    least = needed(size, SPACE_NEEDED, projects_of(database))
    if free < least:
        raise StartRefused(
            f"Upgrading {path} needs {least:,} bytes free in {path.parent}; "
            f"there are {free:,}. Nothing was changed."
        )
    copy = kept_copy(path, _contents)
    _add_functions(database, now)
    run(database, drop_statements(["observations_fts"]))
    sound = False
    with suppress(sqlite3.DatabaseError):
        sound = database.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
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
    remains = [name for (name,) in rows]
    removing = [f'DROP TABLE "{it}"' for it in remains] if sound else drop_statements(remains)
    # Not earlier: a statement that writes over freed pages keeps what was on them in memory.
    run(database, [*_TIDY, *removing])
    log.warning(
        "upgraded a database of the original service",
        extra={
            "copy": str(copy),
            "file_was_sound": sound,
            "memories_that_lost_a_shared_topic_key": displaced,
        },
    )


def needed(size: int, times: int, projects: int) -> int:
    """The bytes that must be free to rewrite a file so many times its size, index and all."""
    partitions = min(projects // MOST_PROJECTS + 2, len(NUMBERS[IndexGroup.PROJECTS]))
    return size * times + partitions * PRIOR_SPACE + SPACE_AT_LEAST


def projects_of(database: sqlite3.Connection) -> int:
    """How many projects a file of ours, or of the original, has sessions of."""
    ((count,),) = database.execute("SELECT count(DISTINCT project) FROM sessions NOT INDEXED")
    return int(count)


def vacuum(database: sqlite3.Connection, path: Path) -> bool:
    """Rewrite the file without free pages; false where that fails, and they stay."""
    folder = str(path.parent.absolute()).replace("'", "''")
    try:
        # On disk, for memory may be short, and beside the file, the one place sure to be there.
        database.execute("PRAGMA temp_store = FILE")
        database.execute(f"PRAGMA temp_store_directory = '{folder}'")
        database.execute("PRAGMA auto_vacuum = NONE")
        database.execute("VACUUM")
        database.execute("DELETE FROM remains")
    except sqlite3.Error as error:
        log.warning("the file keeps its unused pages", extra={"reason": reason(error)})
        return False
    return True


def _contents(database: sqlite3.Connection) -> list[tuple[object, ...]]:
    return [
        *database.execute("SELECT count(*), total(length(summary)) FROM sessions NOT INDEXED"),
        *database.execute(
            """SELECT count(*), total(id), total(length(title)), total(length(content))
                 FROM observations NOT INDEXED"""
        ),
    ]


def _add_functions(database: sqlite3.Connection, now: datetime) -> None:
    """The functions that the statements call; each takes whatever a column may hold."""
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
    """The texts of an array that the original has written; none if it is no array."""
    try:
        tags = json.loads(array)
    except (ValueError, RecursionError):
        return []
    return [clean(tag) for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def _text(value: bytes | None) -> str:
    return "" if value is None else clean(value.decode("utf-8", "replace"))


def _of(function: str, *columns: str) -> str:
    """A call on the bytes of columns: text that is no UTF-8 would fail before it is called."""
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
    "PRAGMA legacy_alter_table = ON",  # else triggers and references follow the new names
    "ALTER TABLE sessions RENAME TO original_sessions",
    "ALTER TABLE observations RENAME TO original_observations",
    "PRAGMA legacy_alter_table = OFF",
)

# The rows as they will be. A view, and all steps in order of the id: memory holds a row at a time.
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
    # Of the live memories that now share a key in a space, the one updated last holds it.
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
    # Ids that were used once are never used again.
    """UPDATE sqlite_sequence
          SET seq = max(seq, coalesce((SELECT seq
                                         FROM sqlite_sequence
                                        WHERE name = 'original_observations'), 0))
        WHERE name = 'memories'""",
)

_TIDY = (
    # The copy keeps the old rows anyway, and zeros over them would fill the log.
    "PRAGMA secure_delete = OFF",
    "DROP VIEW temp.old",
    "DROP TABLE key_holders",
    "DELETE FROM sqlite_sequence WHERE name = 'original_observations'",
)
