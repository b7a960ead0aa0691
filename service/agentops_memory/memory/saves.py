"""Saving a memory: the three dedup tiers, and what a replay of the request answers."""

from dataclasses import replace
from datetime import timedelta

from ..engine.engine import Ids, Transaction, within_one_project
from . import lifecycles
from .limits import require_draft, require_room
from .model.memory import (
    NO_LIFECYCLE,
    Action,
    Draft,
    LifecycleChange,
    Memory,
    MemoryId,
    Saved,
    Session,
)
from .sessions import entered, project_warning
from .sql.memories import MemoryTable
from .sql.sessions import SessionTable
from .writes import changed_at, created, known, revised


@within_one_project(lambda draft, _: draft.space.project)
def save(tx: Transaction, draft: Draft, window: timedelta) -> Saved:
    """The three dedup tiers: same topic key, same text within the window, a new memory."""
    tx.caller.require_space(draft.space)
    require_draft(tx, draft)
    require_room(tx)
    session = entered(tx, Session(id=draft.session, project=draft.space.project, started_at=tx.now))
    given = draft.lifecycle
    older = lifecycles.superseded(tx, draft.space, given.supersedes or ())
    if draft.key is not None and (held := lifecycles.at_key(tx, draft.space, draft.key)):
        memory = replace(
            held,
            text=draft.text,
            updated_at=changed_at(tx, held),
            last_seen_at=tx.now,
            lifecycle=lifecycles.changed(held.lifecycle, given, tx.now),
        )
        lifecycles.require_place(tx, held, memory)
        saved = Saved(memory=revised(tx, held, memory), action=Action.UPDATED)
    elif window and (
        twin := tx[MemoryTable].twin(draft.space, draft.key, draft.text, tx.now - window)
    ):
        saved = Saved(memory=_counted(tx, twin, given), action=Action.DEDUPLICATED)
    else:
        new = _memory(tx, draft)
        lifecycles.require_pin(tx, None, new)
        saved = Saved(memory=created(tx, new), action=Action.CREATED)
    if older:
        saved = replace(saved, superseded=lifecycles.link(tx, saved.memory.id, older))
    warning = project_warning(session, draft.space.project)
    return replace(saved, warning=warning) if warning else saved


def ids_of_saved(outcome: Saved) -> Ids:
    memory = outcome.memory
    return {
        "memory": memory.id,
        "action": outcome.action.value,
        "revision": memory.revision,
        "duplicates": memory.duplicates,
    }


def saved_again(tx: Transaction, ids: Ids, draft: Draft, _: object) -> Saved:
    """The counts of then, even if the memory was changed or deleted since."""
    tx.caller.require_space(draft.space)
    memory = known(tx, MemoryId(int(ids["memory"])))
    session = tx[SessionTable].get(draft.session)
    warning = None
    if session is not None and tx.caller.projects.match(session.project):  # still, since then
        warning = project_warning(session, draft.space.project)
    then = replace(memory, revision=int(ids["revision"]), duplicates=int(ids["duplicates"]))
    action = Action(str(ids["action"]))
    return Saved(memory=then, action=action, is_repeated=True, warning=warning)


def _counted(tx: Transaction, twin: Memory, given: LifecycleChange) -> Memory:
    """The memory with one duplicate more."""
    seen = replace(
        twin,
        duplicates=twin.duplicates + 1,
        last_seen_at=tx.now,
        lifecycle=lifecycles.counted(twin.lifecycle, given, tx.now),
    )
    tx[MemoryTable].count_duplicate(seen)
    if seen.lifecycle != twin.lifecycle:
        lifecycles.require_place(tx, twin, seen)
        tx[MemoryTable].set_lifecycle(seen)
    return seen


def _memory(tx: Transaction, draft: Draft) -> Memory:
    return Memory(
        uid=tx.new_uid(tx.now),
        session=draft.session,
        space=draft.space,
        key=draft.key,
        text=draft.text,
        last_seen_at=tx.now,
        created_at=tx.now,
        updated_at=tx.now,
        lifecycle=lifecycles.changed(NO_LIFECYCLE, draft.lifecycle, tx.now),
    )
