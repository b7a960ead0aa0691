"""An entry of agents' memory in rows: its columns, and what is made of them."""

from ...errors import Unreadable
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
    require_value,
)
from ...memory.model.agents import AgentId
from ...memory.model.memory import MemoryId
from ...memory.sql.rows import count, end_of, flag, instant, reads, texts_of
from .visibility import HAS_ENDED

ENTRY = f"""m.id, m.uid, p.space_id, p.tier, p.agent, p.namespace, coalesce(m.key, l.held_key),
           m.content, m.tags, a.is_pinned, a.priority, a.sensitivity, a.curated_by, a.ttl,
           l.expires_at, a.is_own_expiry, a.task, a.intent, a.created_by, m.revision, m.created_at,
           m.updated_at, a.binding, a.attempt, {HAS_ENDED}, a.tier"""
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


@reads("agent_memories")
def entry_of(  # noqa: PLR0913, PLR0917 - the columns of ENTRY
    id_: int, uid: str, space_id: int, tier: str, agent: str, namespace: str, key: str,
    value: str, tags: str, is_pinned: bool, priority: int, sensitivity: str | None,
    curated_by: str | None, ttl: str | None, expires_at: int | None,
    is_own_expiry: bool, task: str | None, intent: str | None, created_by: str,
    revision: int, created_at: int, updated_at: int, binding: int, attempt: int | None,
    has_ended: bool, own_tier: str,
) -> AgentEntry:  # fmt: skip
    bound = Binding(binding)
    if Tier(own_tier) and bound is Binding.TASK and attempt is None:
        raise Unreadable
    require_value(value, sensitivity)
    return AgentEntry(
        id=AgentEntryId(uid),
        memory=MemoryId(id_),
        place=Place(space=_space((space_id, tier, agent, namespace)), key=key),
        value=value,
        handling=Handling(
            tags=texts_of(tags),
            is_pinned=flag(is_pinned),
            priority=Priority(priority),
            sensitivity=None if sensitivity is None else Sensitivity(sensitivity),
            curated_by=curated_by,
            ttl=ttl,
            expires_at=end_of(id_, expires_at),
            is_own_expiry=flag(is_own_expiry),
        ),
        labels=Labels(task=task, intent=intent, binding=bound, attempt=attempt),
        created_by=AgentId(created_by),
        version=count(revision),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
        has_ended=flag(has_ended),
    )


@reads("agent_spaces")
def _space(_: int, tier: str, agent: str, namespace: str) -> AgentSpace:
    return AgentSpace(tier=Tier(tier), agent=AgentId(agent) if agent else None, namespace=namespace)
