"""The one writer: changes wait in line, and those that wait together are committed together."""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from ....domain.errors import Busy, Refusal, Unavailable
from ..base.connection import Connection
from ..base.transactions import Check, nothing
from .admission import Turnstile
from .batches import Failed, IdempotencyRecord, Outcome, Work, alone, together

T = TypeVar("T")

MEMBERS = 64  # of a batch
TURNS = 3  # of the loop, from a request's arrival to its change

Committed = Callable[[int, float], None]


def unheard(_: int, __: float) -> None:
    """For those who need not hear of commits."""


class Writer:
    """A line of changes and the loop that serves it. `serve` runs as long as changes may come.

    `committed` is told of each commit: how many changes, and the seconds that they took.
    `check` raises what all of them are refused with instead.
    """

    def __init__(
        self,
        connection: Connection,
        places: Turnstile,
        after: Callable[[], Awaitable[None]],
        committed: Committed = unheard,
        check: Check = nothing,
    ) -> None:
        self._connection = connection
        self._places = places
        self._after = after  # each batch
        self._committed = committed
        self._check = check
        self._line: deque[_Change] = deque()  # each until its caller is answered
        self._stirred = asyncio.Event()
        self._is_closing = False
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many changes wait or are being made."""
        return len(self._line)

    async def write(self, work: Work[T], patience: timedelta) -> T:
        """What work answers, once it is on disk. A cancelled caller leaves; the change goes on.

        Raises Busy when there is no place in the line, and Unavailable after the end.
        """
        if not await self._places.enter():
            raise Busy("Too many writes are waiting; try again.")
        if self._is_closed:
            self._places.leave()
            raise Unavailable("The database is closed.")
        # Counted from here, so that writes behind a lock are refused together, not in turn.
        change = _Change(work, time.monotonic() + patience.total_seconds())
        self._line.append(change)
        self._stirred.set()
        return cast("T", await change.answer)

    async def serve(self) -> None:
        """Write what comes, until `close` has been called and the line is empty."""
        try:
            while await self._is_wanted():
                await self._write_next()
                await self._after()
        finally:
            self._is_closed = True
            self._settle_all(self._line, Failed(Unavailable("The database is closed.")))

    def close(self) -> None:
        """Let what was accepted end; then `serve` does."""
        self._is_closing = True
        self._stirred.set()

    async def _is_wanted(self) -> bool:
        if not (self._line or self._is_closing):
            self._stirred.clear()
            await self._stirred.wait()
        for _ in range(TURNS):  # what arrives together is written together
            await asyncio.sleep(0)
        return bool(self._line)

    async def _write_next(self) -> None:
        batch = list(islice(self._line, MEMBERS))
        try:
            for change in await self._undecided(batch):
                run = self._prepared(alone, change.work, change.patient_until)
                began, outcome = time.monotonic(), await self._connection.run(run)
                self._tell([outcome], began)
                self._settle(change, outcome)
        except Exception as error:  # noqa: BLE001 - else all that come later would wait for ever
            self._settle_all(batch, Failed(error))

    async def _undecided(self, batch: list["_Change"]) -> list["_Change"]:
        """Those to be run alone; the others that had time to begin are answered."""
        if len(batch) == 1:
            return batch
        works = [change.work for change in batch]
        run = self._prepared(together, works, batch[0].patient_until)
        began, came = time.monotonic(), await self._connection.run(run)
        self._tell(came, began)
        outcomes = list(zip(batch, came, strict=False))
        for change, outcome in outcomes:
            if outcome is not None:
                self._settle(change, outcome)
        return [change for change, outcome in outcomes if outcome is None]

    def _prepared(self, commit: Callable[..., T], *args: object) -> Callable[..., T]:
        return partial(commit, *args, check=self._check)

    def _tell(self, outcomes: Iterable[Outcome | None], began: float) -> None:
        done = sum(isinstance(outcome, IdempotencyRecord) for outcome in outcomes)
        if done:
            self._committed(done, time.monotonic() - began)

    def _settle_all(self, batch: Iterable["_Change"], outcome: Outcome) -> None:
        for change in list(batch):
            if change in self._line:
                self._settle(change, outcome)

    def _settle(self, change: "_Change", outcome: Outcome) -> None:
        self._line.remove(change)
        self._places.leave()
        change.settle(self._checked(outcome))

    def _checked(self, outcome: Outcome) -> Outcome:
        """What SQLite fails with on another log looks like damage, or like a failing disk."""
        if isinstance(outcome, Failed) and isinstance(outcome.error, sqlite3.Error):
            try:
                self._check()
            except Refusal as refusal:
                return Failed(refusal)
        return outcome


class _Change:
    """A change in line, and what its caller waits for."""

    def __init__(self, work: Work[Any], patient_until: float) -> None:
        self.work = work
        self.patient_until = patient_until
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(self, outcome: Outcome) -> None:
        if self.answer.done():
            return  # its caller left
        if isinstance(outcome, IdempotencyRecord):
            self.answer.set_result(outcome.answer)
        else:
            self.answer.set_exception(outcome.error)
            self.answer.exception()  # a caller that leaves now does not ask for it
