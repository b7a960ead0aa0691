"""What a repeated request to write an entry answers, from the ids that the first one left."""

from dataclasses import replace
from datetime import datetime

from ...engine.engine import Ids, Transaction
from ...errors import Conflict
from ...memory.model.memory import Expected
from ...memory.model.space import StoreId
from ...memory.model.stores import (
    Entry,
    EntryChange,
    EntryDraft,
    EntryId,
    Metadata,
    Version,
    VersionId,
)
from ...memory.sql.memories import MemoryTable
from ...recall.text.normalization import sha256_of
from .rules import Policy, known_version, size_of


def ids_of_created(entry: Entry) -> Ids:
    return {"entry": entry.id, "version": entry.version}


def created_again(tx: Transaction, ids: Ids, store: StoreId, draft: EntryDraft, _: Policy) -> Entry:
    """The entry as it was when it was new."""
    first = known_version(tx, store, VersionId(str(ids["version"])))
    return replace(
        _as_of(first, first.at, draft.metadata),
        path=draft.path,
        content=draft.content,
        size=size_of(draft.content),
        sha256=sha256_of(draft.content),
    )


def ids_of_amended(outcome: tuple[Entry, bool]) -> Ids:
    return ids_of_created(outcome[0])


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
    memory = tx[MemoryTable].in_store(store, entry)
    if memory is None or then.path is None:
        raise Conflict("This was done, and its answer is not known any more: it was redacted.")
    told = _as_of(then, memory.created_at, memory.extras)
    return replace(change, path=None).applied_to(told), False


def deleted_again(
    tx: Transaction, _: Ids, __: StoreId, ___: EntryId, ____: Expected, _____: Policy
) -> bool:
    tx.caller.require_stores()
    return False


def _as_of(version: Version, created_at: datetime, metadata: Metadata) -> Entry:
    """The entry as its version tells it."""
    return Entry(
        id=version.entry,
        memory=version.memory,
        store=version.store,
        path=version.path or "",
        content=version.content,
        size=version.size or 0,
        sha256=version.sha256 or "",
        number=version.number,
        version=version.id,
        metadata=metadata,
        created_at=created_at,
        updated_at=version.at,
    )
