"""What a database holds, with its damaged rows; a consistent copy of one in use, and its return."""

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
from ..memory.memory import deleted, undeleted
from ..memory.rows import LAST, instant, rendered
from ..memory.space import in_a_session, in_no_session
from ..record import Record
from .connection import CHANGING, connect, faults_of
from .dialect import primary_code
from .migrate import damaged, is_original, is_used, version_of
from .open_files import QUARANTINE, RESTORED, kept_name, numbered, require_one_name

UNREADABLE = (sqlite3.Error, OSError, *GARBAGE)
OPEN_TIMEOUT = timedelta(seconds=1)  # with a command that is about to end
LOGS = ("-wal", "-journal")  # SQLite would read them into whatever database they lie beside
BEYOND_LOCKS = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
TAKEN = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


class Counts(Record):
    observations: int = 0  # live ones
    deleted: int = 0  # observations and entries that can be restored
    revisions: int = 0
    sessions: int = 0
    stores: int = 0
    entries: int = 0  # live ones, of stores
    versions: int = 0
    erasures: int = 0


class Contents(Record):
    format: int  # 0 for the original's, and for one that is empty
    counts: Counts
    changed_at: Annotated[datetime, PlainSerializer(rendered)] | None = None  # the last save
    damaged: tuple[str, ...] | None = None  # values, the first of them; none if nobody has looked


def contents(database: sqlite3.Connection) -> Contents:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    counts, format_ = [*_COUNTS], version_of(database)
    if format_ >= WITHOUT_FIRST:  # of an older one an archive counts the rows alone
        counts.append(("revisions", "revisions", _UNCHANGED))
    counted: Counter[str] = Counter()
    for noun, table, rows in counts:
        if table in tables:
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
                WHERE at <= :last""",  # one of a damaged row may be later
            {"last": LAST},
        )
    return Contents(
        format=format_,
        counts=Counts(**counted),
        changed_at=None if latest is None else instant(latest),
    )


def contents_at(path: Path) -> Contents | None:
    """What the database at the path holds; none if it cannot be read."""
    try:
        with closing(connect(path, mode=CHANGING)) as database:
            return contents(database)
    except UNREADABLE:
        return None


def erasures_at(path: Path) -> tuple[dict[ErasureId, Erasure], bool]:
    """The receipts in the database at the path, the oldest first, and whether these are all."""
    try:
        with closing(connect(path, mode=CHANGING)) as database:
            erasures, damaged = receipts(database)
            # Damaged ones may have been moved out of the database.
            file = path.with_name(f"{path.name}.{QUARANTINE}")
            moved = file.read_text(errors="replace") if file.exists() else ""
            are_moved = '"table": "erasures"' in moved or '"table": "erased"' in moved
            return erasures, not (damaged or are_moved)
    except UNREADABLE:
        return {}, False


_COUNTS = (
    (
        "observations",
        "memories",
        f"memories WHERE {undeleted('memories')} AND {in_a_session('memories')}",
    ),
    ("observations", "observations", f"observations WHERE {undeleted('observations')}"),
    ("deleted", "memories", f"memories WHERE {deleted('memories')}"),
    ("deleted", "observations", f"observations WHERE {deleted('observations')}"),
    ("revisions", "revisions", "revisions"),
    ("sessions", "sessions", "sessions"),
    ("stores", "stores", "stores WHERE erasure_id IS NULL"),
    (
        "entries",
        "stores",
        f"""memories WHERE {undeleted("memories")} AND {in_no_session("memories")}
            AND space_id IN (SELECT space_id FROM stores)""",
    ),
    ("versions", "versions", "versions"),
    ("erasures", "erasures", "erasures"),
)
"""Of each noun: a table that must be there, and the rows that are counted then."""

WITHOUT_FIRST = 26  # the format from which on a memory has no revision stored until it is changed
_UNCHANGED = "(SELECT id FROM memories EXCEPT SELECT memory_id FROM revisions)"


TIMEOUT = timedelta(seconds=5)  # with another process that holds a lock
OFTEN = 10_000  # virtual machine steps between two calls of `alive`


class SnapshotRefused(Refusal):
    """There is no good copy of the database; the sentence says why."""

    code = "backup_refused"


def snapshot(source: Path, target: Path, alive: Callable[[], object]) -> Contents:
    """Copy what the source holds now into a new file, on disk when this returns.

    A read transaction of its own: no write waits for it. Pages that nothing uses are
    left out, so what was erased from the source is not in the copy either. `alive` is called
    often; what it raises ends the copying. SnapshotRefused, or Busy; the target is then of no use.
    """
    try:
        with private_file(target, os.O_RDWR | os.O_EXCL), closing(_opened(source)) as database:
            _copy(database, target, alive)
        sync(target)
    except sqlite3.Error as error:
        raise _refusal(source, error) from error
    return verified(target)


def verified(path: Path) -> Contents:
    """What a database holds that nobody else uses; SnapshotRefused if it is damaged."""
    try:
        with closing(_opened(path)) as database:
            its = contents(database)
            if is_used(database) and not its.format and not is_original(database):
                raise SnapshotRefused(f"{path} is a database of another program.")
            faults = faults_of(database, "integrity_check")
            if its.format:  # the original kept to no references
                strays = database.execute("PRAGMA foreign_key_check").fetchmany(1)
                faults += [f"a row of {row[0]} without its parent" for row in strays]
            if faults:
                raise SnapshotRefused(f"The database {path} is damaged: {faults[0]}.")
            values = damaged(database) if its.format else ()
            return its.model_copy(update={"damaged": tuple(map(str, values))})
    except sqlite3.Error as error:
        raise _refusal(path, error) from error


def _opened(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there: to open one that is gone would make it."""
    if not path.is_file():
        raise SnapshotRefused(f"There is no database at {path}.")
    require_one_name(path)
    return connect(path, busy_timeout=TIMEOUT, mode=CHANGING)


def _copy(database: sqlite3.Connection, target: Path, alive: Callable[[], object]) -> None:
    raised: list[BaseException] = []

    def is_over() -> bool:
        try:
            alive()
        except BaseException as error:  # noqa: BLE001 - raised once SQLite has stopped
            raised.append(error)
        return bool(raised)

    database.set_progress_handler(is_over, OFTEN)
    try:
        # As bytes: a name need not be UTF-8.
        database.execute("VACUUM INTO CAST(? AS TEXT)", (os.fsencode(target.absolute()),))
    except sqlite3.Error:
        if raised:
            raise raised[0] from None
        raise


def _refusal(path: Path, error: sqlite3.Error) -> Refusal:
    match primary_code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Busy(f"The database {path} is locked by another process; try again.")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return SnapshotRefused(f"The database {path} is damaged: {reason(error)}.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN:
            return SnapshotRefused(
                f"The database {path} cannot be read by a user who may not write it and its folder."
            )
        case _:
            return SnapshotRefused(f"The database {path} cannot be copied: {reason(error)}.")


class StillOpen(Busy):
    """Another program has the database open."""


class RestoreRefused(Refusal):
    """The database stays as it is; the sentence says why."""

    code = "restore_refused"


def require_files(path: Path) -> None:
    """RestoreRefused where a database or its logs should lie and something else does.

    SQLite would wait for the other end of a pipe.
    """
    for file in (path, *(path.with_name(f"{path.name}{ending}") for ending in LOGS)):
        if os.path.lexists(file) and not file.is_file():
            raise RestoreRefused(f"{file} is not a file; move it away.")


def replace_database(path: Path, draft: Path) -> tuple[Path, ...]:
    """Put the draft, a whole database on the same disk, at the path; what is kept of the old one.

    At any moment there is a database at the path, the old one or the new. Nobody can
    write into the old one meanwhile; who still has it open then is refused. StillOpen while
    another program uses it, RestoreRefused where it cannot be kept.
    """
    try:
        if not path.exists():
            logs = _logs_put_aside(path, path.with_name(f"{path.name}.{RESTORED}-lost"))
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
    """Inside, the database is one file without a log, and locked; one that is damaged is not."""
    timeout = OPEN_TIMEOUT.total_seconds()
    with closing(sqlite3.connect(path, isolation_level=None, timeout=timeout)) as database:
        try:
            # A connection that waits for the lock sees that the file has moved, and writes no more.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = DELETE").fetchone()
            database.execute("BEGIN EXCLUSIVE")
            database.execute("COMMIT")
            database.execute("PRAGMA journal_mode = MEMORY").fetchone()
            path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        except sqlite3.DatabaseError as error:
            if primary_code(error) in TAKEN:
                raise StillOpen(f"Another program has {path} open.") from error
            if primary_code(error) not in BEYOND_LOCKS:
                raise RestoreRefused(
                    f"The database {path} cannot be locked: {reason(error)}."
                ) from error
        except UnicodeDecodeError:
            pass  # of what SQLite says of a schema of garbage: it is damaged
        yield


def _logs_put_aside(path: Path, kept: Path) -> tuple[Path, ...]:
    aside = []
    for ending in LOGS:
        log = path.with_name(f"{path.name}{ending}")
        if os.path.lexists(log):
            names = numbered(kept.with_name(f"{kept.name}{ending}"))
            aside.append(next(name for name in names if not os.path.lexists(name)))
            log.rename(aside[-1])
    with suppress(FileNotFoundError):
        path.with_name(f"{path.name}-shm").unlink()
    if aside:
        sync(path.parent)
    return tuple(aside)
