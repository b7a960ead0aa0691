"""Texts of the file that are no UTF-8: read with U+FFFD in the place of what cannot be decoded.

That costs a call for each text. So a connection begins strict, and gives it up with the first
text that it cannot decode.
"""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from .errors import RunAgain

T = TypeVar("T")


class Undecodable(RunAgain):
    """A text was no UTF-8. From now on the connection replaces what it cannot decode."""


def decoded(text: bytes | str) -> str:
    """A text of the file, without what is no UTF-8."""
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def decoding(database: sqlite3.Connection, work: Callable[[], T]) -> T:
    """What work on a connection answers. Undecodable for a text that it cannot decode."""
    try:
        return work()
    except sqlite3.OperationalError as error:
        if not _is_of_decoding(error):
            raise
        database.text_factory = decoded
        raise Undecodable from error


def _is_of_decoding(error: sqlite3.OperationalError) -> bool:
    """SQLite has a code for each of its errors; this one is Python's own."""
    return not hasattr(error, "sqlite_errorcode")
