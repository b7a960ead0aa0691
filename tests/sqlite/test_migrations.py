"""A file is made, or brought to the newest schema, by one of any number of processes."""

import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from agentops_memory import __version__
from agentops_memory.errors import StartRefused
from agentops_memory.recall.stems import INDEX_RULES
from agentops_memory.recall.text import content_hash
from agentops_memory.sqlite import connection, migrate
from agentops_memory.sqlite.connection import APPLICATION_ID, connect
from agentops_memory.sqlite.migrate import MIGRATIONS, apply_migrations, migrated, statements
from agentops_memory.sqlite.partitions import Partitions

from ..support.engines import rows
from ..support.files import NEWEST, NOW, assert_sound, beside, disk, found, mounted
from ..support.openintent_agents import Agent
from ..support.original import SCHEMA, filled, original, with_wal_left
from ..support.process import program
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import serving

PROCESSES = 4
WITH_VERSIONS, VERSION = 12, "version INTEGER NOT NULL DEFAULT 0"  # of partitions
WAIT_AND_START = """
import signal, sys
from datetime import datetime
from pathlib import Path
from agentops_memory.sqlite.migrate import migrated

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
signal.sigwait({signal.SIGUSR1})
migrated(Path(sys.argv[1]), datetime.fromisoformat(sys.argv[2]))
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with our migrations, to which a test adds further ones."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(str(MIGRATIONS)), folder)
    monkeypatch.setattr(migrate, "MIGRATIONS", folder)
    yield folder
    migrate.scripts.cache_clear()


# A new file


def test_a_new_file_and_an_empty_one_are_ours_and_written_to_no_more_but_for_wal_mode(
    tmp_path: Path,
) -> None:
    (empty := tmp_path / "empty.db").touch()
    for path in (tmp_path / "some" / "folder" / "memory.db", empty):
        migrated(path, NOW)

        assert rows(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
        assert rows(path, "PRAGMA user_version") == [(NEWEST,)]
        assert rows(path, "PRAGMA journal_mode") == [("wal",)]
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]
        assert "memories" in tables(path)

        migrated(path, NOW)
        before = path.read_bytes()
        migrated(path, NOW)
        assert path.read_bytes() == before

        assert rows(path, "PRAGMA journal_mode = DELETE") == [("delete",)]
        migrated(path, NOW)
        assert rows(path, "PRAGMA journal_mode") == [("wal",)]
    first = list(statements(1))
    assert all(sqlite3.complete_statement(statement) for statement in first)
    assert "".join(first).split() == (MIGRATIONS / "0001_memories.sql").read_text("utf-8").split()


# Several processes


def test_processes_that_start_at_once_on_a_file_make_it_once(path: Path) -> None:
    """All of them succeed."""
    with ExitStack() as stack:
        arguments = (str(path), NOW.isoformat())
        processes = [
            stack.enter_context(program(*arguments, code=WAIT_AND_START)) for _ in range(PROCESSES)
        ]
        for process in processes:
            process.line("ready")
        for process in processes:
            process.send(signal.SIGUSR1)
        assert [process.wait() for process in processes] == [0] * PROCESSES

    migrated(alone := path.with_name("alone") / "memory.db", NOW)
    assert tables(path) == tables(alone)
    assert beside(path) == ["alone"]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


# A migration that fails


def test_a_migration_that_fails_leaves_a_file_as_it_was(tmp_path: Path, scripts: Path) -> None:
    new, ours, old = (tmp_path / f"{it}.db" for it in ("new", "ours", "old"))
    migrated(ours, NOW)
    filled(old)
    before = ours.read_bytes(), old.read_bytes()
    add(scripts, "9999_broken.sql", "CREATE TABLE half (id);\nINSERT INTO nowhere VALUES (1);\n")

    for path in (new, ours, old):
        with pytest.raises(StartRefused, match="no such table: nowhere"):
            migrated(path, NOW)

    assert (ours.read_bytes(), old.read_bytes()) == before
    assert (tables(new), rows(new, "PRAGMA user_version")) == (set(), [(0,)])
    assert rows(old, "SELECT rowid FROM observations_fts('word77')") == [(77,)]


# Further migrations


@pytest.mark.slow
def test_what_was_stored_before_there_were_fingerprints_is_known_again(
    path: Path, scripts: Path
) -> None:
    text = "The same words."
    make_older(path, scripts, 7, SIX.format(hash=content_hash(text)))

    with serving(path) as service:
        row = {"session_id": "s1", "project": "demo", "type": "t", "title": "t", "content": text}
        again = row | {"created_at": "1970-01-01T00:00:00Z"}
        imported = service.http.post("/import", json={"observations": [again]}).json()
        saved = service.save(text, title="t", type="t", session_id="s1", project="demo")

    assert imported["imported_observations"] == 0
    assert saved["action"] == "created"  # it was long ago


@requirement("OI-95")
def test_what_earlier_migrations_held_survives_the_later_ones(
    tmp_path: Path, scripts: Path
) -> None:
    for newest in (3, 12):
        path = tmp_path / f"{newest}" / "memory.db"
        path.parent.mkdir()
        make_older(path, scripts, newest, THREE)
        kept = [*KEPT, *([("id, hex(block)", "memories_fts_0_data")] if newest == 12 else [])]
        kept = [it for it in kept if newest == 3 or it[1] != "sqlite_sequence"]
        before = [
            rows(path, f"SELECT {columns} FROM {table} ORDER BY 1") for columns, table in kept
        ]

        migrated(path, NOW)

        after = [rows(path, f"SELECT {columns} FROM {table} ORDER BY 1") for columns, table in kept]
        assert after == before
        assert_sound(path, live=1)
        with serving(path) as service:
            assert [hit["title"] for hit in service.http.get("/search?q=zebra").json()] == ["kept"]
            assert service.save("new")["id"] == 10  # the ninth was erased; its id is nobody's
            ada = Agent(service.http)
            assert ada.get(ada.make()).json()["key"] == "apple"
            history = service.http.get("/observations/7/history").json()
            assert [it["action"] for it in history] == ["updated", "created"]
            service.http.delete("/observations/7?hard=true")
            assert service.http.get("/observations/7").status_code == 404
        assert rows(path, "SELECT count(*) FROM revisions WHERE memory_id = 7") == [(0,)]


def make_older(path: Path, scripts: Path, newest: int, content: str) -> None:
    """Make a file by the first of the migrations alone, as the program of that time did."""
    later = [script for script in scripts.iterdir() if script.name > f"{newest + 1:04}"]
    for script in later:
        script.rename(script.with_suffix(".later"))
    migrate.scripts.cache_clear()
    with closing(connect(path)) as database:
        apply_migrations(database)
        if newest < WITH_VERSIONS:
            database.execute(f"ALTER TABLE partitions ADD COLUMN {VERSION}")
        Partitions(database, is_alone=True).make(0)
        if newest < WITH_VERSIONS:
            database.execute("ALTER TABLE partitions DROP COLUMN version")
        database.execute("INSERT INTO index_rules (one, rules) VALUES (1, ?)", (INDEX_RULES,))
        database.executescript(content)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {newest}")
    for script in later:
        script.with_suffix(".later").rename(script)
    migrate.scripts.cache_clear()


SIX = """
    INSERT INTO sessions (id, project, started_at) VALUES ('s1', 'demo', 0);
    INSERT INTO spaces (id, project, scope, area, partition) VALUES (3, 'demo', 'project', 1, 0);
    INSERT INTO memories (id, uid, space_id, session_id, type, title, content,
                          content_hash, last_seen_at, created_at, updated_at)
    VALUES (7, 'u7', 3, 's1', 't', 't', 'The same words.', '{hash}', 0, 1, 1);
"""
KEPT = (
    ("id, uid, space_id, session_id, key, type, title, content, tags, revision", "memories"),
    ("id, project, scope, area, partition", "spaces"),
    ("memory_id, number, deed, at, content", "revisions"),
    ("id, kind, project, observations, erased_at, bytes_gone_at, goes_on", "erasures"),
    ("memory_id, erasure_id", "erased"),
    ("name, seq", "sqlite_sequence"),
)
THREE = """
    INSERT INTO sessions (id, project, started_at) VALUES ('s1', 'demo', 0);
    INSERT INTO spaces (id, project, scope, area, partition) VALUES (3, 'demo', 'project', 1, 0);
    INSERT INTO memories (id, uid, space_id, session_id, key, type, title, content, tags,
                          content_hash, revision, last_seen_at, created_at, updated_at, deleted_at)
    VALUES (7, 'u7', 3, 's1', 'a/b', 't', 'kept', 'a zebra', '["x"]', '', 2, 0, 1, 2, NULL),
           (8, 'u8', 3, 's1', 'a/b', 't', 'gone', 'a lion', '[]', '', 1, 0, 1, 2, 3),
           (9, 'u9', 3, 's1', NULL, 't', 'last', 'a hen', '[]', '', 1, 0, 1, 2, NULL);
    DELETE FROM memories WHERE id = 9;
    INSERT INTO revisions (memory_id, number, deed, at, type, title, content, tags)
    VALUES (7, 1, 'created', 1, 't', 'kept', 'an okapi', '[]'),
           (7, 2, 'updated', 2, NULL, NULL, NULL, NULL);
    INSERT INTO erasures (id, kind, project, observations, revisions, sessions, erased_at)
    VALUES ('e1', 'observation', 'demo', 1, 1, 0, 5);
    INSERT INTO erased (memory_id, erasure_id) VALUES (9, 'e1');
    INSERT INTO memories_fts_0 (memories_fts_0) VALUES ('rebuild');
    INSERT INTO terms (area, length, term) VALUES (1, 5, 'zebra');
"""


# Files that are refused


def test_a_file_of_a_newer_version_is_refused_with_both_versions_named(
    path: Path, scripts: Path
) -> None:
    add(scripts, "9999_newer.sql", "CREATE TABLE newer (id);\n")
    migrated(path, NOW)
    (scripts / "9999_newer.sql").unlink()
    migrate.scripts.cache_clear()
    before = path.read_bytes()

    both = rf"format {NEWEST + 1}.*agentops-memory {__version__}.*up to {NEWEST}"
    with pytest.raises(StartRefused, match=both):
        migrated(path, NOW)

    assert path.read_bytes() == before


def test_a_file_that_another_process_makes_newer_meanwhile_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)

    def made_newer_at_begin(file: Path, **options: Any) -> sqlite3.Connection:
        database = connect(file, **options)
        database.set_trace_callback(
            lambda statement: make_newer(file) if statement.startswith("BEGIN") else None
        )
        return database

    monkeypatch.setattr(connection, "connect", made_newer_at_begin)

    with pytest.raises(StartRefused, match="has format 99"):
        migrated(path, NOW)

    assert rows(path, "PRAGMA user_version") == [(99,)]
    assert beside(path) == []


@for_each(
    "content", [b"This is a letter and no database.\n" * 99, b"xy", b"SQLite format 3\x00" * 64]
)
def test_what_is_no_database_is_refused_and_stays(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(StartRefused, match=r"^The database .*memory\.db cannot be used: .*\.$"):
        migrated(path, NOW)

    assert path.read_bytes() == content
    assert beside(path) == []
    with pytest.raises(StartRefused, match="cannot be used: "):  # a path below a file
        migrated(path / "memory.db", NOW)
    with pytest.raises(StartRefused, match="cannot be used: unable to open database file"):
        migrated(path.parent, NOW)


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TABLE customers (id)",
        "PRAGMA application_id = 1; PRAGMA user_version = 1; CREATE TABLE customers (id)",
        "CREATE TABLE sessions (id); CREATE TABLE observations (id)",
        SCHEMA.replace("    message_count INTEGER\n", "    directory TEXT\n"),
    ],
)
@pytest.mark.parametrize("journal_mode", ["DELETE", "WAL"])
def test_a_database_of_another_program_is_refused_and_stays(
    path: Path, foreign: str, journal_mode: str
) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA journal_mode = {journal_mode}")
        database.executescript(foreign)
    before = path.read_bytes()

    with pytest.raises(StartRefused, match="is a database of another program"):
        migrated(path, NOW)

    assert path.read_bytes() == before
    assert beside(path) == []


def test_a_new_file_is_for_its_owner_alone_and_one_that_is_there_keeps_its_mode(path: Path) -> None:
    modes = []
    for _ in range(2):
        migrated(path, NOW)
        with closing(connect(path)) as database:
            database.execute("BEGIN IMMEDIATE")
            modes.append({oct(it.stat().st_mode & 0o777) for it in path.parent.iterdir()})
        path.chmod(0o640)

    assert modes == [{"0o600"}, {"0o640"}]


def test_a_file_in_a_folder_that_cannot_be_written_is_refused(read_only: Path) -> None:
    with pytest.raises(StartRefused, match="cannot be used: Read-only file system"):
        migrated(read_only / "new.db", NOW)
    for name in ("ours.db", "original.db", "log.db"):
        with pytest.raises(
            StartRefused, match=r"cannot be used: .*(readonly|unable to open|[Rr]ead)"
        ):
            migrated(read_only / name, NOW)


@pytest.mark.slow
def test_the_originals_file_without_its_full_text_index_is_still_the_originals(path: Path) -> None:
    with original(path) as old:
        old.observation("zebra")
        for kind, name in (("TRIGGER", "observations_ai"), ("TABLE", "observations_fts")):
            old.database.execute(f"DROP {kind} {name}")

    migrated(path, NOW)

    assert found(path, "zebra") == [1]


# Helpers


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder with files, on a disk that cannot be written."""
    with disk(tmp_path / "read-only", size=16 * 1024 * 1024) as folder:
        migrated(folder / "ours.db", NOW)
        filled(folder / "original.db")
        with_wal_left(folder / "log.db")
        assert mounted("-o", "remount,ro", folder)
        yield folder


def make_newer(path: Path) -> None:
    """Mark the file as one of a much newer version."""
    rows(path, f"PRAGMA application_id = {APPLICATION_ID}")
    rows(path, "PRAGMA user_version = 99")


def add(scripts: Path, name: str, text: str) -> None:
    (scripts / name).write_text(text, "utf-8")
    migrate.scripts.cache_clear()


def tables(path: Path) -> set[object]:
    return {name for (name,) in rows(path, "SELECT name FROM sqlite_schema")}
