"""One at a time: what a tenant asks for again waits until it is done."""

import asyncio
from weakref import WeakValueDictionary

from ...memory.model.access import Caller


class Turns:
    """The locks of one service, each as long as somebody holds it or waits."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()

    def of(self, caller: Caller, *names: str) -> asyncio.Lock:
        """The lock of something of the caller's tenant."""
        return self._locks.setdefault((caller.tenant, *names), asyncio.Lock())
