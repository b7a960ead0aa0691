"""By what a value is known to be none of what its column holds, on either engine."""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from ...memory.model.agent_memory import Access, Binding, Sensitivity, Tier
from ...memory.model.intents import Permission, TaskStatus
from ...memory.model.kinds import NUMBERS, ErasureKind, SpaceKind
from ...memory.model.memory import ChangeKind
from ...memory.model.retention import LARGEST_CAPACITY
from ...memory.sql.kinds import GLOBAL_AREA, LAST_AREA, UNINDEXED_AREA
from ...memory.sql.rows import EARLIEST, LAST, MOST, counts_of, is_texts
from ...memory.sql.sight import guardrails_of, policy_of
from ...memory.sql.table import GLOBAL
from .columns import Kind

# What OpenWOP has is spelled out, as an engine knows no protocol; a test compares the two.
MEMBERS: Mapping[Kind, type[Enum] | tuple[str, ...]] = {
    Kind.DEED: ChangeKind,
    Kind.ERASURE: ErasureKind,
    Kind.SPACE: SpaceKind,
    Kind.TIER: Tier,
    Kind.STATUS: TaskStatus,
    Kind.PERMISSION: Permission,
    Kind.ACCESS: Access,
    Kind.BINDING: Binding,
    Kind.SENSITIVITY: Sensitivity,
    Kind.RUN: ("host", "pass", "replay", "branch"),
    Kind.RUN_STATUS: ("running", "completed", "failed", "cancelled"),
    Kind.COMMITMENT: ("armed", "fired", "cancelled"),
    Kind.PROPOSAL: ("draft", "revised", "applied", "rejected", "archived"),
    Kind.ARTIFACT: ("agent-pack", "workflow-chain-pack", "prompt-template", "automation"),
}


def members(of: Iterable[Enum | str]) -> str:
    return ", ".join(repr(it.value if isinstance(it, Enum) else it) for it in of)


_NUMBERED = " OR ".join(
    f"{{0}} BETWEEN {numbers[0]} AND {numbers[-1]}" for numbers in NUMBERS.values()
)
IS_NONE: Mapping[Kind, str] = {
    **{kind: f"{{0}} NOT IN ({members(of)})" for kind, of in MEMBERS.items()},
    Kind.INSTANT: f"{{0}} NOT BETWEEN {EARLIEST} AND {LAST}",
    Kind.COUNT: f"{{0}} NOT BETWEEN 0 AND {2 * MOST}",  # one at the limit may be counted further
    Kind.ATTEMPT: f"""coalesce({{0}} NOT BETWEEN 0 AND {2 * MOST},
                               binding = {Binding.TASK:d})""",
    Kind.CAPACITY: f"{{0}} NOT BETWEEN 1 AND {LARGEST_CAPACITY}",
    Kind.AREA: f"""({{0}} NOT BETWEEN {UNINDEXED_AREA} AND {LAST_AREA}
                    OR ({{0}} = {GLOBAL_AREA}) <> ({GLOBAL.replace("s.", "")}))""",
    Kind.PARTITION: f"""CASE WHEN area > {GLOBAL_AREA} THEN NOT coalesce({_NUMBERED}, FALSE)
                             ELSE FALSE END""",
}
"""The condition that a column holds what is none, as both engines say it."""

IS_SOUND: Mapping[Kind, Callable[[str], bool]] = {
    Kind.TAGS: is_texts,
    Kind.GUARDRAILS: lambda details: guardrails_of(details) is not None,
    Kind.POLICY: lambda policy: policy_of(policy) is not None,
    Kind.COUNTS: lambda counts: counts_of(counts) is not None,
}
"""Whether a text in a column is what it holds, where SQL cannot tell."""
