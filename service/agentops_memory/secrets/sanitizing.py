"""Sanitized exceptions and log records of libraries, which may quote user data.

The message of an exception can quote whatever was stored or sent: the value that SQLite
could not decode, the input of a validation error, the missing key. So only messages that
are known to be constant are kept.
"""

import errno
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from logging import LogRecord
from typing import Any

from ..errors import Refusal

OWN = __name__.partition(".")[0]
WITHHELD = "..."
MAX_EXCEPTIONS = 20  # of a chain or a group

CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
MEMBER = "\nAn exception of the group:\n\n"

# Prefixes of SQLite's messages, as patterns. What follows may be a value or a word of a query;
# names of the schema are safe.
SQLITE_MESSAGES = (
    "attempt to write a readonly database",
    "CHECK constraint failed",
    "constraint failed",
    "Could not decode to UTF-8",
    "Cannot operate on a closed database",
    "database disk image is malformed",
    "database is locked",
    "database or disk is full",
    "database schema has changed",
    "database schema is locked",
    "database table is locked",
    "datatype mismatch",
    "disk I/O error",
    "file is not a database",
    "FOREIGN KEY constraint failed",
    "interrupted",
    "locking protocol",
    "malformed database schema",
    "no such column",
    "no such function",
    "no such module",
    r"no such table: [\w.]+",
    r"NOT NULL constraint failed: [\w.]+",
    "out of memory",
    "string or blob too big",
    "unable to open database file",
    r"UNIQUE constraint failed: [\w., ]+",
    "unsupported file format",
    "user-defined function raised exception",
)

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
