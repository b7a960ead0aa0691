"""Erasures: who may see a receipt, and how the bytes follow what was erased."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from ...engine.callbacks import Progress, noop
from ...engine.engine import Engine, Transaction
from ...engine.maintenance import Scrubbed
from ...errors import NotFound
from ...stores.rules.stores import erase_some_of_store, is_store_going
from ..model.access import Caller, Role
from ..model.erasure import UNKNOWN_COPIES, Erasure, ErasureId, Receipt
from ..sql.imports import ImportTable
from ..sql.receipts import ReceiptTable

PAUSE = timedelta(milliseconds=250)  # before another try, while a read or a process holds it back

HALF_WAY = "rows of imports that are half-way"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasures:
    """The erasures of one service."""

    engine: Engine

    async def get(self, caller: Caller, erasure: ErasureId) -> Receipt:
        """The receipt; NotFound for one that is unknown or of another's project."""
        caller.require(Role.READER)
        found, is_import_half_way = await self.engine.read(caller, receipt, erasure)
        copies = self.engine.maintenance.copies(caller)
        imports = (HALF_WAY,) if is_import_half_way else ()
        return Receipt(erasure=found, copies_not_reached=(*copies, *imports, *UNKNOWN_COPIES))

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:
        """Let the bytes of what was erased so far leave the storage; a single try.

        Changes go on meanwhile; each waits a moment at most.
        """
        while await self.engine.read(caller, is_store_going):
            progress("a deleted store")
            await self.engine.write(caller, erase_some_of_store)
        return await self.engine.maintenance.scrub(caller, progress)

    async def finish(self, caller: Caller, progress: Progress = noop) -> int:
        """Scrub until nothing is pending; the answer is how many erasures were."""
        settled = 0
        while (scrubbed := await self.scrub(caller, progress)) != Scrubbed():
            settled += scrubbed.settled
            if scrubbed.pending:
                progress("waiting for those who read an older state")
                await asyncio.sleep(PAUSE.total_seconds())
        return settled


def receipt(tx: Transaction, erasure: ErasureId) -> tuple[Erasure, bool]:
    """The receipt, and whether rows of imports that are half-way may hold what was erased."""
    found = tx[ReceiptTable].get(erasure)
    if found is None or not (found.has_project and tx.caller.projects.match(found.project)):
        raise NotFound("No such erasure.")
    return found, tx[ImportTable].has_rows()
