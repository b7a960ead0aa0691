"""Many connections at a time on one thread, so that the client takes little from the service."""

import selectors
import socket
from collections.abc import Generator, Iterable, Sequence
from itertools import cycle, islice

from .client import TIMEOUT, Answer, Request, connected, more, received

Conversation = Generator[Request, Answer, None]
"""Requests, each made when the one before is answered."""


class Crowd:
    """Some connections, kept open; dealt out to several ports if there are others."""

    def __init__(self, port: int, connections: int, *others: int) -> None:
        ports = islice(cycle((port, *others)), connections)
        self._sockets = [connected(port) for port in ports]

    def converse(self, conversations: Sequence[Conversation]) -> None:
        """All of the conversations at the same time, a connection each, to the end of each."""
        with selectors.DefaultSelector() as selector:
            for connection, conversation in zip(self._sockets, conversations, strict=True):
                if (line := _Line(connection, conversation)).begins():
                    selector.register(connection, selectors.EVENT_READ, line)
            while selector.get_map():
                self._answer(selector)

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()

    def _answer(self, selector: selectors.BaseSelector) -> None:
        ready = selector.select(TIMEOUT)
        if not ready:
            raise SystemExit("The service does not answer.")
        for key, _ in ready:
            if not key.data.goes_on():
                selector.unregister(key.fileobj)


def in_turn(requests: Iterable[Request]) -> Conversation:
    """Whatever was answered, the next; several conversations may share an iterator."""
    for request in requests:
        (yield request).good()


class _Line:
    """A conversation on its connection."""

    def __init__(self, connection: socket.socket, conversation: Conversation) -> None:
        self._connection = connection
        self._conversation = conversation
        self._data = b""

    def begins(self) -> bool:
        """Ask for the first time; false when there is nothing to ask."""
        request = next(self._conversation, None)
        if request is not None:
            self._connection.sendall(request)
        return request is not None

    def goes_on(self) -> bool:
        """Take what has come, and ask again once it is whole; false at the end."""
        self._data += more(self._connection)
        answer = received(self._data)
        if answer is None:
            return True
        self._data = b""
        try:
            self._connection.sendall(self._conversation.send(answer))
        except StopIteration:
            return False
        return True
