"""What a run sees: memory as it was when it began, whole or refused (OpenWOP RFC 0004 §A)."""

from collections.abc import Iterable
from datetime import datetime

from ...engine.engine import Transaction
from ...memory.model.space import MemoryRef
from ..model.runs import ENDS, Offset, Run, RunId, RunKind, Snapshot
from ..sql.entries import RefTable
from ..sql.runs import RunTable
from ..sql.subjects import SubjectTable
from .run_rules import EXPIRED, SnapshotLost, known_run


def snapshot_of(tx: Transaction, run: RunId, ref: MemoryRef) -> Snapshot:
    """What the run sees of the ref; NotFound, SnapshotLost.

    While a run is open, what it may see is kept, but for what expires. Of a run that has
    ended, and of refs that a fork's source had not named, something may be gone.
    """
    found = known_run(tx, run)
    if found.is_open and (found.kind is RunKind.HOST or ref in found.refs):
        return found.snapshot
    first = tx[RunTable].event(found, 0)
    since = None if first is None else first.offset
    reason = lost_of(tx, found, found.snapshot, [ref], _expiring(found), since)
    if reason is None and tx[SubjectTable].may_have_been(ref, found.snapshot):
        reason = EXPIRED
    if reason is not None:
        raise SnapshotLost(found.source or found.id, found.from_sequence, reason)
    return found.snapshot


def lost_of(
    tx: Transaction,
    run: Run,
    at: Snapshot,
    refs: Iterable[MemoryRef],
    until: datetime,
    since: Offset | None = None,
) -> str | None:
    """Why a snapshot that the run's log tells of is not there as a whole; None if it is."""
    last = tx[RunTable].last(run)
    if last is None:
        return EXPIRED
    if not run.is_open and last.type not in ENDS.values():
        return EXPIRED  # the end of a log goes first
    return EXPIRED if any(tx[RefTable].has_lost(ref, at, until, since) for ref in refs) else None


def _expiring(run: Run) -> datetime:
    """Until when what expires is lost to it; from then on, expiry holds in the run itself."""
    return run.snapshot.at if run.kind is RunKind.HOST else run.started_at
