"""Database files that something is wrong with, made of a sound one, each in its own way."""

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentops_memory.sqlite.connection import connect

MICROS = 1_000_000

Damage = Callable[[Path], object]


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


def overwriting(name: str) -> Damage:
    """Garbage on the first page of a table or an index."""

    def damage(path: Path) -> None:
        page = page_of(path, name)
        with closing(connect(path)) as database:
            ((size,),) = database.execute("PRAGMA page_size")
        with path.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)

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


def put_in_place(make: Callable[[Path], object]) -> Damage:
    """Something else where the file was."""

    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


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


def with_keys(**fields: object) -> Damage:
    """A file of keys with one in it."""
    key = {
        "id": "a" * 12, "name": "ops", "tenant": "default", "role": "admin", "projects": ["*"],
        "created_at": "2026-01-01T00:00:00Z", "revoked_at": None,
        "secrets": [{"salt": "00" * 16, "digest": "00" * 32, "until": None}],
        **fields,
    }  # fmt: skip
    return beside(".keys", json.dumps({"version": 1, "keys": [key]}))


def with_folder_of_drafts(path: Path) -> None:
    folder = path.with_name(".agentops-memory-x.part")
    folder.mkdir()
    (folder / "draft").touch()


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


def found(
    status: str, code: str, said: str, *statements: str, damage: Damage | None = None,
    **known: bool,
) -> Case:  # fmt: skip
    """What is found of a damage, or of statements of somebody at a shell."""
    return Case(damage=damage or running(*statements), code=code, status=status, said=said, **known)


failed, warned, noted, passed = (
    partial(found, status) for status in ("failed", "warning", "note", "ok")
)

CASES: dict[str, Case] = {
    "there is none": failed("file", "There is no database", damage=Path.unlink),
    "a folder": failed("file", "a folder", damage=put_in_place(Path.mkdir)),
    "a pipe": failed("file", "not a regular file", damage=put_in_place(os.mkfifo)),
    "a pipe beside it": failed(
        "file", "journal is not a regular",
        damage=lambda path: os.mkfifo(path.with_name("memory.db-journal")),
    ),
    "two names": failed(
        "file", "has 2 names (hard links)",
        damage=lambda path: os.link(path, path.with_name("second.db")),
    ),
    "a dangling link beside it": failed(
        "file", "memory.db-wal is not a regular",
        damage=lambda path: path.with_name("memory.db-wal").symlink_to("nowhere"),
    ),
    "a pipe for a lock": passed(
        "served", "No service has it open",
        damage=lambda path: os.mkfifo(path.with_name("memory.db.lock")),
    ),
    "a dangling link": failed(
        "file", "is a broken symbolic link",
        damage=put_in_place(lambda path: path.symlink_to("nowhere")),
    ),
    "garbage": failed(
        "integrity", "not a database", damage=lambda path: path.write_bytes(b"garbage " * 1000),
    ),
    "empty": noted("format", "It is empty", damage=lambda path: path.write_bytes(b"")),
    "another program's": failed(
        "format", "another program", damage=put_in_place(running("CREATE TABLE t (x)")),
    ),
    "newer": failed("format", "format 99", "PRAGMA user_version = 99"),
    "older": warned("format", "format 2", "PRAGMA user_version = 2"),
    "no index of sessions": failed(
        "schema", "the index sessions_by_start", "DROP INDEX sessions_by_start", is_mended=True,
    ),
    "no unique index": failed(
        "schema", "the index memories_at_key", "DROP INDEX memories_at_key", is_mended=True,
    ),
    "no view": failed("schema", "the view memory_text", "DROP VIEW memory_text"),
    "no table": failed("schema", "the table done", "DROP TABLE done"),
    "another column": failed(
        "schema", "the table sessions", "ALTER TABLE sessions ADD COLUMN mood TEXT",
    ),
    "a damaged index": failed(
        "integrity", "All rows can be read", damage=overwriting("memories_by_hash"), is_mended=True,
    ),
    "an index that lacks rows": failed(
        "integrity", "sessions_by_start", damage=without_entries, is_mended=True, is_thorough=True,
    ),
    "damaged words": failed(
        "integrity", "Partition 0", damage=overwriting("memories_fts_0_data"), is_mended=True,
    ),
    "damaged rows": failed("integrity", "in the tables memories", damage=overwriting("memories")),
    "half a file": failed(
        "integrity", "", damage=lambda path: os.truncate(path, path.stat().st_size // 2),
    ),
    "a session that is gone": failed(
        "references", "rows of memories refer to missing rows of sessions",
        "PRAGMA foreign_keys = OFF", "DELETE FROM sessions",
    ),
    "a memory of nothing": failed(
        "references", "1 memories belong to no session",
        "UPDATE memories SET session_id = NULL WHERE id = 1",
    ),
    "a lifecycle of nothing": failed(
        "references", "rows of lifecycles refer to missing", "PRAGMA foreign_keys = OFF",
        "INSERT INTO lifecycles (memory_id, space_id) VALUES (99, 1)", is_mended=True,
    ),
    "words of a memory that is gone": failed(
        "references", "rows of memory_stems refer to missing", "PRAGMA foreign_keys = OFF",
        "INSERT INTO memory_stems (memory_id, stems) VALUES (99, '')", is_mended=True,
    ),
    "a supersession of nothing": failed(
        "references", "rows of supersessions refer to missing", "PRAGMA foreign_keys = OFF",
        "INSERT INTO supersessions VALUES (1, 99, 7), (98, 1, 7)", is_mended=True,
    ),
    "a pair of nothing": failed(
        "references", "rows of lookalikes refer to missing", "PRAGMA foreign_keys = OFF",
        "INSERT INTO lookalikes VALUES (1, 99, 0.5, 7)", is_mended=True,
    ),
    "words of nothing": warned(
        "index", "differs from the memories in 1 row.",
        "INSERT INTO memories_fts_0 (rowid, title, content, context, tags) "
        "VALUES (99, 'a', 'b', '', '')", is_mended=True,
    ),
    "other words": warned(
        "index", "that differ", "UPDATE memories SET content = 'otherwise' WHERE id = 1",
        is_mended=True, is_thorough=True,
    ),
    "no words": warned(
        "index", "Partition 0 of the full-text index cannot be read", "DROP TABLE memories_fts_0",
        is_mended=True,
    ),
    "no view of words": warned("index", "be read", "DROP VIEW memory_text_0", is_mended=True),
    "other rules": warned(
        "index", "with rules other than", "UPDATE index_rules SET rules = 'others'",
    ),
    "an erasure that does not end": warned(
        "erasures", "still in the file after an hour: 1.",
        "INSERT INTO erasures (id, kind, project, observations, revisions, sessions, "
        f"erased_at) VALUES ('e', 'project', 'p', 1, 1, 1, {LONG_AGO})",
    ),
    "readable by others": warned("mode", "can read", damage=moded(0o644), is_mended=True),
    "a cut transaction": warned(
        "journal", "unfinished", damage=with_cut_transaction, is_thorough=True,
    ),
    "names of garbage": failed(
        "integrity", "malformed database schema", "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET name = CAST(x'ff' AS TEXT) WHERE name = 'memories_by_hash'",
    ),
    "a table of something else": failed(
        "schema", "Missing, or different from the migrations", "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE partitions (number TEXT, a, b, c)' "
        "WHERE name = 'partitions'",
    ),
    "a draft": noted(
        "copies", "memory.db.before-upgrade.part", damage=beside(".before-upgrade.part", "x")
    ),
    "a folder of drafts": noted(
        "copies", ".agentops-memory-x.part", damage=with_folder_of_drafts
    ),
    "a copy": noted("copies", "memory.db.before-upgrade", damage=beside(".before-upgrade", "x")),
    "keys that are none": failed("keys", "Invalid JSON", damage=beside(".keys", "{")),
    "lost keys": failed(
        "auth", "Keys were created, but the key file",
        damage=beside(".audit", '{"at": "2026-01-02T00:00:00Z", "action": "key.created"}\n'),
    ),
    "keys for all to read": warned(
        "audit", "can read", damage=moded(0o604, ".audit"), is_mended=True,
    ),
    "revoked keys": warned(
        "keys", "Every key is revoked",
        damage=with_keys(secrets=[], revoked_at="2026-01-02T00:00:00Z"),
    ),
    "a key that has ended": warned(
        "keys", "No secret of the key",
        damage=with_keys(
            secrets=[{"salt": "00" * 16, "digest": "00" * 32, "until": "2026-01-02T00:00:00Z"}]
        ),
    ),
    "a bad list of what is no secret": failed(
        "redaction", "a JSON object", damage=beside(".redaction", "[]"),
    ),
    "a cut seal file": failed("seal", "is damaged", damage=beside(".seal", '{"keys": [{"id')),
    "a cut audit": warned("audit", "1 lines", damage=beside(".audit", '{"at": 1}\n{"at"')),
}  # fmt: skip
"""What can be wrong, each with a name for the test."""


def page_of(path: Path, table: str) -> int:
    """The first page of a table or an index."""
    with closing(connect(path)) as database:
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    return int(page)


def harmed(path: Path, page: int, contents: bytes | None = None) -> bytes:
    """What a page held before other contents took its place, zeros if none are given.

    Whoever has the file open sees it from the next transaction on.
    """
    with closing(connect(path)) as database:
        ((size,),) = database.execute("PRAGMA page_size")
        _hold(database, path)
        before = _dd(f"if={path}", f"skip={page - 1}", size=size)
        place = f"of={path}", f"seek={page - 1}", "conv=notrunc"
        _dd(*place, size=size, given=contents or bytes(size))
        ((version,),) = database.execute("PRAGMA user_version")
        database.execute(f"PRAGMA user_version = {version}")  # a commit empties others' caches
        database.execute("COMMIT")
    return before


def _hold(database: sqlite3.Connection, path: Path) -> None:
    """Keep others from writing, while nothing is in the log: else its page would count."""
    log = path.with_name(f"{path.name}-wal")
    while True:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        database.execute("BEGIN IMMEDIATE")
        if not log.stat().st_size:
            return
        database.execute("ROLLBACK")


def _dd(*arguments: str, size: int, given: bytes | None = None) -> bytes:
    # By another process: this one would lose its locks on the file with the first that it closes.
    command = ["dd", f"bs={size}", "count=1", "iflag=fullblock", "status=none", *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout
