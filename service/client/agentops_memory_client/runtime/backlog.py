"""The writes of a session until the service has accepted or refused them."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .. import (
    AsyncMemoryClient,
    MemoryServiceError,
    MemoryServiceWarning,
    Message,
    Refused,
    SessionEnd,
)
from . import spans
from .unsent import Unsent
from .working_memory import WorkingMemory

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
PERMANENT = (400, 409, 413)  # statuses of writes that would be refused again


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


MOST_UNSENT = 1_000  # writes that are kept while the service is away

log = logging.getLogger("agentops_memory.runtime.backlog")

_OF_A_RUN = ("start_session", "end_session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A write that the service will never have, and why."""

    write: Unsent
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of the writes of a session."""

    ended: SessionEnd | None  # None while the service has not taken the end
    unsent: tuple[Unsent, ...]  # kept in the working memory, and so in its checkpoint
    lost: tuple[Lost, ...]  # the newest thousand


class Backlog:
    """The unsent writes of a working memory, which are kept there and sent while it is open."""

    def __init__(self, client: AsyncMemoryClient, working: WorkingMemory) -> None:
        self._client = client
        self._working = working
        self._outbox: Outbox | None = None
        self._ended: SessionEnd | None = None
        self._lost: deque[Lost] = deque(maxlen=MOST_UNSENT)

    @property
    def is_open(self) -> bool:
        """Whether writes are sent."""
        return self._outbox is not None

    @property
    def report(self) -> Report:
        """What the service has accepted by now, and what it has not."""
        unsent = tuple(self._working.unsent)
        return Report(ended=self._ended, unsent=unsent, lost=tuple(self._lost))

    def open(self, start: Unsent) -> None:
        """Send the start of this run, then what an earlier one left except its start and end.

        RuntimeError without a running event loop; nothing has changed then.
        """
        left = [write for write in self._working.unsent if write.operation not in _OF_A_RUN]
        self._outbox = Outbox(self._client, self._settled, [start, *left])
        self._working.unsent[:] = [start, *left]
        self._ended = None

    async def close(self) -> None:
        """Stop sending; the rest is left for the next run."""
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            await outbox.close()

    def keep(self, writes: Iterable[Unsent]) -> None:
        """Keep the writes until they are settled; beyond MOST_UNSENT the oldest are lost."""
        unsent = self._working.unsent
        unsent.extend(writes)
        while len(unsent) > MOST_UNSENT:
            oldest = unsent[1]  # the first one may be on its way
            if self._outbox is not None:
                self._outbox.withdraw(oldest)
            self._settled(oldest, f"More than {MOST_UNSENT} writes waited for the service.")

    def send(self, writes: Iterable[Unsent]) -> None:
        """Send those of them that are still kept."""
        kept = set(map(id, self._working.unsent))
        for write in writes:
            if self._outbox is not None and id(write) in kept:
                self._outbox.send(write)

    async def drain(self, within: timedelta) -> None:
        """Wait until all is sent, or an attempt has failed, or the time is over."""
        if self._outbox is not None:
            await self._outbox.drain(within)

    def _settled(self, write: Unsent, outcome: object) -> None:
        with suppress(ValueError):
            self._working.unsent.remove(write)
        if isinstance(outcome, SessionEnd):
            self._ended = outcome
        if isinstance(outcome, (Exception, str)):
            self._lost.append(Lost(write=write, reason=str(outcome)))
            why = outcome if isinstance(outcome, str) else reason(outcome)
            log.warning("a write is lost", extra={"deed": write.operation, "reason": why})
