"""Where a transaction begins and ends on its connection, and what it leaves behind: nothing."""

import inspect
import sqlite3
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from ....domain.ports.maintenance import noop
from .connection import APPLICATION_ID, limit_time

Check = Callable[[], None]

SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@contextmanager
def snapshot(database: sqlite3.Connection, limit: timedelta) -> Iterator[None]:
    """A transaction that sees one state and is stopped when it takes too long."""
    with _freed(database), carried():
        limit_time(database, limit)
        database.execute("BEGIN")
        yield


@contextmanager
def change(database: sqlite3.Connection, deadline: float, check: Check = noop) -> Iterator[None]:
    """A transaction that is committed whole; if anything raises, nothing happened.

    `check` raises where it must not be committed after all; and once more afterwards, where
    what was committed must not be acknowledged: nobody can tell if it stays.
    """
    with _freed(database), carried():
        _begin(database, deadline)
        yield
        check()
        _commit(database)
        check()


@contextmanager
def carried() -> Iterator[None]:
    """What it raises can be handed to another thread, and holds no cursor."""
    try:
        yield
    except StopIteration as error:
        # No future can carry it: the caller would wait for ever.
        raise RuntimeError("work raised StopIteration").with_traceback(
            error.__traceback__
        ) from None
    except BaseException as error:
        _release(error)
        raise


@contextmanager
def _freed(database: sqlite3.Connection) -> Iterator[None]:
    """Whatever happens inside, the connection is free of transactions and limits afterwards."""
    try:
        yield
    finally:
        database.set_progress_handler(None, 0)
        if database.in_transaction:
            database.execute("ROLLBACK")


def _release(error: BaseException) -> None:
    """Drop the variables of work that raised: a cursor among them would hold its snapshot."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # An error that is raised anew still knows coroutines that go on.
        if not frame.f_code.co_flags & SUSPENDABLE:
            with suppress(RuntimeError):  # it runs
                frame.clear()


def _begin(database: sqlite3.Connection, deadline: float) -> None:
    timeout = max(deadline - time.monotonic(), 0)
    # In tenths of a second: each distinct statement takes a place among the cached ones.
    database.execute(f"PRAGMA busy_timeout = {round(timeout, 1) * 1000:.0f}")
    database.execute("BEGIN IMMEDIATE")


def _commit(database: sqlite3.Connection) -> None:
    try:
        database.execute("COMMIT")
    except (sqlite3.Error, MemoryError):
        _disown(database)
        raise


def _disown(database: sqlite3.Connection) -> None:
    """Keep a failed commit from coming true later.

    One whose sync failed lies whole in the write-ahead log, where the recovery
    after a crash would find it; an empty commit takes its place.
    """
    with suppress(sqlite3.Error):
        if database.in_transaction:
            database.execute("ROLLBACK")
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
