"""A service's turn: it waits until the one before has let go of the database."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from ..domain.errors import StartRefused
from .service_lock import InUse, served_alone

log = logging.getLogger(__name__)

LOOK = timedelta(milliseconds=100)  # after which it is looked again whether the other has ended
LONGER = "Or let this one wait longer for it, with MEMORY_LOCK_WAIT."

Waits = Callable[[str], None]


def unheard(_: str) -> None:
    """For those who need not hear what is waited for."""


@asynccontextmanager
async def its_turn(
    database: Path, patience: timedelta, waits: Waits = unheard
) -> AsyncIterator[None]:
    """Inside, this service has the database alone; StartRefused when another keeps it too long.

    `waits` is told for what it waits, and nothing once that is over.
    """
    with ExitStack() as held:
        await _taken(held, database, patience, waits)
        waits("")
        yield


async def _taken(held: ExitStack, database: Path, patience: timedelta, waits: Waits) -> None:
    loop = asyncio.get_running_loop()
    began, end = loop.time(), loop.time() + patience.total_seconds()
    while True:
        try:
            return held.enter_context(served_alone(database))
        except InUse as refusal:
            if loop.time() >= end:
                raise StartRefused(f"{refusal} {LONGER}") from refusal
            if loop.time() - began < LOOK.total_seconds():
                log.warning(
                    "another service has the database; waiting for its end",
                    extra={"holder": str(refusal.holder), "seconds": patience.total_seconds()},
                )
            waits(f"Another service has the database: {refusal.holder}. This one waits for it.")
        await asyncio.sleep(min(LOOK.total_seconds(), end - loop.time()))
