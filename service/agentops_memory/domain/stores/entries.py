"""Entries of memory stores: written at their paths, compared, changed, deleted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import PathTaken, Stale
from ..memories.idempotency import IdempotentRequest, idempotent
from ..memories.memories import changed_at, created, revised, unheard
from ..memories.quota import require_room
from ..memories.redactor import Redactor, RulesOf, default_rules
from ..model.access import Caller, Role
from ..model.erasure import Erasure, ErasureId, ErasureKind
from ..model.memory import ChangeKind, Memory, MemoryId, Text
from ..model.space import NO_PROJECT, Space, StoreId
from ..model.stores import (
    ANY_STATE,
    ENTRY_TYPE,
    EntriesSeen,
    Entry,
    EntryChange,
    EntryDraft,
    EntryId,
    Expected,
    Page,
    Slice,
    Version,
    VersionId,
    Written,
)
from ..ports.engine import Engine, Transaction
from ..text.ids import uid_after
from . import replays
from .listing import Branch, tree
from .lookup import known_entry, known_store, open_store
from .rules import Policy, clean_change, clean_draft, sha256_of, size_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Entries of one service, as a dialect wants them.

    They are for callers who act on every project: others are refused with Denied.
    Unknown ids are refused with NotFound, and so is an entry of another store.
    """

    engine: Engine
    policy: Policy
    rules: RulesOf = default_rules
    on_erased: Callable[[Caller], None] = unheard

    async def create(
        self,
        caller: Caller,
        store: StoreId,
        draft: EntryDraft,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Entry]:
        """Write a new entry; PathTaken, Archived."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        clean = await asyncio.to_thread(clean_draft, redactor, draft)
        work = idempotent(
            create_entry, idempotency, again=replays.entry_created, ids=replays.ids_of_written
        )
        entry = await self.engine.write(caller, work, store, clean, self.policy)
        return Written(value=entry, redacted=redactor.count)

    async def get(self, caller: Caller, store: StoreId, entry: EntryId) -> Entry:
        """The entry, with its content."""
        caller.require(Role.READER)
        return await self.engine.read(caller, known_entry, store, entry)

    async def list(
        self, caller: Caller, store: StoreId, seen: EntriesSeen, page: Page
    ) -> Slice[Entry]:
        """Entries without their contents, from high ids to low ones: the newest come first."""
        caller.require(Role.READER)
        return await self.engine.read(caller, list_entries, store, seen, page)

    async def tree(self, caller: Caller, store: StoreId, branch: Branch) -> Slice[Entry | str]:
        """Entries in the order of their paths; as texts the folders of those that lie deeper."""
        caller.require(Role.READER)
        return await self.engine.read(caller, tree, store, branch)

    async def amend(
        self,
        caller: Caller,
        store: StoreId,
        entry: EntryId,
        change: EntryChange,
        expected: Expected = ANY_STATE,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Entry]:
        """Change an entry that is in the expected state; Stale, PathTaken, Archived."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        clean = await asyncio.to_thread(clean_change, redactor, change)
        work = idempotent(
            amend_entry, idempotency, again=replays.entry_amended, ids=replays.ids_of_amended
        )
        amended, has_erased = await self.engine.write(
            caller, work, store, entry, clean, expected, self.policy
        )
        if has_erased:
            self.on_erased(caller)
        return Written(value=amended, redacted=redactor.count)

    async def delete(
        self,
        caller: Caller,
        store: StoreId,
        entry: EntryId,
        expected: Expected = ANY_STATE,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> None:
        """Delete an entry that is in the expected state; its versions stay. Stale, Archived."""
        caller.require(Role.WRITER)
        work = idempotent(delete_entry, idempotency, again=replays.entry_deleted)
        if await self.engine.write(caller, work, store, entry, expected, self.policy):
            self.on_erased(caller)


def create_entry(tx: Transaction, store: StoreId, draft: EntryDraft, policy: Policy) -> Entry:
    open_store(tx, store)
    require_room(tx)
    _require_free(tx, store, draft.path, policy)
    memory = created(
        tx,
        Memory(
            uid=tx.new_uid(tx.now),
            session=None,
            space=Space.of_store(store),
            key=draft.path,
            text=_text(draft.path, draft.content),
            last_seen_at=tx.now,
            created_at=tx.now,
            updated_at=tx.now,
            extras=draft.metadata,
        ),
    )
    told(tx, store, memory, ChangeKind.CREATED)
    tx.stores.grow(store, 1, size_of(draft.content))
    return known_entry(tx, store, EntryId(memory.uid))


def list_entries(tx: Transaction, store: StoreId, seen: EntriesSeen, page: Page) -> Slice[Entry]:
    known_store(tx, store)
    return tx.entries.page(store, seen, page)


def amend_entry(
    tx: Transaction,
    store: StoreId,
    entry: EntryId,
    change: EntryChange,
    expected: Expected,
    policy: Policy,
) -> tuple[Entry, bool]:
    """The entry as it is now, and whether bytes of a redacted version are to go."""
    before = known_entry(tx, store, entry)
    open_store(tx, store)
    wanted = _changed(before, change)
    if not expected.met_by(before):
        if policy.done_is_done and wanted == before:
            return before, False
        raise Stale("The memory has changed: it is not in the expected state.")
    if wanted == before and not policy.unchanged_is_change:
        return before, False
    require_room(tx)
    if wanted.path != before.path:
        _require_free(tx, store, wanted.path, policy, but=entry)
    held = _memory(tx, store, entry)
    text = _text(wanted.path, wanted.content or "")
    after = replace(
        held,
        key=wanted.path,
        text=text,
        extras=wanted.metadata,
        updated_at=changed_at(tx, held),
    )
    after = revised(tx, held, after)
    told(tx, store, after, ChangeKind.UPDATED, before=before)
    tx.stores.grow(store, 0, size_of(text.content) - before.size)
    has_erased = _is_lost(tx, before) and text.content != before.content
    if has_erased:
        erased(tx, before.memory)
    return known_entry(tx, store, entry), has_erased


def delete_entry(
    tx: Transaction, store: StoreId, entry: EntryId, expected: Expected, policy: Policy
) -> bool:
    """Whether bytes of a redacted version are to go."""
    before = known_entry(tx, store, entry)
    if policy.archived_keeps_entries:
        open_store(tx, store)
    if not expected.met_by(before):
        raise Stale("The memory has changed: it is not in the expected state.")
    held = _memory(tx, store, entry)
    # The row keeps nothing of what the versions keep, or have lost.
    gone = replace(held, key=None, text=_text("", ""), extras={}, deleted_at=tx.now)
    told(tx, store, revised(tx, held, gone, ChangeKind.DELETED), ChangeKind.DELETED, before=before)
    tx.stores.grow(store, -1, -before.size)
    if has_erased := _is_lost(tx, before):
        erased(tx, before.memory)
    return has_erased


def told(
    tx: Transaction,
    store: StoreId,
    memory: Memory,
    deed: ChangeKind,
    *,
    before: Entry | None = None,
) -> None:
    """Let the store tell of the memory's newest revision, which comes after the one before."""
    is_deleted = deed is ChangeKind.DELETED
    uid = tx.new_uid(tx.now)
    if before is not None and uid <= before.version:  # another process made that one, or the clock
        uid = uid_after(before.version)
    tx.versions.add(
        Version(
            id=VersionId(uid),
            store=store,
            entry=EntryId(memory.uid),
            memory=memory.id,
            number=memory.revision,
            deed=deed,
            path=before.path if is_deleted and before else memory.key,
            size=None if is_deleted else size_of(memory.text.content),
            sha256=None if is_deleted else sha256_of(memory.text.content),
            at=memory.deleted_at or memory.updated_at,
            author=tx.caller.key,
        )
    )


def erased(tx: Transaction, memory: MemoryId) -> None:
    """Let the bytes of what a memory said leave the file."""
    tx.index.must_purge(memory)
    tx.erasures.add(
        Erasure(
            id=ErasureId(tx.new_uid(tx.now)),
            kind=ErasureKind.REDACTION,
            project=NO_PROJECT,
            memories=(memory,),
            observations=0,
            revisions=1,
            erased_at=tx.now,
        )
    )


def _require_free(
    tx: Transaction, store: StoreId, path: str, policy: Policy, *, but: EntryId | None = None
) -> None:
    held = tx.entries.at(store, path)
    others = [held] if held else []
    if not policy.paths_nest:
        others += tx.entries.beside(store, path)
    for other in others:
        if other.id != but:
            raise PathTaken("Another memory holds this path.", other.id, other.path)


def _memory(tx: Transaction, store: StoreId, entry: EntryId) -> Memory:
    memory = tx.memories.in_store(store, entry)
    assert memory is not None  # this transaction has just seen it
    return memory


def _text(path: str, content: str) -> Text:
    return Text(type=ENTRY_TYPE, title=path, content=content)


def _changed(entry: Entry, change: EntryChange) -> Entry:
    return replace(
        entry,
        path=entry.path if change.path is None else change.path,
        content=entry.content if change.content is None else change.content,
        metadata=entry.metadata if change.metadata is None else change.metadata,
    )


def _is_lost(tx: Transaction, entry: Entry) -> bool:
    """Whether the version that the entry had was redacted, so that its text goes with it."""
    return tx.versions.is_redacted(entry.memory, entry.number)
