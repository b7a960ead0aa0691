"""Another process on the database of a service, which stays, as that of an agent's `mcp` does."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agentops_memory_client.contract.errors import MemoryServiceError

from .another import DEADLINE, another


class SecondProcess:
    """Asks the process, and returns when it has answered: what it wrote is acknowledged."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, method: str, *args: object, **named: object) -> Any:
        """What a method of `MemoryService` answers; None if it is refused."""
        self._connection.send((method, args, named))
        assert self._connection.poll(DEADLINE), method
        return self._connection.recv()


@contextmanager
def second_process(path: Path, **variables: str) -> Iterator[SecondProcess]:
    """Inside, the process has the database open."""
    context = get_context("spawn")  # which shares nothing with this one
    own, other = context.Pipe()
    process = context.Process(target=_obey, args=(path, variables, other), daemon=True)
    process.start()
    try:
        assert own.poll(DEADLINE)
        own.recv()
        yield SecondProcess(own)
    finally:
        own.close()
        other.close()
        process.join(DEADLINE)


def _obey(path: Path, variables: dict[str, str], connection: Connection) -> None:
    with another(path, **variables) as here:
        connection.send("open")
        while True:
            try:
                method, args, named = connection.recv()
            except EOFError:  # nobody asks any more
                return
            try:
                ask = here.asked(lambda local: getattr(local, method)(*args, **named))  # noqa: B023 - called at once
            except MemoryServiceError:
                ask = None
            connection.send(ask)
