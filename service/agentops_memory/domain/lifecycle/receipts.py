"""Erasures: who may see a receipt, and how the bytes follow what was erased."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ..errors import NotFound
from ..model.access import Caller, Role
from ..model.erasure import Erasure, ErasureId, Purge
from ..model.space import NO_PROJECT
from ..ports.engine import Engine, Transaction
from ..stores.stores import erase_some_of_store, is_store_going

PAUSE = timedelta(milliseconds=250)  # before another try, while a read or a process holds it back

HALF_WAY = "rows of imports that are half-way"
UNKNOWN_COPIES = (
    "backups, replicas and snapshots of the database file",
    "exports, and what agents, traces and logs were told",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """An erasure, and where what was erased may still be."""

    erasure: Erasure
    copies_not_reached: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    """What one try to let the bytes follow came to."""

    settled: int = 0  # erasures whose bytes are gone now
    pending: int = 0  # that are held back


def ignored(_: str) -> None:
    """For those who need not hear how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasures:
    """The erasures of one service."""

    engine: Engine

    async def get(self, caller: Caller, erasure: ErasureId) -> Receipt:
        """The receipt; NotFound for one that is unknown or of another's project."""
        caller.require(Role.READER)
        return await self.engine.read(caller, receipt, erasure)

    async def scrub(self, caller: Caller, progress: Callable[[str], None] = ignored) -> Scrubbed:
        """Let the bytes of what was erased so far leave the tenant's file; a single try.

        Changes go on meanwhile; each waits a moment at most.
        """
        while await self.engine.read(caller, is_store_going):
            progress("a deleted store")
            await self.engine.write(caller, erase_some_of_store)
        erasures = await self.engine.read(caller, pending)
        if not erasures:
            return Scrubbed()
        notes = await self.engine.read(caller, to_purge)
        for partition in notes:
            progress(f"partition {partition}")
            await self._purge(caller, partition)
        progress("the file")
        if not await self.engine.blank(caller):
            return Scrubbed(pending=len(erasures))
        await self.engine.write(caller, settle, erasures, notes)
        return Scrubbed(settled=len(erasures))

    async def finish(self, caller: Caller, progress: Callable[[str], None] = ignored) -> int:
        """Scrub until nothing is pending; the answer is how many erasures were."""
        settled = 0
        while (scrubbed := await self.scrub(caller, progress)) != Scrubbed():
            settled += scrubbed.settled
            if scrubbed.pending:
                progress("waiting for those who read an older state")
                await asyncio.sleep(PAUSE.total_seconds())
        return settled

    async def _purge(self, caller: Caller, partition: int) -> None:
        begun = await self.engine.write(caller, purge, partition, None)
        while begun is not None:
            begun = await self.engine.write(caller, purge, partition, begun)


def receipt(tx: Transaction, erasure: ErasureId) -> Receipt:
    found = tx.receipts.get(erasure)
    is_of_store = found is not None and found.project == NO_PROJECT
    if found is None or is_of_store or not tx.caller.projects.match(found.project):
        raise NotFound("No such erasure.")
    return Receipt(erasure=found, copies_not_reached=_copies(tx))


def _copies(tx: Transaction) -> tuple[str, ...]:
    imports = (HALF_WAY,) if tx.imports.has_rows() else ()
    return (*tx.receipts.copies(), *imports, *UNKNOWN_COPIES)


def pending(tx: Transaction) -> list[ErasureId]:
    return tx.receipts.pending()


def to_purge(tx: Transaction) -> Mapping[int, int]:
    return tx.index.to_purge()


def purge(tx: Transaction, partition: int, begun: Purge | None) -> Purge | None:
    return tx.index.purge(partition, begun)


def settle(tx: Transaction, erasures: Sequence[ErasureId], notes: Mapping[int, int]) -> None:
    tx.index.purged(notes)
    tx.receipts.settle(erasures)
