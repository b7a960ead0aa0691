"""The SQLite library of this process, before any connection is open."""

import _sqlite3
import ctypes

MEMSTATUS = 9  # SQLITE_CONFIG_MEMSTATUS


def without_memory_statistics() -> bool:
    """Stop counting the library's memory, for the count is a lock that readers fight for.

    Two readers searching at a time take a quarter less of the processor without it. Must be called
    before the process opens a database; false, and nothing is changed, where the
    library cannot be reached.
    """
    try:
        library = ctypes.CDLL(_sqlite3.__file__)
        shutdown, config, initialize = (
            library.sqlite3_shutdown,
            library.sqlite3_config,
            library.sqlite3_initialize,
        )
    except (AttributeError, OSError):  # built in, or its symbols hidden
        return False
    shutdown()
    is_set = bool(config(MEMSTATUS, 0) == 0)
    initialize()
    return is_set
