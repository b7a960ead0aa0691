"""What SQLite and its file refuse, in the domain's words: the one translation.

A row with a text that is no UTF-8 is damaged: whoever reads its columns gets Unreadable. To find
out which row it is costs a call for each text and each row, so a connection does it from the first
text on that it cannot decode.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import (
    Busy,
    Conflict,
    Damaged,
    Full,
    Refusal,
    RunAgain,
    StartRefused,
    Unavailable,
    Unreadable,
)
from ...secrets.sanitizing import reason

log = logging.getLogger(__name__)

DAMAGED = "The database file is damaged."
REMEDY = (
    "`agentops-memory doctor` tells how far, and `agentops-memory restore` puts a backup in its "
    "place."
)

_REFUSALS: dict[int, tuple[type[Refusal], str]] = {
    sqlite3.SQLITE_BUSY: (Busy, "The database is locked by another process; try again."),
    sqlite3.SQLITE_LOCKED: (Busy, "The database is locked; try again."),
    sqlite3.SQLITE_PROTOCOL: (Busy, "The database is locked by another process; try again."),
    sqlite3.SQLITE_FULL: (Full, "The disk is full; nothing was stored."),
    sqlite3.SQLITE_IOERR: (Unavailable, "The disk failed; nothing was stored."),
    sqlite3.SQLITE_READONLY: (Unavailable, "The database is read-only; nothing was stored."),
    sqlite3.SQLITE_CANTOPEN: (Unavailable, "The database file cannot be opened."),
    sqlite3.SQLITE_INTERRUPT: (Unavailable, "This took too long and was stopped."),
    sqlite3.SQLITE_CORRUPT: (Damaged, DAMAGED),
    sqlite3.SQLITE_NOTADB: (Damaged, DAMAGED),
    sqlite3.SQLITE_CONSTRAINT: (Conflict, "The stored state does not allow this."),
}


@contextmanager
def translated() -> Iterator[None]:
    """Raise what SQLite refuses as a Refusal; what is left is a fault of the program."""
    try:
        yield
    except sqlite3.Error as error:
        code = primary_code(error)
        if code not in _REFUSALS:
            raise
        refusal, sentence = _REFUSALS[code]
        if refusal is not Damaged:  # which is told once, and not with each request
            # Logged and raised: the caller is told to come back, and only the operator can help.
            log.warning("the database refused", extra={"code": error.sqlite_errorname})
        raise refusal(sentence) from error


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Raise as StartRefused why the file at the path cannot be used."""
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as error:
        remedy = f" It is damaged, or no database at all: {REMEDY}" * is_damage(error)
        sentence = f"The database {path} cannot be used: {reason(error)}.{remedy}"
        raise StartRefused(sentence) from error


def is_damage(error: Exception) -> bool:
    return primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def primary_code(error: Exception) -> int:
    """SQLite's result code of an error, without its detail; 0 for one of Python's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # of an extended code, the low byte


class IndexBehind(RunAgain):
    """Memories wait for the full-text index that a reader asks."""


class NeedsTransactionOfItsOwn(RunAgain):
    """Work must not share a commit: it makes a table, or is long."""


class Undecodable(RunAgain):
    """A text was no UTF-8. From now on the connection finds out in which row."""


class NotText(bytes):
    """A text that is no UTF-8."""


class _Undecoded(tuple[Any, ...]):
    """A row with such a text; its other columns can be read one by one."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        raise Unreadable

    def __getitem__(self, at: Any) -> Any:
        value = super().__getitem__(at)
        if isinstance(value, NotText) or isinstance(at, slice):
            raise Unreadable
        return value


def decoded(text: bytes | str) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def read_text(text: bytes) -> str | NotText:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return NotText(text)


def _read_row(_: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return _Undecoded(row) if any(isinstance(it, NotText) for it in row) else row


class Decoding:
    """Inside, a text that the connection cannot decode is Undecodable; entered by each read."""

    __slots__ = ("_database",)

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        # Python's own errors, of decoding, have no code of SQLite.
        if isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode"):
            self._database.text_factory, self._database.row_factory = read_text, _read_row
            raise Undecodable from error
