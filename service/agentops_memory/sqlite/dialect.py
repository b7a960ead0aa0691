"""SQLite's library and dialect, our SQL functions, and the meaning of its errors.

A row with a text that is not UTF-8 is damaged: reading its columns raises Unreadable. Finding
the row costs a call for each text and each row, so a connection does it only after the first
text that it cannot decode.
"""

import _sqlite3
import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import errors
from ..errors import Damaged, RunAgain, Unavailable, Unreadable
from ..memory.access import Patterns
from ..memory.rows import tag_tuple
from ..memory.search import PRIOR_MEMORIES, PRIOR_WORDS
from ..memory.space import Project
from ..memory.table import Dialect
from ..recall.stems import INDEX_RULES
from ..recall.text import End, borrows, context, fingerprint, indexed, words_of

log = logging.getLogger(__name__)

DAMAGED = "The database file is damaged."
REMEDY = (
    "`agentops-memory doctor` shows the extent of the damage, and `agentops-memory restore` "
    "restores a backup."
)

_REFUSALS: dict[int, tuple[type[errors.Refusal], str]] = {
    sqlite3.SQLITE_BUSY: (errors.Busy, "The database is locked by another process; try again."),
    sqlite3.SQLITE_LOCKED: (errors.Busy, "The database is locked; try again."),
    sqlite3.SQLITE_PROTOCOL: (errors.Busy, "The database is locked by another process; try again."),
    sqlite3.SQLITE_FULL: (errors.Full, "The disk is full; nothing was stored."),
    sqlite3.SQLITE_IOERR: (Unavailable, "The disk failed; nothing was stored."),
    sqlite3.SQLITE_READONLY: (Unavailable, "The database is read-only; nothing was stored."),
    sqlite3.SQLITE_CANTOPEN: (Unavailable, "The database file cannot be opened."),
    sqlite3.SQLITE_INTERRUPT: (Unavailable, "This took too long and was stopped."),
    sqlite3.SQLITE_CORRUPT: (Damaged, DAMAGED),
    sqlite3.SQLITE_NOTADB: (Damaged, DAMAGED),
    sqlite3.SQLITE_CONSTRAINT: (errors.Conflict, "The stored state does not allow this."),
}


@contextmanager
def translated() -> Iterator[None]:
    """Raise SQLite's errors as Refusals; any other error is a fault of the program."""
    try:
        yield
    except sqlite3.Error as error:
        if refusal := refusal_of(error):
            raise refusal from error
        raise


def refusal_of(error: sqlite3.Error) -> errors.Refusal | None:
    """Return SQLite's error as a Refusal; None if it is a fault of the program."""
    code = primary_code(error)
    if code not in _REFUSALS:
        return None
    refusal, sentence = _REFUSALS[code]
    if refusal is not Damaged:  # damage is logged once, not for each request
        # Logged and raised, as the caller can only retry: the operator has to act.
        log.warning("the database refused", extra={"code": error.sqlite_errorname})
    return refusal(sentence)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Raise StartRefused with the reason if the file at the path cannot be used."""
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as error:
        remedy = f" It is damaged, or no database at all: {REMEDY}" * is_damage(error)
        sentence = f"The database {path} cannot be used: {errors.reason(error)}.{remedy}"
        raise errors.StartRefused(sentence) from error


# Beginnings of errors about a missing table, of SQLite or of FTS5 for one of its own.
_MISSING = ("no such table", "vtable constructor failed", "SQL logic error")


def is_damage(error: BaseException) -> bool:
    return primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def primary_code(error: BaseException) -> int:
    """Return SQLite's primary result code of an error, or 0 for an error of Python."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    # Our constraints fail with an extended code; without one, FTS5's own tables are damaged.
    # All tables in our statements exist, unless someone has dropped one.
    is_missing = code == sqlite3.SQLITE_ERROR and str(error).startswith(_MISSING)
    is_damage = is_missing or code == sqlite3.SQLITE_CONSTRAINT
    return sqlite3.SQLITE_CORRUPT if is_damage else code & 0xFF


class IndexBehind(RunAgain):
    """A reader needs a full-text index for which memories are pending."""


class NotText(bytes):
    """A text that is not UTF-8."""


class _Undecoded(tuple[Any, ...]):
    """A row with a NotText; its other columns can be read one by one."""

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


def find_undecodable(database: sqlite3.Connection, error: sqlite3.OperationalError) -> bool:
    """Let a connection find the row whose text it could not decode; False for another error."""
    if hasattr(error, "sqlite_errorcode"):  # only Python's decoding errors have none
        return False
    database.text_factory = read_text
    database.row_factory = lambda _, row: (
        _Undecoded(row) if any(isinstance(it, NotText) for it in row) else row
    )
    return True


PRIOR_TEXT = " ".join(["\ufe00"] * PRIOR_WORDS)  # no text has this word, as `unified` drops it


def _gathered(*values: str) -> str:
    row = values[0] if len(values) == 1 else f"json_array({', '.join(values)})"
    return f"json_group_array({row})"


SQLITE = Dialect(
    row="rowid",
    leads="CROSS JOIN",
    hint="INDEXED BY {}".format,
    each="JOIN memories m ON m.id IN ({})".format,
    reordered=lambda _: "",
    greatest="max",
    least="min",
    ids="json_each(:ids) {}".format,
    texts="json_each(:texts) {}".format,
    gathered=_gathered,
    tags_of="json_each(CASE WHEN json_valid({0}.tags) THEN {0}.tags ELSE '[]' END)".format,
    element="CASE WHEN json_valid({0}) THEN json_extract({0}, '$[{1}]') END".format,
    contains="instr({}, {}) > 0".format,
    acts_on="acted_on(:patterns, CAST({} AS BLOB))".format,
)


def register_functions(database: sqlite3.Connection) -> None:
    """Register our SQL functions, all pure, with a connection.

    Functions of column values take bytes, because Python's adapter cannot convert a text that
    is not UTF-8.
    """
    functions: dict[str, tuple[int, Callable[..., str | int]]] = {
        "indexed_text": (1, lambda text: indexed(decoded(text))),
        "indexed_value": (1, lambda value: indexed(words_of(decoded(value)))),
        "indexed_tags": (1, lambda tags: _indexed_tags(decoded(tags))),
        "borrows": (1, lambda content: borrows(decoded(content))),
        "borrowed": (2, lambda *texts: context(End.of(decoded(it)) for it in texts if it)),
        "fingerprint_of": (
            4,
            lambda key, *texts: fingerprint(
                None if key is None else decoded(key), *map(decoded, texts)
            ),
        ),
        "acted_on": (2, _acted_on),
        "prior_rows": (0, lambda: PRIOR_MEMORIES),
        "prior_text": (0, lambda: PRIOR_TEXT),
        "own_rules": (0, lambda: INDEX_RULES),
    }
    for name, (arguments, function) in functions.items():
        database.create_function(name, arguments, function, deterministic=True)


def _acted_on(names: str, project: bytes | None) -> bool:
    return project is not None and _patterns(names).match(Project(decoded(project)))


@lru_cache(256)
def _patterns(names: str) -> Patterns:
    return Patterns(tuple(json.loads(names)))


@lru_cache(256)
def _indexed_tags(tags: str) -> str:
    return indexed("\n".join(tag_tuple(tags)))


def run(database: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        database.execute(statement)


MEMSTATUS = 9  # SQLITE_CONFIG_MEMSTATUS
OLDEST = (3, 37, 0)  # the first version with STRICT tables


def without_memory_statistics() -> bool:
    """Turn off SQLite's memory statistics, whose lock slows down concurrent readers.

    Two concurrent searches then take a quarter less CPU time. To be called before a database is
    opened. Returns False, without effect, if the library cannot be reached.
    """
    import ctypes  # noqa: PLC0415 - only a service needs it

    try:
        library = ctypes.CDLL(_sqlite3.__file__)
        config, initialize = library.sqlite3_config, library.sqlite3_initialize
        shutdown = library.sqlite3_shutdown
    except (AttributeError, OSError):  # built in, or its symbols hidden
        return False
    shutdown()
    is_set = bool(config(MEMSTATUS, 0) == 0)
    initialize()
    return is_set


def lack() -> str:
    """Return a sentence about a feature that SQLite lacks, empty if it has all we need."""
    if sqlite3.sqlite_version_info < OLDEST:
        return f"SQLite must be {'.'.join(map(str, OLDEST))} or newer."
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE f USING fts5 (word)")
        except sqlite3.Error as error:
            return f"SQLite has no full-text search: {errors.reason(error)}."
    return ""
