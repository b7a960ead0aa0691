"""The writes of a session until the service has accepted or refused them."""

import logging
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from .. import AsyncMemoryClient, SessionEnd
from .outbox import Outbox, reason
from .unsent import Unsent
from .working_memory import WorkingMemory

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
