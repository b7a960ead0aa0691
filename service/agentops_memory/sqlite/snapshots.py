"""Contents and damage of a database; consistent snapshots of one in use; restoring a snapshot."""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import PlainSerializer

from ..engine.files import placed, private_file, sync
from ..errors import Busy, Refusal, reason
from ..memory.damage import GARBAGE
from ..memory.erasure import Erasure, ErasureId, receipts
from ..memory.memory import undeleted
from ..memory.rows import LAST, instant, rendered
from ..memory.space import in_a_session, in_no_session
from ..record import Record
from .connection import CHANGING, PROGRESS, connect, faults_of
from .dialect import is_damage, primary_code
from .migrate import damaged, is_original, is_used, version_of
from .open_files import BEFORE_RESTORE, QUARANTINE, free_name, kept_name, require_one_name

UNREADABLE = (sqlite3.Error, OSError, *GARBAGE)
OPEN_TIMEOUT = timedelta(seconds=1)  # how long to wait for a command that is about to exit
LOGS = ("-wal", "-journal")  # SQLite would apply them to any database at that path
LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


class Counts(Record):
    observations: int = 0  # live ones
    sessions: int = 0
    stores: int = 0
    entries: int = 0  # live ones, of stores


class Contents(Record):
    format: int  # 0 for a database of the original service, or an empty one
    counts: Counts
    changed_at: Annotated[datetime, PlainSerializer(rendered)] | None = None  # the last save
    damaged: tuple[str, ...] | None = None  # the first damaged values; None if not checked


def contents(database: sqlite3.Connection) -> Contents:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    counted: Counter[str] = Counter()
    for noun, rows in _COUNTS:
        if rows.split()[0] in tables:
            counted[noun] += database.execute(f"SELECT count(*) FROM {rows}").fetchone()[0]
    latest = None
    if "memories" in tables:
        ((latest,),) = database.execute(
            """SELECT max(at)
                 FROM (SELECT max(last_seen_at) AS at FROM memories
                        UNION ALL SELECT max(updated_at) FROM memories
                        UNION ALL SELECT max(deleted_at) FROM memories
                        UNION ALL SELECT max(started_at) FROM sessions
                        UNION ALL SELECT max(ended_at) FROM sessions)
                WHERE at <= :last""",  # a damaged row may have a later instant
            {"last": LAST},
        )
    return Contents(
        format=version_of(database),
        counts=Counts(**counted),
        changed_at=None if latest is None else instant(latest),
    )


def contents_at(path: Path) -> Contents | None:
    """Return the contents of the database at the path, or None if it cannot be read."""
    try:
        with closing(connect(path, mode=CHANGING)) as database:
            return contents(database)
    except UNREADABLE:
        return None


def erasures_at(path: Path) -> tuple[dict[ErasureId, Erasure], bool]:
    """Return the receipts in the database, the oldest first, and whether none is missing."""
    try:
        with closing(connect(path, mode=CHANGING)) as database:
            if not version_of(database):  # an empty file, or one of another program
                return {}, True
            erasures, damaged = receipts(database)
            # Repair may have moved damaged receipts out of the database.
            file = path.with_name(f"{path.name}.{QUARANTINE}")
            moved = file.read_text(errors="replace") if file.exists() else ""
            are_moved = '"table": "erasures"' in moved or '"table": "erased"' in moved
            return erasures, not (damaged or are_moved)
    except UNREADABLE:
        return {}, False


_COUNTS = (
    ("observations", f"memories m WHERE {undeleted('m')} AND {in_a_session('m')}"),
    ("observations", f"observations o WHERE {undeleted('o')}"),
    ("sessions", "sessions"),
    ("stores", "stores WHERE erasure_id IS NULL"),
    (
        "entries",
        f"""stores JOIN memories m USING (space_id)
            WHERE {undeleted("m")} AND {in_no_session("m")}""",
    ),
)
"""(count, rows to count). A count whose first table is missing is skipped."""


class SnapshotRefused(Refusal):
    """The database cannot be copied, or the copy is damaged; the message says why."""

    code = "backup_refused"


def snapshot(source: Path, target: Path, check_cancelled: Callable[[], None]) -> Contents:
    """Copy the current state of the source into a new file and sync it to the disk.

    It runs in its own read transaction, so no write waits for it. Free pages are not copied, so
    the copy holds no erased data. `check_cancelled` is called often; an exception that it raises
    ends the copying. Raises SnapshotRefused or Busy; the target is then useless.
    """
    with private_file(target, os.O_RDWR | os.O_EXCL), _opened(source) as database:
        database.set_progress_handler(check_cancelled, PROGRESS)  # SQLite stops if it raises
        try:
            # The name is passed as bytes, because it need not be UTF-8.
            name = os.fsencode(target.absolute())
            database.execute("VACUUM INTO CAST(? AS TEXT)", (name,))
        except sqlite3.Error:
            check_cancelled()  # raises again what has stopped it
            raise
    sync(target)
    return verified(target)


def verified(path: Path) -> Contents:
    """Return the contents of an unused database; raise SnapshotRefused if it is damaged."""
    with _opened(path) as database:
        result = contents(database)
        if is_used(database) and not result.format and not is_original(database):
            raise SnapshotRefused(f"{path} is a database of another program.")
        faults = faults_of(database, "integrity_check")
        if result.format:  # the original did not enforce foreign keys
            orphans = database.execute("PRAGMA foreign_key_check").fetchmany(1)
            faults += [f"a row of {row[0]} without its parent" for row in orphans]
        if faults:
            raise SnapshotRefused(f"The database {path} is damaged: {faults[0]}.")
        values = damaged(database) if result.format else ()
        return result.model_copy(update={"damaged": tuple(map(str, values))})


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to an existing file; raise Busy or SnapshotRefused for SQLite's errors."""
    if not path.is_file():  # SQLite would create it
        raise SnapshotRefused(f"There is no database at {path}.")
    require_one_name(path)
    try:
        with closing(connect(path, mode=CHANGING)) as database:
            yield database
    except sqlite3.Error as error:
        code = primary_code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            sentence = f"The database {path} is locked by another process; try again."
            raise Busy(sentence) from error
        if is_damage(error):
            why = f"is damaged: {reason(error)}"
        elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            why = "cannot be read without write access to it and its folder"
        else:
            why = f"cannot be copied: {reason(error)}"
        raise SnapshotRefused(f"The database {path} {why}.") from error


class StillOpen(Busy):
    """Another program has the database open."""


class RestoreRefused(Refusal):
    """The restore is refused and the database stays as it is; the message says why."""

    code = "restore_refused"


def require_files(path: Path) -> None:
    """Raise RestoreRefused if the database or one of its logs is not a regular file.

    SQLite would wait for the other end of a pipe.
    """
    for file in (path, *(path.with_name(f"{path.name}{ending}") for ending in LOGS)):
        if os.path.lexists(file) and not file.is_file():
            raise RestoreRefused(f"{file} is not a file; move it away.")


def replace_database(path: Path, draft: Path) -> tuple[Path, ...]:
    """Atomically replace the database by `draft`; return the files that keep the old one.

    The draft is a whole database on the same disk. Nobody can write into the old database
    meanwhile; connections still open to it then fail. Raises StillOpen while another program uses
    the database, and RestoreRefused if the old one cannot be kept.
    """
    try:
        if not path.exists():
            logs = _logs_put_aside(path, path.with_name(f"{path.name}.{BEFORE_RESTORE}-lost"))
            placed(draft, path)
            return logs
        with _closed_to_others(path):
            kept = kept_name(path)
            logs = _logs_put_aside(path, kept)
            draft.replace(path)
            sync(path.parent)
            return (kept, *logs)
    except FileExistsError as error:
        raise StillOpen(f"Another program has just created {path}.") from error
    except OSError as error:
        raise RestoreRefused(
            f"{path} cannot be replaced: {error.strerror}. If its file system has no hard "
            "links, move it elsewhere yourself, with the files beside it."
        ) from error


@contextmanager
def _closed_to_others(path: Path) -> Iterator[None]:
    """Within, the database has no log and is locked; a damaged one cannot be locked."""
    timeout = OPEN_TIMEOUT.total_seconds()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=timeout)) as database:
        try:
            # A connection that waits for the lock then sees that the file has moved, and stops.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = DELETE").fetchone()
            database.execute("BEGIN EXCLUSIVE")
            database.execute("COMMIT")
            database.execute("PRAGMA journal_mode = MEMORY").fetchone()
            path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        except sqlite3.DatabaseError as error:
            if primary_code(error) in LOCKED:
                raise StillOpen(f"Another program has {path} open.") from error
            if not is_damage(error):
                sentence = f"The database {path} cannot be locked: {reason(error)}."
                raise RestoreRefused(sentence) from error
        except UnicodeDecodeError:
            pass  # SQLite quoted a schema that is not UTF-8: the file is damaged
        yield


def _logs_put_aside(path: Path, kept: Path) -> tuple[Path, ...]:
    aside = []
    for ending in LOGS:
        log = path.with_name(f"{path.name}{ending}")
        if os.path.lexists(log):
            aside.append(free_name(kept.with_name(f"{kept.name}{ending}")))
            log.rename(aside[-1])
    with suppress(FileNotFoundError):
        path.with_name(f"{path.name}-shm").unlink()
    if aside:
        sync(path.parent)
    return tuple(aside)
