"""SQL for which entries of agents' memory are asked for (RFC-0015 §4.1)."""

import json
from collections.abc import Iterator, Mapping

from ...memory.model.agent_memory import AgentFilter
from ...memory.sql.rows import micros
from ...memory.sql.table import Dialect

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
