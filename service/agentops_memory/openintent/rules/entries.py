"""Entries of agents' memory: made, read, listed, changed at a version, deleted, expired."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from ...engine.callbacks import noop
from ...engine.engine import Engine, Transaction
from ...errors import Denied, Invalid, NotFound
from ...memory.idempotency import once
from ...memory.model.access import Caller, Role
from ...memory.model.agent_memory import (
    SEALED,
    AgentChange,
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    AgentFilter,
    AgentSummary,
    BatchItem,
    Deleted,
    Eyes,
    Place,
)
from ...memory.model.agents import NOT_YOUR_AGENT, AgentId
from ...memory.model.retention import Capacities
from ...memory.model.stores import Written
from ...memory.redactor import Redactor, RulesOf, default_rules
from ..sql.entries import AgentTable
from ..sql.intents import IntentTable
from ..sql.namespaces import NamespaceTable
from . import changes, rules
from .changes import Outcome
from .listing import Asking, Left, Listing, begin, go_on, listed
from .search import Accesses, own_episodic
from .values import clean_change, clean_draft, clean_filter, clean_place, require_plain

MOST_NAMED = 1_000  # namespaces of a summary


def get(tx: Transaction, entry: AgentEntryId, eyes: Eyes) -> tuple[AgentEntry, datetime]:
    return _readable(rules.known(tx, entry, eyes)), tx.now


def at(tx: Transaction, place: Place) -> tuple[AgentEntry, datetime]:
    found = tx[AgentTable].at(place)
    if found is None or not found.is_there(tx.now):
        raise NotFound(rules.NO_ENTRY)
    return _readable(found), tx.now


def summary(tx: Transaction, agent: AgentId, eyes: Eyes, capacities: Capacities) -> AgentSummary:
    if agent != eyes.agent and not tx[IntentTable].coordinates(eyes, agent):
        raise Denied(NOT_YOUR_AGENT)
    readable = tx[NamespaceTable].page(eyes, MOST_NAMED, 0)
    return replace(
        tx[AgentTable].summary(agent, eyes),
        capacity=rules.episodic_capacity(tx, agent, capacities),
        namespaces=tuple(namespace.name for namespace in readable),
    )


def _readable(entry: AgentEntry) -> AgentEntry:
    if entry.is_lost:
        raise rules.KeyLost
    return entry


P = ParamSpec("P")
T = TypeVar("T")

BRIEF = 4096  # characters of a value that is screened on the loop
MOST_DELETED = 1_000  # entries of one deletion


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEntries:
    """Agents' memory of one service.

    NotFound for what an agent may not see, as for what is not there; Denied for what it may
    read alone; Taken, Outdated and OverCapacity tell of the state that refuses.
    """

    engine: Engine
    capacities: Capacities = Capacities()  # noqa: RUF009 - frozen
    rules: RulesOf = default_rules
    on_erased: Callable[[Caller], None] = noop
    accesses: Accesses = field(default_factory=Accesses)

    async def create(self, caller: Caller, eyes: Eyes, draft: AgentDraft) -> Written[AgentEntry]:
        """Make an entry at a place that is free; episodic ones make room for it."""
        return await self._write(changes.create, caller, eyes, draft)

    async def get(self, caller: Caller, eyes: Eyes, entry: AgentEntryId) -> AgentEntry:
        """The entry, with its value."""
        caller.require(Role.READER)
        found, now = await self.engine.read(caller, get, entry, eyes)
        self._note(caller, eyes, now, found)
        return found

    async def at(self, caller: Caller, eyes: Eyes, place: Place) -> AgentEntry:
        """The agent's own entry at a place."""
        caller.require(Role.READER)
        clean = clean_place(Redactor(self.rules(caller)), place)
        found, now = await self.engine.read(caller, at, clean)
        self._note(caller, eyes, now, found)
        return found

    async def page(
        self, asking: Asking, filter_: AgentFilter, limit: int, offset: int
    ) -> Listing[AgentEntry]:
        """Entries that the agent may read, newest first; who asks is asked before each portion."""
        caller, eyes = asking()
        caller.require(Role.READER)
        clean = clean_filter(Redactor(self.rules(caller)), filter_)
        total, ids, first, now = await self.engine.read(caller, begin, eyes, clean, limit, offset)
        self._note(caller, eyes, now, *first)

        async def more(left: Left) -> tuple[Sequence[AgentEntry], Left]:
            caller, eyes = asking()
            entries, left, now = await self.engine.read(caller, go_on, eyes, left)
            self._note(caller, eyes, now, *entries)
            return entries, left

        return listed(first, ids, more, total)

    async def put(self, caller: Caller, eyes: Eyes, draft: AgentDraft) -> Written[AgentEntry]:
        """Let the entry at a place have a value and a ttl; it is made if there is none."""
        return await self._write(changes.put, caller, eyes, draft)

    async def amend(
        self, caller: Caller, eyes: Eyes, entry: AgentEntryId, change: AgentChange, version: int
    ) -> Written[AgentEntry]:
        """Change an entry that is at this version; each change that is accepted makes another."""
        caller.require(Role.WRITER)
        redactor = self._redactor(caller, eyes)
        clean = await _screened(len(change.value or ""), clean_change, redactor, change)

        work = _once(changes.amend, eyes)
        done = await self.accesses.write(
            self.engine, caller, work, entry, eyes, clean, version, self.capacities
        )
        self._seal_soon(caller, change)
        return Written(value=done.entries[0], redacted=redactor.count)

    async def delete(
        self, caller: Caller, eyes: Eyes, entry: AgentEntryId, version: int | None = None
    ) -> None:
        """Remove an entry for good."""
        caller.require(Role.WRITER)
        self._redactor(caller, eyes)

        work = once(changes.delete)
        await self.accesses.write(self.engine, caller, work, entry, eyes, version)
        self.on_erased(caller)

    async def write_batch(
        self, caller: Caller, eyes: Eyes, items: Sequence[BatchItem]
    ) -> Written[Sequence[AgentEntry]]:
        """Make and change entries, all or none; AtItem says which one is refused."""
        caller.require(Role.WRITER)
        redactor = self._redactor(caller, eyes)
        clean = await _screened(BRIEF, _clean_items, redactor, items)

        work = _once(changes.write_batch, eyes)
        done = await self.accesses.write(self.engine, caller, work, eyes, clean, self.capacities)
        self._seal_soon(caller, *(item.change for item in items))
        return Written(value=done.entries, redacted=redactor.count, evicted=done.evicted)

    async def delete_batch(
        self, caller: Caller, eyes: Eyes, filter_: AgentFilter, most: int = MOST_DELETED
    ) -> Deleted:
        """Delete what the agent may write of what a filter matches; Invalid without a condition."""
        caller.require(Role.WRITER)
        if filter_ == AgentFilter():
            raise Invalid("A deletion of many needs a filter.")
        clean = clean_filter(self._redactor(caller, eyes), filter_)

        work = once(changes.delete_batch)
        deleted = await self.accesses.write(
            self.engine, caller, work, eyes, clean, min(most, MOST_DELETED)
        )
        if deleted.count:
            self.on_erased(caller)
        return deleted

    async def summary(self, caller: Caller, eyes: Eyes, agent: AgentId) -> AgentSummary:
        """What an agent has in each tier, and which namespaces may be read by who asks.

        Of another agent, who coordinates its work is told of what it may read; others Denied.
        """
        caller.require(Role.READER)
        return await self.engine.read(caller, summary, agent, eyes, self.capacities)

    async def flush(self) -> None:
        """Write what was noted of accesses and not written yet."""
        for tenant in self.accesses.tenants():
            await self.accesses.write(self.engine, Caller(tenant=tenant), lambda _: None)

    async def _write(
        self,
        change: Callable[[Transaction, Eyes, AgentDraft, Capacities], Outcome],
        caller: Caller,
        eyes: Eyes,
        draft: AgentDraft,
    ) -> Written[AgentEntry]:
        caller.require(Role.WRITER)
        redactor = self._redactor(caller, eyes)
        clean = await _screened(len(draft.value), clean_draft, redactor, draft)

        work = _once(change, eyes, changes.status_of)
        done = await self.accesses.write(self.engine, caller, work, eyes, clean, self.capacities)
        return Written(
            value=done.entries[0], redacted=redactor.count, evicted=done.evicted, is_new=done.is_new
        )

    def _redactor(self, caller: Caller, eyes: Eyes) -> Redactor:
        redactor = Redactor(self.rules(caller))
        require_plain(redactor, eyes.agent)
        return redactor

    def _seal_soon(self, caller: Caller, *changes: AgentChange | None) -> None:
        """Let the plain bytes of what may be sealed from now on leave the files within seconds."""
        if any(each is not None and each.sensitivity in SEALED for each in changes):
            self.on_erased(caller)

    def _note(self, caller: Caller, eyes: Eyes, at: datetime, *entries: AgentEntry) -> None:
        """Note that an owner was given its own episodic entries."""
        self.accesses.note(caller.tenant, own_episodic(entries, eyes, at))


def _once(
    work: Callable[Concatenate[Transaction, P], Outcome],
    eyes: Eyes,
    status: Callable[[Outcome], int] | None = None,
) -> Callable[Concatenate[Transaction, P], Outcome]:
    """Work whose repetition is told what these eyes may see."""
    return once(
        work,
        told=lambda tx, first: changes.told(tx, eyes, first),
        kept=changes.kept,
        about=lambda it: [entry.memory for entry in it.entries],
        status=status,
    )


async def _screened(size: int, work: Callable[[Redactor, T], T], redactor: Redactor, given: T) -> T:
    """What was given without secrets; others are served meanwhile, unless it is brief."""
    if size < BRIEF:
        return work(redactor, given)
    return await asyncio.to_thread(work, redactor, given)


def _clean_items(redactor: Redactor, items: Sequence[BatchItem]) -> Sequence[BatchItem]:
    return [
        replace(
            item,
            draft=clean_draft(redactor, item.draft),
            change=None if item.change is None else clean_change(redactor, item.change),
        )
        for item in items
    ]
