"""Values that all requests of one turn of the event loop share."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class OncePerTurn(Generic[T]):
    """A value that is computed once in each turn of the event loop, when first needed.

    In one turn, the event loop reads all requests that have begun to arrive before it. So a
    check within the turn is as new as any of them needs. Outside of an event loop, each call
    computes the value.
    """

    def __init__(self, compute: Callable[[], T]) -> None:
        self._compute = compute
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """Return the value of this turn; an error is raised, and not kept."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._compute()
        if loop not in self._values:
            self._values[loop] = self._compute()
            loop.call_soon(self._values.clear)
        return self._values[loop]

    def renewed(self) -> T:
        """Compute the value again, and return it."""
        self._values.clear()
        return self.get()
