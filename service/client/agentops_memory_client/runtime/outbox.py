"""Sends writes to the service in the background, in order and with retries."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from .. import AsyncMemoryClient, MemoryServiceError, MemoryServiceWarning, Message, Refused
from . import spans
from .unsent import Unsent

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
PERMANENT = (400, 409, 413)  # statuses of writes that would be refused again

log = logging.getLogger("agentops_memory.runtime.outbox")


class Outbox:
    """A queue of writes, sent one after the other; a temporary failure is retried with backoff.

    `settled` is called with each write that is done, and with the service's answer
    or the exception of a permanent failure.
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
        self._wake = asyncio.Event()  # set when there is a reason to send
        self._idle = asyncio.Event()  # set when the queue is empty, or an attempt failed
        self._failures = 0
        self._task = asyncio.get_running_loop().create_task(self._send_all())

    def send(self, write: Unsent) -> None:
        """Append it to the queue, and end a backoff in progress."""
        self._queue.append(write)
        self._wake.set()

    def withdraw(self, write: Unsent) -> None:
        """Remove it from the queue, if it is there."""
        with suppress(ValueError):
            self._queue.remove(write)

    async def drain(self, within: timedelta) -> None:
        """Wait until all is sent, or an attempt has failed, or the time is over."""
        if not self._queue:
            return
        self._idle.clear()
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                await self._idle.wait()

    async def close(self) -> None:
        """Stop sending; a request in progress may have been executed."""
        self._task.cancel()
        await asyncio.wait([self._task])  # which raises only a cancellation of the caller

    async def _send_all(self) -> None:
        while True:
            self._wake.clear()
            while self._queue and await self._is_settled(self._queue[0]):
                pass
            self._idle.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()

    async def _is_settled(self, write: Unsent) -> bool:
        try:
            outcome: object = await self._sent(write)
        except Exception as failure:  # noqa: BLE001 - the loop must not end unseen
            if not _is_permanent(failure):
                self._failed(failure)
                return False
            outcome = failure
        self._failures = 0
        self.withdraw(write)
        self._settled(write, outcome)
        return True

    async def _sent(self, write: Unsent) -> object:
        attributes = {"memory.operation": write.operation}
        with spans.span("runtime.deliver", attributes, under=write.trace):
            method = getattr(self._client, write.operation)
            return await method(**_arguments(write), idempotency_key=write.key)

    def _failed(self, failure: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            log.warning(
                "the service does not take what is told; it is tried again",
                extra={"reason": reason(failure), "unsent": len(self._queue)},
            )

    def _pause(self) -> float | None:
        """Seconds until the next attempt; None while the queue is empty."""
        if not self._queue:
            return None
        pause: timedelta = FIRST_PAUSE * 2 ** min(self._failures - 1, 10)
        return min(pause, LONGEST_PAUSE).total_seconds()


def reason(failure: Exception) -> str:
    """The message of a MemoryServiceError; of any other exception its type alone."""
    return str(failure) if isinstance(failure, MemoryServiceError) else type(failure).__name__


def _is_permanent(failure: Exception) -> bool:
    """Whether a retry would fail: refused for its content, or no valid request."""
    if isinstance(failure, Refused):
        return failure.status in PERMANENT
    # A program may turn warnings into exceptions; the write is stored, and each retry would warn.
    return isinstance(failure, (TypeError, MemoryServiceWarning))


def _arguments(write: Unsent) -> dict[str, Any]:
    fields = dict(write.fields)
    if "messages" in fields:
        fields["messages"] = [Message(**message) for message in fields["messages"]]
    return fields
