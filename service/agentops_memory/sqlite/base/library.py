"""The SQLite library of this process, before any connection is open."""

import _sqlite3
import ctypes
import sqlite3
from contextlib import closing

from ...secrets.sanitizing import reason

MEMSTATUS = 9  # SQLITE_CONFIG_MEMSTATUS
OLDEST = (3, 37, 0)  # with tables that are STRICT


def without_memory_statistics() -> bool:
    """Stop counting the library's memory, for the count is a lock that readers fight for.

    Two readers searching at a time take a quarter less of the processor without it. To be called
    before a database is opened; false, and nothing is changed, where the library cannot be reached.
    """
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
    """What the library lacks that the service needs, in a sentence; nothing if it has all."""
    if sqlite3.sqlite_version_info < OLDEST:
        return f"SQLite must be {'.'.join(map(str, OLDEST))} or newer."
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE f USING fts5 (word)")
        except sqlite3.Error as error:
            return f"SQLite has no full-text search: {reason(error)}."
    return ""
