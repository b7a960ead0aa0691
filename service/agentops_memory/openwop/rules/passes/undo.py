"""The undo of a pass: all of it, or nothing."""

from ....engine.engine import Ids, Transaction
from ....memory.idempotency import IdempotentRequest, is_due
from ...adapter import removed
from ...model.passes import Pass, Undone
from ...runs import Recorded, RunEventType, RunId, RunTable, known_run
from ...sql.passes import PassTable
from .rules import PassNotUndoable


def undo_pass(tx: Transaction, run: RunId) -> Undone:
    """Bring back what a pass has replaced, and take away what it has written."""
    tx.caller.require_refs()
    done = undoable(tx, run)
    tx[PassTable].undo(done)
    for memory in done.written:
        removed(tx, memory)
    tx[RunTable].record(RunEventType.UNDONE, [Recorded({"runId": run}, (done.ref,))])
    return Undone(run=run, restored=tx[PassTable].restored(done), removed=len(done.written))


def undoable(tx: Transaction, run: RunId) -> Pass:
    """The pass that the run is; PassNotUndoable."""
    known = known_run(tx, run)
    done = None if known.is_open else tx[PassTable].get(known)
    if done is None or done.is_undone or not tx[PassTable].is_whole(done):
        raise PassNotUndoable
    return done


def is_undo_due(tx: Transaction, run: RunId, idempotency: IdempotentRequest | None) -> bool:
    """Whether it was not undone under the idempotency key; PassNotUndoable."""
    return is_due(tx, idempotency) and bool(undoable(tx, run))


def ids_of_undone(undone: Undone) -> Ids:
    return {"restored": undone.restored, "removed": undone.removed}


def undone_again(tx: Transaction, ids: Ids, run: RunId) -> Undone:
    tx.caller.require_refs()
    return Undone(run=run, restored=int(ids["restored"]), removed=int(ids["removed"]))
