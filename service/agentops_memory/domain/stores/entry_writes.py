"""Writes of entries, each in one transaction with its version, and what a replay answers."""

from dataclasses import replace

from ..errors import Conflict, PathTaken, Stale
from ..memories.quota import require_room
from ..memories.writes import changed_at, created, revised
from ..model.erasure import Erasure, ErasureId, ErasureKind
from ..model.idempotency import Ids
from ..model.memory import ChangeKind, Memory, MemoryId, Text
from ..model.space import NO_PROJECT, Space, StoreId
from ..model.stores import (
    ENTRY_TYPE,
    Entry,
    EntryChange,
    EntryDraft,
    EntryId,
    Expected,
    Version,
    VersionId,
)
from ..ports.engine import Transaction
from ..text.ids import uid_after
from .rules import Policy, known_entry, known_version, open_store, sha256_of, size_of


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
    _add_version(tx, store, memory, ChangeKind.CREATED)
    tx.stores.grow(store, 1, size_of(draft.content))
    return known_entry(tx, store, EntryId(memory.uid))


def ids_of_written(entry: Entry) -> Ids:
    return {"entry": entry.id, "version": entry.version}


def created_again(tx: Transaction, ids: Ids, store: StoreId, draft: EntryDraft, _: Policy) -> Entry:
    """The entry as it was when it was new."""
    first = known_version(tx, store, VersionId(str(ids["version"])))
    return Entry(
        id=first.entry,
        memory=first.memory,
        store=store,
        path=draft.path,
        content=draft.content,
        size=size_of(draft.content),
        sha256=sha256_of(draft.content),
        number=first.number,
        version=first.id,
        metadata=draft.metadata,
        created_at=first.at,
        updated_at=first.at,
    )


def amend_entry(
    tx: Transaction,
    store: StoreId,
    entry: EntryId,
    change: EntryChange,
    expected: Expected,
    policy: Policy,
) -> tuple[Entry, bool]:
    """The entry as it is now, and whether a redacted version's bytes are to be erased."""
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
    _add_version(tx, store, after, ChangeKind.UPDATED, before=before)
    tx.stores.grow(store, 0, size_of(text.content) - before.size)
    has_erased = _is_lost(tx, before) and text.content != before.content
    if has_erased:
        erased(tx, before.memory)
    return known_entry(tx, store, entry), has_erased


def ids_of_amended(outcome: tuple[Entry, bool]) -> Ids:
    return ids_of_written(outcome[0])


def amended_again(
    tx: Transaction,
    ids: Ids,
    store: StoreId,
    entry: EntryId,
    change: EntryChange,
    _: Expected,
    __: Policy,
) -> tuple[Entry, bool]:
    """The entry as of that version; metadata that the change left are those of now."""
    then = known_version(tx, store, VersionId(str(ids["version"])))
    memory = tx.memories.in_store(store, entry)
    if memory is None or then.path is None:
        raise Conflict("This was done, and its answer is not known any more: it was redacted.")
    content = then.content if change.content is None else change.content
    told = Entry(
        id=entry,
        memory=then.memory,
        store=store,
        path=then.path,
        content=content,
        size=then.size or 0,
        sha256=then.sha256 or "",
        number=then.number,
        version=then.id,
        metadata=memory.extras if change.metadata is None else change.metadata,
        created_at=memory.created_at,
        updated_at=then.at,
    )
    return told, False


def delete_entry(
    tx: Transaction, store: StoreId, entry: EntryId, expected: Expected, policy: Policy
) -> bool:
    """Whether a redacted version's bytes are to be erased."""
    before = known_entry(tx, store, entry)
    if policy.archived_keeps_entries:
        open_store(tx, store)
    if not expected.met_by(before):
        raise Stale("The memory has changed: it is not in the expected state.")
    held = _memory(tx, store, entry)
    # The row keeps nothing of what the versions keep, or have lost.
    gone = replace(held, key=None, text=_text("", ""), extras={}, deleted_at=tx.now)
    _add_version(
        tx, store, revised(tx, held, gone, ChangeKind.DELETED), ChangeKind.DELETED, before=before
    )
    tx.stores.grow(store, -1, -before.size)
    if has_erased := _is_lost(tx, before):
        erased(tx, before.memory)
    return has_erased


def deleted_again(
    tx: Transaction, _: Ids, __: StoreId, ___: EntryId, ____: Expected, _____: Policy
) -> bool:
    tx.caller.require_stores()
    return False


def _add_version(
    tx: Transaction,
    store: StoreId,
    memory: Memory,
    deed: ChangeKind,
    *,
    before: Entry | None = None,
) -> None:
    """Add a version for the memory's newest revision, ordered after the one before."""
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
    """Record that the bytes of a memory's earlier text are to be erased."""
    tx.memories.must_scrub(memory)
    tx.receipts.add(
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
    """Whether the entry's current version was redacted, so that its text must go."""
    return tx.versions.is_redacted(entry.memory, entry.number)
