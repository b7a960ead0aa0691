"""The rows of an import: stored, staged, applied and discarded, a transaction a function."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from ..errors import Denied, NotFound, Unavailable
from ..memories.lifecycles import at_key
from ..memories.limits import require_margin, require_room
from ..memories.sessions import admitted
from ..memories.writes import created, revised
from ..model.memory import Imported, Memory, Session
from ..ports.engine import Transaction
from ..ports.imports import Import, ImportId, Row
from .decisions import (
    Decision,
    Lookups,
    RowOutcome,
    decision,
    earlier_revision,
    outcome_at_key,
    session_outcome,
)

MAX_APPLIED = 1000  # rows applied in one transaction, within its time limit
MAX_APPLIED_CONTENDED = 4  # while other writers wait
MAX_DISCARDED = 1000  # staged rows removed in one transaction
STAGING_TIMEOUT = timedelta(minutes=1)  # without a row, after which an import is abandoned


def import_rows(tx: Transaction, rows: Sequence[Row]) -> Imported:
    """Store rows at once; OverQuota when the tenant has no room for them."""
    counts = Counter[type[Row]]()
    with tx.memories.in_bulk():
        for row in rows:
            (require_room if isinstance(row, Memory) else require_margin)(tx)
            counts[type(row)] += _import_row(tx, row)
    return Imported(sessions=counts[Session], memories=counts[Memory])


def stage_rows(
    tx: Transaction, import_: ImportId | None, rows: Sequence[Row], *, is_last: bool
) -> ImportId:
    """Stage the next rows of an import, a new one for None; accept it with the last.

    Unavailable if it was discarded after `STAGING_TIMEOUT`.
    """
    require_room(tx)
    if import_ is None:
        import_ = tx.imports.begin(tx.caller.projects)
    elif (found := tx.imports.get(import_)) is None or found.is_finished:
        raise Unavailable("The import has paused for too long; nothing was stored.")
    tx.imports.stage(import_, rows)
    if is_last:
        require_room(tx, tx.imports.size(import_))  # as much again, in tables and index
        tx.imports.accept(import_)
    return import_


def apply_rows(
    tx: Transaction, import_: ImportId, elapsed: Callable[[], float], limit: timedelta
) -> Import:
    """Apply the next rows of an accepted import within the time limit; its progress.

    Indexing is not counted in the limit. A row is skipped if it is corrupt, or if its caller
    may not store it any more. If a project was renamed meanwhile nothing is applied: the
    caller has to come again with the import's current patterns.
    """
    before = tx.imports.get(import_)
    if before is None:
        raise NotFound("There is no such import.")
    if before.projects != tx.caller.projects:
        return before
    end, counts, last = elapsed() + limit.total_seconds(), Counter[type[Row]](), 0
    with tx.memories.in_bulk():
        for number, (position, row) in enumerate(tx.imports.rows(import_), start=1):
            if row is not None:
                with suppress(Denied):
                    counts[type(row)] += _import_row(tx, row)
            last = position
            if (
                number >= (MAX_APPLIED_CONTENDED if tx.is_awaited else MAX_APPLIED)
                or elapsed() > end
            ):
                break
        else:
            tx.imports.finish(import_)
    if last:
        tx.imports.applied(import_, last, counts[Session], counts[Memory])
    found = tx.imports.get(import_)
    assert found is not None  # it was there
    return found


def discard_rows(tx: Transaction, import_: ImportId) -> bool:
    return tx.imports.discard(import_, MAX_DISCARDED)


def abandoned_imports(tx: Transaction) -> list[ImportId]:
    return tx.imports.silent(tx.now - STAGING_TIMEOUT, tx.now + STAGING_TIMEOUT)


def unfinished_imports(tx: Transaction) -> list[Import]:
    return tx.imports.unfinished()


def is_any_staged(tx: Transaction) -> bool:
    return tx.imports.is_any_staged()


def merge_at_key(tx: Transaction, held: Memory, memory: Memory) -> None:
    """Merge a memory into the one that holds its key: the later text wins."""
    outcome = outcome_at_key(Lookups(tx), held, memory)
    _store(tx, Decision(outcome=outcome, memory=memory, existing=held))


def _import_row(tx: Transaction, row: Row) -> bool:
    """Whether something of the row was stored."""
    return _import_session(tx, row) if isinstance(row, Session) else _import_memory(tx, row)


def _import_session(tx: Transaction, session: Session) -> bool:
    is_new = session_outcome(Lookups(tx), session) is RowOutcome.NEW
    admitted(tx, session)
    if is_new:
        tx.sessions.close(session)
    return is_new


def _import_memory(tx: Transaction, memory: Memory) -> bool:
    decided = decision(Lookups(tx), memory)
    if decided.is_present:
        return False
    session = memory.session
    assert session is not None  # entries of stores are not imported
    admitted(tx, Session(id=session, project=memory.space.project, started_at=memory.created_at))
    _store(tx, decided)
    return decided.outcome.is_stored


def _store(tx: Transaction, decided: Decision) -> None:
    memory, existing = decided.memory, decided.existing
    if memory.key is not None:
        at_key(tx, memory.space, memory.key)  # an expired memory leaves it
    if existing is None:
        created(tx, replace(memory, uid=memory.uid or tx.new_uid(memory.created_at)))
    elif decided.outcome is RowOutcome.EARLIER:
        tx.revisions.keep(replace(existing, revision=existing.revision - 1))  # it may have no text
        tx.revisions.absorb(existing.id, earlier_revision(existing, memory))
    elif decided.outcome.is_stored:
        revised(tx, existing, decided.state)
