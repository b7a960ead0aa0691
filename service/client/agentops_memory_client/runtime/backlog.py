"""The writes of a session until the service has accepted or refused them."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from .. import AsyncMemoryClient, Message, SessionEnd
from ..contract.errors import MemoryServiceError, MemoryServiceWarning, Refused
from . import spans
from .working_memory import Unsent, WorkingMemory

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)  # how late writes arrive after a long outage
PERMANENT = (400, 409, 413)  # statuses of writes that would be refused again
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
    """The unsent writes of a working memory, which are kept there and sent while it is open.

    They are sent one after the other; a temporary failure is retried with backoff.
    """

    _wake: asyncio.Event  # set when there is a reason to send
    _idle: asyncio.Event  # set when the queue is empty, or an attempt failed

    def __init__(self, client: AsyncMemoryClient, working: WorkingMemory) -> None:
        self._client = client
        self._working = working
        self._queue: deque[Unsent] = deque()
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._ended: SessionEnd | None = None
        self._lost: deque[Lost] = deque(maxlen=MOST_UNSENT)

    @property
    def is_open(self) -> bool:
        """Whether writes are sent."""
        return self._task is not None

    @property
    def report(self) -> Report:
        """What the service has accepted by now, and what it has not."""
        unsent = tuple(self._working.unsent)
        return Report(ended=self._ended, unsent=unsent, lost=tuple(self._lost))

    def open(self, start: Unsent) -> None:
        """Send the start of this run, then what an earlier one left except its start and end.

        RuntimeError without a running event loop; nothing has changed then.
        """
        loop = asyncio.get_running_loop()
        left = [write for write in self._working.unsent if write.operation not in _OF_A_RUN]
        self._working.unsent[:] = [start, *left]
        self._queue, self._failures, self._ended = deque(self._working.unsent), 0, None
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._task = loop.create_task(self._send_all())

    async def close(self) -> None:
        """Stop sending; a request in progress may have been executed. The next run has the rest."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])  # which raises only a cancellation of the caller

    def keep(self, writes: Iterable[Unsent]) -> None:
        """Keep the writes until they are settled; beyond MOST_UNSENT the oldest are lost."""
        unsent = self._working.unsent
        unsent.extend(writes)
        while len(unsent) > MOST_UNSENT:
            oldest = unsent[1]  # the first one may be on its way
            self._settle(oldest, f"More than {MOST_UNSENT} writes waited for the service.")

    def send(self, writes: Iterable[Unsent]) -> None:
        """Send those of them that are still kept, and end a backoff in progress."""
        kept = set(map(id, self._working.unsent))
        due = [write for write in writes if id(write) in kept]
        if self.is_open and due:
            self._queue.extend(due)
            self._wake.set()

    async def drain(self, within: timedelta) -> None:
        """Wait until all is sent, or an attempt has failed, or the time is over."""
        if not self.is_open or not self._queue:
            return
        self._idle.clear()
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                await self._idle.wait()

    async def _send_all(self) -> None:
        while True:
            self._wake.clear()
            while self._queue and await self._is_settled(self._queue[0]):
                pass
            self._idle.set()
            pause = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause.total_seconds() if self._queue else None):
                    await self._wake.wait()

    async def _is_settled(self, write: Unsent) -> bool:
        try:
            outcome: object = await self._sent(write)
        except Exception as failure:  # noqa: BLE001 - the loop must not end unseen
            if not _is_permanent(failure):
                self._failures += 1
                if self._failures == 1:
                    log.warning(
                        "the service does not accept writes; retrying",
                        extra={"reason": reason(failure), "unsent": len(self._queue)},
                    )
                return False
            outcome = failure
        self._failures = 0
        self._settle(write, outcome)
        return True

    async def _sent(self, write: Unsent) -> object:
        fields = dict(write.fields)
        if "messages" in fields:
            fields["messages"] = [Message(**message) for message in fields["messages"]]
        attributes = {"memory.operation": write.operation}
        with spans.span("runtime.deliver", attributes, under=write.trace):
            method = getattr(self._client, write.operation)
            return await method(**fields, idempotency_key=write.key)

    def _settle(self, write: Unsent, outcome: object) -> None:
        """Forget a write: the service has answered it, or never will, as the outcome says."""
        for writes in (self._queue, self._working.unsent):
            with suppress(ValueError):
                writes.remove(write)
        if isinstance(outcome, SessionEnd):
            self._ended = outcome
        if isinstance(outcome, (Exception, str)):
            self._lost.append(Lost(write=write, reason=str(outcome)))
            why = outcome if isinstance(outcome, str) else reason(outcome)
            log.warning("a write is lost", extra={"deed": write.operation, "reason": why})


def reason(failure: Exception) -> str:
    """The message of a MemoryServiceError; of any other exception its type alone."""
    return str(failure) if isinstance(failure, MemoryServiceError) else type(failure).__name__


def _is_permanent(failure: Exception) -> bool:
    """Whether a retry would fail: refused for its content, or no valid request."""
    if isinstance(failure, Refused):
        return failure.status in PERMANENT
    # A program may turn warnings into exceptions; the write is stored, and each retry would warn.
    return isinstance(failure, (TypeError, MemoryServiceWarning))
