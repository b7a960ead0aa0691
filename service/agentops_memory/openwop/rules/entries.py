"""Entries of refs: listed, read, put, deleted, searched (OpenWOP's adapter)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from ...engine.callbacks import noop
from ...engine.engine import Engine
from ...memory.idempotency import IdempotentRequest, idempotent
from ...memory.model.access import Caller, Role
from ...memory.model.space import MemoryRef
from ...memory.model.stores import Written
from ...memory.redactor import Redaction, RunKey
from ...recall.text.features import ALL, Features
from ...recall.text.query import TIMEOUT, understood
from ..model.entries import (
    Provenance,
    RefDraft,
    RefEntry,
    RefEntryId,
    RefExtent,
    RefPage,
    RefQuery,
    RefRank,
)
from ..model.runs import RunId
from .changes import (
    Screened,
    delete_entry,
    deleted_again,
    ids_of_put,
    put_again,
    put_entry,
    status_of_put,
)
from .reads import get_entry, list_entries, list_refs, provenance_of, search_entries
from .rules import is_readable, no_entry, require_plain, require_ref, unknown_before
from .run_rules import known_run
from .screen import Screen
from .screened_writes import IsCurrent, screen_of, written


@dataclass(frozen=True, slots=True, kw_only=True)
class RefEntries:
    """The entries of one service, of refs that belong to a tenant.

    Denied for callers without access to every project. What cannot be there, or is
    another tenant's, is looked for nowhere.
    """

    engine: Engine
    redaction: Redaction
    features: Features = ALL
    timeout: timedelta = TIMEOUT
    on_due: Callable[[Caller], object] = noop  # called after a put whose commitments may be due

    async def list(
        self, caller: Caller, ref: MemoryRef, query: RefQuery, run: RunId | None = None
    ) -> RefPage:
        """Live entries that no live one supersedes, newest first; in a run as its snapshot has it.

        NotFound for an unknown run, Invalid for an unknown `before`, SnapshotLost.
        """
        caller.require(Role.READER)
        caller.require_refs()
        if is_readable(ref, caller.tenant, self._screen(caller)):
            return await self.engine.read(caller, list_entries, ref, query, run)
        await self._require_run(caller, run)
        if query.before is not None:
            raise unknown_before()
        return RefPage()

    async def get(
        self, caller: Caller, ref: MemoryRef, entry: RefEntryId, run: RunId | None = None
    ) -> RefEntry:
        """The entry, also one that another supersedes; NotFound, SnapshotLost."""
        caller.require(Role.READER)
        await self._require_readable(caller, ref, run)
        return await self.engine.read(caller, get_entry, ref, entry, run)

    async def provenance(self, caller: Caller, ref: MemoryRef, entry: RefEntryId) -> Provenance:
        """Who wrote the entry, of what it was made, and what replaces it; NotFound."""
        caller.require(Role.READER)
        await self._require_readable(caller, ref)
        return await self.engine.read(caller, provenance_of, ref, entry)

    async def put(
        self, caller: Caller, draft: RefDraft, *, idempotency: IdempotentRequest | None = None
    ) -> Written[RefEntry]:
        """Make an entry; the same one again under a host's id is the first.

        Denied for another tenant's ref; IdTaken, MemoryChanged, RunEnded, SecretsLost,
        TooManyArmed.
        """
        caller.require(Role.WRITER)
        caller.require_refs()
        origin = draft.origin
        work = idempotent(
            put_entry, idempotency, again=put_again, ids=ids_of_put, status=status_of_put
        )

        async def write(screen: Screen, is_current: IsCurrent) -> Written[RefEntry]:
            require_ref(draft.ref, caller.tenant, screen)
            require_plain(screen, id=draft.id, nodeId=origin.node, agentId=origin.agent)
            clean = await asyncio.to_thread(screen.draft, draft)
            screened = Screened(is_current=is_current, held=partial(self._held, caller))
            return await self.engine.write(caller, work, clean, screened)

        done = await written(self.redaction, caller, write)
        if done.value.fired:
            self.on_due(caller)
        return replace(done.value, redacted=done.redacted)

    async def delete(
        self,
        caller: Caller,
        ref: MemoryRef,
        entry: RefEntryId,
        run: RunId | None = None,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> None:
        """Delete an entry: it is gone for all but runs that are open; NotFound, RunEnded."""
        caller.require(Role.WRITER)
        await self._require_readable(caller, ref, run)
        work = idempotent(delete_entry, idempotency, again=deleted_again)
        await self.engine.write(caller, work, ref, entry, run)

    async def search(
        self,
        caller: Caller,
        ref: MemoryRef,
        text: str,
        *,
        tag: str | None = None,
        limit: int,
        budget: int | None = None,
    ) -> Sequence[RefRank]:
        """Entries that a list would show, by their words, best first."""
        caller.require(Role.READER)
        caller.require_refs()
        if not is_readable(ref, caller.tenant, self._screen(caller)):
            return ()
        query = understood(text, self.features, self.timeout)
        if not query:
            return ()
        return await self.engine.read(caller, search_entries, ref, query, tag, limit, budget)

    async def refs(
        self, caller: Caller, after: MemoryRef, limit: int
    ) -> tuple[Sequence[RefExtent], bool]:
        """Refs that hold entries, in code point order; and whether there are more."""
        caller.require(Role.READER)
        caller.require_refs()
        found = await self.engine.read(caller, list_refs, after, limit + 1)
        return found[:limit], len(found) > limit

    def _screen(self, caller: Caller) -> Screen:
        return screen_of(self.redaction, caller)

    async def _require_readable(
        self, caller: Caller, ref: MemoryRef, run: RunId | None = None
    ) -> None:
        """Refuse a ref under which there can be nothing just as one that is unknown."""
        caller.require_refs()
        if not is_readable(ref, caller.tenant, self._screen(caller)):
            await self._require_run(caller, run)
            raise no_entry()

    async def _require_run(self, caller: Caller, run: RunId | None) -> None:
        if run is not None:
            await self.engine.read(caller, known_run, run)

    def _held(self, caller: Caller, run: RunId) -> Mapping[str, int]:
        return self.redaction.registry.count(RunKey(tenant=caller.tenant, run=run))
