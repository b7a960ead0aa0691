"""Saving, reading, changing and forgetting memories: the one write path."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..errors import Conflict, Invalid, NotFound
from ..model.access import Caller, Role
from ..model.erasure import Erasure, ErasureId, ErasureKind
from ..model.memory import (
    Action,
    Amended,
    Change,
    ChangeKind,
    Draft,
    Memory,
    MemoryId,
    Revision,
    Saved,
    Session,
    Text,
)
from ..model.search import Filter
from ..ports.engine import Engine, Transaction
from ..secrets.redaction import Rules
from ..text.instants import LATEST
from ..text.normalization import content_hash
from . import replays
from .idempotency import IdempotentRequest, idempotent
from .new_names import require_draft, require_tags
from .quota import require_room
from .redactor import Redactor, RulesOf, default_rules
from .sessions import entered

SECOND = timedelta(seconds=1)


def unheard(_: Caller) -> None:
    """For those who need not hear that something was erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memories:
    """Memories of one service.

    Unknown ids are refused with NotFound, and so are those of projects that the
    caller does not act on; to save there, or to change a global memory without
    acting on every project, is refused with Denied; a new name that cannot be, with
    InvalidFields. A write that is to be done `once` is answered as before when it was.
    """

    engine: Engine
    dedupe_window: timedelta
    rules: RulesOf = default_rules
    on_erased: Callable[[Caller], None] = unheard

    async def save(
        self, caller: Caller, draft: Draft, *, idempotency: IdempotentRequest | None = None
    ) -> Saved:
        """Store a draft by the three tiers; racing saves of one thing end as one memory."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        clean = redactor.draft(draft)
        work = idempotent(save, idempotency, again=replays.saved, ids=replays.ids_of_saved)
        saved = await self.engine.write(caller, work, clean, self.dedupe_window)
        return replace(saved, redacted=redactor.count)

    async def get(self, caller: Caller, memory: MemoryId) -> Memory:
        """The live memory."""
        caller.require(Role.READER)
        return await self.engine.read(caller, live, memory)

    async def recent(
        self, caller: Caller, seen: Filter, limit: int, before: MemoryId | None = None
    ) -> list[Memory]:
        """Live memories, newest first; with `before`, those older than that memory."""
        caller.require(Role.READER)
        return await self.engine.read(caller, recent, seen, limit, before)

    async def amend(
        self,
        caller: Caller,
        memory: MemoryId,
        change: Change,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Amended:
        """Change parts of a memory. A change that changes nothing leaves no trace."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        work = idempotent(amend, idempotency, again=replays.amended, ids=replays.ids_of_changed)
        amended = await self.engine.write(caller, work, memory, redactor.change(change))
        return Amended(memory=amended, redacted=redactor.count)

    async def forget(
        self, caller: Caller, memory: MemoryId, *, idempotency: IdempotentRequest | None = None
    ) -> None:
        """Delete a memory; it can be restored. One that is not there is no error."""
        caller.require(Role.WRITER)
        await self.engine.write(
            caller, idempotent(forget, idempotency, again=replays.forgotten), memory
        )

    async def erase(
        self, caller: Caller, memory: MemoryId, *, idempotency: IdempotentRequest | None = None
    ) -> ErasureId | None:
        """Remove a memory, live or deleted, with its revisions; the answer names the receipt.

        One that is not there is no error; if it was erased before, its receipt is named
        again, and if the caller does not act on its project, there is none.
        """
        caller.require(Role.ADMIN)
        work = idempotent(erase, idempotency, again=replays.erased, ids=replays.ids_of_erased)
        erasure = await self.engine.write(caller, work, memory)
        if erasure is not None:
            self.on_erased(caller)
        return erasure

    async def history(self, caller: Caller, memory: MemoryId) -> list[Revision]:
        """The kept revisions of a memory, newest first, also of a deleted one."""
        caller.require(Role.READER)
        return await self.engine.read(caller, history, memory)

    async def restore(
        self,
        caller: Caller,
        memory: MemoryId,
        number: int,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Amended:
        """Bring an earlier revision's text back as a new revision; a deleted memory revives.

        Refused with Conflict when another memory holds the key by now.
        """
        caller.require(Role.WRITER)
        work = idempotent(restore, idempotency, again=replays.restored, ids=replays.ids_of_restored)
        return await self.engine.write(caller, work, memory, number, self.rules(caller))


def save(tx: Transaction, draft: Draft, window: timedelta) -> Saved:
    """The three tiers: the same key, the same words within the window, a new memory."""
    tx.caller.require_space(draft.space)
    require_draft(tx, draft)
    require_room(tx)
    entered(tx, Session(id=draft.session, project=draft.space.project, started_at=tx.now))
    if draft.key is not None and (held := tx.memories.at_key(draft.space, draft.key)):
        memory = replace(
            held, text=draft.text, updated_at=changed_at(tx, held), last_seen_at=tx.now
        )
        return Saved(memory=revised(tx, held, memory), action=Action.UPDATED)
    if window and (twin := _twin(tx, draft, window)):
        seen = replace(twin, duplicates=twin.duplicates + 1, last_seen_at=tx.now)
        tx.memories.count_duplicate(seen)
        return Saved(memory=seen, action=Action.DEDUPLICATED)
    return Saved(memory=created(tx, _memory(tx, draft)), action=Action.CREATED)


def live(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, unless it is deleted."""
    found = known(tx, memory)
    if found.deleted_at is not None:
        raise NotFound("No such observation.")
    return found


def known(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, also when it is deleted."""
    found = tx.memories.get(memory)
    if found is None:
        raise NotFound("No such observation.")
    return found


def recent(tx: Transaction, seen: Filter, limit: int, before: MemoryId | None) -> list[Memory]:
    if before is not None and tx.memories.get(before) is None:
        raise Invalid("before_id is not the id of an observation.")
    return tx.memories.newest(seen, limit, before=before)


def amend(tx: Transaction, memory: MemoryId, change: Change) -> Memory:
    before = live(tx, memory)
    tx.caller.require_space(before.space)
    require_tags(change.tags or (), before.text.tags)
    require_room(tx)
    text = _changed(before.text, change)
    if text == before.text:
        return before
    return revised(tx, before, replace(before, text=text, updated_at=changed_at(tx, before)))


def forget(tx: Transaction, memory: MemoryId) -> None:
    before = tx.memories.get(memory)
    if before is None:
        return
    tx.caller.require_space(before.space)
    if before.deleted_at is None:
        revised(tx, before, replace(before, deleted_at=tx.now), ChangeKind.DELETED)


def erase(tx: Transaction, memory: MemoryId) -> ErasureId | None:
    before = tx.memories.get(memory)
    if before is None:
        return _earlier(tx, memory)
    tx.caller.require_space(before.space)
    erasure = Erasure(
        id=ErasureId(tx.new_uid(tx.now)),
        kind=ErasureKind.OBSERVATION,
        project=before.space.project,
        memories=(memory,),
        observations=1,
        revisions=len(tx.revisions.newest(before)),
        erased_at=tx.now,
    )
    tx.memories.erase(memory)
    tx.erasures.add(erasure)
    return erasure.id


def history(tx: Transaction, memory: MemoryId) -> list[Revision]:
    return tx.revisions.newest(known(tx, memory))


def restore(tx: Transaction, memory: MemoryId, number: int, rules: Rules) -> Amended:
    before = known(tx, memory)
    tx.caller.require_space(before.space)
    require_room(tx)
    text = next((r.text for r in tx.revisions.newest(before) if r.number == number), None)
    if text is None:
        raise NotFound("No such revision.")
    if before.deleted_at and before.key and tx.memories.at_key(before.space, before.key):
        raise Conflict("Another observation holds this topic key now.")
    redactor = Redactor(rules)  # there are more rules, perhaps, than when it was saved
    after = replace(
        before, text=redactor.words(text), updated_at=changed_at(tx, before), deleted_at=None
    )
    return Amended(memory=revised(tx, before, after), redacted=redactor.count)


def created(tx: Transaction, memory: Memory) -> Memory:
    """Store a new memory, with the revision that says so."""
    hashed = replace(memory, content_hash=content_hash(memory.text.content))
    stored = tx.memories.insert(hashed)
    _record(tx, stored, ChangeKind.CREATED)
    return stored


def revised(
    tx: Transaction, before: Memory, after: Memory, deed: ChangeKind = ChangeKind.UPDATED
) -> Memory:
    """Put a memory's next state in the place of the one before, which its history keeps."""
    after = replace(
        after, revision=before.revision + 1, content_hash=content_hash(after.text.content)
    )
    tx.revisions.keep(before)
    tx.memories.replace(after)
    _record(tx, after, deed)
    return after


def changed_at(tx: Transaction, before: Memory) -> datetime:
    """The instant of a change: now, or after the state before where the clock has gone back.

    Whoever compares two states by their exports has whole seconds. After what is dated at the
    end of time, as in a damaged file, there is nothing: then it is now.
    """
    is_back = tx.now < before.updated_at < LATEST
    return before.updated_at + SECOND if is_back else tx.now


def _record(tx: Transaction, memory: Memory, deed: ChangeKind) -> None:
    at = memory.deleted_at or memory.updated_at
    tx.revisions.add(
        memory.id, Revision(number=memory.revision, deed=deed, at=at, text=memory.text)
    )
    if tx.kept.oldest(memory.revision) > 1 and not memory.space.is_store:
        tx.past_retention.trim([memory.id], tx.kept.revisions)


def _earlier(tx: Transaction, memory: MemoryId) -> ErasureId | None:
    """The receipt of an erasure that a caller who lost the answer asks for again."""
    erasure = tx.erasures.of(memory)
    if erasure is None or not tx.caller.projects.match(erasure.project):
        return None
    return erasure.id


def _twin(tx: Transaction, draft: Draft, window: timedelta) -> Memory | None:
    return tx.memories.twin(draft.space, draft.key, draft.text, tx.now - window)


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
    )


def _changed(text: Text, change: Change) -> Text:
    return Text(
        type=text.type if change.type is None else change.type,
        title=text.title if change.title is None else change.title,
        content=text.content if change.content is None else change.content,
        tags=text.tags if change.tags is None else change.tags,
    )
