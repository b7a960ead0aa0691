"""One row of an import, stored as was decided, and what it supersedes."""

from collections.abc import Iterable
from dataclasses import replace

from ...engine.engine import Transaction
from ...errors import Conflict, NotFound
from ...memory.lifecycles import at_key, link, superseded
from ...memory.model.imports import Row
from ...memory.model.memory import NO_LIFECYCLE, NO_LINKS, Memory, MemoryId, Session, Supersession
from ...memory.sessions import admitted
from ...memory.sql.memories import MemoryTable
from ...memory.sql.revisions import RevisionTable
from ...memory.sql.sessions import SessionTable
from ...memory.writes import created, revised
from .decisions import (
    Decision,
    Lookups,
    RowOutcome,
    decision,
    earlier_revision,
    outcome_at_key,
    session_outcome,
)


def import_row(tx: Transaction, row: Row, links: list[Supersession]) -> bool:
    """Whether something of the row was stored; what it supersedes is added to the links."""
    if isinstance(row, Session):
        return _import_session(tx, row)
    return isinstance(row, Memory) and _import_memory(tx, row, links)


def is_refused(tx: Transaction, links: Supersession) -> bool:
    """Whether a memory may not supersede what is named; what is not there is left out."""
    newer = tx[MemoryTable].get(links.newer)
    if newer is None:
        return False
    try:
        link(tx, newer.id, superseded(tx, newer.space, _there(tx, links.older)))
    except (Conflict, NotFound):
        return True
    return False


def merge_at_key(tx: Transaction, held: Memory, memory: Memory) -> None:
    """Merge a memory into the one that holds its key, which keeps its lifecycle and its links.

    The later text wins.
    """
    outcome = outcome_at_key(Lookups(tx), held, memory)
    text = replace(memory, lifecycle=NO_LIFECYCLE, links=NO_LINKS)
    _store(tx, Decision(outcome=outcome, memory=text, existing=held))


def _import_session(tx: Transaction, session: Session) -> bool:
    is_new = session_outcome(Lookups(tx), session) is RowOutcome.NEW
    if is_new:
        tx[SessionTable].add(session)
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


def _there(tx: Transaction, uids: Iterable[str]) -> list[MemoryId]:
    """The memories that are named, as far as the caller may read them and none is deleted."""
    named = [it.id for uid in uids if (it := tx[MemoryTable].by_uid(uid)) and not it.is_deleted]
    return [it for it in named if tx[MemoryTable].get(it) is not None]


def _store(tx: Transaction, decided: Decision) -> Memory | None:
    """Store what was decided; the memory that has the row's state now, if one does."""
    memory, existing = decided.memory, decided.existing
    target = existing or memory
    if target.key is not None:
        at_key(tx, target.space, target.key)  # an expired memory leaves it
    if existing is None:
        return created(tx, replace(memory, uid=memory.uid or tx.new_uid(memory.created_at)))
    if decided.outcome is RowOutcome.EARLIER:
        tx[RevisionTable].keep(
            replace(existing, revision=existing.revision - 1)
        )  # it may have no text
        tx[RevisionTable].absorb(existing.id, earlier_revision(existing, memory))
    elif decided.outcome.is_stored:
        return revised(tx, existing, decided.state)
    return None
