"""Database files as the original left them: whole, unfinished and damaged."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

Value = str | bytes | int | float | None

SCHEMA = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    started_at TEXT,
    ended_at TEXT,
    summary TEXT,
    message_count INTEGER
);
CREATE TABLE observations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT REFERENCES sessions(id),
    type TEXT NOT NULL,
    title TEXT NOT NULL,
    content TEXT NOT NULL,
    tags TEXT,
    project TEXT,
    scope TEXT DEFAULT 'project',
    topic_key TEXT,
    normalized_hash TEXT,
    revision_count INTEGER,
    duplicate_count INTEGER,
    last_seen_at TEXT,
    promoted_to TEXT,
    created_at TEXT,
    updated_at TEXT,
    deleted_at TEXT
);
CREATE INDEX idx_sessions_project ON sessions(project);
CREATE INDEX idx_obs_project ON observations(project);
CREATE INDEX idx_obs_session ON observations(session_id);
CREATE INDEX idx_obs_type ON observations(type);
CREATE INDEX idx_obs_topic ON observations(topic_key);
CREATE INDEX idx_obs_hash ON observations(normalized_hash);
CREATE UNIQUE INDEX idx_obs_topic_unique ON observations(topic_key, project, scope)
    WHERE topic_key IS NOT NULL AND deleted_at IS NULL;
CREATE VIRTUAL TABLE observations_fts USING fts5(
    title, content, type, project, topic_key, content='observations', content_rowid='id'
);
CREATE TRIGGER observations_ai AFTER INSERT ON observations BEGIN
    INSERT INTO observations_fts(rowid, title, content, type, project, topic_key)
    VALUES (new.id, new.title, new.content, new.type, new.project, new.topic_key);
END;
CREATE TRIGGER observations_ad AFTER DELETE ON observations BEGIN
    INSERT INTO observations_fts(observations_fts, rowid, title, content, type, project, topic_key)
    VALUES ('delete', old.id, old.title, old.content, old.type, old.project, old.topic_key);
END;
CREATE TRIGGER observations_au AFTER UPDATE ON observations BEGIN
    INSERT INTO observations_fts(observations_fts, rowid, title, content, type, project, topic_key)
    VALUES ('delete', old.id, old.title, old.content, old.type, old.project, old.topic_key);
    INSERT INTO observations_fts(rowid, title, content, type, project, topic_key)
    VALUES (new.id, new.title, new.content, new.type, new.project, new.topic_key);
END;
"""

EARLIER = "2026-04-12T10:00:00Z"
LATER = "2026-04-12T11:00:00Z"


class Original:
    """A file of the original that is being written."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database

    def session(self, session_id: str | bytes, **columns: Value) -> None:
        """A session that has ended, with a summary."""
        self._insert(
            "sessions",
            {
                "id": session_id, "project": "demo", "started_at": EARLIER, "ended_at": LATER,
                "summary": "Session: 2 messages (1 user, 1 assistant). ", "message_count": 2,
                **columns,
            },
        )  # fmt: skip

    def observation(self, content: str | bytes, **columns: Value) -> int:
        """A live observation, and its id."""
        return self._insert(
            "observations",
            {
                "session_id": "s1", "type": "discovery", "title": "A title", "content": content,
                "project": "demo", "scope": "project", "normalized_hash": "0" * 64,
                "revision_count": 1, "duplicate_count": 1, "last_seen_at": EARLIER,
                "created_at": EARLIER, "updated_at": EARLIER, **columns,
            },
        )  # fmt: skip

    def _insert(self, table: str, columns: dict[str, Value]) -> int:
        # Bytes are text that need not be UTF-8, as a driver stores what it is given.
        places = ["CAST(? AS TEXT)" if isinstance(v, bytes) else "?" for v in columns.values()]
        cursor = self.database.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(places)})",
            tuple(columns.values()),
        )
        return cursor.lastrowid or 0


@contextmanager
def original(path: Path, *, journal_mode: str = "DELETE") -> Iterator[Original]:
    """A new file of the original, to write into; closed cleanly."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"PRAGMA journal_mode = {journal_mode}")
        database.executescript(SCHEMA)
        yield Original(database)


def filled(path: Path, *, journal_mode: str = "DELETE", rows: int = 200) -> Path:
    """A file with a session and enough observations that its tables have many pages."""
    with original(path, journal_mode=journal_mode) as old:
        old.database.execute("BEGIN")
        old.session("s1")
        for number in range(1, rows + 1):
            old.observation(f"word{number} " + "zebra " * 200, topic_key=f"topic/{number}")
        old.database.execute("COMMIT")
    return path


def with_wal_left(path: Path) -> Path:
    """A file most of whose rows are only in the WAL beside it."""
    elsewhere = path.with_name("written.db")
    filled(elsewhere, journal_mode="WAL", rows=1)
    with closing(sqlite3.connect(elsewhere, isolation_level=None)) as database:
        database.execute("PRAGMA wal_autocheckpoint = 0")
        Original(database).observation("only the log knows this walrus")
        return _as_if_power_was_lost(elsewhere, path)


def with_hot_journal(path: Path) -> Path:
    """A file in the middle of a transaction that must be rolled back."""
    elsewhere = filled(path.with_name("written.db"))
    with closing(sqlite3.connect(elsewhere, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 1")  # changed pages go to the file at once
        database.execute("BEGIN")
        database.execute("UPDATE observations SET title = 'never committed'")
        return _as_if_power_was_lost(elsewhere, path)


def _as_if_power_was_lost(written: Path, path: Path) -> Path:
    for suffix in ("", "-wal", "-journal"):
        beside = written.with_name(written.name + suffix)
        if beside.exists():
            shutil.copyfile(beside, path.with_name(path.name + suffix))
    return path


def _executing(statement: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute(statement)

    return damage


def _overwriting(*, with_rows: bool) -> Callable[[Path], None]:
    """A write gone astray: over the index's first page, with garbage or with a page of rows."""

    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            ((size,),) = database.execute("PRAGMA page_size")
            roots = dict(database.execute("SELECT name, rootpage FROM sqlite_schema"))
        source, target = (
            (roots[it] - 1) * size for it in ("observations", "observations_fts_data")
        )
        data = bytearray(path.read_bytes())
        garbage = bytes(range(256)) * (size // 256)
        data[target : target + size] = data[source : source + size] if with_rows else garbage
        path.write_bytes(data)

    return damage


# What can be wrong with the original's full-text index, each with a name for the test.
DAMAGES: dict[str, Callable[[Path], None]] = {
    "some rows gone": _executing("DELETE FROM observations_fts_data WHERE id > 10"),
    "all rows gone": _executing("DELETE FROM observations_fts_data"),
    "garbage in rows": _executing("UPDATE observations_fts_data SET block = randomblob(60)"),
    "version unknown": _executing("UPDATE observations_fts_config SET v = 'nonsense'"),
    "version gone": _executing("DELETE FROM observations_fts_config"),
    "settings gone": _executing("DROP TABLE observations_fts_config"),
    "data gone": _executing("DROP TABLE observations_fts_data"),
    "sizes gone": _executing("DROP TABLE observations_fts_docsize"),
    "garbage in a page": _overwriting(with_rows=False),
    "a page of rows in its place": _overwriting(with_rows=True),
}
