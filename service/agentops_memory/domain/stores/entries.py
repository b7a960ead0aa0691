"""Entries of memory stores: created, read, listed, changed under a precondition, deleted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..memories.idempotency import IdempotentRequest, idempotent
from ..memories.redactor import Redactor, RulesOf, default_rules
from ..model.access import Caller, Role
from ..model.space import StoreId
from ..model.stores import (
    ANY_STATE,
    EntriesSeen,
    Entry,
    EntryChange,
    EntryDraft,
    EntryId,
    Expected,
    Page,
    Slice,
    Written,
)
from ..ports.audit import noop
from ..ports.engine import Engine, Transaction
from .entry_writes import (
    amend_entry,
    amended_again,
    create_entry,
    created_again,
    delete_entry,
    deleted_again,
    ids_of_amended,
    ids_of_written,
)
from .listing import Branch, tree
from .rules import (
    Policy,
    clean_change,
    clean_draft,
    known_entry,
    known_store,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Entries of one service, under a dialect's policy.

    Denied for callers without access to every project; NotFound for unknown ids, and for an
    entry of another store.
    """

    engine: Engine
    policy: Policy
    rules: RulesOf = default_rules
    on_erased: Callable[[Caller], None] = noop

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
        work = idempotent(create_entry, idempotency, again=created_again, ids=ids_of_written)
        entry = await self.engine.write(caller, work, store, clean, self.policy)
        return Written(value=entry, redacted=redactor.count)

    async def get(self, caller: Caller, store: StoreId, entry: EntryId) -> Entry:
        """The entry, with its content."""
        caller.require(Role.READER)
        return await self.engine.read(caller, known_entry, store, entry)

    async def list(
        self, caller: Caller, store: StoreId, seen: EntriesSeen, page: Page
    ) -> Slice[Entry]:
        """A page of entries without content, newest first."""
        caller.require(Role.READER)
        return await self.engine.read(caller, list_entries, store, seen, page)

    async def tree(self, caller: Caller, store: StoreId, branch: Branch) -> Slice[Entry | str]:
        """Entries in order of path; a text stands for the folder of those that lie deeper."""
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
        """Change an entry that meets the precondition; Stale, PathTaken, Archived."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        clean = await asyncio.to_thread(clean_change, redactor, change)
        work = idempotent(amend_entry, idempotency, again=amended_again, ids=ids_of_amended)
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
        """Delete an entry that meets the precondition; its versions stay. Stale, Archived."""
        caller.require(Role.WRITER)
        work = idempotent(delete_entry, idempotency, again=deleted_again)
        if await self.engine.write(caller, work, store, entry, expected, self.policy):
            self.on_erased(caller)


def list_entries(tx: Transaction, store: StoreId, seen: EntriesSeen, page: Page) -> Slice[Entry]:
    known_store(tx, store)
    return tx.entries.page(store, seen, page)
