"""Another database in the place of the one at a path, which is kept beside it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from ...engine.files import placed, sync
from ...errors import Busy, Refusal
from ...secrets.sanitizing import reason
from ..base.copies import RESTORED, kept_name, numbered
from ..base.errors import primary_code

TIMEOUT = timedelta(seconds=1)  # with a command that is about to end
LOGS = ("-wal", "-journal")  # SQLite would read them into whatever database they lie beside
DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
TAKEN = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


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
            raise RestoreRefused(f"What is at {file} is no file; move it away.")


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
        raise StillOpen(f"Another program has just made {path}.") from error
    except OSError as error:
        raise RestoreRefused(
            f"{path} cannot be replaced: {error.strerror}. If its disk knows no second names of a "
            "file, move it elsewhere yourself, with what lies beside it."
        ) from error


@contextmanager
def _closed_to_others(path: Path) -> Iterator[None]:
    """Inside, the database is one file without a log, and locked; one that is damaged is not."""
    timeout = TIMEOUT.total_seconds()
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
            if primary_code(error) not in DAMAGED:
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
