"""The bounded line in front of the writer."""

import asyncio
from datetime import timedelta


class Turnstile:
    """Lets a bounded number through; the others wait, and are turned away after a while."""

    def __init__(self, places: int, patience: timedelta) -> None:
        self._places = asyncio.Semaphore(places)
        self._patience = patience.total_seconds()

    async def enter(self) -> bool:
        """Whether a place came free in time."""
        if not self._places.locked():
            return await self._places.acquire()  # at once
        try:
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        except TimeoutError:
            return False
        return True

    def leave(self) -> None:
        """Give the place back."""
        self._places.release()
