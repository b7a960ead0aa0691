"""Entries of agents' memory against a model: places, versions, access, expiry, eviction, events."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.errors import Denied, Invalid, NotFound
from agentops_memory.jobs import retention as sweeping
from agentops_memory.memory.access import OPERATOR, AgentId
from agentops_memory.memory.agents import Access, AgentEntryId, Permissions, Priority, Tier, Viewer
from agentops_memory.memory.retention import Capacities, Kind
from agentops_memory.memory.saves import Written
from agentops_memory.openintent.api import OverCapacity
from agentops_memory.openintent.changes import Outdated, Taken
from agentops_memory.openintent.drafts import AgentChangeBody, AgentEntryBody, lifetime
from agentops_memory.openintent.entries import AgentEntry, AgentFilter, EntryKey
from agentops_memory.openintent.events import AgentEvent, EventFilter, Events
from agentops_memory.openintent.memory import AgentEntries
from agentops_memory.openintent.namespaces import Namespaces, PermissionsBody

from ..support.engine import opened
from ..support.samples import for_each, sampled
from ..support.service import Clock

AGENTS = [AgentId(name) for name in ("ada", "bob", "cyn")]
NAMESPACES, KEYS, TAGS = ("notes", "notes_2"), ("a", "b", "c", "d", "e", "%"), ("x", "y")
CAPACITIES = Capacities(working=3, episodic=4)
STEPS = 250


ADMINISTRATOR = Viewer(agent=AgentId("root"), is_admin=True)


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


@dataclass
class Known:
    """What the model knows of a live entry."""

    entry: AgentEntry
    accessed_at: datetime
    order: int


@dataclass
class Model:
    """What there should be."""

    known: dict[AgentEntryId, Known] = field(default_factory=dict)
    permissions: dict[str, Permissions] = field(default_factory=dict)
    events: dict[AgentId, list[tuple[str, str]]] = field(default_factory=dict)
    made: int = 0

    def access(self, namespace: str, agent: AgentId) -> Access:
        return self.permissions.get(namespace, Permissions()).of(Viewer(agent=agent))

    def sees(self, agent: AgentId, space: EntryKey) -> bool:
        if space.owner is None:
            return self.access(space.namespace, agent) >= Access.READ
        return space.owner == agent

    def may_write(self, agent: AgentId, space: EntryKey) -> bool:
        if space.owner is None:
            return self.access(space.namespace, agent) >= Access.WRITE
        return space.owner == agent

    def at(self, place: EntryKey) -> AgentEntry | None:
        return next((it.entry for it in self.known.values() if it.entry.entry_key == place), None)

    def of(self, tier: Tier, agent: AgentId, now: datetime) -> list[Known]:
        return [
            it
            for it in self.known.values()
            if (it.entry.memory_type, it.entry.owner) == (tier, agent) and it.entry.is_live(now)
        ]

    def remove(self, entry: AgentEntry, type_: str, actor: AgentId | None = None) -> None:
        del self.known[entry.id]
        self.note(entry, type_, actor)

    def note(self, entry: AgentEntry, type_: str, actor: AgentId | None) -> None:
        stream = entry.owner or actor or entry.created_by
        self.events.setdefault(stream, []).append((type_, entry.id))


class Play:
    """Agents that do as chance says, and what the model says of it."""

    def __init__(self, entries: AgentEntries, clock: Clock, seed: int) -> None:
        self.entries, self.clock = entries, clock
        self.model = Model()
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        self.evicted = 0

    async def step(self) -> None:
        self.clock.advance(seconds=self.chance.choice([1, 1, 1, 20]))
        deeds: list[Callable[[], Awaitable[Any]]] = [self.create] * 5
        deeds += [self.get, self.get, self.amend, self.amend, self.delete, self.permit, self.expire]
        await self.chance.choice(deeds)()
        await self.compare()

    @property
    def now(self) -> datetime:
        return self.clock()

    async def create(self) -> None:
        agent, tier = self.chance.choice(AGENTS), self.chance.choice([*Tier, Tier.EPISODIC])
        whose = self.chance.choice([agent, agent, agent, AGENTS[0]]) if tier.has_owner else None
        place = EntryKey(tier, whose, self.chance.choice(NAMESPACES), self.chance.choice(KEYS))
        handled = self._handled()
        draft = entry(place, {"n": self.chance.random()}, **handled)
        refusal, victim, gone = self._refused(agent, place)
        if refusal is not None:
            with pytest.raises(refusal):
                await self.entries.create(OPERATOR, Viewer(agent=agent), draft)
            return
        made = (await self.entries.create(OPERATOR, Viewer(agent=agent), draft)).value
        if gone is not None:
            self.model.remove(gone, "memory.expired")
        if victim is not None:
            self._expire(agent)
        if victim is not None:
            self.model.remove(victim, "memory.evicted")
            self.evicted += 1
        assert (made.version, made.value) == (1, draft.value)
        assert_handled(made, handled)
        self.model.made += 1
        self.model.known[made.id] = Known(made, self.now, self.model.made)
        self.model.note(made, "memory.created", agent)

    def _refused(  # noqa: PLR0911 - a table of cases
        self, agent: AgentId, place: EntryKey
    ) -> tuple[type[Exception] | None, AgentEntry | None, AgentEntry | None]:
        """What a create is refused with, or what is evicted and what has expired at its place."""
        model, space = self.model, place
        if not model.may_write(agent, space):
            return Denied, None, None
        held = model.at(place)
        if held is not None and held.is_live(self.now):
            return Taken, None, None
        if space.owner is None:
            return None, None, held
        others = model.of(space.tier, space.owner, self.now)
        if space.tier is Tier.WORKING:
            return (OverCapacity if len(others) >= CAPACITIES.working else None), None, held
        if len(others) < CAPACITIES.episodic:
            return None, None, held
        free = [it for it in others if not it.entry.pinned]
        if not free:
            return OverCapacity, None, None
        first = min(
            free,
            key=lambda it: (
                it.entry.priority, it.accessed_at, it.entry.updated_at, it.order,
            ),
        )  # fmt: skip
        return None, first.entry, held

    async def get(self) -> None:
        agent, entry = self.chance.choice(AGENTS), self._any()
        if entry is None:
            return
        if not self._is_seen(agent, entry):
            with pytest.raises(NotFound):
                await self.entries.get(OPERATOR, Viewer(agent=agent), entry.id)
            return
        assert await self.entries.get(OPERATOR, Viewer(agent=agent), entry.id) == entry
        self._accessed(agent, entry)

    async def amend(self) -> None:
        agent, entry = self.chance.choice(AGENTS), self._any()
        if entry is None:
            return
        version = self.chance.choice([entry.version, entry.version, entry.version + 1])
        handled = self._handled()
        patch = AgentChangeBody.model_validate({"value": {"n": "new"}, **handled})
        refusal = self._unchangeable(agent, entry) or (
            Outdated if version != entry.version else None
        )
        if refusal is not None:
            with pytest.raises(refusal):
                await self.entries.amend(OPERATOR, Viewer(agent=agent), entry.id, patch, version)
            return
        written = await self.entries.amend(OPERATOR, Viewer(agent=agent), entry.id, patch, version)
        after = written.value
        said = {"value": '{"n":"new"}', "version": version + 1, "updated_at": self.now}
        kept = {it: getattr(after, it) for it in (*handled, "is_own_expiry")}
        assert after == entry.model_copy(update=said | kept)
        assert_handled(after, handled)
        known = self.model.known[entry.id]
        known.entry, known.accessed_at = after, self.now
        self.model.note(after, "memory.updated", agent)

    async def delete(self) -> None:
        agent, entry = self.chance.choice(AGENTS), self._any()
        if entry is None:
            return
        refusal = self._unchangeable(agent, entry)
        if refusal is not None:
            with pytest.raises(refusal):
                await self.entries.delete(OPERATOR, Viewer(agent=agent), entry.id)
            return
        await self.entries.delete(OPERATOR, Viewer(agent=agent), entry.id, entry.version)
        self.model.remove(entry, "memory.deleted", agent)

    async def permit(self) -> None:
        levels = list(Access)
        allow = {agent: self.chance.choice(levels) for agent in self.chance.sample(AGENTS, 2)}
        permissions = Permissions(default=self.chance.choice(levels), allow=allow)
        namespace = self.chance.choice(NAMESPACES)
        listed = [{"agent": it, "access": level.name.lower()} for it, level in allow.items()]
        default = permissions.default.name.lower()
        change = PermissionsBody.model_validate({"default": default, "allow": listed})
        namespaces = Namespaces(engine=self.entries.engine, audit=lambda *_, **__: None)
        await namespaces.permit(OPERATOR, ADMINISTRATOR, namespace, change)
        self.model.permissions[namespace] = permissions

    async def expire(self) -> None:
        going = [it.entry for it in self.model.known.values() if not it.entry.is_live(self.now)]
        swept = await sweeping.sweep(self.entries.engine, OPERATOR, {Kind.EXPIRED})
        assert swept == {Kind.EXPIRED: len(going)}
        self._remove_expired(going)

    def _expire(self, agent: AgentId) -> None:
        """What has expired of an agent goes before anything is evicted."""
        every = [it.entry for it in self.model.known.values() if not it.entry.is_live(self.now)]
        self._remove_expired([it for it in every if it.owner == agent])

    def _remove_expired(self, going: list[AgentEntry]) -> None:
        for entry in sorted(going, key=lambda it: (it.expires_at, self.model.known[it.id].order)):
            self.model.remove(entry, "memory.expired")

    async def compare(self) -> None:
        agent = self.chance.choice(AGENTS)
        filter_ = AgentFilter(
            agent=self.chance.choice([None, None, *AGENTS]),
            namespace=self.chance.choice([None, "notes", "notes_", "note"]),
            is_prefix=self.chance.random() < 0.5,
            key=self.chance.choice([None, None, "%", "a"]),
            tier=self.chance.choice([None, None, *Tier]),
            every_tag=tuple(self.chance.sample(TAGS, self.chance.choice([0, 0, 1, 2]))),
            any_tag=tuple(self.chance.sample(TAGS, self.chance.choice([0, 0, 2]))),
            is_pinned=self.chance.choice([None, None, True, False]),
        )
        expected = [
            it.entry
            for it in sorted(self.model.known.values(), key=lambda it: -it.order)
            if self._is_seen(agent, it.entry) and _fits(filter_, it.entry)
        ]
        first, offset = self.chance.choice([1, 2, 100]), self.chance.choice([0, 0, 1])
        total, entries = await listed(self.entries, Viewer(agent=agent), filter_, first, offset)
        assert total == len(expected)
        assert entries == expected[offset : offset + first]
        for entry in entries:
            self._accessed(agent, entry)
        stream = await told(self.entries, agent, 1_000, after=0)
        known = [(it.type, it.payload["entry_id"]) for it in stream]
        assert known == self.model.events.get(agent, [])
        newest = await told(self.entries, agent, 5)
        assert newest == stream[::-1][:5]

    def _unchangeable(self, agent: AgentId, entry: AgentEntry) -> type[Exception] | None:
        if not self._is_seen(agent, entry):
            return NotFound
        return None if self.model.may_write(agent, entry.entry_key) else Denied

    def _is_seen(self, agent: AgentId, entry: AgentEntry) -> bool:
        return self.model.sees(agent, entry.entry_key) and entry.is_live(self.now)

    def _accessed(self, agent: AgentId, entry: AgentEntry) -> None:
        space = entry.entry_key
        if space.tier is Tier.EPISODIC and space.owner == agent:
            self.model.known[entry.id].accessed_at = self.now

    def _any(self) -> AgentEntry | None:
        known = [it.entry for it in self.model.known.values()]
        return self.chance.choice(known) if known else None

    def _handled(self) -> dict[str, Any]:
        ends = self.chance.choice([None, None, None, self.now + timedelta(seconds=30)])
        return {
            "tags": self.chance.sample(TAGS, self.chance.choice([0, 1, 2])),
            "pinned": self.chance.random() < 0.3,
            "priority": self.chance.choice(list(Priority)).name.lower(),
            "expires_at": ends and ends.isoformat(),
        }


def entry(place: EntryKey, value: dict[str, Any], **said: Any) -> AgentEntryBody:
    """A new entry at a place."""
    named = {"namespace": place.namespace, "key": place.key, "memory_type": place.tier.value}
    return AgentEntryBody.model_validate({"agent_id": place.owner, "value": value, **named, **said})


def assert_handled(made: AgentEntry, said: dict[str, Any]) -> None:
    ends = made.expires_at and made.expires_at.isoformat()
    shown = [*made.tags], made.pinned, made.priority.name.lower(), ends
    assert shown == tuple(said.values())
    assert made.is_own_expiry is (ends is not None)


def _fits(filter_: AgentFilter, entry: AgentEntry) -> bool:
    space, tags = entry.entry_key, set(entry.tags)
    namespace = filter_.namespace
    is_named = namespace in (None, space.namespace) or (
        filter_.is_prefix and space.namespace.startswith(namespace or "")
    )
    return (
        is_named
        and filter_.agent in (None, space.owner or entry.created_by)
        and filter_.key in (None, entry.key)
        and filter_.tier in (None, space.tier)
        and tags.issuperset(filter_.every_tag)
        and (not filter_.any_tag or bool(tags.intersection(filter_.any_tag)))
        and filter_.is_pinned in (None, entry.pinned)
    )


@pytest.mark.heavy
@pytest.mark.parametrize("seed", sampled(range(2), 2))
async def test_entries_are_as_a_model_says(path: Path, seed: int) -> None:
    clock = Clock()

    async with opened(path, clock=clock) as engine:
        play = Play(AgentEntries(engine=engine, capacities=CAPACITIES), clock, seed)
        for _ in range(STEPS):
            await play.step()
        assert play.evicted > 5


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
