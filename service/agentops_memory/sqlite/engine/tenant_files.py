"""The database files of tenants: found, counted, made, and removed for good."""

import os
import sqlite3
import time
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path

from ...engine.files import os_errors_as, owned_like, private_file, sync
from ...engine.shared.held import held
from ...errors import Conflict, Invalid, Unavailable
from ...memory.model.access import DEFAULT_TENANT, TenantId, tenant_id
from ...memory.model.liveness import undeleted
from ...memory.model.retention import Counted, Retentions, StorageStats
from ...memory.model.space import in_a_session
from ...recall.text.features import ALL, Features
from ..base.connection import change, connect
from ..base.copies import copies_of, require_one_name
from ..base.dialect import SQLITE
from ..base.errors import primary_code, translated
from ..base.open_files import size_at
from ..schema.migrate import migrated
from .tenants import tenant_file, tenants_folder

BESIDE = ("-wal", "-shm")
TIMEOUT = timedelta(seconds=5)  # with another process's transaction
NONE_OF_OURS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
TABLES = ("sessions", "memories")  # each save writes into one of them


def tenants_of(path: Path) -> list[TenantId]:
    """The tenants that have a database, of a service whose own is at the path."""
    others = []
    for file in sorted(tenants_folder(path).glob("*.db")):
        with suppress(Invalid):
            others.append(tenant_id(file.stem))
    return [DEFAULT_TENANT, *others] if path.exists() else others


def unnamed_in(path: Path) -> list[str]:
    """Files among the tenants' databases that no tenant can be called as."""
    known = {f"{tenant}.db" for tenant in tenants_of(path)}
    return sorted(it.name for it in tenants_folder(path).glob("*.db") if it.name not in known)


def counted(path: Path) -> Counted:
    """How much the database at the path holds, which may be of an older format."""
    size = size_of(path)
    try:
        with closing(connect(path)) as database:
            ((memories,),) = database.execute(
                f"""SELECT count(*)
                      FROM memories
                     WHERE {undeleted("memories")} AND {in_a_session("memories")}"""
            )
            ((sessions,),) = database.execute("SELECT count(*) FROM sessions")
            stores = _stores(database)
    except sqlite3.Error:
        return Counted(size=size)
    return Counted(size=size, memories=memories, sessions=sessions, stores=stores)


def _stores(database: sqlite3.Connection) -> int:
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'stores'").fetchone():
        return 0
    ((stores,),) = database.execute("SELECT count(*) FROM stores WHERE erasure_id IS NULL")
    return int(stores)


def size_of(path: Path) -> int:
    """How many bytes the database takes on the disk, with what lies beside it."""
    return sum(file.stat().st_size for file in files_of(path))


def files_of(path: Path) -> list[Path]:
    """The files of a database that are there, itself the last."""
    every = [*(path.with_name(f"{path.name}{suffix}") for suffix in BESIDE), path]
    return [file for file in every if file.exists()]


def require_new(path: Path, tenant: TenantId) -> None:
    file = tenant_file(path, tenant)
    if file.exists():
        raise Conflict(f"The tenant {tenant} has a database already: {file}.")


def make(path: Path, tenant: TenantId, now: datetime, features: Features = ALL) -> Path:
    """Make a tenant's database, of a service whose own is at the path; Conflict if it is there."""
    file = tenant_file(path, tenant)
    with os_errors_as(Unavailable, f"The database {file} cannot be made"):
        if not file.parent.exists():
            file.parent.mkdir(parents=True)
            owned_like(file.parent, path if path.exists() else path.parent)
        try:
            with private_file(file, os.O_RDWR | os.O_EXCL, like=file.parent):
                pass
        except FileExistsError as error:
            raise Conflict(f"The tenant {tenant} has a database already: {file}.") from error
    try:
        migrated(file, now, features)
    except BaseException:
        for part in files_of(file):  # of nobody's use yet
            part.unlink(missing_ok=True)
        raise
    return file


def remove(path: Path) -> list[Path]:
    """Remove a database for good; what is saved into it from now on is refused, not lost.

    A service that has it open sees at the next request that it is gone. Busy when another
    process's transaction does not end, StartRefused when it would stay under another name.
    """
    require_one_name(path)
    _close_to_changes(path)
    files = files_of(path)
    with os_errors_as(Unavailable, f"The database {path} cannot be removed"):
        # The database last: while it is there, nobody begins another whose log this would take.
        for file in files:
            file.unlink(missing_ok=True)
        sync(path.parent)
    return files


def _close_to_changes(path: Path) -> None:
    """Let whoever has the file open change nothing: it would be gone with the file."""
    if not path.exists():
        return
    with translated():
        try:
            _forbid_changes(path)
        except sqlite3.DatabaseError as error:
            if primary_code(error) not in NONE_OF_OURS:
                raise


def _forbid_changes(path: Path) -> None:
    end = time.monotonic() + TIMEOUT.total_seconds()
    with closing(connect(path, busy_timeout=TIMEOUT)) as database, change(database, end):
        for table in TABLES:
            for change_kind in ("INSERT", "UPDATE", "DELETE"):
                database.execute(
                    f"""CREATE TRIGGER IF NOT EXISTS no_{change_kind}_of_{table}
                        BEFORE {change_kind} ON {table}
                        BEGIN SELECT RAISE(ABORT, 'the tenant was erased'); END"""
                )


def storage_stats(path: Path, retention: Retentions, now: datetime) -> StorageStats:
    path = Path(os.path.realpath(path))  # where SQLite has the log
    with translated(), closing(connect(path)) as database:
        return StorageStats(
            database=path.stat().st_size,
            free=_number(database, "PRAGMA freelist_count") * _number(database, "PRAGMA page_size"),
            index=_index(database),
            log=size_at(path.with_name(f"{path.name}-wal")),
            copies=sum(map(size_at, copies_of(path))),
            held=held(database, SQLITE, retention, now),
        )


def _number(database: sqlite3.Connection, statement: str) -> int:
    return int(database.execute(statement).fetchone()[0])


def _index(database: sqlite3.Connection) -> int:
    numbers = database.execute("SELECT number FROM partitions").fetchall()
    return sum(
        _number(database, f"SELECT coalesce(sum(length(block)), 0) FROM memories_fts_{number}_data")
        for (number,) in numbers
    )
