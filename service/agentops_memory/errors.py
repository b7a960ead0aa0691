"""What may be shown of what failed: refusals, with stable codes and safe sentences; and exceptions
and log records of libraries without the data of users.

The message of an exception can quote whatever was stored or sent: the value that SQLite could not
decode, the input of a validation error, the missing key. So only messages that are known to be
constant are kept.
"""

import errno
import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from logging import LogRecord
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")


class RunAgain(Exception):
    """Nothing happened of the work, and it is run again: no fault."""


class Refusal(Exception):
    """A request that cannot be met; its text is a sentence for the caller."""

    code: ClassVar[str] = "error"


class Invalid(Refusal):
    """The request could not be understood."""

    code = "invalid_input"


class InvalidFields(Invalid):
    """The request was understood and breaks a limit; every fault is named."""

    code = "validation_error"


class BadFields(Invalid):
    """Fields of a body, or parameters, that are not what they should be; every one is named."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field} {fault}" for field, fault in faults) + ".")
        self.faults = faults


class NotFound(Refusal):
    code = "not_found"  # or the caller may not know of it


def required(it: T | None, sentence: str) -> T:
    """What was looked for; NotFound, with the sentence, if it is not there."""
    if it is None:
        raise NotFound(sentence)
    return it


class Unauthenticated(Refusal):
    code = "unauthenticated"  # no key, or none that opens this service


class Denied(Refusal):
    """The caller's key does not allow it; `scope` is the role, or the projects, that would."""

    code = "denied"

    def __init__(self, sentence: str, scope: str | None = None) -> None:
        super().__init__(sentence)
        self.scope = scope


class TooMany(Refusal):
    """The key, or the tenant, asks too much; the same request may succeed after some seconds."""

    code = "too_many"

    def __init__(self, sentence: str, retry_after: int = 1, scope: str = "key") -> None:
        super().__init__(sentence)
        self.retry_after = retry_after  # seconds
        self.scope = scope  # whose limit it is: "key" or "tenant"


class OverQuota(Refusal):
    code = "over_quota"  # the tenant stores as much as it may


class Conflict(Refusal):
    code = "constraint_violation"  # the stored state does not allow this change


class KeyReused(Conflict):
    """Another request was done under the idempotency key."""

    def __init__(self) -> None:
        super().__init__("Idempotency key reused with a different request body.")


class AnswerLost(Conflict):
    """The request was done, and what it was answered is not known any more."""

    def __init__(self) -> None:
        super().__init__("This was done, but its response is no longer known.")


class AnswerErased(NotFound):
    """The request was done, and what it was answered is erased."""

    def __init__(self) -> None:
        super().__init__("This was done, but its response has been erased.")


class PathTaken(Conflict):
    """Another entry holds the path, or lies where it leads through."""

    code = "path_taken"

    def __init__(self, sentence: str, entry: str, path: str) -> None:
        super().__init__(sentence)
        self.entry = entry  # its uid
        self.path = path


class Archived(Conflict):
    code = "archived"  # nothing in the store may change


class AlreadyDone(Conflict):
    code = "already_done"  # it is done once


class StillCurrent(Conflict):
    code = "still_current"  # the version is the newest of its entry


class Unavailable(Refusal):
    """The service cannot do this now; the same request may succeed later."""

    code = "unavailable"


class Busy(Unavailable):
    code = "db_locked"  # another writer held the database for too long


class TimedOut(Unavailable):
    code = "timed_out"  # the read was stopped


class Damaged(Unavailable):
    """A part of the database cannot be read as it was written."""


class Unreadable(Unavailable):
    """A stored value is no such thing as its column holds; it is never read as another one."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(
            sentence
            or "This cannot be served now: a row that it needs is damaged. "
            "`agentops-memory doctor` names it."
        )


class DamagedRow(Unreadable):
    """A row, or one that belongs to it, cannot be the record that it was stored as.

    Fails closed: a default in its place could permit what the row forbids. `what` says what
    cannot be served for it, and quotes nothing that is stored.
    """

    def __init__(self, table: str, row: object, column: str = "", what: str = "This") -> None:
        where = f" ({column})" if column else ""
        super().__init__(
            f"{what} cannot be served now: row {row} of {table} is damaged{where}. "
            "`agentops-memory doctor` says what can be repaired."
        )
        self.table, self.row, self.column = table, str(row), column


class AtItem(Refusal):
    """An item of a batch is refused, and so is all of it, by the code of its refusal."""

    code = "invalid_input"  # of those that tell no items apart

    def __init__(self, number: int, refusal: Refusal) -> None:
        super().__init__(f"entries[{number}]: {refusal}")
        self.number, self.refusal = number, refusal


INDEX_UNAVAILABLE = TimedOut, Damaged
"""Refusals of a search after which the newest memories are returned instead of matches."""


class Full(Unavailable):
    code = "storage_full"  # no space is left on the disk


class StartRefused(Refusal):
    """The file cannot be used and was left as it is; the sentence says what to do."""

    code = "start_refused"


class SettingRefused(Exception):
    """A setting that cannot be used; its text is a sentence for the operator."""


OWN = __name__.partition(".")[0]
WITHHELD = "..."
MAX_EXCEPTIONS = 20  # of a chain or a group

CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
MEMBER = "\nAn exception of the group:\n\n"

# Prefixes of SQLite's messages, as patterns. What follows may be a value or a word of a query;
# names of the schema are safe.
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
    """The message of an exception if it cannot quote user data, else an empty string."""
    if isinstance(error, Refusal):
        return str(error)
    if any(kind.__module__ == "sqlite3" for kind in type(error).__mro__):  # if it is loaded
        known = _SQLITE.match(str(error))
        return known[0] if known else ""
    if isinstance(error, OSError) and error.errno and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return ""


def code_of(error: BaseException) -> str:
    """The error code of SQLite or the OS; for a refusal, that of its cause."""
    if name := getattr(error, "sqlite_errorname", None):
        return str(name)
    if isinstance(error, OSError):
        return errno.errorcode.get(error.errno or 0, "")
    return code_of(error.__cause__) if isinstance(error, Refusal) and error.__cause__ else ""


def reason(error: BaseException) -> str:
    """Why something failed: the safe message, else the code or the type."""
    return safe_message(error) or code_of(error) or type(error).__name__


def sentence_of(error: BaseException) -> str:
    """Why something failed, as a sentence, with the name of the file if there is one."""
    why = (error.strerror if isinstance(error, OSError) else "") or reason(error)
    file = getattr(error, "filename", None)
    return f"{f'{file}: ' if file else ''}{why.removesuffix('.')}."


def is_operational(error: BaseException) -> bool:
    """Whether this is an operational error (disk, lock, corruption), not a bug."""
    return isinstance(error, Refusal | OSError) or code_of(error).startswith(OPERATIONAL)


def described(error: BaseException) -> str:
    """An exception in one line: its type, its safe message and SQLite's code."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    code = getattr(error, "sqlite_errorname", "")
    message = safe_message(error)
    detail = f"{f': {message}' if message else ''}{f' ({code})' if code else ''}"
    return f"{module}{kind.__qualname__}{detail}"


def trace(error: BaseException) -> str:
    """The traceback of an exception, of its causes, and of the members of a group."""
    return "".join(_sections(error, set()))


def message_of(record: LogRecord) -> str:
    """The message of a log record; a library's arguments are withheld unless they are numbers.

    It is the template if the arguments do not fit. Without arguments, of a library's template
    only the plain words that it begins with remain: libraries quote after punctuation.
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
    """Any value as text; an exception is sanitized."""
    if isinstance(value, BaseException):
        return described(value)
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the value may be what is complained about
        return f"<{type(value).__name__}>"


def is_own(record: LogRecord) -> bool:
    """Whether a log record is from this package, not from a library."""
    return str(record.name).partition(".")[0] == OWN


def _sections(error: BaseException, visited: set[int]) -> Iterator[str]:
    visited.add(id(error))
    before, link = error.__cause__, CAUSE
    if before is None and not error.__suppress_context__:
        before, link = error.__context__, CONTEXT
    if before is not None and id(before) not in visited and len(visited) < MAX_EXCEPTIONS:
        yield from _sections(before, visited)
        yield link
    if error.__traceback__:
        yield "Traceback (most recent call last):\n"
        yield from traceback.extract_tb(error.__traceback__).format()
    yield f"{described(error)}\n"
    for member in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        if id(member) not in visited and len(visited) < MAX_EXCEPTIONS:
            yield MEMBER
            yield from _sections(member, visited)


def _as_text(value: object) -> object:
    return described(value) if isinstance(value, BaseException) else value


def _withheld(value: object) -> object:
    is_number = value is None or isinstance(value, int | float | Enum)
    return _as_text(value) if is_number or isinstance(value, BaseException) else WITHHELD
