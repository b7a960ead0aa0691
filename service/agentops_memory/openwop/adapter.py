"""The memory adapter: entries of refs are put, read, listed, found and deleted (OpenWOP)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from ..engine.callbacks import noop
from ..engine.engine import Engine, Ids, Transaction
from ..errors import AnswerLost, BadFields
from ..memory.idempotency import IdempotentRequest, idempotent
from ..memory.limits import require_room
from ..memory.model.access import Caller, Role
from ..memory.model.memory import UNSET, ChangeKind, LifecycleChange, MemoryId
from ..memory.model.search import Filter
from ..memory.model.space import MemoryRef
from ..memory.model.stores import Written
from ..memory.redactor import Redaction, RunKey
from ..memory.sql.memories import MemoryTable
from ..memory.sql.rows import count
from ..memory.sql.table import Sql
from ..memory.writes import revised
from ..recall import recall
from ..recall.text.features import ALL, Features
from ..recall.text.instants import whole_milliseconds
from ..recall.text.query import TIMEOUT, Query, understood
from ..record import CamelRecord
from .commitments import arm, cancel_of, conditions_of, fire_met
from .entries import Provenance, RefDraft, RefEntry, RefTable, added
from .model.runs import RunEventType, RunId
from .refs import (
    IdTaken,
    IsCurrent,
    MemoryChanged,
    RefEntryId,
    Screen,
    ScreenOutdated,
    Snapshot,
    fitting,
    is_readable,
    no_entry,
    require_plain,
    require_ref,
    screen_of,
    unknown_before,
    written,
)
from .rules.run_rules import known_run, open_run, require_secrets
from .rules.snapshots import snapshot_of
from .sql.runs import RunTable

MOST_FOUND = 1000  # of a search, among which a budget chooses
CREATED, OK = 201, 200


class RefExtent(CamelRecord):
    """A ref, with how much it holds: undeleted entries, and the bytes of their contents."""

    memory_ref: MemoryRef
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What an entry was screened with, asked when it is written."""

    is_current: IsCurrent
    held: Callable[[RunId], Mapping[str, int]]  # how many values each id of a run has here


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
        self,
        caller: Caller,
        ref: MemoryRef,
        run: RunId | None = None,
        *,
        tag: str | None = None,
        before: RefEntryId | None = None,
        limit: int,
        budget: int | None = None,
    ) -> tuple[Sequence[RefEntry], bool]:
        """Live entries that no live one supersedes, newest first; and whether there are more.

        In a run as its snapshot has them. `before` is the id of an entry, or its cursor, also of
        a deleted one: those older than it. The budget bounds the code points of all contents; an
        entry that alone exceeds it is left out. NotFound for an unknown run, Invalid for an
        unknown `before`, SnapshotLost.
        """
        caller.require(Role.READER)
        caller.require_refs()
        if is_readable(ref, caller.tenant, screen_of(self.redaction, caller)):
            return await self.engine.read(
                caller, list_entries, ref, run, tag=tag, before=before, limit=limit, budget=budget
            )
        await self._require_run(caller, run)
        if before is not None:
            raise unknown_before()
        return (), False

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
            put_entry,
            idempotency,
            again=put_again,
            ids=lambda put: {"memory": put.value.memory, "is_new": int(put.is_new)},
            status=lambda put: CREATED if put.is_new else OK,
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
    ) -> Sequence[tuple[RefEntry, float]]:
        """Entries that a list would show, by their words, best first; a lower rank is better."""
        caller.require(Role.READER)
        caller.require_refs()
        if not is_readable(ref, caller.tenant, screen_of(self.redaction, caller)):
            return ()
        query = understood(text, self.features, self.timeout)
        if not query:
            return ()
        return await self.engine.read(caller, search_entries, ref, query, tag, limit, budget)

    async def refs(
        self, caller: Caller, after: str, limit: int
    ) -> tuple[Sequence[RefExtent], bool]:
        """Refs that hold entries, in code point order; and whether there are more."""
        caller.require(Role.READER)
        caller.require_refs()
        found = await self.engine.read(caller, list_refs, after, limit + 1)
        return found[:limit], len(found) > limit

    async def _require_readable(
        self, caller: Caller, ref: MemoryRef, run: RunId | None = None
    ) -> None:
        """Refuse a ref under which there can be nothing just as one that is unknown."""
        caller.require_refs()
        if not is_readable(ref, caller.tenant, screen_of(self.redaction, caller)):
            await self._require_run(caller, run)
            raise no_entry()

    async def _require_run(self, caller: Caller, run: RunId | None) -> None:
        if run is not None:
            await self.engine.read(caller, known_run, run)

    def _held(self, caller: Caller, run: RunId) -> Mapping[str, int]:
        return self.redaction.registry.count(RunKey(tenant=caller.tenant, run=run))


def list_entries(
    tx: Transaction,
    ref: MemoryRef,
    run: RunId | None,
    *,
    tag: str | None,
    before: RefEntryId | None,
    limit: int,
    budget: int | None,
) -> tuple[Sequence[RefEntry], bool]:
    listed = tx[RefTable].listed(ref, _snapshot(tx, run, ref), tag=tag, before=before)
    if listed is None:
        raise unknown_before()
    chosen, has_more = fitting(
        listed, limit=limit, budget=budget, size=lambda it: it.size, length=lambda it: it.length
    )
    return tx[RefTable].some([it.memory for it in chosen]), has_more


def get_entry(tx: Transaction, ref: MemoryRef, entry: RefEntryId, run: RunId | None) -> RefEntry:
    found = tx[RefTable].get(ref, entry, _snapshot(tx, run, ref))
    if found is None:
        raise no_entry()
    return found


def provenance_of(tx: Transaction, ref: MemoryRef, entry: RefEntryId) -> Provenance:
    found = tx[RefTable].provenance(ref, entry)
    if found is None:
        raise no_entry()
    return found


def search_entries(
    tx: Transaction,
    ref: MemoryRef,
    query: Query,
    tag: str | None,
    limit: int,
    budget: int | None,
) -> Sequence[tuple[RefEntry, float]]:
    within = Filter(ref=ref, tag=tag, is_current=True)
    found = recall.search(tx, query, within, limit if budget is None else MOST_FOUND)
    ranks = {hit.memory.id: hit.rank for hit in found.hits}
    chosen, _ = fitting(
        tx[RefTable].some(list(ranks)),
        limit=limit,
        budget=budget,
        size=lambda it: len(it.content.encode()),
        length=lambda it: len(it.content),
    )
    return [(entry, ranks[entry.memory]) for entry in chosen]


def list_refs(tx: Transaction, after: str, limit: int) -> Sequence[RefExtent]:
    rows = tx[Sql].run(
        """SELECT ref, entries, size
             FROM refs
            WHERE ref > :after AND entries > 0
         ORDER BY ref
            LIMIT :limit""",
        after=after,
        limit=limit,
    )
    return [
        RefExtent(memory_ref=ref, entries=count(entries), bytes=count(size))
        for ref, entries, size in rows
    ]


def _snapshot(tx: Transaction, run: RunId | None, ref: MemoryRef) -> Snapshot | None:
    return None if run is None else snapshot_of(tx, run, ref)


def put_entry(tx: Transaction, draft: RefDraft, screened: Screened) -> Written[RefEntry]:
    if not screened.is_current():
        raise ScreenOutdated
    tx.caller.require_refs()
    origin = draft.origin
    run = None if origin.run is None else open_run(tx, origin.run)
    if run is not None:
        require_secrets(run, screened.held(run.id))
    held = None if draft.id is None else tx[RefTable].get(draft.ref, draft.id)
    if held is not None:
        is_same = held.content == draft.content and held.tags == draft.tags
        if not is_same or held.expires_at != _end(draft.lifecycle, held.created_at):
            raise IdTaken
        return Written(value=held, is_new=False)
    require_room(tx)
    older = [tx[RefTable].get(draft.ref, it) for it in dict.fromkeys(draft.supersedes)]
    replaced = [it.memory for it in older if it is not None]
    if len(replaced) < len(older):
        raise MemoryChanged
    ends, conditions = _end(draft.lifecycle, tx.now), conditions_of(draft.tags, tx.now)
    if ends is not None and ends <= tx.now:
        raise BadFields([("expiresAt", "must lie in the future")])
    entry = added(tx, draft, ends=ends)
    _supersede(tx, entry.memory, replaced)
    if run is not None:
        names = {"nodeId": origin.node, "agentId": origin.agent}
        tx[RunTable].tell(  # RFC 0057
            run,
            RunEventType.WRITTEN,
            {
                "memoryRef": draft.ref,
                "memoryId": entry.id,
                **{name: it for name, it in names.items() if it is not None},
                "tags": list(draft.tags),
            },
            origin.node,
        )
        tx[RunTable].hear(run, draft.ref)
    fired = fire_met(tx, draft.ref, entry)
    arm(tx, entry.memory, conditions)
    return Written(value=entry, is_new=True, fired=fired)


def put_again(tx: Transaction, ids: Ids, draft: RefDraft, _: Screened) -> Written[RefEntry]:
    """The entry as it was answered; AnswerLost if it is not live any more."""
    tx.caller.require_refs()
    (entry,) = tx[RefTable].some([MemoryId(int(ids["memory"]))])
    if tx[RefTable].get(draft.ref, entry.id) != entry:
        raise AnswerLost
    return Written(value=entry, is_new=bool(ids["is_new"]))


def delete_entry(tx: Transaction, ref: MemoryRef, entry: RefEntryId, run: RunId | None) -> None:
    tx.caller.require_refs()
    within = None if run is None else open_run(tx, run)
    found = tx[RefTable].get(ref, entry)
    if found is None:
        raise no_entry()
    removed(tx, found.memory)
    if within is not None:
        payload = {"memoryRef": ref, "memoryId": found.id}
        tx[RunTable].tell(within, RunEventType.DELETED, payload)
        tx[RunTable].hear(within)


def deleted_again(
    tx: Transaction, _: Ids, __: MemoryRef, ___: RefEntryId, ____: RunId | None
) -> None:
    tx.caller.require_refs()


def removed(tx: Transaction, memory: MemoryId) -> None:
    """Delete an entry that is there."""
    tx[Sql].run(
        "UPDATE ref_entries SET deleted_after = :after WHERE memory_id = :id",
        id=memory,
        after=tx[RunTable].newest(),
    )
    cancel_of(tx, [memory])
    (held,) = tx[MemoryTable].loaded([memory])
    gone = replace(held, deleted_at=tx.now)
    revised(tx, held, gone, ChangeKind.DELETED, has_new_text=False)


def _supersede(tx: Transaction, newer: MemoryId, older: Sequence[MemoryId]) -> None:
    """Let an entry that is new supersede others."""
    if older:
        last = tx[RunTable].newest()
        for it in older:
            tx[Sql].insert("ref_supersessions", newer_id=newer, older_id=it, made_after=last)
    cancel_of(tx, older)


def _end(given: LifecycleChange, since: datetime) -> datetime | None:
    """When an entry ends: at a whole millisecond, as it is shown."""
    end = given.end(since)
    if end is UNSET or not isinstance(end, datetime):
        return None
    return whole_milliseconds(end)
