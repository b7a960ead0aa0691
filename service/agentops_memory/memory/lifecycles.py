"""The rules of a memory's lifecycle: what a save or a change makes of it, and what is refused."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from ..engine.engine import Transaction
from ..errors import Conflict, NotFound
from .model.memory import (
    MAX_PINNED,
    NO_CHANGE,
    NO_LINKS,
    UNSET,
    Lifecycle,
    LifecycleChange,
    Memory,
    MemoryId,
    Reference,
)
from .model.space import GLOBAL_SCOPE, Space
from .sql.lifecycles import LifecycleTable, SupersessionTable
from .sql.memories import MemoryTable


def changed(lifecycle: Lifecycle, given: LifecycleChange, now: datetime) -> Lifecycle:
    """What is given is set, the rest stays; a review that was due is done unless it is given."""
    if given == NO_CHANGE:
        return reviewed(lifecycle, now)
    end = given.end(now)
    return replace(
        lifecycle,
        expires_at=lifecycle.expires_at if end is UNSET else end,
        pinned_at=_pinned_at(lifecycle, given, now),
        review_at=(
            reviewed(lifecycle, now).review_at if given.review_at is UNSET else given.review_at
        ),
    )


def counted(lifecycle: Lifecycle, given: LifecycleChange, now: datetime) -> Lifecycle:
    """The lifecycle after a duplicate: the later of two ends holds, and none is the latest."""
    end = given.end(now)
    is_endless = lifecycle.expires_at is None or end is UNSET or end is None
    ends = [it for it in (lifecycle.expires_at, end) if isinstance(it, datetime)]
    after = changed(lifecycle, given, now)
    return replace(after, expires_at=None if is_endless else max(ends))


def reviewed(lifecycle: Lifecycle, now: datetime) -> Lifecycle:
    """The lifecycle without a review that was due."""
    is_due = lifecycle.review_at is not None and lifecycle.review_at <= now
    return replace(lifecycle, review_at=None) if is_due else lifecycle


def at_key(tx: Transaction, space: Space, key: str) -> Memory | None:
    """The live memory at the key; an expired one leaves it to whoever asks."""
    held = tx[MemoryTable].at_key(space, key)
    if held is None or held.is_live(tx.now):
        return held
    tx[MemoryTable].release_key(held)
    return None


def require_place(tx: Transaction, before: Memory, after: Memory) -> None:
    """Conflict when a memory that is live again finds its key taken, or one pin too many."""
    if not after.is_live(tx.now):
        return
    # The key of a live one may be beside it, too, when the clock went back.
    is_moved = before.lifecycle.expires_at != after.lifecycle.expires_at
    if (is_moved or not before.is_live(tx.now)) and _is_taken(tx, after):
        raise Conflict("Another observation holds this topic key now.")
    require_pin(tx, before if before.is_live(tx.now) else None, after)


def require_pin(tx: Transaction, before: Memory | None, after: Memory) -> None:
    """Conflict when there are as many pins already as a project may have."""
    is_pinned = before is not None and before.lifecycle.pinned_at is not None
    if is_pinned or after.lifecycle.pinned_at is None or not after.is_live(tx.now):
        return
    if tx[LifecycleTable].pins(after.space) >= MAX_PINNED:
        whose = "global observations" if after.space.scope == GLOBAL_SCOPE else "of a project"
        raise Conflict(f"At most {MAX_PINNED} observations {whose} are pinned; unpin one first.")


def superseded(
    tx: Transaction, space: Space, references: Iterable[Reference]
) -> tuple[MemoryId, ...]:
    """The memories that are named, which one of the space may supersede, in the order of ids."""
    return tuple(sorted({_superseded(tx, space, it) for it in references}))


def link(tx: Transaction, memory: MemoryId, older: Sequence[MemoryId]) -> int:
    """Let a memory supersede others, too; Conflict when that would close a circle."""
    if not older:
        return 0
    if memory in older or tx[SupersessionTable].leads(older, memory):
        raise Conflict("An observation cannot supersede itself, nor one that supersedes it.")
    return tx[SupersessionTable].add(memory, older)


def with_links(tx: Transaction, memories: Sequence[Memory]) -> list[Memory]:
    """The memories with their links, as they are shown."""
    links = tx[SupersessionTable].of([it.id for it in memories])
    return [replace(it, links=links.get(it.id, NO_LINKS), as_of=tx.now) for it in memories]


def shown(tx: Transaction, memory: Memory) -> Memory:
    """The memory with its links, as it is shown."""
    (with_its_links,) = with_links(tx, [memory])
    return with_its_links


def _is_taken(tx: Transaction, memory: Memory) -> bool:
    """Whether another live memory holds its key."""
    holder = at_key(tx, memory.space, memory.key) if memory.key else None
    return holder is not None and holder.id != memory.id


def _pinned_at(lifecycle: Lifecycle, given: LifecycleChange, now: datetime) -> datetime | None:
    if given.pinned is None:
        return lifecycle.pinned_at
    return (lifecycle.pinned_at or now) if given.pinned else None


def _superseded(tx: Transaction, space: Space, reference: Reference) -> MemoryId:
    found = _named(tx, reference)
    if found is None or found.is_deleted or found.space.project != space.project:
        raise NotFound("No such observation.")
    if (found.space.scope == GLOBAL_SCOPE) != (space.scope == GLOBAL_SCOPE):
        raise Conflict("Only a global observation supersedes a global one, and no other.")
    return found.id


def _named(tx: Transaction, reference: Reference) -> Memory | None:
    if not isinstance(reference, str):
        return tx[MemoryTable].get(reference)
    found = tx[MemoryTable].by_uid(reference)
    return found and tx[MemoryTable].get(found.id)
