"""Memory stores: created, listed, changed, archived, deleted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...engine.callbacks import Audit, noop
from ...engine.engine import Engine, Transaction
from ...errors import AlreadyDone
from ...memory.idempotency import is_due, once
from ...memory.limits import require_room
from ...memory.model.access import Caller, Role
from ...memory.model.erasure import Erasure, ErasureId
from ...memory.model.kinds import ErasureKind
from ...memory.model.space import NO_PROJECT, StoreId
from ...memory.model.stores import Page, Slice, Store, StoreChange, StoreDraft, StoreFilter, Written
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...memory.sql.idempotency_records import IdempotencyTable
from ...memory.sql.memories import MemoryTable
from ...memory.sql.receipts import ReceiptTable
from ...memory.sql.stores import StoreTable
from .rules import (
    Policy,
    clean_store,
    clean_store_change,
    known_store,
    open_store,
    require_few,
    require_known,
)

HISTORY = 64  # revisions of a deleted store erased in one transaction
BATCH = 200  # memories of one; saves wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Memory stores of one service, under a dialect's policy.

    Denied for callers without access to every project; NotFound for unknown ids.
    """

    engine: Engine
    policy: Policy
    audit: Audit
    rules: RulesOf = default_rules
    on_erased: Callable[[Caller], None] = noop

    async def create(self, caller: Caller, draft: StoreDraft) -> Written[Store]:
        """Create a store. Names need not be unique."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        work = once(create_store, check=_require_stores)
        store = await self.engine.write(caller, work, clean_store(redactor, draft, self.policy))
        return Written(value=store, redacted=redactor.count)

    async def get(self, caller: Caller, store: StoreId) -> Store:
        """The store, archived or not."""
        caller.require(Role.READER)
        return await self.engine.read(caller, known_store, store)

    async def list(self, caller: Caller, filter_: StoreFilter, page: Page) -> Slice[Store]:
        """A page of stores, newest first."""
        caller.require(Role.READER)
        return await self.engine.read(caller, list_stores, filter_, page)

    async def amend(self, caller: Caller, store: StoreId, change: StoreChange) -> Written[Store]:
        """Change parts of a store; Archived if it is read-only."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        clean = clean_store_change(redactor, change, self.policy)
        work = once(amend_store, check=require_known)
        amended = await self.engine.write(caller, work, store, clean)
        return Written(value=amended, redacted=redactor.count)

    async def archive(self, caller: Caller, store: StoreId) -> Store:
        """Make a store read-only for good; AlreadyDone where the policy refuses a repetition."""
        caller.require(Role.WRITER)
        work = once(archive_store, check=require_known)
        return await self.engine.write(caller, work, store, self.policy)

    async def delete(self, caller: Caller, store: StoreId) -> None:
        """Delete a store with all its entries and versions, for good.

        It is invisible at once; its rows and bytes are erased in the background.
        """
        caller.require(Role.ADMIN)
        if found := await self.engine.read(caller, store_to_delete, store):
            await asyncio.to_thread(
                self.audit,
                caller,
                "store.deleted",
                tenant=caller.tenant,
                store=store,
                observations=found.entries,
            )
        work = once(delete_store, check=_require_stores)
        await self.engine.write(caller, work, store)
        self.on_erased(caller)


def _require_stores(tx: Transaction, *_: object) -> None:
    tx.caller.require_stores()


def create_store(tx: Transaction, draft: StoreDraft) -> Store:
    tx.caller.require_stores()
    require_room(tx)
    store = Store(
        id=StoreId(tx.new_uid(tx.now)),
        name=draft.name,
        description=draft.description,
        metadata=draft.metadata,
        created_at=tx.now,
        updated_at=tx.now,
    )
    tx[StoreTable].add(store)
    return store


def store_to_delete(tx: Transaction, store: StoreId) -> Store | None:
    """The store to delete, or the refusal; None if this request was executed before."""
    tx.caller.require_stores()
    return known_store(tx, store) if is_due(tx) else None


def list_stores(tx: Transaction, filter_: StoreFilter, page: Page) -> Slice[Store]:
    tx.caller.require_stores()
    return tx[StoreTable].page(filter_, page)


def amend_store(tx: Transaction, store: StoreId, change: StoreChange) -> Store:
    found = open_store(tx, store)
    require_room(tx)
    amended = change.applied_to(found)
    require_few(amended.metadata)
    if amended == found:
        return found
    amended = replace(amended, updated_at=tx.now)
    tx[StoreTable].replace(amended)
    return amended


def archive_store(tx: Transaction, store: StoreId, policy: Policy) -> Store:
    found = known_store(tx, store)
    if found.archived_at is None:
        found = replace(found, archived_at=tx.now, updated_at=tx.now)
        tx[StoreTable].replace(found)
    elif policy.repeats_are_refused:
        raise AlreadyDone("The memory store is archived already.")
    return found


def delete_store(tx: Transaction, store: StoreId) -> None:
    known_store(tx, store)
    erasure = Erasure(
        id=ErasureId(tx.new_uid(tx.now)),
        kind=ErasureKind.STORE,
        project=NO_PROJECT,
        erased_at=tx.now,
        goes_on=True,
    )
    tx[ReceiptTable].add(erasure)
    tx[StoreTable].delete(store, erasure.id)
    tx[IdempotencyTable].erase_answers()


def is_store_going(tx: Transaction) -> bool:
    """Whether rows of a deleted store remain to be erased."""
    return tx[StoreTable].going() is not None


def erase_some_of_store(tx: Transaction) -> None:
    """Erase some of what remains of a deleted store."""
    erasure = tx[StoreTable].going()
    if erasure is None:
        return
    if revisions := tx[StoreTable].erase_history(erasure, HISTORY):
        tx[ReceiptTable].extend(erasure, (), revisions)
    elif memories := tx[StoreTable].some(erasure, BATCH):
        tx[ReceiptTable].extend(erasure, memories, tx[MemoryTable].erase_some(memories))
    else:
        tx[StoreTable].remove(erasure)
        tx[ReceiptTable].complete(erasure, 0)
