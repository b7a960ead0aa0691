"""Writes on their way to the service: in their order, in the background, until they are there."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from .. import AsyncMemoryClient, MemoryServiceError, Message, Refused
from . import spans
from .unsent import Unsent

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
HOPELESS = (400, 409, 413)  # what the service says to a write that it will never take

log = logging.getLogger("agentops_memory.runtime.outbox")


class Outbox:
    """Sends one write after the other; one that the service cannot take now is tried again.

    `settled` is told of each write that needs no further care, with the service's
    answer or with what is wrong with the write.
    """

    def __init__(
        self,
        client: AsyncMemoryClient,
        settled: Callable[[Unsent, object], None],
        writes: Iterable[Unsent] = (),
    ) -> None:
        self._client = client
        self._settled = settled
        self._queue = deque(writes)
        self._bell = asyncio.Event()  # rung when there is a reason to send
        self._rest = asyncio.Event()  # set when nothing is left, or nothing goes
        self._failures = 0
        self._task = asyncio.get_running_loop().create_task(self._send_all())

    def send(self, write: Unsent) -> None:
        """Send it after the others; what waits for its next attempt is not waited for."""
        self._queue.append(write)
        self._bell.set()

    def withdraw(self, write: Unsent) -> None:
        """Do not send it, if it was not yet."""
        with suppress(ValueError):
            self._queue.remove(write)

    async def emptied(self, within: timedelta) -> None:
        """Wait until all is sent, or an attempt has failed, or the time is over."""
        if not self._queue:
            return
        self._rest.clear()
        self._bell.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                await self._rest.wait()

    async def close(self) -> None:
        """Send nothing more; what was under way may have been done."""
        self._task.cancel()
        await asyncio.wait([self._task])  # which raises nothing but what is meant for the caller

    async def _send_all(self) -> None:
        while True:
            self._bell.clear()
            while self._queue and await self._is_settled(self._queue[0]):
                pass
            self._rest.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._bell.wait()

    async def _is_settled(self, write: Unsent) -> bool:
        try:
            outcome: object = await self._sent(write)
        except Exception as failure:  # noqa: BLE001 - an agent's memory must not end unseen
            if not _is_hopeless(failure):
                self._failed(failure)
                return False
            outcome = failure
        self._failures = 0
        self.withdraw(write)
        self._settled(write, outcome)
        return True

    async def _sent(self, write: Unsent) -> object:
        attributes = {"memory.operation": write.deed}
        with spans.span("runtime.deliver", attributes, under=write.trace):
            method = getattr(self._client, write.deed)
            return await method(**_arguments(write), idempotency_key=write.key)

    def _failed(self, failure: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            log.warning(
                "the service does not take what is told; it is tried again",
                extra={"reason": reason(failure), "unsent": len(self._queue)},
            )

    def _pause(self) -> float | None:
        """Seconds until the next attempt; None when there is nothing to send."""
        if not self._queue:
            return None
        pause: timedelta = FIRST_PAUSE * 2 ** min(self._failures - 1, 10)
        return min(pause, LONGEST_PAUSE).total_seconds()


def reason(failure: Exception) -> str:
    """Why it failed: the sentence of a service or client, of all else the type alone."""
    return str(failure) if isinstance(failure, MemoryServiceError) else type(failure).__name__


def _is_hopeless(failure: Exception) -> bool:
    """Whether the same write fails again: the service refuses it, or the client cannot make it."""
    if isinstance(failure, Refused):
        return failure.status in HOPELESS
    return isinstance(failure, TypeError)


def _arguments(write: Unsent) -> dict[str, Any]:
    fields = dict(write.fields)
    if "messages" in fields:
        fields["messages"] = [Message(**message) for message in fields["messages"]]
    return fields
