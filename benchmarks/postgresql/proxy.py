"""A proxy in front of a database that counts round trips: turns of the talk to the server."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict, make_conninfo

BLOCK = 1 << 16  # bytes passed on at a time


@dataclass(slots=True)
class Counted:
    """A URL through the proxy, and the round trips so far."""

    url: str
    trips: int = 0


@contextmanager
def counted(url: str) -> Iterator[Counted]:
    """The database behind a proxy; it is for a few connections at a time."""
    parts = conninfo_to_dict(url)
    host, port = str(parts.get("host", "127.0.0.1")), int(parts.get("port") or 5432)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = make_conninfo(url, host="127.0.0.1", port=listener.getsockname()[1])
        found = Counted(_url(ours))
        threading.Thread(target=_accept, args=(listener, host, port, found), daemon=True).start()
        yield found
        listener.shutdown(socket.SHUT_RDWR)


def _url(conninfo: str) -> str:
    given = conninfo_to_dict(conninfo)
    who = f"{given['user']}@" if "user" in given else ""
    secret = f"?password={given['password']}" if "password" in given else ""
    return f"postgresql://{who}{given['host']}:{given['port']}/{given['dbname']}{secret}"


def _accept(listener: socket.socket, host: str, port: int, found: Counted) -> None:
    with suppress(OSError):  # at the end
        while True:
            client, _ = listener.accept()
            server = _connected(host, port)
            threading.Thread(target=_pass, args=(client, server, found), daemon=True).start()


def _connected(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server


def _pass(client: socket.socket, server: socket.socket, found: Counted) -> None:
    """Pass on what comes from either side, until one of them ends."""
    to, speaker = {client: server, server: client}, server
    with client, server, selectors.DefaultSelector() as selector:
        for each in to:
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                source = client if key.fileobj is client else server
                try:
                    block = source.recv(BLOCK)
                    to[source].sendall(block)
                except OSError:
                    return
                if not block:
                    return
                found.trips += source is client and speaker is server
                speaker = source
