"""The rows of an import: stored, staged, applied and discarded, a transaction a function."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from ..errors import Conflict, Denied, NotFound, Unavailable
from ..memories.lifecycles import at_key, link, superseded
from ..memories.limits import require_margin, require_room
from ..memories.sessions import admitted
from ..memories.writes import created, revised
from ..model.memory import (
    NO_LIFECYCLE,
    NO_LINKS,
    Imported,
    Memory,
    MemoryId,
    Session,
    Supersession,
)
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
    counts, links = Counter[type[Row]](), list[Supersession]()
    with tx.memories.in_bulk():
        for row in rows:
            (require_room if isinstance(row, Memory) else require_margin)(tx)
            counts[type(row)] += _import_row(tx, row, links)
    refused = sum(_is_refused(tx, it) for it in links)
    return Imported(sessions=counts[Session], memories=counts[Memory], refused=refused)


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

    What a row supersedes is staged anew behind all rows, which may be what it names.
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
    links, refused, is_end = list[Supersession](), 0, False
    with tx.memories.in_bulk():
        for number, (position, row) in enumerate(tx.imports.rows(import_), start=1):
            if isinstance(row, Supersession):
                refused += _is_refused(tx, row)
            elif row is not None:
                with suppress(Denied):
                    counts[type(row)] += _import_row(tx, row, links)
            last = position
            if (
                number >= (MAX_APPLIED_CONTENDED if tx.is_awaited else MAX_APPLIED)
                or elapsed() > end
            ):
                break
        else:
            is_end = not links
    if links:
        tx.imports.stage(import_, links)
    if is_end:
        tx.imports.finish(import_)
    if last:
        tx.imports.applied(import_, last, counts[Session], counts[Memory])
    found = tx.imports.get(import_)
    assert found is not None  # it was there
    return replace(found, refused=refused)


def discard_rows(tx: Transaction, import_: ImportId) -> bool:
    return tx.imports.discard(import_, MAX_DISCARDED)


def abandoned_imports(tx: Transaction) -> list[ImportId]:
    return tx.imports.silent(tx.now - STAGING_TIMEOUT, tx.now + STAGING_TIMEOUT)


def unfinished_imports(tx: Transaction) -> list[Import]:
    return tx.imports.unfinished()


def is_any_staged(tx: Transaction) -> bool:
    return tx.imports.is_any_staged()


def merge_at_key(tx: Transaction, held: Memory, memory: Memory) -> None:
    """Merge a memory into the one that holds its key, which keeps its lifecycle and its links.

    The later text wins.
    """
    outcome = outcome_at_key(Lookups(tx), held, memory)
    text = replace(memory, lifecycle=NO_LIFECYCLE, links=NO_LINKS)
    _store(tx, Decision(outcome=outcome, memory=text, existing=held))


def _import_row(tx: Transaction, row: Row, links: list[Supersession]) -> bool:
    """Whether something of the row was stored; what it supersedes is added to the links."""
    if isinstance(row, Session):
        return _import_session(tx, row)
    return isinstance(row, Memory) and _import_memory(tx, row, links)


def _import_session(tx: Transaction, session: Session) -> bool:
    is_new = session_outcome(Lookups(tx), session) is RowOutcome.NEW
    admitted(tx, session)
    if is_new:
        tx.sessions.close(session)
    return is_new


def _import_memory(tx: Transaction, memory: Memory, links: list[Supersession]) -> bool:
    decided = decision(Lookups(tx), memory)
    if decided.is_present:
        return False
    session = memory.session
    assert session is not None  # entries of stores are not imported
    admitted(tx, Session(id=session, project=memory.space.project, started_at=memory.created_at))
    now = _store(tx, decided)
    if now is not None and memory.links.uids:
        project = now.space.project
        links.append(Supersession(newer=now.id, project=project, older=memory.links.uids))
    return decided.outcome.is_stored


def _is_refused(tx: Transaction, links: Supersession) -> bool:
    """Whether a memory may not supersede what is named; what is not there is left out."""
    newer = tx.memories.get(links.newer)
    if newer is None:
        return False
    try:
        link(tx, newer.id, superseded(tx, newer.space, _there(tx, links.older)))
    except (Conflict, NotFound):
        return True
    return False


def _there(tx: Transaction, uids: Iterable[str]) -> list[MemoryId]:
    """The memories that are named, as far as the caller may read them and none is deleted."""
    named = [it.id for uid in uids if (it := tx.memories.by_uid(uid)) and not it.is_deleted]
    return [it for it in named if tx.memories.get(it) is not None]


def _store(tx: Transaction, decided: Decision) -> Memory | None:
    """Store what was decided; the memory that has the row's state now, if one does."""
    memory, existing = decided.memory, decided.existing
    target = existing or memory
    if target.key is not None:
        at_key(tx, target.space, target.key)  # an expired memory leaves it
    if existing is None:
        return created(tx, replace(memory, uid=memory.uid or tx.new_uid(memory.created_at)))
    if decided.outcome is RowOutcome.EARLIER:
        tx.revisions.keep(replace(existing, revision=existing.revision - 1))  # it may have no text
        tx.revisions.absorb(existing.id, earlier_revision(existing, memory))
    elif decided.outcome.is_stored:
        return revised(tx, existing, decided.state)
    return None
