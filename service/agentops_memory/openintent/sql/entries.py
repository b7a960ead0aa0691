"""SQL for the entries of agents' memory: memories, each with a row beside it."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ...engine.steps import step
from ...memory.model.agent_memory import (
    AgentEntry,
    AgentEntryId,
    AgentFilter,
    AgentSpace,
    AgentSummary,
    Binding,
    Eyes,
    Place,
    Tier,
    TierSummary,
)
from ...memory.model.agents import AgentId
from ...memory.model.intents import IntentId
from ...memory.model.memory import MemoryId
from ...memory.model.space import Space
from ...memory.sql.liveness import ENDED, live, undeleted
from ...memory.sql.memories import SpaceTable
from ...memory.sql.rows import count, micros, optional_instant, reads
from ...memory.sql.table import Dialect, Table
from ...recall.text.ids import Uids
from . import visibility
from .rows import ENTRIES, ENTRY, entry_of, handled
from .seals import SealTable
from .visibility import HAS_ENDED, HERE, Visibility, own, readable, sum_of

Condition = tuple[str, Mapping[str, object]]
"""A condition, and the values that it names."""


def conditions(sql: Dialect, filter_: AgentFilter) -> Iterator[Condition]:
    """The conditions that a filter comes to, all of which hold of an entry that fits."""
    after, before = filter_.updated_after, filter_.updated_before
    said: dict[str, Mapping[str, object]] = {
        "(p.agent = :agent OR (p.agent = '' AND a.created_by = :agent))": {"agent": filter_.agent},
        _NAMESPACE[filter_.is_prefix]: {"namespace": filter_.namespace},
        "coalesce(m.key, l.held_key) = :key": {"key": filter_.key},
        "p.tier = :tier": {"tier": filter_.tier and filter_.tier.value},
        "a.is_pinned = :is_pinned": {"is_pinned": filter_.is_pinned},
        "a.task = :task": {"task": filter_.labels.task},
        "a.intent = :intent": {"intent": filter_.labels.intent},
        "m.updated_at > :updated_after": {"updated_after": after and micros(after)},
        "m.updated_at < :updated_before": {"updated_before": before and micros(before)},
    }
    yield from (each for each in said.items() if None not in each[1].values())
    if filter_.any_tag:
        tagged = [_tagged(sql, f"any_{at}", tag) for at, tag in enumerate(filter_.any_tag)]
        values = {name: value for _, named in tagged for name, value in named.items()}
        yield f"({' OR '.join(condition for condition, _ in tagged)})", values
    for at, tag in enumerate(filter_.every_tag):
        yield _tagged(sql, f"every_{at}", tag)


_NAMESPACE = {
    False: "p.namespace = :namespace",
    True: "substr(p.namespace, 1, length(:namespace)) = :namespace",
}


def _tagged(sql: Dialect, name: str, tag: str) -> Condition:
    """In the array as it is stored, a text between quotes is one of its items and nothing else."""
    return sql.contains("m.tags", f":{name}"), {name: json.dumps(tag, ensure_ascii=False)}


MOST_NAMED = 1_000


@dataclass(eq=False)
class Summaries(Table):
    """The figures of one transaction."""

    _now: datetime

    def of(self, agent: AgentId, eyes: Eyes) -> AgentSummary:
        is_own = agent == eyes.agent
        seen = own(eyes) if is_own else readable(self._connection, eyes, self._now)
        tiers = {tier: self._tier(tier, agent, seen) for tier in (Tier.WORKING, Tier.EPISODIC)}
        tasks = self._texts(
            f"""SELECT DISTINCT a.task
                  FROM {ENTRIES}
                 WHERE p.tier = '{Tier.WORKING}' AND p.agent = :agent AND {HERE}
                       AND {seen.condition} AND a.task IS NOT NULL
              ORDER BY a.task
                 LIMIT {MOST_NAMED}""",
            agent=agent,
            now=micros(self._now),
            **seen.values,
        )
        return AgentSummary(
            working=tiers[Tier.WORKING],
            tasks=tuple(tasks),
            episodic=tiers[Tier.EPISODIC],
            capacity=0,
            namespaces=(),
        )

    def _tier(self, tier: Tier, agent: AgentId, seen: Visibility) -> TierSummary:
        entries, size, pinned, oldest, newest = self._execute(
            f"""SELECT count(*), {sum_of("a.size")}, count(*) FILTER (WHERE a.is_pinned),
                       min(m.created_at), max(m.created_at)
                  FROM {ENTRIES}
                 WHERE a.tier = :tier AND a.agent = :agent AND {HERE} AND {seen.condition}""",
            tier=tier.value,
            agent=agent,
            now=micros(self._now),
            **seen.values,
        ).fetchone()
        return TierSummary(
            entries=entries,
            size=count(size),
            pinned=count(pinned),
            oldest=optional_instant(oldest),
            newest=optional_instant(newest),
        )


@dataclass(eq=False)
class AgentTable(Table):
    """Entries, whose text and revision lie in the memories; what has expired is not there."""

    _now: datetime
    _spaces: SpaceTable
    _uids: Uids
    _seals: SealTable
    _known: dict[AgentSpace, Space] = field(default_factory=dict, init=False)

    @property
    def _at(self) -> dict[str, Any]:
        return {"now": micros(self._now)}

    @property
    def _of_spaces(self) -> str:
        """Entries, led by the spaces that an agent may look into: others' are passed over."""
        return f"""agent_spaces p
                   {self._sql.leads} memories m {self._sql.hint("memories_in_space")}
                     ON m.space_id = p.space_id
                   JOIN agent_memories a ON a.memory_id = m.id
                   LEFT JOIN lifecycles l ON l.memory_id = m.id"""

    def space(self, space: AgentSpace) -> Space:
        """The space of the record, made with its first entry."""
        if space not in self._known:
            scope = self._scope(space)
            self._known[space] = self._made(space) if scope is None else space.within(scope)
        return self._known[space]

    def get(self, entry: AgentEntryId, eyes: Eyes) -> AgentEntry | None:
        """The entry, if these eyes may see it."""
        found = self._seen(entry, visibility.own(eyes))
        return found or self._seen(entry, visibility.readable(self._connection, eyes, self._now))

    def one(self, memory: MemoryId) -> AgentEntry | None:
        """The entry that a memory is, whoever may see it; None if it is none."""
        return self._one(f"m.id = :id AND {undeleted('m')}", id=memory)

    def at(self, place: Place) -> AgentEntry | None:
        """The entry at a place, whoever may see it, also one that has expired."""
        return self._one(
            f"""p.tier = :tier AND p.agent = :agent AND p.namespace = :namespace
                AND m.key = :key AND {undeleted("m")}""",
            key=place.key,
            **_named(place.space),
        )

    def add(self, entry: AgentEntry) -> None:
        """Insert what lies beside the memory of a new entry."""
        space, labels = entry.place.space, entry.labels
        self._insert(
            "agent_memories",
            memory_id=entry.memory,
            tier=space.tier.value,
            agent=space.agent or "",
            created_by=entry.created_by,
            task=labels.task,
            intent=labels.intent,
            binding=labels.binding,
            attempt=labels.attempt,
            size=entry.size,
            accessed_at=micros(self._now),
            **handled(entry.handling),
        )
        if entry.handling.is_sealed:
            self._seals.put(entry.memory, entry.place, entry.value)

    def replace(self, entry: AgentEntry) -> None:
        """Update what lies beside its memory."""
        self._execute(
            """UPDATE agent_memories
                  SET is_pinned = :is_pinned, priority = :priority, sensitivity = :sensitivity,
                      curated_by = :curated_by, ttl = :ttl, is_own_expiry = :is_own_expiry,
                      size = coalesce(:size, size), accessed_at = :now
                WHERE memory_id = :id""",
            id=entry.memory,
            size=None if entry.is_lost else entry.size,
            **self._at,
            **handled(entry.handling),
        )
        if not entry.handling.is_sealed:
            self._seals.remove(entry.memory)
        elif not entry.is_lost:  # what nothing opens now stays, for a key that comes back
            self._seals.put(entry.memory, entry.place, entry.value)

    def listed(
        self, filter_: AgentFilter, eyes: Eyes, limit: int, offset: int
    ) -> list[tuple[MemoryId, int]]:
        """Those that these eyes may see, newest first, with the bytes of their values."""
        return self._listed(filter_, self._readable(eyes), limit, offset)

    def some(self, memories: Sequence[MemoryId], eyes: Eyes) -> list[AgentEntry]:
        """Those of these that the eyes may see still, in their order."""
        seen = self._readable(eyes)
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM {self._sql.ids("given")}
                 {self._sql.leads} agent_memories a ON a.memory_id = given.value
                  JOIN memories m ON m.id = a.memory_id
                  JOIN agent_spaces p ON p.space_id = m.space_id
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
                 WHERE {HERE} AND {seen.condition}
              ORDER BY given.key""",
            ids=json.dumps(memories),
            **seen.values,
            **self._at,
        )
        return self._seals.opened(self._intact(rows, entry_of))

    def writable(
        self, filter_: AgentFilter, eyes: Eyes, limit: int, offset: int
    ) -> list[AgentEntry]:
        """Those that the asking agent may change, newest first; guardrails are not asked."""
        found = self._listed(filter_, visibility.writable(eyes), limit, offset)
        return self.some([id_ for id_, _ in found], eyes)

    def summary(self, agent: AgentId, eyes: Eyes) -> AgentSummary:
        """What these eyes may read of an agent's; its capacity is left out: no table knows it."""
        return Summaries(self._connection, self._sql, self._now).of(agent, eyes)

    def total(self, filter_: AgentFilter, eyes: Eyes) -> int:
        """How many these eyes may see."""
        condition, values = self._asked(filter_, self._readable(eyes))
        return self._number(f"SELECT count(*) FROM {self._of_spaces} WHERE {condition}", **values)

    def count(self, tier: Tier, agent: AgentId) -> int:
        """How many entries of a tier an agent has."""
        return self._number(
            f"""SELECT (SELECT count(*)
                          FROM agent_memories
                         WHERE tier = :tier AND agent = :agent)
                     - (SELECT count(*)
                          FROM lifecycles l
                         {self._sql.leads} agent_memories a ON a.memory_id = l.memory_id
                         WHERE l.{ENDED} AND a.tier = :tier AND a.agent = :agent)""",
            tier=tier.value,
            agent=agent,
            **self._at,
        )

    def expired(
        self, limit: int, *, agent: AgentId | None = None, until: datetime | None = None
    ) -> list[AgentEntry]:
        """Entries that have expired, by then or by now, of any agent or of one; the first first."""
        whose = "" if agent is None else " AND a.agent = :agent"
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM lifecycles l
                 {self._sql.leads} agent_memories a ON a.memory_id = l.memory_id{whose}
                  JOIN memories m ON m.id = a.memory_id
                  JOIN agent_spaces p ON p.space_id = m.space_id
                 WHERE l.{ENDED} AND NOT {HAS_ENDED}
              ORDER BY l.expires_at, m.id
                 LIMIT :limit""",
            limit=limit,
            agent=agent,
            now=micros(until or self._now),
        )
        return self._seals.opened(self._intact(rows, entry_of))

    @step("store.evict", lambda victim, *_: {"memory.evicted_count": int(victim is not None)})
    def victim(
        self, agent: AgentId, but: Collection[MemoryId], intent: IntentId | None = None
    ) -> AgentEntry | None:
        """The episodic entry that is evicted next (RFC-0015 §2.2): none if all are pinned.

        The lowest priority, then the longest not accessed, then the earliest updated; of
        those that are bound to an intent, if one is given.
        """
        of_intent = f" AND a.intent = :intent AND a.binding > {Binding.NONE:d}"
        found = self._scalars(  # along the index of victims: the first is one of few
            f"""SELECT m.id
                  FROM agent_memories a
                 {self._sql.leads} memories m ON m.id = a.memory_id
                 WHERE a.tier = '{Tier.EPISODIC}' AND a.agent = :agent AND a.is_pinned = FALSE
                       AND {live("m")}{of_intent if intent else ""}
                       AND m.id NOT IN (SELECT value FROM {self._sql.ids("given")})
              ORDER BY a.priority, a.accessed_at, m.updated_at, m.id
                 LIMIT 1""",
            agent=agent,
            intent=intent,
            ids=json.dumps(list(but)),
            **self._at,
        )
        return self.one(found[0]) if found else None

    def touch(self, accesses: Mapping[MemoryId, datetime]) -> None:
        """Note when entries were last accessed; what is gone is left out."""
        self._connection.executemany(
            """UPDATE agent_memories
                  SET accessed_at = :at
                WHERE memory_id = :id AND accessed_at < :at""",
            [{"id": id_, "at": micros(at)} for id_, at in accesses.items()],
        )

    def _made(self, space: AgentSpace) -> Space:
        made = space.within(self._uids.make(self._now))
        id_, _ = self._spaces.add(made, self._beside(space))
        self._insert("agent_spaces", space_id=id_, **_named(space))
        return made

    def _beside(self, space: AgentSpace) -> int | None:
        """Where the words of a new space lie: those of one agent's tier are one place to search."""
        if space.agent is None:
            return None
        return self._first(
            lambda row: int(row[0]),
            "SELECT space_id FROM agent_spaces WHERE tier = :tier AND agent = :agent LIMIT 1",
            tier=space.tier.value,
            agent=space.agent,
        )

    def _scope(self, space: AgentSpace) -> str | None:
        return self._first(
            _scope,
            """SELECT s.id, s.scope
                 FROM agent_spaces p
                 JOIN spaces s ON s.id = p.space_id
                WHERE p.tier = :tier AND p.agent = :agent AND p.namespace = :namespace""",
            **_named(space),
        )

    def _one(self, condition: str, /, **values: object) -> AgentEntry | None:
        found = self._first(
            entry_of,
            f"SELECT {ENTRY} FROM {ENTRIES} WHERE {condition} ORDER BY m.id LIMIT 1",
            **self._at,
            **values,
        )
        return None if found is None else self._seals.opened([found])[0]

    def _listed(
        self, filter_: AgentFilter, seen: Visibility, limit: int, offset: int
    ) -> list[tuple[MemoryId, int]]:
        condition, values = self._asked(filter_, seen)
        order = f"ORDER BY m.id DESC LIMIT {limit:d} OFFSET {offset:d}"
        found = f"SELECT m.id, a.size FROM {self._of_spaces} WHERE {condition} {order}"
        rows = self._execute(found, **values)
        return [(MemoryId(id_), count(size)) for id_, size in rows]

    def _asked(self, filter_: AgentFilter, seen: Visibility) -> tuple[str, dict[str, object]]:
        """The condition that entries are asked for, and what it names."""
        parts = dict(conditions(self._sql, filter_))
        values = {name: value for named in parts.values() for name, value in named.items()}
        condition = " AND ".join([HERE, seen.condition, *parts])
        return condition, {**values, **seen.values, **self._at}

    def _readable(self, eyes: Eyes) -> Visibility:
        return visibility.readable(self._connection, eyes, self._now)

    def _seen(self, entry: AgentEntryId, seen: Visibility) -> AgentEntry | None:
        return self._one(f"m.uid = :uid AND {HERE} AND {seen.condition}", uid=entry, **seen.values)


def _named(space: AgentSpace) -> dict[str, Any]:
    return {"tier": space.tier.value, "agent": space.agent or "", "namespace": space.namespace}


@reads("spaces")
def _scope(_: int, scope: str) -> str:
    return scope
