"""Entries of agents' memory in races: one at a place, no more than there is room for; lifetimes."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.errors import Invalid
from agentops_memory.memory.access import OPERATOR, AgentId
from agentops_memory.memory.agents import Tier, Viewer
from agentops_memory.memory.retention import Capacities
from agentops_memory.memory.saves import Written
from agentops_memory.openintent.api import OverCapacity
from agentops_memory.openintent.changes import Outdated, Taken
from agentops_memory.openintent.drafts import AgentChangeBody, AgentEntryBody, lifetime
from agentops_memory.openintent.entries import AgentEntry, AgentFilter, EntryKey
from agentops_memory.openintent.events import AgentEvent, EventFilter, Events
from agentops_memory.openintent.memory import AgentEntries

from ..support.engine import opened
from ..support.samples import for_each
from ..support.service import Clock

AGENTS = [AgentId(name) for name in ("ada", "bob", "cyn")]
CAPACITIES = Capacities(working=3, episodic=4)


async def listed(
    entries: AgentEntries, viewer: Viewer, filter_: AgentFilter, limit: int = 100, offset: int = 0
) -> tuple[int, list[AgentEntry]]:
    """How many entries there are, and those of a page."""
    found = await entries.page(lambda: (OPERATOR, viewer), filter_, limit, offset)
    return found.total, [entry async for portion in found.portions for entry in portion]


async def told(
    entries: AgentEntries, agent: AgentId, limit: int, after: int | None = None
) -> list[AgentEvent]:
    """Events of an agent's stream."""
    events, filter_ = Events(engine=entries.engine), EventFilter(agent=agent, after=after)
    found = await events.page(lambda: (OPERATOR, Viewer(agent=agent)), filter_, limit)
    return [event async for portion in found.portions for event in portion]


def entry(at: EntryKey, value: dict[str, Any], **fields: Any) -> AgentEntryBody:
    named = {"namespace": at.namespace, "key": at.key, "memory_type": at.tier.value}
    return AgentEntryBody.model_validate({"agent_id": at.owner, "value": value, **named, **fields})


async def test_racing_creates_at_one_place_make_one_entry(path: Path) -> None:
    async with opened(path, clock=Clock()) as engine:
        entries, viewer = AgentEntries(engine=engine), Viewer(agent=AGENTS[0])
        place = EntryKey(Tier.WORKING, AGENTS[0], "notes", "a")
        drafts = [entry(place, {"n": it}) for it in range(16)]
        made = await asyncio.gather(
            *(entries.create(OPERATOR, viewer, it) for it in drafts), return_exceptions=True
        )
        (first,) = [it.value for it in made if isinstance(it, Written)]
        taken = [it for it in made if isinstance(it, Taken)]
        assert len(taken) == 15
        assert all(it.current == first for it in taken)
        patches = [AgentChangeBody(value={"p": it}) for it in range(16)]
        done = await asyncio.gather(
            *(entries.amend(OPERATOR, viewer, first.id, it, 1) for it in patches),
            return_exceptions=True,
        )
        (after,) = [it.value for it in done if isinstance(it, Written)]
        assert after.version == 2
        outdated = [it for it in done if isinstance(it, Outdated)]
        assert [it.current for it in outdated] == [after] * 15


async def test_capacity_holds_under_racing_creates(path: Path) -> None:
    async with opened(path, clock=Clock()) as engine:
        entries = AgentEntries(engine=engine, capacities=CAPACITIES)
        viewer, counts = Viewer(agent=AGENTS[0]), {}
        for tier in (Tier.WORKING, Tier.EPISODIC):
            places = [EntryKey(tier, AGENTS[0], "notes", str(it)) for it in range(16)]
            drafts = [entry(it, {}) for it in places]
            made = await asyncio.gather(
                *(entries.create(OPERATOR, viewer, it) for it in drafts), return_exceptions=True
            )
            _, found = await listed(entries, viewer, AgentFilter(tier=tier))
            refused = sum(isinstance(it, OverCapacity) for it in made)
            counts[tier] = len(found), refused
        assert counts == {Tier.WORKING: (3, 13), Tier.EPISODIC: (4, 0)}
        events = await told(entries, AGENTS[0], 100)
        assert sum(it.type == "memory.evicted" for it in events) == 12


@for_each(
    "ttl, seconds",
    [
        ("duration:PT1S", 1), ("duration:PT0.25S", 0.25), ("duration:P1DT2H3M4S", 93_784),
        ("duration:P1Y", 31_536_000), ("duration:P2M", 5_184_000), ("duration:P1W", 604_800),
        ("duration:P100Y", 3_153_600_000),
    ],
)  # fmt: skip
def test_a_lifetime_is_read(ttl: str, seconds: float) -> None:
    assert lifetime(ttl) == timedelta(seconds=seconds)


@for_each(
    "ttl",
    ["", "P1D", "duration:", "duration:P", "duration:PT", "duration:P1", "duration:P0D",
     "duration:-P1D", "duration:P101Y", "duration:P999999999Y", "duration:P1DT", "duration:p1d",
     "duration:P1D ", "duration:PT1.1234567S", "duration:P٣D", "task_lifetime"],
)  # fmt: skip
def test_what_is_no_lifetime_is_refused(ttl: str) -> None:
    with pytest.raises(Invalid):
        lifetime(ttl)
