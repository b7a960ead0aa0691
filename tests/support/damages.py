"""Database files that something is wrong with, made of a sound one, each in its own way."""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentops_memory.sqlite.connection import connect

DAY = 24 * 3600  # seconds
MICROS = 1_000_000

Damage = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is done to a file, and what is to be found then."""

    damage: Damage
    code: str
    status: str = "failed"
    said: str = ""  # a part of the sentence
    is_mended: bool = False
    is_thorough: bool = False  # it takes --thorough to see it


def running(*statements: str) -> Damage:
    """Statements of somebody at a shell."""

    def damage(path: Path) -> None:
        with closing(connect(path)) as database:
            for statement in statements:
                database.execute(statement)

    return damage


def overwriting(name: str, *, at: int = 0, by: bytes = b"\xff") -> Damage:
    """Garbage on the first page of a table or an index."""

    def damage(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            ((size,),) = database.execute("PRAGMA page_size")
            ((page,),) = database.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)
            )
        with path.open("r+b") as file:
            file.seek((page - 1) * size + at)
            file.write(by * (size - at))

    return damage


def without_entries(path: Path) -> None:
    """An ordinary index that lacks rows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        sql = "SELECT sql FROM sqlite_schema WHERE name = 'sessions_by_start'"
        ((due,),) = database.execute(sql).fetchall()
        database.execute("DROP INDEX sessions_by_start")
        database.execute("CREATE INDEX sessions_by_start ON sessions (started_at) WHERE number < 0")
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_schema SET sql = ? WHERE name = 'sessions_by_start'", (due,)
        )


def replaced(by: bytes) -> Damage:
    def damage(path: Path) -> None:
        path.write_bytes(by)

    return damage


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def pipe_beside(path: Path) -> None:
    os.mkfifo(path.with_name(f"{path.name}-journal"))


def as_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def moded(mode: int, name: str = "") -> Damage:
    def damage(path: Path) -> None:
        file = path.with_name(f"{path.name}{name}")
        file.touch()
        file.chmod(mode)
        path.parent.chmod(0o755)

    return damage


def beside(name: str, text: str = "", *, age: float = 2 * 3600) -> Damage:
    """A file beside the database, of so many seconds ago."""

    def damage(path: Path) -> None:
        file = path.with_name(f"{path.name}{name}")
        file.write_text(text)
        file.chmod(0o600)
        os.utime(file, 2 * (time.time() - age,))

    return damage


def from_tomorrow(path: Path) -> None:
    ahead = (int(time.time()) + DAY) * MICROS
    running(f"UPDATE sessions SET started_at = {ahead}")(path)


def changed_tomorrow(path: Path) -> None:
    os.utime(path, 2 * (time.time() + DAY,))


def owned_by_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a file for another user")
    beside("-journal")(path)
    os.chown(path.with_name(f"{path.name}-journal"), 65534, 65534)


def with_keys(**fields: object) -> Damage:
    """A file of keys with one in it."""
    key = {
        "id": "a" * 12, "name": "ops", "tenant": "default", "role": "admin", "projects": ["*"],
        "created_at": "2026-01-01T00:00:00Z", "revoked_at": None,
        "secrets": [{"salt": "00" * 16, "digest": "00" * 32, "until": None}],
        **fields,
    }  # fmt: skip
    return beside(".keys", json.dumps({"version": 1, "keys": [key]}))


def without_file(path: Path) -> None:
    path.unlink()


def with_folder_of_drafts(path: Path) -> None:
    folder = path.with_name(".agentops-memory-x.part")
    folder.mkdir()
    (folder / "draft").touch()


def of_another_program(path: Path) -> None:
    path.unlink()
    running("CREATE TABLE t (x)")(path)


def long_log(path: Path) -> None:
    """The log of a process that was killed, much longer than it ever should be."""
    with closing(connect(path)) as database:
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("UPDATE sessions SET summary = summary")
        log = path.with_name(f"{path.name}-wal")
        shutil.copyfile(log, kept := path.with_name("log"))
    kept.rename(log)
    with log.open("r+b") as file:
        file.truncate(129 * 2**20)


def with_cut_transaction(path: Path) -> None:
    """As a process leaves it that was killed in the midst of a transaction, without a log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE memories SET content = hex(zeroblob(50000))")
        for suffix in ("", "-journal"):
            shutil.copyfile(f"{path}{suffix}", path.with_name(f"cut{suffix}"))
    for suffix in ("", "-journal"):
        path.with_name(f"cut{suffix}").rename(f"{path}{suffix}")
        path.with_name(f"{path.name}{suffix}").chmod(0o600)


LONG_AGO = 1_750_000_000 * MICROS

CASES: dict[str, Case] = {
    "there is none": Case(damage=without_file, code="file", said="There is no database"),
    "a folder": Case(damage=as_folder, code="file", said="a folder"),
    "a pipe": Case(damage=as_pipe, code="file", said="not a regular file"),
    "a pipe beside it": Case(damage=pipe_beside, code="file", said="journal is not a regular"),
    "two names": Case(
        damage=lambda path: os.link(path, path.with_name("second.db")), code="file",
        said="has 2 names (hard links)",
    ),
    "a dangling link beside it": Case(
        damage=lambda path: path.with_name("memory.db-wal").symlink_to("nowhere"),
        code="file", said="memory.db-wal is not a regular",
    ),
    "a pipe for a lock": Case(
        damage=lambda path: os.mkfifo(path.with_name("memory.db.lock")), code="served",
        status="ok", said="No service has it open",
    ),
    "a dangling link": Case(damage=as_dangling_link, code="file", said="is a broken symbolic link"),
    "pages that nothing uses": Case(
        damage=running(
            "CREATE TABLE odd (x)", "INSERT INTO odd VALUES (zeroblob(9000))",
            "PRAGMA writable_schema = ON", "DELETE FROM sqlite_schema WHERE name = 'odd'",
            "PRAGMA writable_schema = RESET",
        ),
        code="integrity", status="warning", said="Nothing is damaged", is_mended=True,
    ),
    "garbage": Case(damage=replaced(b"garbage " * 1000), code="integrity", said="not a database"),
    "empty": Case(damage=replaced(b""), code="format", status="note", said="It is empty"),
    "another program's": Case(
        damage=of_another_program,
        code="format", said="another program",
    ),
    "newer": Case(damage=running("PRAGMA user_version = 99"), code="format", said="format 99"),
    "older": Case(
        damage=running("PRAGMA user_version = 2"), code="format", status="warning",
        said="format 2",
    ),
    "no index of sessions": Case(
        damage=running("DROP INDEX sessions_by_start"), code="schema",
        said="the index sessions_by_start", is_mended=True,
    ),
    "no unique index": Case(
        damage=running("DROP INDEX memories_at_key"), code="schema",
        said="the index memories_at_key", is_mended=True,
    ),
    "no view": Case(
        damage=running("DROP VIEW memory_text"), code="schema", said="the view memory_text",
    ),
    "no table": Case(damage=running("DROP TABLE done"), code="schema", said="the table done"),
    "another column": Case(
        damage=running("ALTER TABLE sessions ADD COLUMN mood TEXT"), code="schema",
        said="the table sessions",
    ),
    "a table of somebody's": Case(
        damage=running("CREATE TABLE mine (x)"), code="schema", status="note",
        said="the table mine",
    ),
    "erased": Case(
        damage=running(
            "CREATE TRIGGER no_INSERT_of_sessions BEFORE INSERT ON sessions "
            "BEGIN SELECT RAISE(ABORT, 'the tenant was erased'); END"
        ),
        code="schema", said="The tenant was erased",
    ),
    "a damaged index": Case(
        damage=overwriting("memories_by_hash"), code="integrity", said="All rows can be read",
        is_mended=True,
    ),
    "an index that lacks rows": Case(
        damage=without_entries, code="integrity", said="sessions_by_start", is_mended=True,
        is_thorough=True,
    ),
    "damaged words": Case(
        damage=overwriting("memories_fts_0_data"), code="integrity", said="Partition 0",
        is_mended=True,
    ),
    "damaged rows": Case(
        damage=overwriting("memories"), code="integrity", said="in the tables memories",
    ),
    "half a file": Case(
        damage=lambda path: os.truncate(path, path.stat().st_size // 2), code="integrity",
    ),
    "a session that is gone": Case(
        damage=running("PRAGMA foreign_keys = OFF", "DELETE FROM sessions"), code="references",
        said="rows of memories refer to missing rows of sessions",
    ),
    "a memory of nothing": Case(
        damage=running("UPDATE memories SET session_id = NULL WHERE id = 1"), code="references",
        said="1 memories belong to no session",
    ),
    "a lifecycle of nothing": Case(
        damage=running(
            "PRAGMA foreign_keys = OFF",
            "INSERT INTO lifecycles (memory_id, space_id) VALUES (99, 1)",
        ),
        code="references", said="1 lifecycles of missing memories", is_mended=True,
    ),
    "words of a memory that is gone": Case(
        damage=running(
            "PRAGMA foreign_keys = OFF",
            "INSERT INTO memory_stems (memory_id, stems) VALUES (99, '')",
        ),
        code="references", said="1 words of missing memories", is_mended=True,
    ),
    "a lifecycle elsewhere": Case(
        damage=running(
            "PRAGMA foreign_keys = OFF",
            "INSERT INTO lifecycles (memory_id, space_id, pinned_at) VALUES (1, 99, 7)",
        ),
        code="references", said="1 lifecycles in a space", is_mended=True,
    ),
    "a key twice": Case(
        damage=running(
            "UPDATE memories SET key = 'queue' WHERE id = 1",
            "INSERT INTO lifecycles (memory_id, space_id, held_key) "
            "SELECT id, space_id, 'queue' FROM memories WHERE id = 1",
        ),
        code="references", said="1 held topic keys", is_mended=True,
    ),
    "a supersession of nothing": Case(
        damage=running(
            "PRAGMA foreign_keys = OFF", "INSERT INTO supersessions VALUES (1, 99, 7), (98, 1, 7)"
        ),
        code="references", said="2 supersessions that are not allowed", is_mended=True,
    ),
    "a supersession of itself": Case(
        damage=running("INSERT INTO supersessions VALUES (1, 1, 7)"),
        code="references", said="1 supersessions that are not allowed", is_mended=True,
    ),
    "a pair of nothing": Case(
        damage=running(
            "PRAGMA foreign_keys = OFF", "INSERT INTO lookalikes VALUES (1, 99, 0.5, 7)"
        ),
        code="references", said="1 near duplicates of missing memories", is_mended=True,
    ),
    "words of nothing": Case(
        damage=running(
            "INSERT INTO memories_fts_0 (rowid, title, content, context, tags) "
            "VALUES (99, 'a', 'b', '', '')"
        ),
        code="index", status="warning", said="differs from the memories in 1 row.", is_mended=True,
    ),
    "other words": Case(
        damage=running("UPDATE memories SET content = 'otherwise' WHERE id = 1"),
        code="index", status="warning", said="that differ", is_mended=True, is_thorough=True,
    ),
    "no words": Case(
        damage=running("DROP TABLE memories_fts_0"), code="index",
        said="Partition 0 of the full-text index is incomplete", is_mended=True,
    ),
    "no view of words": Case(
        damage=running("DROP VIEW memory_text_0"), code="index", said="is incomplete",
        is_mended=True,
    ),
    "other rules": Case(
        damage=running("UPDATE index_rules SET rules = 'others'"), code="index",
        status="warning", said="with rules other than",
    ),
    "a long log": Case(
        damage=long_log, code="log", status="warning", said="MiB", is_mended=True,
    ),
    "rows from the future": Case(
        damage=from_tomorrow, code="clock", status="warning", said="The newest row",
    ),
    "a file from the future": Case(
        damage=changed_tomorrow, code="clock", status="warning", said="later than now",
    ),
    "an erasure that does not end": Case(
        damage=running(
            "INSERT INTO erasures (id, kind, project, observations, revisions, sessions, "
            f"erased_at) VALUES ('e', 'project', 'p', 1, 1, 1, {LONG_AGO})"
        ),
        code="erasures", status="warning", said="still in the file after an hour: 1.",
    ),
    "a session that does not end": Case(
        damage=running(
            "INSERT INTO transcripts (session, messages, user, assistant, first, last, heard_at) "
            f"SELECT number, 1, 1, 0, '', '', {LONG_AGO} FROM sessions"
        ),
        code="sessions", status="warning", said="that have not ended: 1.",
    ),
    "readable by others": Case(
        damage=moded(0o644), code="mode", status="warning", said="can read", is_mended=True,
    ),
    "a cut transaction": Case(
        damage=with_cut_transaction, code="journal", status="warning", said="unfinished",
        is_thorough=True,
    ),
    "names of garbage": Case(
        damage=running(
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_schema SET name = CAST(x'ff' AS TEXT) WHERE name = 'memories_by_hash'",
        ),
        code="integrity", said="malformed database schema",
    ),
    "a table of something else": Case(
        damage=running(
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_schema SET sql = 'CREATE TABLE partitions (number TEXT, a, b, c)' "
            "WHERE name = 'partitions'",
        ),
        code="schema", said="It cannot be read",
    ),
    "two owners": Case(
        damage=owned_by_another, code="owner", status="warning", said="several users",
    ),
    "a draft": Case(
        damage=beside(".before-upgrade.part", "x"), code="leftovers", status="warning",
        said="memory.db.before-upgrade.part", is_mended=True,
    ),
    "a folder of drafts": Case(
        damage=with_folder_of_drafts, code="leftovers", status="warning",
        said=".agentops-memory-x.part", is_mended=True,
    ),
    "a copy": Case(
        damage=beside(".before-upgrade", "x"), code="copies", status="note",
        said="memory.db.before-upgrade",
    ),
    "keys that are none": Case(damage=beside(".keys", "{"), code="keys", said="no JSON"),
    "lost keys": Case(
        damage=beside(".audit", '{"at": "2026-01-02T00:00:00Z", "action": "key.created"}\n'),
        code="auth", said="Keys were created, but the key file",
    ),
    "keys for all to read": Case(
        damage=moded(0o604, ".audit"), code="audit", status="warning", said="can read",
        is_mended=True,
    ),
    "revoked keys": Case(
        damage=with_keys(secrets=[], revoked_at="2026-01-02T00:00:00Z"), code="keys",
        status="warning", said="Every key is revoked",
    ),
    "a key that has ended": Case(
        damage=with_keys(
            secrets=[{"salt": "00" * 16, "digest": "00" * 32, "until": "2026-01-02T00:00:00Z"}]
        ),
        code="keys", status="warning", said="No secret of the key",
    ),
    "a bad list of what is no secret": Case(
        damage=beside(".redaction", "[]"), code="redaction", said="a JSON object",
    ),
    "a cut seal file": Case(
        damage=beside(".seal", '{"keys": [{"id'), code="seal", said="is damaged",
    ),
    "a draft of a seal file": Case(
        damage=beside(".seal.new", "x"), code="leftovers", status="warning",
        said="memory.db.seal.new", is_mended=True,
    ),
    "a cut audit": Case(
        damage=beside(".audit", '{"at": 1}\n{"at"'), code="audit", status="warning",
        said="1 lines",
    ),
}  # fmt: skip
"""What can be wrong, each with a name for the test."""
