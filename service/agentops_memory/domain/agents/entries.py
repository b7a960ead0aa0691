"""Entries of agents' memory: made, read, listed, changed at a version, deleted, expired."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

from ..errors import Denied, Invalid
from ..memories.idempotency import IdempotentRequest, idempotent
from ..memories.redactor import Redactor, RulesOf, default_rules
from ..model.access import Caller, Role
from ..model.agent_events import AgentEvent
from ..model.agent_memory import (
    AgentChange,
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    AgentFilter,
    AgentSummary,
    Eyes,
)
from ..model.agents import NOT_YOUR_AGENT, AgentId
from ..model.capacities import Capacities
from ..model.stores import Written
from ..ports.callbacks import noop
from ..ports.engine import Engine, Ids, Transaction
from . import changes, rules
from .accesses import Accesses, own_episodic
from .changes import BatchItem, Deleted, Outcome
from .listing import Listing, begin, go_on
from .screening import clean_change, clean_draft, clean_filter, require_plain

P = ParamSpec("P")
T = TypeVar("T")

BRIEF = 4096  # characters of a value that is screened on the loop
MOST_DELETED = 1_000  # entries of one deletion
MOST_NAMED = 1_000  # namespaces of a summary


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

    async def create(
        self,
        caller: Caller,
        eyes: Eyes,
        draft: AgentDraft,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[AgentEntry]:
        """Make an entry at a place that is free; episodic ones make room for it."""
        caller.require(Role.WRITER)
        redactor = self._redactor(caller, eyes)
        clean = await _screened(len(draft.value), clean_draft, redactor, draft)

        def again(tx: Transaction, ids: Ids, *_: object) -> Outcome:
            return changes.again(tx, ids, eyes)

        work = idempotent(changes.create, idempotency, again=again, ids=changes.ids_of)
        (made,) = await self._written(caller, work, eyes, clean, self.capacities)
        return Written(value=made, redacted=redactor.count)

    async def get(self, caller: Caller, eyes: Eyes, entry: AgentEntryId) -> AgentEntry:
        """The entry, with its value."""
        caller.require(Role.READER)
        found, at = await self.engine.read(caller, get, entry, eyes)
        self._note(caller, eyes, at, found)
        return found

    async def page(
        self, caller: Caller, eyes: Eyes, filter_: AgentFilter, limit: int, offset: int
    ) -> Listing:
        """Entries that the agent may read, newest first."""
        caller.require(Role.READER)
        clean = clean_filter(Redactor(self.rules(caller)), filter_)
        total, ids, first, at = await self.engine.read(caller, begin, eyes, clean, limit, offset)

        async def portions() -> AsyncIterator[Sequence[AgentEntry]]:
            left, entries, now = ids, first, at
            while True:
                self._note(caller, eyes, now, *entries)
                yield entries
                if not left:
                    return
                entries, left, now = await self.engine.read(caller, go_on, eyes, left)

        count = len(first) + len(ids)
        return Listing(total=total, count=count, is_whole=not ids, portions=portions())

    async def amend(
        self,
        caller: Caller,
        eyes: Eyes,
        entry: AgentEntryId,
        change: AgentChange,
        version: int,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[AgentEntry]:
        """Change an entry that is at this version; each change that is accepted makes another."""
        caller.require(Role.WRITER)
        redactor = self._redactor(caller, eyes)
        clean = await _screened(len(change.value or ""), clean_change, redactor, change)

        def again(tx: Transaction, ids: Ids, *_: object) -> Outcome:
            return changes.again(tx, ids, eyes)

        work = idempotent(changes.amend, idempotency, again=again, ids=changes.ids_of)
        (after,) = await self._written(caller, work, entry, eyes, clean, version)
        return Written(value=after, redacted=redactor.count)

    async def delete(
        self,
        caller: Caller,
        eyes: Eyes,
        entry: AgentEntryId,
        version: int | None = None,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> None:
        """Remove an entry for good."""
        caller.require(Role.WRITER)

        def again(*_: object) -> None:
            """What is gone stays gone."""

        work = idempotent(changes.delete, idempotency, again=again)
        await self._write(caller, work, entry, eyes, version)
        self.on_erased(caller)

    async def write_batch(
        self,
        caller: Caller,
        eyes: Eyes,
        items: Sequence[BatchItem],
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Sequence[AgentEntry]]:
        """Make and change entries, all or none; AtItem says which one is refused."""
        caller.require(Role.WRITER)
        redactor = self._redactor(caller, eyes)
        clean = await _screened(BRIEF, _clean_items, redactor, items)

        def again(tx: Transaction, ids: Ids, *_: object) -> Outcome:
            return changes.again(tx, ids, eyes)

        work = idempotent(changes.write_batch, idempotency, again=again, ids=changes.ids_of)
        written = await self._written(caller, work, eyes, clean, self.capacities)
        return Written(value=written, redacted=redactor.count)

    async def delete_batch(
        self,
        caller: Caller,
        eyes: Eyes,
        filter_: AgentFilter,
        most: int = MOST_DELETED,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Deleted:
        """Delete what the agent may write of what a filter matches; Invalid without a condition."""
        caller.require(Role.WRITER)
        if filter_ == AgentFilter():
            raise Invalid("A deletion of many needs a filter.")
        clean = clean_filter(Redactor(self.rules(caller)), filter_)

        def again(_: Transaction, ids: Ids, *__: object) -> Deleted:
            return Deleted(count=int(ids["count"]), has_more=bool(ids["has_more"]))

        work = idempotent(changes.delete_batch, idempotency, again=again, ids=_ids_of_deleted)
        deleted = await self._write(caller, work, eyes, clean, min(most, MOST_DELETED))
        if deleted.count:
            self.on_erased(caller)
        return deleted

    async def summary(self, caller: Caller, eyes: Eyes) -> AgentSummary:
        """What the agent has in each tier, and which namespaces it may read."""
        caller.require(Role.READER)
        return await self.engine.read(caller, summary, eyes, self.capacities)

    async def events(
        self,
        caller: Caller,
        eyes: Eyes,
        agent: AgentId,
        limit: int,
        *,
        type_: str | None = None,
        since: datetime | None = None,
        after: int | None = None,
    ) -> Sequence[AgentEvent]:
        """An agent's own stream: newest first, or oldest first from a sequence on."""
        caller.require(Role.READER)
        if agent != eyes.agent:
            raise Denied(NOT_YOUR_AGENT)

        def page(tx: Transaction) -> Sequence[AgentEvent]:
            return tx.agent_events.page(agent, limit, type_=type_, since=since, after=after)

        return await self.engine.read(caller, page)

    async def flush(self) -> None:
        """Write what was noted of accesses and not written yet."""
        for tenant in self.accesses.tenants():
            await self._write(Caller(tenant=tenant), lambda _: None)

    def _redactor(self, caller: Caller, eyes: Eyes) -> Redactor:
        redactor = Redactor(self.rules(caller))
        require_plain(redactor, eyes)
        return redactor

    async def _written(
        self,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], Outcome],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Sequence[AgentEntry]:
        outcome = await self._write(caller, work, *args, **kwargs)
        return outcome.entries

    async def _write(
        self,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What work answers, in whose transaction the accesses are written that were noted."""
        accessed = self.accesses.take(caller.tenant)

        def touching(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
            tx.agents.touch(accessed)
            return work(tx, *args, **kwargs)

        try:
            return await self.engine.write(caller, touching, *args, **kwargs)
        except BaseException:
            self.accesses.note(caller.tenant, accessed)
            raise

    def _note(self, caller: Caller, eyes: Eyes, at: datetime, *entries: AgentEntry) -> None:
        """Note that an owner was given its own episodic entries."""
        self.accesses.note(caller.tenant, own_episodic(entries, eyes, at))


def get(tx: Transaction, entry: AgentEntryId, eyes: Eyes) -> tuple[AgentEntry, datetime]:
    return rules.known(tx, entry, eyes), tx.now


def summary(tx: Transaction, eyes: Eyes, capacities: Capacities) -> AgentSummary:
    readable = tx.namespaces.page(eyes, MOST_NAMED, 0)
    return replace(
        tx.agents.summary(eyes),
        capacity=capacities.episodic,
        namespaces=tuple(namespace.name for namespace in readable),
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


def _ids_of_deleted(deleted: Deleted) -> Ids:
    return {"count": deleted.count, "has_more": deleted.has_more}
