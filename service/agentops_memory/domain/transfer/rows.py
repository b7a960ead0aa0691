"""What is done with the rows of an import, each function within one transaction."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from ..errors import Denied, NotFound, Unavailable
from ..memories.quota import require_room, require_room_for_import, require_room_for_session
from ..memories.sessions import admitted
from ..memories.writes import created, revised
from ..model.memory import Imported, Memory, Session
from ..ports.engine import Transaction
from ..ports.imports import Import, ImportId, Row
from .decisions import Fate, Verdict, at_one_key, earlier, session_fate, verdict

MANY = 1000  # rows that are applied in one transaction, if there is time
FEW = 4  # while others wait for it
DISCARDED = 1000  # rows that are removed in one transaction
SILENCE = timedelta(minutes=1)  # after which nobody stages the rest of an import any more


def import_rows(tx: Transaction, rows: Sequence[Row]) -> Imported:
    """Store rows, as far as the tenant has room."""
    counts = Counter[type[Row]]()
    with tx.memories.in_bulk():
        for row in rows:
            (require_room if isinstance(row, Memory) else require_room_for_session)(tx)
            counts[type(row)] += _import_row(tx, row)
    return Imported(sessions=counts[Session], memories=counts[Memory])


def stage_rows(
    tx: Transaction, import_: ImportId | None, rows: Sequence[Row], *, is_last: bool
) -> ImportId:
    """Keep the next rows of an import, a new one if none is named; accept it with the last."""
    require_room(tx)
    if import_ is None:
        import_ = tx.imports.begin(tx.caller.projects)
    elif (found := tx.imports.get(import_)) is None or found.is_finished:
        raise Unavailable("The import has paused for too long; nothing was stored.")
    tx.imports.stage(import_, rows)
    if is_last:
        require_room_for_import(tx, tx.imports.size(import_))
        tx.imports.accept(import_)
    return import_


def apply_rows(
    tx: Transaction, import_: ImportId, elapsed: Callable[[], float], limit: timedelta
) -> Import:
    """Store the next rows of an accepted import, for who asked for it; the import as it is then.

    What they take to be indexed is beside the time limit. A row that its caller may not store any
    more, by what others did meanwhile, is left out, and so is one that is damaged. When a project
    of the import has got another name, nothing is stored: it is to be asked with the patterns that
    the import has by now.
    """
    before = tx.imports.get(import_)
    if before is None:
        raise NotFound("There is no such import.")
    if before.projects != tx.caller.projects:
        return before
    end, counts, last = elapsed() + limit.total_seconds(), Counter[type[Row]](), 0
    with tx.memories.in_bulk():
        for number, (place, row) in enumerate(tx.imports.rows(import_), start=1):
            if row is not None:
                with suppress(Denied):
                    counts[type(row)] += _import_row(tx, row)
            last = place
            if number >= (FEW if tx.is_awaited else MANY) or elapsed() > end:
                break
        else:
            tx.imports.finish(import_)
    if last:
        tx.imports.applied(import_, last, counts[Session], counts[Memory])
    found = tx.imports.get(import_)
    assert found is not None  # it was there
    return found


def discard_rows(tx: Transaction, import_: ImportId) -> bool:
    return tx.imports.discard(import_, DISCARDED)


def silent_imports(tx: Transaction) -> list[ImportId]:
    return tx.imports.silent(tx.now - SILENCE, tx.now + SILENCE)


def unfinished_imports(tx: Transaction) -> list[Import]:
    return tx.imports.unfinished()


def is_any_staged(tx: Transaction) -> bool:
    return tx.imports.is_any_staged()


def merged(tx: Transaction, held: Memory, memory: Memory) -> bool:
    """Bring a memory into the one that holds its key; whether something of it was not there yet."""
    fate = at_one_key(tx, held, memory)
    return _stored(tx, Verdict(fate=fate, memory=memory, meets=held))


def _import_row(tx: Transaction, row: Row) -> bool:
    """Whether something of the row was not there yet."""
    return _import_session(tx, row) if isinstance(row, Session) else _import_memory(tx, row)


def _import_session(tx: Transaction, session: Session) -> bool:
    is_new = session_fate(tx, session) is Fate.NEW
    admitted(tx, session)
    if is_new:
        tx.sessions.close(session)
    return is_new


def _import_memory(tx: Transaction, memory: Memory) -> bool:
    found = verdict(tx, memory)
    if found.is_left_alone:
        return False
    session = memory.session
    assert session is not None  # none of a store is imported
    admitted(tx, Session(id=session, project=memory.space.project, started_at=memory.created_at))
    return _stored(tx, found)


def _stored(tx: Transaction, found: Verdict) -> bool:
    """Do what was decided; whether that was anything."""
    memory, meets = found.memory, found.meets
    if meets is None:
        created(tx, replace(memory, uid=memory.uid or tx.new_uid(memory.created_at)))
    elif found.fate is Fate.EARLIER:
        tx.revisions.absorb(meets.id, earlier(meets, memory))
    elif found.fate.is_stored:
        revised(tx, meets, found.state)
    return found.fate.is_stored
