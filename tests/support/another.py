"""Other programs on the database of a service, as `mcp` and the commands are."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from agentops_memory.local import LocalService, opened_here
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry
from agentops_memory_client.contract.models import Saved

from .engines import storage_at
from .service import observation

T = TypeVar("T")

DEADLINE = 60.0  # seconds; it comes long before


class Another:
    """The program, which any number of threads may ask."""

    def __init__(self, loop: asyncio.AbstractEventLoop, here: LocalService) -> None:
        self._loop = loop
        self._here = here

    def asked(self, work: Callable[[LocalService], Awaitable[T]]) -> T:
        """What work answers."""

        async def answer() -> T:
            return await work(self._here)

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result(DEADLINE)

    def save(self, content: str, **fields: str) -> Saved:
        given: dict[str, Any] = {**observation(content), **fields}
        return self.asked(lambda here: here.save(**given))


@contextmanager
def another(path: Path, **variables: str) -> Iterator[Another]:
    """Inside, the program has the file open."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    place = settings({**storage_at(path), **variables})
    opening = opened_here(place, Telemetry.started(None))
    try:
        here = asyncio.run_coroutine_threadsafe(opening.__aenter__(), loop).result(DEADLINE)
        yield Another(loop, here)
        asyncio.run_coroutine_threadsafe(opening.__aexit__(None, None, None), loop).result(DEADLINE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE)
        loop.close()
