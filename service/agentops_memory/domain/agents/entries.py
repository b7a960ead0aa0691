"""Entries of agents' memory: created, read, listed, changed at a version, deleted, expired."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from ..memories.limits import require_room
from ..memories.writes import changed_at, created, revised
from ..model.access import Caller, Role, TenantId
from ..model.agent_memory import (
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    AgentEvent,
    AgentFilter,
    EventType,
    Eyes,
    Handling,
    Permissions,
    Place,
    Tier,
)
from ..model.agents import AgentId
from ..model.memory import Lifecycle, Memory, MemoryId, Text
from ..ports.callbacks import noop
from ..ports.engine import Engine, Transaction
from . import rules
from .rules import Capacities

P = ParamSpec("P")
T = TypeVar("T")

EXPIRED_AT_ONCE = 200

Accessed = Mapping[MemoryId, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPatch:
    """A partial change of an entry; None leaves a part unchanged."""

    value: str | None = None
    handling: Callable[[Handling, datetime], Handling] | None = None  # as of an instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Entries in order, and how many there are in all."""

    entries: tuple[AgentEntry, ...]
    total: int


class Accesses:
    """When owners last read their entries, until it is written with the next change. Thread-safe.

    A crash loses what was not written yet.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._noted: dict[TenantId, dict[MemoryId, datetime]] = {}

    def note(self, tenant: TenantId, accessed: Accessed) -> None:
        with self._lock:
            self._noted.setdefault(tenant, {}).update(accessed)

    def take(self, tenant: TenantId) -> Accessed:
        """What was noted since it was last taken."""
        with self._lock:
            return self._noted.pop(tenant, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEntries:
    """Agents' memory of one service.

    NotFound for what an agent may not see, as for what is not there; Denied for what it may
    read alone; Taken, Outdated and OverCapacity tell of the state that refuses.
    """

    engine: Engine
    capacities: Capacities = Capacities()  # noqa: RUF009 - frozen
    on_erased: Callable[[Caller], None] = noop
    accesses: Accesses = field(default_factory=Accesses)

    async def create(self, caller: Caller, eyes: Eyes, draft: AgentDraft) -> AgentEntry:
        """Make an entry at a place that is free; episodic ones make room for it."""
        caller.require(Role.WRITER)
        entry, has_removed = await self._write(caller, create, eyes, draft, self.capacities)
        if has_removed:
            self.on_erased(caller)
        return entry

    async def get(self, caller: Caller, eyes: Eyes, entry: AgentEntryId) -> AgentEntry:
        """The entry, with its value."""
        caller.require(Role.READER)
        found, at = await self.engine.read(caller, get, entry, eyes)
        self._note(caller, eyes, at, found)
        return found

    async def page(
        self, caller: Caller, eyes: Eyes, filter_: AgentFilter, limit: int, offset: int
    ) -> Page:
        """Entries that the agent may read, newest first."""
        caller.require(Role.READER)
        found, at = await self.engine.read(caller, page, eyes, filter_, limit, offset)
        self._note(caller, eyes, at, *found.entries)
        return found

    async def amend(
        self, caller: Caller, eyes: Eyes, entry: AgentEntryId, patch: EntryPatch, version: int
    ) -> AgentEntry:
        """Change an entry that is at this version; each change that is accepted makes another."""
        caller.require(Role.WRITER)
        return await self._write(caller, amend, entry, eyes, patch, version)

    async def delete(
        self, caller: Caller, eyes: Eyes, entry: AgentEntryId, version: int | None = None
    ) -> None:
        """Remove an entry for good."""
        caller.require(Role.WRITER)
        await self._write(caller, delete, entry, eyes, version)
        self.on_erased(caller)

    async def events(
        self,
        caller: Caller,
        agent: AgentId,
        limit: int,
        *,
        type_: str | None = None,
        since: datetime | None = None,
        after: int | None = None,
    ) -> list[AgentEvent]:
        """An agent's own stream: newest first, or oldest first from a sequence on."""
        caller.require(Role.READER)
        return await self.engine.read(caller, events, agent, limit, type_, since, after)

    async def permit(self, caller: Caller, namespace: str, permissions: Permissions) -> None:
        """Say who may do what in a namespace."""
        caller.require(Role.ADMIN)
        await self.engine.write(caller, lambda tx: tx.namespaces.permit(namespace, permissions))

    async def expire(self, caller: Caller) -> int:
        """Remove what has expired; how many entries that were."""
        total = 0
        while removed := await self._write(caller, expire_some, EXPIRED_AT_ONCE):
            total += removed
        if total:
            self.on_erased(caller)
        return total

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
        spaces = ((it.memory, it.place.space) for it in entries)
        own = [id_ for id_, it in spaces if it.tier is Tier.EPISODIC and it.agent == eyes.agent]
        if own:
            self.accesses.note(caller.tenant, dict.fromkeys(own, at))


def get(tx: Transaction, entry: AgentEntryId, eyes: Eyes) -> tuple[AgentEntry, datetime]:
    return rules.known(tx, entry, eyes), tx.now


def page(
    tx: Transaction, eyes: Eyes, filter_: AgentFilter, limit: int, offset: int
) -> tuple[Page, datetime]:
    entries = tuple(tx.agents.page(filter_, eyes, limit, offset))
    return Page(entries=entries, total=tx.agents.total(filter_, eyes)), tx.now


def create(
    tx: Transaction, eyes: Eyes, draft: AgentDraft, capacities: Capacities
) -> tuple[AgentEntry, bool]:
    """The new entry, and whether others were removed for it."""
    place, handling = draft.place, draft.handling
    rules.require_write(tx, place, eyes)
    has_removed = rules.make_place_free(tx, place)
    has_removed |= rules.make_room(tx, draft, capacities)
    memory = Memory(
        uid=tx.new_uid(tx.now),
        session=None,
        space=tx.agents.space(place.space),
        key=place.key,
        text=_text(place, draft.value, handling),
        last_seen_at=tx.now,
        created_at=tx.now,
        updated_at=tx.now,
        lifecycle=Lifecycle(expires_at=handling.expires_at),
    )
    entry = tx.agents.add(created(tx, memory).id, draft, eyes.agent)
    rules.note(tx, EventType.CREATED, entry, eyes)
    return entry, has_removed


def amend(
    tx: Transaction, entry: AgentEntryId, eyes: Eyes, patch: EntryPatch, version: int
) -> AgentEntry:
    before = rules.known(tx, entry, eyes)
    rules.require_write(tx, before.place, eyes)
    rules.require_version(before, version)
    require_room(tx)
    value = before.value if patch.value is None else patch.value
    handling = (
        before.handling if patch.handling is None else patch.handling(before.handling, tx.now)
    )
    held = tx.memories.by_uid(entry)
    assert held is not None  # this transaction has just seen it
    changed = replace(
        held,
        text=_text(before.place, value, handling),
        updated_at=changed_at(tx, held),
        lifecycle=replace(held.lifecycle, expires_at=handling.expires_at),
    )
    revised(tx, held, changed, has_new_text=False)
    after = replace(
        before,
        value=value,
        handling=handling,
        version=before.version + 1,
        updated_at=changed.updated_at,
    )
    tx.agents.replace(after)
    rules.note(tx, EventType.UPDATED, after, eyes, before=before)
    return after


def delete(tx: Transaction, entry: AgentEntryId, eyes: Eyes, version: int | None) -> None:
    before = rules.known(tx, entry, eyes)
    rules.require_write(tx, before.place, eyes)
    rules.require_version(before, version)
    rules.remove(tx, before, EventType.DELETED, actor=eyes)


def expire_some(tx: Transaction, most: int) -> int:
    found = tx.agents.expired(most)
    for it in found:
        rules.remove(tx, it, EventType.EXPIRED, reason="expired")
    return len(found)


def events(
    tx: Transaction,
    agent: AgentId,
    limit: int,
    type_: str | None,
    since: datetime | None,
    after: int | None,
) -> list[AgentEvent]:
    if after is not None:
        return list(tx.agent_events.after(agent, after, limit))
    return list(tx.agent_events.newest(agent, limit, type_=type_, since=since))


def _text(place: Place, value: str, handling: Handling) -> Text:
    return Text(type=place.space.tier.value, title=place.key, content=value, tags=handling.tags)
