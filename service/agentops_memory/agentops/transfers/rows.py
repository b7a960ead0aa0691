"""The rows of an import: stored, staged, applied and discarded, a transaction a function."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import islice

from ...engine.engine import Transaction
from ...errors import Denied, NotFound, Unavailable
from ...memory.limits import require_margin, require_room
from ...memory.model.imports import Import, ImportId, Row
from ...memory.model.memory import Imported, Memory
from ...memory.sql.imports import ImportTable
from ...memory.sql.memories import MemoryTable
from .batches import Batches
from .storing import is_refused

BATCH = 50  # rows that are applied between two looks at the clock, and at who waits
MAX_APPLIED = 1000  # rows applied in one transaction, within its time limit
MAX_APPLIED_CONTENDED = 4  # while other writers wait
MAX_DISCARDED = 1000  # staged rows removed in one transaction
STAGING_TIMEOUT = timedelta(minutes=1)  # without a row, after which an import is abandoned


def import_rows(tx: Transaction, rows: Sequence[Row]) -> Imported:
    """Store rows at once; OverQuota when the tenant has no room for them."""
    batches, size = Batches(tx), 1 if tx.room is not None else BATCH
    with tx[MemoryTable].in_bulk():
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            for row in some:
                (require_room if isinstance(row, Memory) else require_margin)(tx)
            batches.add(some)
    batches.refused += sum(is_refused(tx, it) for it in batches.links)
    return batches.imported


def stage_rows(
    tx: Transaction, import_: ImportId | None, rows: Sequence[Row], *, is_last: bool
) -> ImportId:
    """Stage the next rows of an import, a new one for None; accept it with the last.

    Unavailable if it was discarded after `STAGING_TIMEOUT`.
    """
    require_room(tx)
    if import_ is None:
        import_ = tx[ImportTable].begin(tx.caller.projects)
    elif (found := tx[ImportTable].get(import_)) is None or found.is_finished:
        raise Unavailable("The import has paused for too long; nothing was stored.")
    tx[ImportTable].stage(import_, rows)
    if is_last:
        require_room(tx, tx[ImportTable].size(import_))  # as much again, in tables and index
        tx[ImportTable].accept(import_)
    return import_


def apply_rows(
    tx: Transaction, import_: ImportId, elapsed: Callable[[], float], limit: timedelta
) -> Import:
    """Apply the next rows of an accepted import within the time limit; its progress.

    What a row supersedes is staged anew behind all rows, which may be what it names.
    Indexing is not counted in the limit. A row is skipped if it is corrupt, or if its caller
    may not store it any more. If a project was renamed meanwhile nothing is applied: the
    caller has to come again with the import's current patterns.
    """
    before = tx[ImportTable].get(import_)
    if before is None:
        raise NotFound("There is no such import.")
    if before.projects != tx.caller.projects:
        return before
    end, last, is_end = elapsed() + limit.total_seconds(), 0, False
    batches, staged = Batches(tx, skipped=(Denied,)), tx[ImportTable].rows(import_)
    with tx[MemoryTable].in_bulk():
        while some := list(islice(staged, min(BATCH, _left(tx, batches)))):
            batches.add([row for _, row in some])
            last, _ = some[-1]
            if _left(tx, batches) <= 0 or elapsed() > end:
                break
        else:
            is_end = not batches.links
    if batches.links:
        tx[ImportTable].stage(import_, batches.links)
    if is_end:
        tx[ImportTable].finish(import_)
    if last:
        tx[ImportTable].applied(import_, last, batches.imported)
    found = tx[ImportTable].get(import_)
    assert found is not None  # it was there
    return found


def discard_rows(tx: Transaction, import_: ImportId) -> bool:
    return tx[ImportTable].discard(import_, MAX_DISCARDED)


def abandoned_imports(tx: Transaction) -> list[ImportId]:
    return tx[ImportTable].silent(tx.now - STAGING_TIMEOUT, tx.now + STAGING_TIMEOUT)


def unfinished_imports(tx: Transaction) -> list[Import]:
    return tx[ImportTable].unfinished()


def is_any_staged(tx: Transaction) -> bool:
    return tx[ImportTable].is_any_staged()


def _left(tx: Transaction, batches: Batches) -> int:
    """How many rows more this transaction may apply."""
    return (MAX_APPLIED_CONTENDED if tx.is_awaited else MAX_APPLIED) - batches.size
