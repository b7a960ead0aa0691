"""The connections of a process to the database, each used by one thread at a time."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from ...engine.callbacks import noop

Connect = Callable[[], psycopg.Connection[Any]]


class Connections:
    """Connections that wait for work; opened when they are needed. Any thread may use them."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self.on_broken: Callable[[], None] = noop  # told of each that ends before it is closed
        self._idle: list[psycopg.Connection[Any]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def one(self) -> Iterator[tuple[psycopg.Connection[Any], bool]]:
        """A connection for this thread, and whether it is new; dropped if it breaks."""
        with self._lock:
            there = self._idle.pop() if self._idle else None
        connection = there or self._connect()
        try:
            yield connection, there is None
        finally:
            self._give_back(connection)

    def close(self) -> None:
        self._is_closed = True
        self.forget_idle()

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        is_usable = (
            not connection.closed
            and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        )
        with self._lock:
            if is_usable and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()
        if not is_usable:
            self.on_broken()

    def forget_idle(self) -> None:
        """Drop those that wait: the server that they led to is gone."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def free(connection: psycopg.Connection[Any]) -> None:
    """Leave no transaction on a connection, or drop it."""
    try:
        if not connection.closed:
            connection.rollback()
    except psycopg.Error:
        connection.close()
