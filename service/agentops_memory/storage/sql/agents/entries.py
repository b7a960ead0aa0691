"""SQL for the entries of agents' memory: memories, each with a row beside it."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ....domain.model.agent_memory import (
    Access,
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    AgentFilter,
    AgentSpace,
    Eyes,
    Handling,
    Labels,
    Place,
    Priority,
    Sensitivity,
    Tier,
)
from ....domain.model.agents import AgentId
from ....domain.model.memory import MemoryId
from ....domain.model.space import Space
from ....domain.text.ids import Uids
from ..liveness import ENDED, live, undeleted
from ..memories import Spaces
from ..rows import count, instant, member, micros, optional_instant, tag_tuple
from ..table import Table
from .filters import conditions

ENTRY = """m.uid, m.id, p.tier, p.agent, p.namespace, coalesce(m.key, l.held_key), m.content,
           m.tags, a.is_pinned, a.priority, a.sensitivity, a.curated_by, a.ttl, l.expires_at,
           a.task, a.intent, a.created_by, m.revision, m.created_at, m.updated_at"""
ENTRIES = """agent_memories a
             JOIN memories m ON m.id = a.memory_id
             JOIN agent_spaces p ON p.space_id = m.space_id
             LEFT JOIN lifecycles l ON l.memory_id = m.id"""

# Whoever asks is one agent: its own entries, and those of namespaces that it may read.
READABLE = f"""(p.agent = :eyes
                OR (p.agent = ''
                    AND (:is_admin
                         OR coalesce((SELECT access
                                        FROM namespace_access n
                                       WHERE n.namespace = p.namespace AND n.agent = :eyes),
                                     (SELECT default_access
                                        FROM namespaces n
                                       WHERE n.name = p.namespace),
                                     {Access.READ:d}) >= {Access.READ:d})))"""


@dataclass(eq=False)
class AgentEntries(Table):
    """The entries of one transaction."""

    _now: datetime
    _spaces: Spaces
    _uids: Uids

    @property
    def _at(self) -> dict[str, Any]:
        return {"now": micros(self._now)}

    def space(self, space: AgentSpace) -> Space:
        scope = self._scope(space)
        if scope is None:
            made = space.within(self._uids.make(self._now))
            id_, _ = self._spaces.add(made)
            self._insert("agent_spaces", space_id=id_, **_named(space))
            return made
        return space.within(scope)

    def get(self, entry: AgentEntryId, eyes: Eyes) -> AgentEntry | None:
        return self._one(f"m.uid = :uid AND {live('m')} AND {READABLE}", uid=entry, **_seen(eyes))

    def at(self, place: Place) -> AgentEntry | None:
        return self._one(
            f"""p.tier = :tier AND p.agent = :agent AND p.namespace = :namespace
                AND coalesce(m.key, l.held_key) = :key AND {undeleted("m")}""",
            key=place.key,
            **_named(place.space),
        )

    def add(self, memory: MemoryId, draft: AgentDraft, maker: AgentId) -> AgentEntry:
        space = draft.place.space
        self._insert(
            "agent_memories",
            memory_id=memory,
            tier=space.tier.value,
            agent=space.agent or "",
            created_by=maker,
            task=draft.labels.task,
            intent=draft.labels.intent,
            size=len(draft.value.encode()),
            accessed_at=micros(self._now),
            **_handled(draft.handling),
        )
        entry = self._one("m.id = :id", id=memory)
        assert entry is not None  # it has just been made
        return entry

    def replace(self, entry: AgentEntry) -> None:
        self._execute(
            """UPDATE agent_memories
                  SET is_pinned = :is_pinned, priority = :priority, sensitivity = :sensitivity,
                      curated_by = :curated_by, ttl = :ttl, size = :size, accessed_at = :now
                WHERE memory_id = :id""",
            id=entry.memory,
            size=entry.size,
            **self._at,
            **_handled(entry.handling),
        )

    def page(self, filter_: AgentFilter, eyes: Eyes, limit: int, offset: int) -> list[AgentEntry]:
        condition, values = self._asked(filter_, eyes)
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM {ENTRIES}
                 WHERE {condition}
              ORDER BY m.id DESC
                 LIMIT :limit OFFSET :offset""",
            limit=limit,
            offset=offset,
            **values,
        )
        return list(map(_entry, rows))

    def total(self, filter_: AgentFilter, eyes: Eyes) -> int:
        condition, values = self._asked(filter_, eyes)
        return self._number(f"SELECT count(*) FROM {ENTRIES} WHERE {condition}", **values)

    def count(self, tier: Tier, agent: AgentId) -> int:
        return self._number(
            f"""SELECT count(*)
                  FROM agent_memories a
                  JOIN memories m ON m.id = a.memory_id
                 WHERE a.tier = :tier AND a.agent = :agent AND {live("m")}""",
            tier=tier.value,
            agent=agent,
            **self._at,
        )

    def expired(self, limit: int, agent: AgentId | None = None) -> list[AgentEntry]:
        whose = "" if agent is None else " AND a.agent = :agent"
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM lifecycles l
                 {self._sql.leads} agent_memories a ON a.memory_id = l.memory_id{whose}
                  JOIN memories m ON m.id = a.memory_id
                  JOIN agent_spaces p ON p.space_id = m.space_id
                 WHERE l.{ENDED}
              ORDER BY l.expires_at, m.id
                 LIMIT :limit""",
            limit=limit,
            **self._at,
            **({} if agent is None else {"agent": agent}),
        )
        return list(map(_entry, rows))

    def victim(self, agent: AgentId, but: Collection[MemoryId]) -> AgentEntry | None:
        return self._one(
            f"""a.tier = '{Tier.EPISODIC}' AND a.agent = :agent AND NOT a.is_pinned
                AND {live("m")} AND m.id NOT IN (SELECT value FROM {self._sql.ids("given")})""",
            order="a.priority, a.accessed_at, m.updated_at, m.id",
            agent=agent,
            ids=json.dumps(list(but)),
        )

    def touch(self, accesses: Mapping[MemoryId, datetime]) -> None:
        self._connection.executemany(
            """UPDATE agent_memories
                  SET accessed_at = :at
                WHERE memory_id = :id AND accessed_at < :at""",
            [{"id": id_, "at": micros(at)} for id_, at in accesses.items()],
        )

    def _scope(self, space: AgentSpace) -> str | None:
        row = self._execute(
            """SELECT s.scope
                 FROM agent_spaces p
                 JOIN spaces s ON s.id = p.space_id
                WHERE p.tier = :tier AND p.agent = :agent AND p.namespace = :namespace""",
            **_named(space),
        ).fetchone()
        return None if row is None else str(row[0])

    def _one(
        self, condition: str, /, *, order: str = "m.id", **values: object
    ) -> AgentEntry | None:
        return self._first(
            _entry,
            f"SELECT {ENTRY} FROM {ENTRIES} WHERE {condition} ORDER BY {order} LIMIT 1",
            **self._at,
            **values,
        )

    def _asked(self, filter_: AgentFilter, eyes: Eyes) -> tuple[str, dict[str, object]]:
        """The condition that entries are asked for, and what it names."""
        parts = dict(conditions(self._sql, filter_))
        values = {name: value for named in parts.values() for name, value in named.items()}
        condition = " AND ".join([live("m"), READABLE, *parts])
        return condition, {**values, **_seen(eyes), **self._at}


def _named(space: AgentSpace) -> dict[str, Any]:
    return {"tier": space.tier.value, "agent": space.agent or "", "namespace": space.namespace}


def _seen(eyes: Eyes) -> dict[str, Any]:
    return {"eyes": eyes.agent, "is_admin": eyes.is_admin}


def _handled(handling: Handling) -> dict[str, object]:
    return {
        "is_pinned": handling.is_pinned,
        "priority": int(handling.priority),
        "sensitivity": handling.sensitivity,
        "curated_by": handling.curated_by,
        "ttl": handling.ttl,
    }


def _tier(tier: str, agent: str) -> Tier:
    """The tier in a row; the nearest if it is damaged."""
    return member(Tier, tier, Tier.EPISODIC if agent else Tier.SEMANTIC)


def _sensitivity(said: str | None) -> Sensitivity | None:
    """What a row says; the strictest if it is damaged."""
    return None if said is None else member(Sensitivity, said, Sensitivity.RESTRICTED)


def _entry(row: Any) -> AgentEntry:
    (uid, id_, tier, agent, namespace, key, value, tags, is_pinned, priority, sensitivity,
     curated_by, ttl, expires_at, task, intent, created_by, revision, created_at,
     updated_at) = row  # fmt: skip
    return AgentEntry(
        id=AgentEntryId(uid),
        memory=MemoryId(id_),
        place=Place(
            space=AgentSpace(
                tier=_tier(tier, agent),
                agent=AgentId(agent) if agent else None,
                namespace=namespace,
            ),
            key=key,
        ),
        value=value,
        handling=Handling(
            tags=tag_tuple(tags),
            is_pinned=bool(is_pinned),
            priority=member(Priority, priority, Priority.NORMAL),
            sensitivity=_sensitivity(sensitivity),
            curated_by=curated_by,
            ttl=ttl,
            expires_at=optional_instant(expires_at),
        ),
        labels=Labels(task=task, intent=intent),
        created_by=AgentId(created_by),
        version=count(revision),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
    )
