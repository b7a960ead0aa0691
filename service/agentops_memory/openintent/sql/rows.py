"""An entry of agents' memory in rows: its columns, and what is made of them."""

from typing import Any

from ...memory.model.agent_memory import (
    AgentEntry,
    AgentEntryId,
    AgentSpace,
    Binding,
    Handling,
    Labels,
    Place,
    Priority,
    Sensitivity,
    Tier,
)
from ...memory.model.agents import AgentId
from ...memory.model.memory import MemoryId
from ...memory.sql.rows import StrictRow, count, end_of, instant, member, tag_tuple
from .visibility import HAS_ENDED

ENTRY = f"""m.uid, m.id, p.tier, p.agent, p.namespace, coalesce(m.key, l.held_key), m.content,
           m.tags, a.is_pinned, a.priority, a.sensitivity, a.curated_by, a.ttl, l.expires_at,
           a.is_own_expiry, a.task, a.intent, a.created_by, m.revision, m.created_at,
           m.updated_at, a.binding, a.attempt, {HAS_ENDED}, a.tier,
           p.space_id"""
ENTRIES = """agent_memories a
             JOIN memories m ON m.id = a.memory_id
             JOIN agent_spaces p ON p.space_id = m.space_id
             LEFT JOIN lifecycles l ON l.memory_id = m.id"""


def handled(handling: Handling) -> dict[str, object]:
    return {
        "is_pinned": handling.is_pinned,
        "priority": int(handling.priority),
        "sensitivity": handling.sensitivity,
        "curated_by": handling.curated_by,
        "ttl": handling.ttl,
        "is_own_expiry": handling.is_own_expiry,
    }


def _sensitivity(said: str | None) -> Sensitivity | None:
    """What a row says; the strictest if it is damaged."""
    return None if said is None else member(Sensitivity, said, Sensitivity.RESTRICTED)


def entry_of(row: Any) -> AgentEntry:
    """The entry in a row of ENTRY. DamagedRow if nobody can tell whose it is, or until when."""
    (uid, id_, tier, agent, namespace, key, value, tags, is_pinned, priority, sensitivity,
     curated_by, ttl, expires_at, is_own_expiry, task, intent, created_by, revision, created_at,
     updated_at, binding, attempt, has_ended, own_tier, space_id) = row  # fmt: skip
    strict = StrictRow("agent_memories", id_)
    strict.member("tier", Tier, own_tier)
    bound = strict.member("binding", Binding, binding)
    if bound is Binding.TASK and attempt is None:
        raise strict.damaged("attempt")
    return AgentEntry(
        id=AgentEntryId(uid),
        memory=MemoryId(id_),
        place=Place(
            space=AgentSpace(
                tier=StrictRow("agent_spaces", space_id).member("tier", Tier, tier),
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
            expires_at=end_of(id_, expires_at),
            is_own_expiry=bool(is_own_expiry),
        ),
        labels=Labels(task=task, intent=intent, binding=bound, attempt=attempt),
        created_by=AgentId(created_by),
        version=count(revision),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
        has_ended=bool(has_ended),
    )
