"""Errors that are safe to show: refusals with stable codes and safe messages, and exceptions and
log records of libraries without user data.

The message of an exception can quote stored or sent data: the value that SQLite could not decode,
the input of a validation error, the missing key. So only messages that are known to be constant
are kept.
"""

import errno
import os
import re
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from logging import LogRecord
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")


class RunAgain(Exception):
    """The work was rolled back and is run again; not an error."""


class Refusal(Exception):
    """A request that cannot be fulfilled; its text is a message for the caller."""

    code: ClassVar[str] = "error"
    sentence: ClassVar[str] = ""  # the message, if none is given

    def __str__(self) -> str:
        return super().__str__() or self.sentence


class Invalid(Refusal):
    """The request could not be understood."""

    code = "invalid_input"


class InvalidFields(Invalid):
    """The request was understood but breaks limits; the message names every fault."""

    code = "validation_error"


class BadFields(Invalid):
    """Invalid fields of a body, or parameters; the message names each of them."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field} {fault}" for field, fault in faults) + ".")
        self.faults = faults


class NotFound(Refusal):
    code = "not_found"  # also if the caller must not learn whether it exists


def required(it: T | None, sentence: str) -> T:
    """Return the result of a lookup; NotFound with this message if it is None."""
    if it is None:
        raise NotFound(sentence)
    return it


class Unauthenticated(Refusal):
    code = "unauthenticated"  # no key, or an invalid one


class Denied(Refusal):
    """The caller's key does not allow it; `scope` is the role or the projects that it needs."""

    code = "denied"

    def __init__(self, sentence: str, scope: str | None = None) -> None:
        super().__init__(sentence)
        self.scope = scope


class TooMany(Refusal):
    """The key or the tenant exceeds a limit; the request may succeed after some seconds."""

    code = "too_many"

    def __init__(self, sentence: str, retry_after: int = 1, scope: str = "key") -> None:
        super().__init__(sentence)
        self.retry_after = retry_after  # seconds
        self.scope = scope  # the owner of the limit: "key" or "tenant"


class OverQuota(Refusal):
    code = "over_quota"  # the tenant has used its storage quota


class Conflict(Refusal):
    code = "constraint_violation"  # the stored state does not allow this change


class KeyReused(Conflict):
    sentence = "Idempotency key reused with a different request body."


class AnswerLost(Conflict):
    sentence = "This was done, but its response is no longer known."


class AnswerErased(NotFound):
    sentence = "This was done, but its response has been erased."


class PathTaken(Conflict):
    """Another entry has the path, or a path above or below it."""

    code = "path_taken"

    def __init__(self, sentence: str, entry: str, path: str) -> None:
        super().__init__(sentence)
        self.entry = entry  # the uid of the other entry
        self.path = path


class Archived(Conflict):
    code = "archived"  # nothing in the store may change


class AlreadyDone(Conflict):
    code = "already_done"  # the change is possible only once


class StillCurrent(Conflict):
    code = "still_current"  # the version is the newest of its entry


class Unavailable(Refusal):
    """The service cannot do this now; the same request may succeed later."""

    code = "unavailable"


class Busy(Unavailable):
    code = "db_locked"  # another writer held the database for too long


class TimedOut(Unavailable):
    code = "timed_out"  # the read was interrupted at its time limit


class Damaged(Unavailable):
    """A part of the database cannot be read as it was written."""


class Unreadable(Unavailable):
    """A stored value is invalid for its column; it is never read as another value."""

    sentence = (
        "This cannot be served now: a row that it needs is damaged. "
        "`agentops-memory doctor` names it."
    )


class DamagedRow(Unreadable):
    """A row, or a row that belongs to it, cannot be read as a record.

    Fails closed: a default in place of the value could permit what the row forbids. The message
    quotes no stored data.
    """

    def __init__(self, table: str, row: object, column: str = "") -> None:
        where = f" ({column})" if column else ""
        super().__init__(
            f"This cannot be served now: row {row} of {table} is damaged{where}. "
            "`agentops-memory doctor` says what can be repaired."
        )
        self.table, self.row, self.column = table, str(row), column


class AtItem(Refusal):
    """A batch is refused because of one item, with the code of the item's refusal."""

    code = "invalid_input"  # in protocols that do not report items

    def __init__(self, number: int, refusal: Refusal) -> None:
        super().__init__(f"entries[{number}]: {refusal}")
        self.number, self.refusal = number, refusal


INDEX_UNAVAILABLE = TimedOut, Damaged
"""Refusals of a search after which the newest memories are returned instead of hits."""


class Full(Unavailable):
    code = "storage_full"  # the disk is full


class StartRefused(Refusal):
    """The file cannot be used and was left unchanged; the message says what to do."""

    code = "start_refused"


class SettingRefused(Exception):
    """An invalid setting; its text is a message for the operator."""


PACKAGE = __name__.partition(".")[0]
WITHHELD = "..."
MAX_EXCEPTIONS = 20  # most exceptions of a chain

CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"

# Prefixes of SQLite's messages, as patterns. A value or a word of a query may follow them; names
# of the schema are safe.
SQLITE_MESSAGES = (
    "attempt to write a readonly database", "CHECK constraint failed", "constraint failed",
    "Could not decode to UTF-8", "Cannot operate on a closed database",
    "database disk image is malformed", "database is locked", "database or disk is full",
    "database schema has changed", "database schema is locked", "database table is locked",
    "datatype mismatch", "disk I/O error", "file is not a database",
    "FOREIGN KEY constraint failed", "interrupted", "locking protocol", "malformed database schema",
    "no such column", "no such function", "no such module", r"no such table: [\w.]+",
    r"NOT NULL constraint failed: [\w.]+", "out of memory", "string or blob too big",
    "unable to open database file", r"UNIQUE constraint failed: [\w., ]+",
    "unsupported file format", "user-defined function raised exception",
)  # fmt: skip

OPERATIONAL = (
    "SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_FULL", "SQLITE_INTERRUPT",
    "SQLITE_IOERR", "SQLITE_LOCKED", "SQLITE_NOTADB", "SQLITE_PROTOCOL", "SQLITE_READONLY",
)  # fmt: skip

_SQLITE = re.compile("|".join(SQLITE_MESSAGES))
_AFTER_WORDS = re.compile("[^A-Za-z0-9 ,.;/_-]")


def safe_message(error: BaseException) -> str:
    """Return the message of an exception if it cannot quote user data, else an empty string."""
    if isinstance(error, Refusal):
        return str(error)
    if any(kind.__module__ == "sqlite3" for kind in type(error).__mro__):  # avoids an import
        known = _SQLITE.match(str(error))
        return known[0] if known else ""
    if isinstance(error, OSError) and error.errno and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return ""


def code_of(error: BaseException) -> str:
    """Return the error code of SQLite or the OS; for a refusal, the code of its cause."""
    if name := getattr(error, "sqlite_errorname", None):
        return str(name)
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or 0, "")
    return code_of(error.__cause__) if isinstance(error, Refusal) and error.__cause__ else ""


def reason(error: BaseException) -> str:
    """Return the reason of an error: its safe message, or else its code or type."""
    return safe_message(error) or code_of(error) or type(error).__name__


def sentence_of(error: BaseException) -> str:
    """Return the reason of an error as a sentence, with the name of the file if there is one."""
    why = (error.strerror if isinstance(error, OSError) else "") or reason(error)
    file = getattr(error, "filename", None)
    return f"{f'{file}: ' if file else ''}{why.removesuffix('.')}."


def is_operational(error: BaseException) -> bool:
    """Whether this is an operational error (disk, lock, corruption), not a bug."""
    return isinstance(error, Refusal | OSError) or code_of(error).startswith(OPERATIONAL)


def described(error: BaseException) -> str:
    """Describe an exception in one line: its type, its safe message and SQLite's code."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    code = getattr(error, "sqlite_errorname", "")
    message = safe_message(error)
    detail = f"{f': {message}' if message else ''}{f' ({code})' if code else ''}"
    return f"{module}{kind.__qualname__}{detail}"


def trace(error: BaseException) -> str:
    """Return the traceback of an exception and of its causes, the first cause first."""
    sections: list[str] = []
    current: BaseException | None = error
    visited, link = set[int](), ""
    while current is not None and id(current) not in visited and len(visited) < MAX_EXCEPTIONS:
        visited.add(id(current))
        frames = "".join(traceback.format_tb(current.__traceback__))
        head = "Traceback (most recent call last):\n" if frames else ""
        sections.append(f"{head}{frames}{described(current)}\n{link}")
        before, link = current.__cause__, CAUSE
        if before is None and not current.__suppress_context__:
            before, link = current.__context__, CONTEXT
        current = before
    return "".join(reversed(sections))


def message_of(record: LogRecord) -> str:
    """Return the message of a log record, without a library's arguments other than numbers.

    If the arguments do not fit, it is the template. Of a library's template without arguments,
    only the initial plain words are kept, as libraries quote data after punctuation.
    """
    template, render = text_of(record.msg), _as_text if is_own(record) else _withheld
    if not record.args:
        return template if is_own(record) else _AFTER_WORDS.split(template, maxsplit=1)[0].strip()
    with suppress(Exception):
        args: Any = record.args
        if isinstance(args, Mapping):
            return template % {name: render(value) for name, value in args.items()}
        return template % tuple(map(render, args))
    return template


def text_of(value: object) -> str:
    """Return any value as text; exceptions are sanitized."""
    if isinstance(value, BaseException):
        return described(value)
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the value itself may be at fault
        return f"<{type(value).__name__}>"


def is_own(record: LogRecord) -> bool:
    """Whether a log record is from this package, not from a library."""
    return str(record.name).partition(".")[0] == PACKAGE


def _as_text(value: object) -> object:
    return described(value) if isinstance(value, BaseException) else value


def _withheld(value: object) -> object:
    is_number = value is None or isinstance(value, int | float | Enum)
    return _as_text(value) if is_number or isinstance(value, BaseException) else WITHHELD
