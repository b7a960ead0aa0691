"""What a write to a store has answered, told again from its ids and what is stored by now."""

from dataclasses import replace

from ..errors import Conflict
from ..model.idempotency import Ids
from ..model.space import StoreId
from ..model.stores import (
    Entry,
    EntryChange,
    EntryDraft,
    EntryId,
    Expected,
    Store,
    StoreChange,
    StoreDraft,
    Version,
    VersionId,
)
from ..ports.engine import Transaction
from .lookup import known_store, known_version
from .rules import Policy, sha256_of, size_of


def ids_of_created(store: Store) -> Ids:
    return {"store": store.id}


def created(tx: Transaction, ids: Ids, draft: StoreDraft) -> Store:
    """The store as it was when it was new."""
    now = known_store(tx, StoreId(str(ids["store"])))
    return Store(
        id=now.id,
        name=draft.name,
        description=draft.description,
        metadata=draft.metadata,
        created_at=now.created_at,
        updated_at=now.created_at,
    )


def amended(tx: Transaction, _: Ids, store: StoreId, change: StoreChange) -> Store:
    """The store with what the change named; the rest is as it is now."""
    now = known_store(tx, store)
    patch = change.metadata or {}
    kept = {key: value for key, value in now.metadata.items() if key not in patch}
    return replace(
        now,
        name=now.name if change.name is None else change.name,
        description=now.description if change.description is None else change.description,
        metadata=kept | {key: value for key, value in patch.items() if value is not None},
    )


def archived(tx: Transaction, _: Ids, store: StoreId, __: Policy) -> Store:
    return known_store(tx, store)


def deleted(tx: Transaction, _: Ids, __: StoreId) -> None:
    tx.caller.require_stores()


def ids_of_written(entry: Entry) -> Ids:
    return {"entry": entry.id, "version": entry.version}


def entry_created(tx: Transaction, ids: Ids, store: StoreId, draft: EntryDraft, _: Policy) -> Entry:
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


def ids_of_amended(outcome: tuple[Entry, bool]) -> Ids:
    return ids_of_written(outcome[0])


def entry_amended(
    tx: Transaction,
    ids: Ids,
    store: StoreId,
    entry: EntryId,
    change: EntryChange,
    _: Expected,
    __: Policy,
) -> tuple[Entry, bool]:
    """The entry as that version of it was; of metadata that it kept, those that it has now."""
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


def entry_deleted(
    tx: Transaction, _: Ids, __: StoreId, ___: EntryId, ____: Expected, _____: Policy
) -> bool:
    tx.caller.require_stores()
    return False


def redacted(tx: Transaction, _: Ids, store: StoreId, version: VersionId, __: Policy) -> Version:
    return replace(known_version(tx, store, version), content=None)
