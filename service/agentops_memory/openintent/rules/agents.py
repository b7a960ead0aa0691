"""Whole agents: listed, given a capacity, exported, erased."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from ...engine.callbacks import Audit, noop
from ...engine.engine import Engine, Transaction
from ...errors import Invalid, NotFound
from ...memory.model.access import Caller, KeyId, Role
from ...memory.model.agent_memory import AgentEntry, AgentFilter, Eyes, Tier
from ...memory.model.agents import AgentExtent, AgentId, ListedAgent
from ...memory.model.retention import LARGEST_CAPACITY
from ...memory.sql.idempotency_records import IdempotencyTable
from ...memory.sql.memories import MemoryTable
from ..sql.agents import AgentDirectory
from ..sql.entries import AgentTable
from ..sql.events import AgentEventTable
from .listing import Left, go_on
from .rules import add_receipt

BATCH = 200  # rows erased in one transaction; saves wait for it
OWNED = (Tier.WORKING, Tier.EPISODIC)
NO_AGENT = "No such agent."


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """The agents of one service.

    All of it needs the role admin. An agent of which nothing is stored raises NotFound. A
    change is audited first, and not made if that fails.
    """

    engine: Engine
    audit: Audit

    async def list(self, caller: Caller) -> list[ListedAgent]:
        """Every agent of which something is stored, by name."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, all_agents)

    async def set_capacity(self, caller: Caller, agent: AgentId, capacity: int | None) -> None:
        """Say how many episodic entries an agent may hold, stored or not; None: as all others.

        One that holds more is brought down step by step as it makes new ones.
        """
        caller.require(Role.ADMIN)
        if capacity is not None and not 1 <= capacity <= LARGEST_CAPACITY:
            raise Invalid(f"An agent may hold 1 to {LARGEST_CAPACITY:,} episodic entries.")
        await self._record(caller, "agent.set", agent, episodic_capacity=capacity)
        await self.engine.write(caller, set_capacity, agent, capacity)

    async def export(self, caller: Caller, agent: AgentId) -> AsyncIterator[Sequence[AgentEntry]]:
        """Its live working and episodic entries, oldest first, read as they are taken.

        It is no access: what is evicted next stays the same.
        """
        caller.require(Role.ADMIN)
        left = await self.engine.read(caller, owned_entries, agent)
        while left:
            entries, left, _ = await self.engine.read(caller, go_on, Eyes(agent=agent), left)
            yield entries

    async def plan_erasure(
        self, caller: Caller, agent: AgentId, keys: Sequence[KeyId] = ()
    ) -> AgentExtent:
        """A dry run of `erase`, with its errors."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, planned_erasure, agent, keys)

    async def erase(
        self,
        caller: Caller,
        agent: AgentId,
        keys: Sequence[KeyId] = (),
        progress: Callable[[AgentExtent], None] = noop,
    ) -> AgentExtent:
        """Erase an agent in short transactions, with what it writes meanwhile; what went.

        Its working and episodic entries, its stream of events, and what was said of it; its
        semantic entries stay. An agent with keys may have nothing else.
        """
        extent = await self.plan_erasure(caller, agent, keys)
        await self._record(
            caller,
            "agent.erased",
            agent,
            working=extent.working,
            episodic=extent.episodic,
            events=extent.events,
            keys=[*keys],
        )
        erased = AgentExtent()
        while step := await self.engine.write(caller, erase_some, agent):
            erased = erased.plus(step)
            progress(erased)
        return erased

    async def _record(self, caller: Caller, action: str, agent: AgentId, **fields: object) -> None:
        await asyncio.to_thread(
            self.audit, caller, action, tenant=caller.tenant, agent=agent, **fields
        )


def all_agents(tx: Transaction) -> list[ListedAgent]:
    return tx[AgentDirectory].all()


def set_capacity(tx: Transaction, agent: AgentId, capacity: int | None) -> None:
    tx[AgentDirectory].set_capacity(agent, capacity)


def owned_entries(tx: Transaction, agent: AgentId) -> Left:
    """The live entries of an agent, oldest first, with the bytes of their values."""
    _require_known(tx, agent)
    eyes = Eyes(agent=agent)
    filters = [AgentFilter(agent=agent, tier=tier) for tier in OWNED]
    return sorted(
        entry
        for filter_ in filters
        for entry in tx[AgentTable].listed(filter_, eyes, sys.maxsize, 0)
    )


def planned_erasure(tx: Transaction, agent: AgentId, keys: Sequence[KeyId]) -> AgentExtent:
    if not keys:
        _require_known(tx, agent)
    return tx[AgentDirectory].extent(agent)


def erase_some(tx: Transaction, agent: AgentId) -> AgentExtent:
    """Erase the next batch; what went, which is nothing at the end."""
    if entries := tx[AgentDirectory].some(agent, BATCH):
        gone = tx[AgentDirectory].counted(entries)
        tx[MemoryTable].erase_some(entries)
    else:
        events = tx[AgentEventTable].forget(tx[AgentDirectory].some_events(agent, BATCH))
        gone = AgentExtent(events=events)
    if not gone:
        tx[AgentDirectory].remove(agent)
        tx[IdempotencyTable].erase_answers()
    add_receipt(tx)
    return gone


def _require_known(tx: Transaction, agent: AgentId) -> None:
    if not tx[AgentDirectory].exists(agent):
        raise NotFound(NO_AGENT)
