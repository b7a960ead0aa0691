"""Versions of entries: read, listed, redacted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...engine.callbacks import Audit, noop
from ...engine.engine import Engine, Transaction
from ...errors import AlreadyDone, StillCurrent
from ...memory.idempotency import is_due, once
from ...memory.model.access import Caller, Role
from ...memory.model.erasure import Erasure, ErasureId
from ...memory.model.kinds import ErasureKind
from ...memory.model.memory import MemoryId
from ...memory.model.space import NO_PROJECT, StoreId
from ...memory.model.stores import Page, Slice, Version, VersionFilter, VersionId
from ...memory.sql.memories import MemoryTable
from ...memory.sql.receipts import ReceiptTable
from ...memory.sql.revisions import VersionTable
from ...memory.sql.stores import EntryTable
from .rules import Policy, known_store, known_version, require_known


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Versions of one service, under a dialect's policy; those of deleted entries stay.

    Denied for callers without access to every project; NotFound for unknown ids, and for a
    version of another store.
    """

    engine: Engine
    policy: Policy
    audit: Audit
    on_erased: Callable[[Caller], None] = noop

    async def get(self, caller: Caller, store: StoreId, version: VersionId) -> Version:
        """The version, with its content unless it was redacted."""
        caller.require(Role.READER)
        return await self.engine.read(caller, known_version, store, version)

    async def list(
        self, caller: Caller, store: StoreId, filter_: VersionFilter, page: Page
    ) -> Slice[Version]:
        """A page of versions of all entries, newest first."""
        caller.require(Role.READER)
        return await self.engine.read(caller, list_versions, store, filter_, page)

    async def redact(self, caller: Caller, store: StoreId, version: VersionId) -> Version:
        """Remove a version's content for good, in archived stores too; AlreadyDone, StillCurrent.

        Its bytes are erased within seconds, unless the entry has the same text now.
        """
        caller.require(Role.ADMIN)
        if await self.engine.read(caller, is_to_redact, store, version, self.policy):
            await asyncio.to_thread(
                self.audit,
                caller,
                "version.redacted",
                tenant=caller.tenant,
                store=store,
                version=version,
            )
        work = once(redact_version, check=require_known, about=lambda it: [it.memory])
        redacted = await self.engine.write(caller, work, store, version, self.policy)
        self.on_erased(caller)
        return redacted


def list_versions(
    tx: Transaction, store: StoreId, filter_: VersionFilter, page: Page
) -> Slice[Version]:
    known_store(tx, store)
    return tx[VersionTable].page(store, filter_, page)


def is_to_redact(tx: Transaction, store: StoreId, version: VersionId, policy: Policy) -> bool:
    """Whether a redaction would change anything, or its refusal."""
    return is_due(tx) and _redacted(tx, store, version, policy) is not None


def redact_version(tx: Transaction, store: StoreId, version: VersionId, policy: Policy) -> Version:
    redacted = _redacted(tx, store, version, policy)
    if redacted is None:
        return known_version(tx, store, version)
    tx[VersionTable].redact(redacted)
    erased(tx, redacted.memory)
    return redacted


def erased(tx: Transaction, memory: MemoryId) -> None:
    """Record that the bytes of a memory's earlier text are to be erased."""
    tx[MemoryTable].must_scrub(memory)
    tx[ReceiptTable].add(
        Erasure(
            id=ErasureId(tx.new_uid(tx.now)),
            kind=ErasureKind.REDACTION,
            project=NO_PROJECT,
            memories=(memory,),
            revisions=1,
            erased_at=tx.now,
        )
    )


def _redacted(
    tx: Transaction, store: StoreId, version: VersionId, policy: Policy
) -> Version | None:
    """The version after redaction; None if nothing would change."""
    found = known_version(tx, store, version)
    if found.redacted_at is not None and policy.repeats_are_refused:
        raise AlreadyDone("The version is redacted already.")
    if not policy.current_is_redacted and _is_current(tx, found):
        raise StillCurrent("The version is what its memory says now; change or delete that first.")
    redacted = replace(found, content=None)
    if policy.redaction_takes_all:  # also of one that the other dialect has redacted
        redacted = replace(redacted, path=None, size=None, sha256=None)
    if found.redacted_at is None:
        return replace(redacted, redacted_at=tx.now, redacted_by=tx.caller.key)
    return None if redacted == found else redacted


def _is_current(tx: Transaction, version: Version) -> bool:
    entry = tx[EntryTable].get(version.store, version.entry)
    return entry is not None and entry.version == version.id
