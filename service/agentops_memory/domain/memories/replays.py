"""What a write has answered, told again from its ids, its request, and what is stored by now."""

from dataclasses import replace

from ..errors import NotFound
from ..model.erasure import ErasureId
from ..model.idempotency import Ids
from ..model.memory import (
    Action,
    Amended,
    Change,
    Draft,
    Memory,
    MemoryId,
    Saved,
    Session,
    SessionId,
)
from ..model.space import Project
from ..ports.engine import Transaction
from ..secrets.redaction import Rules
from ..text.normalization import content_hash
from ..text.summary import Transcript, summary


def ids_of_saved(outcome: Saved) -> Ids:
    memory = outcome.memory
    return {
        "memory": memory.id,
        "action": outcome.action.value,
        "revision": memory.revision,
        "duplicates": memory.duplicates,
    }


def saved(tx: Transaction, ids: Ids, draft: Draft, _: object) -> Saved:
    """The same counts, also when the memory was changed or deleted since."""
    tx.caller.require_space(draft.space)
    memory = _still_there(tx, MemoryId(int(ids["memory"])))
    then = replace(memory, revision=int(ids["revision"]), duplicates=int(ids["duplicates"]))
    return Saved(memory=then, action=Action(str(ids["action"])))


def ids_of_changed(memory: Memory) -> Ids:
    return {"revision": memory.revision}


def amended(tx: Transaction, ids: Ids, memory: MemoryId, _: Change) -> Memory:
    return _as_of(tx, memory, int(ids["revision"]))


def ids_of_restored(outcome: Amended) -> Ids:
    return {"revision": outcome.memory.revision, "redacted": outcome.redacted}


def restored(tx: Transaction, ids: Ids, memory: MemoryId, _: int, __: Rules) -> Amended:
    then = _as_of(tx, memory, int(ids["revision"]))
    return Amended(memory=then, redacted=int(ids["redacted"]))


def forgotten(tx: Transaction, _: Ids, memory: MemoryId) -> None:
    """Nothing, whatever became of the memory since."""
    now = tx.memories.get(memory)
    if now is not None:
        tx.caller.require_space(now.space)


def ids_of_erased(erasure: ErasureId | None) -> Ids:
    return {} if erasure is None else {"erasure": erasure}


def erased(tx: Transaction, ids: Ids, memory: MemoryId) -> ErasureId | None:
    """The same receipt, unless the caller does not act on its project any more."""
    forgotten(tx, ids, memory)
    if "erasure" not in ids:
        return None
    receipt = tx.erasures.get(ErasureId(str(ids["erasure"])))
    if receipt is None or not tx.caller.projects.match(receipt.project):
        return None
    return receipt.id


def ids_of_opened(session: Session) -> Ids:
    return {"messages": session.message_count}


def opened(tx: Transaction, ids: Ids, session: SessionId, project: Project) -> Session:
    tx.caller.require_project(project)
    return replace(_known(tx, session), message_count=int(ids["messages"]))


def appended(
    tx: Transaction, _: Ids, session: SessionId, __: Transcript, ___: Project | None
) -> Session:
    return _known(tx, session)


def ids_of_closed(session: Session) -> Ids:
    return {"messages": session.message_count}


def closed(
    tx: Transaction, ids: Ids, session: SessionId, said: Transcript, _: Project | None
) -> Session:
    """The summary of what the request says, which is said again; else the one that is stored.

    An earlier version has recorded no count of messages.
    """
    stored = _known(tx, session)
    if not said.messages:
        return replace(stored, message_count=int(ids.get("messages", stored.message_count)))
    return replace(stored, summary=summary(said), message_count=said.messages)


def _as_of(tx: Transaction, memory: MemoryId, number: int) -> Memory:
    """The memory with the text of that revision; as it is now if that is not kept any more."""
    now = _still_there(tx, memory)
    tx.caller.require_space(now.space)
    then = next((r for r in tx.revisions.newest(now) if r.number == number), None)
    if then is None or then.text is None:
        return now
    return replace(
        now,
        text=then.text,
        content_hash=content_hash(then.text.content),
        revision=number,
        updated_at=then.at,
    )


def _still_there(tx: Transaction, memory: MemoryId) -> Memory:
    found = tx.memories.get(memory)
    if found is None:
        raise NotFound("No such observation.")
    return found


def _known(tx: Transaction, session: SessionId) -> Session:
    stored = tx.sessions.get(session)
    if stored is None:
        raise NotFound("No such session.")
    tx.caller.require_project(stored.project)
    return stored
