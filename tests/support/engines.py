"""The engine of a run, SQLite or PostgreSQL, and where on it the service of a test stores.

A test names a file. On PostgreSQL a database stands for it: the same one as long as the test
lasts, however often a service, a program or a look into the tables names that file.
"""

import os
import random
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agentops_memory.engine.files import private_file
from agentops_memory.memory.space import NUMBERS
from agentops_memory.operations.files.seal import SealKey, written
from agentops_memory.postgresql.connection import with_placeholders
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.migrate import migrated
from agentops_memory.sqlite.partitions import Partitions

from .. import MACHINE
from . import postgres
from .databases import Databases

VERSIONS = range(2**60, 2**62)  # SQLite stores them in eight bytes each
ANY_TIME = datetime(2030, 1, 1, tzinfo=UTC)  # a new file tells nothing of when it was made

_has_every_index = False


@pytest.fixture(scope="package", autouse=True)
def every_index() -> Iterator[None]:
    """New files have the index of stores and of agents, too, which their first save would make.

    For rooms whose tests each write there: to make it took a ninth of the time there.
    """
    global _has_every_index  # noqa: PLW0603 - of the tests of the room that run now
    _has_every_index = True
    yield
    _has_every_index = False


def new_file_size(*, has_every_index: bool | None = None) -> int:
    """The bytes of a new file; of one that is put now unless told."""
    before, after = _made(_has_every_index if has_every_index is None else has_every_index)
    return len(before) + len(after)


def put_new_file(path: Path) -> None:
    """Put a new database where there is none; the program makes the folder, if that is missing."""
    if os.path.lexists(path) or not path.parent.is_dir():
        return
    before, after = _made(_has_every_index)
    version = random.choice(VERSIONS)  # noqa: S311
    with (
        private_file(path, os.O_WRONLY | os.O_EXCL) as descriptor,
        open(descriptor, "wb", closefd=False) as file,
    ):
        file.write(before + struct.pack(">q", version) + after)


@cache
def _made(has_every_index: bool) -> tuple[bytes, bytes]:
    """A new file, before and after its token."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.db"
        migrated(path, ANY_TIME)
        version = random.choice(VERSIONS)  # noqa: S311
        with closing(connect(path)) as database:
            for numbers in NUMBERS.values() if has_every_index else ():
                Partitions(database, is_alone=True).make(numbers[0])
            database.execute("UPDATE database_state SET token = ?", (version,))
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before, after = path.read_bytes().split(struct.pack(">q", version))
    return before, after


DEFAULT = MACHINE.get("MEMORY_TEST_ENGINE", "sqlite")
DATABASE_URL = "MEMORY_DATABASE_URL"

_databases: Databases | None = None  # of this process, where it is on PostgreSQL
_services: list[tuple[Path, str]] = []  # that are served now: the file of each, and its URL

# What is of SQLite's files by nature, in whole files of tests; single tests have the marker.
FILES = frozenset(
    """
    test_archive_folder test_backup test_backups_under_load test_batches
    test_damage test_damaged_rows test_differential test_disk test_doctor
    test_fast_reads test_faults_readers test_file_systems test_hand_over
    test_hard_links test_held_adversity test_index_cache test_index_rules test_library
    test_litestream test_locking test_lost_keys test_machine test_migrate test_migrations
    test_open_files test_openintent_lost_seals test_openintent_seal_file test_partitions
    test_pending test_restore test_scheduled_backups test_serving_lock
    test_start test_sweep test_tenants test_transactions
    test_upgrade test_upgrade_adversity test_waiting test_wal
    """.split()
)
# What stores nothing, so that no engine makes a difference.
NO_STORAGE = frozenset(
    """
    test_architecture test_chart test_chart_values
    test_collector test_deploy test_docs test_documents test_fuzz test_hooks_yaml test_injection
    test_key_file test_keys test_mcp_document test_monitoring
    test_openwop_extraction test_openwop_merging test_packaging test_query
    test_redaction_assignments test_redaction_rules test_settings test_structure test_telemetry
    test_tool_hooks test_trimming test_working_memory
    """.split()
)


def is_postgresql() -> bool:
    """Whether databases stand for the files of this process's tests."""
    return _databases is not None


def use(databases: Databases | None) -> None:
    """From now on these stand for files; with None, files are files."""
    global _databases  # noqa: PLW0603 - the engine of the process
    _databases = databases


def is_kept(item: pytest.Item) -> bool:
    """Whether a test is to run on PostgreSQL."""
    files = item.get_closest_marker("sqlite_files") is not None
    is_on_it_anyway = item.path.stem.startswith("test_postgres")
    return not files and not is_on_it_anyway and item.path.stem not in FILES | NO_STORAGE


def storage_at(path: Path) -> dict[str, str]:
    """The settings that have a service store where the file is."""
    if _databases is None:
        return {"MEMORY_DB_PATH": str(path)}
    if path not in _databases:
        _put_seal_file(Path(f"{path}.seal"))
    return {DATABASE_URL: _databases.at(path), "MEMORY_DB_PATH": str(path)}


def quota(path: Path, kibibytes: int) -> str:
    """A setting that leaves a new tenant about so much; a schema without a row takes some, too."""
    if _databases is None:
        more = new_file_size() - new_file_size(has_every_index=False)
        return f"{kibibytes + more // 1024}KiB"
    _databases.renew(path)
    ((held,),) = rows(
        path,
        """SELECT sum(pg_total_relation_size(oid))
             FROM pg_class
            WHERE relnamespace = CAST(current_schema() AS regnamespace) AND relkind = 'r'""",
    )
    return str(held + kibibytes * 1024)


def filler(size: int) -> str:
    """So much text that no engine can make smaller."""
    return random.Random(size).randbytes(size // 2).hex()  # noqa: S311


def _put_seal_file(path: Path) -> None:
    """What a service over a file makes itself, and one over a database must be given."""
    if path.parent.is_dir() and not path.exists():
        key = {"0123456789abcdef": SealKey(os.urandom(32), "")}
        with private_file(path, os.O_WRONLY | os.O_EXCL) as descriptor:
            os.write(descriptor, written(key))


@contextmanager
def told_of(path: Path, url: str) -> Iterator[None]:
    """Inside, a service of the file is served at the URL."""
    _services.append((path, url))
    try:
        yield
    finally:
        _services.remove((path, url))


def running(path: Path) -> list[str]:
    """Where services of the file are served."""
    return [url for of, url in _services if of == path]


def release(folder: Path) -> None:
    """Nobody uses what is in the folder any more."""
    if _databases is not None:
        _databases.release(folder)


def rows(path: Path, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
    """What a statement answers where the service of the file stores; none, if it is a change."""
    if _databases is None:
        with closing(connect(path)) as database:
            return database.execute(statement, parameters).fetchall()
    with psycopg.connect(_url(path)) as connection, connection.cursor() as cursor:
        cursor.execute(with_placeholders(statement).encode(), parameters)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def broken(
    path: Path, deed: str, table: str, *, when: str = "", error: str = "the row"
) -> Iterator[None]:
    """Inside, INSERT, UPDATE or DELETE of rows of a table fails as one that breaks a rule does.

    `when` says of which rows, named OLD and NEW. With the error "the program" it fails as a
    statement does that is wrong.
    """
    for statement in _BREAKING if is_postgresql() else _BREAKING_SQLITE:
        fails = _FAILING[is_postgresql(), error]
        rows(path, statement.format(deed=deed, table=table, when=when or "TRUE", fails=fails))
    yield
    # A table of the index that fails is taken for damaged, and made again without it.
    rows(path, f"DROP TRIGGER IF EXISTS broken{f' ON {table}' if is_postgresql() else ''}")
    if is_postgresql():
        rows(path, "DROP FUNCTION broken")


_BREAKING_SQLITE = (
    "CREATE TRIGGER broken BEFORE {deed} ON {table} WHEN {when} BEGIN {fails}; END",
)
_BREAKING = (
    """CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
           IF {when} THEN {fails}; END IF;
           IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
           RETURN NEW;
       END $$""",
    "CREATE TRIGGER broken BEFORE {deed} ON {table} FOR EACH ROW EXECUTE FUNCTION broken()",
)
_FAILING = {
    (False, "the row"): "SELECT RAISE(FAIL, 'no')",
    (True, "the row"): "RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation'",
    (False, "the program"): "DELETE FROM xylo",
    (True, "the program"): "DELETE FROM xylo",
}


def tables(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All that the tables hold of the databases that stand for files in a folder."""
    if _databases is not None:
        yield from _databases.tables(folder)


def command(
    arguments: Sequence[str], variables: Mapping[str, str]
) -> tuple[Sequence[str], Mapping[str, str]]:
    """A command as it is on this engine, whose database is no option: it has a password."""
    if _databases is None or DATABASE_URL in variables:
        return arguments, variables
    if "--db" in arguments:
        at = arguments.index("--db")
        file, arguments = arguments[at + 1], [*arguments[:at], *arguments[at + 2 :]]
    else:
        file = variables.get("MEMORY_DB_PATH", "")
    return arguments, {**variables, **storage_at(Path(file))} if file else variables


def _url(path: Path) -> str:
    """Where the tables are that a file stands for: of the default tenant, or of its own."""
    assert _databases is not None
    tenant = "default"
    if path.parent.suffix == ".tenants":
        path, tenant = path.parent.with_suffix(""), path.stem
    return make_conninfo(_databases.at(path), options=f'-c search_path="t_{tenant}"')


def left_out(terminalreporter: pytest.TerminalReporter) -> int:
    """How many tests were skipped because there was no PostgreSQL."""
    skipped = terminalreporter.stats.get("skipped", ())
    return sum(postgres.NOT_FOUND in str(report.longrepr) for report in skipped)
