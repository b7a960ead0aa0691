"""The workflows that the seams run: each does what a host's nodes would, and tells what it found.

A fixture that cannot show what it is there for fails; it never tells of something empty.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from agentops_memory.memory.space import MemoryRef

from .requests import JsonObject
from .stage import REGISTERED, FixtureFailed, Stage, entry, require, shown

Fixture = Callable[[Stage], Awaitable[JsonObject]]

MARKER = f"[REDACTED:{REGISTERED}]"
BUDGET = 800  # code points
FILLERS, FILLER = 3, 300  # entries of which not all fit, and the code points of each
TOO_LONG = BUDGET + 200
THERE = MemoryRef("conformance/another-tenant")  # where the other tenant has something


async def noop(_: Stage) -> JsonObject:
    return {}


async def roundtrip(stage: Stage) -> JsonObject:
    put = await stage.put("A node of this run wrote this, and it is read back.")
    found = await stage.get(put.id)
    if found is None:
        raise FixtureFailed("memory_readback_failed", "The entry cannot be read back.")
    return {"memoryReadback": entry(found)}


async def redaction(stage: Stage) -> JsonObject:
    value = await stage.registered()
    put = await stage.put(f"The run has resolved {value} and must not remember it.")
    found = await stage.get(put.id)
    if found is None:
        raise FixtureFailed("memory_readback_failed", "The entry cannot be read back.")
    _require_redacted(found.content, value)
    return {"memoryReadback": entry(found)}


async def ttl(stage: Stage) -> JsonObject:
    expired = await stage.put_expired("This has ended.")
    fresh = await stage.put("This goes on for an hour.", ttl=timedelta(hours=1))
    listed = await stage.listed()
    ids = {each.id for each in listed}
    is_gone = expired not in ids and await stage.get(expired) is None
    require(is_gone, "ttl_expired_entry_surfaced", "An entry that has ended is still there.")
    require(fresh.id in ids, "ttl_fresh_entry_missing", "An entry that goes on is not there.")
    return {"memoryList": shown(listed), "freshId": fresh.id, "expiredId": expired}


async def injection_budget(stage: Stage) -> JsonObject:
    value = await stage.registered()
    giant = await stage.put("x" * TOO_LONG)  # the oldest: it must not stop the others
    for number in range(FILLERS):
        await stage.put(f"Filler {number}. ".ljust(FILLER, "."))
    sample = await stage.put(f"The run has resolved {value} and must not remember it.")
    listed = await stage.listed(budget=BUDGET)
    total = sum(len(each.content) for each in listed)
    ids = [each.id for each in listed]
    require(0 < total <= BUDGET, "injection_budget_exceeded", "The list is not within the budget.")
    require(1 < len(listed) <= FILLERS, "injection_budget_did_not_cut", "The budget cut nothing.")
    alone = await _is_omitted_alone(stage)
    require(
        alone and giant.id not in ids,
        "injection_budget_giant_kept",
        "An entry that exceeds the budget was given.",
    )
    require(listed[0].id == sample.id, "injection_budget_order", "The newest does not come first.")
    _require_redacted(listed[0].content, value)
    return {
        "tokenBudget": BUDGET, "budgetedTokenTotal": total, "tokenCounter": "chars",
        "budgetedEntries": shown(listed), "overBudgetEntryId": giant.id,
        "overBudgetEntryOmitted": True, "redactedContentSample": listed[0].content,
        "crossTenantBudgetedProbe": await _seen_of_another_tenant(stage, BUDGET),
    }  # fmt: skip


async def cross_tenant(stage: Stage) -> JsonObject:
    own = await stage.put("The tenant of this run wrote this, and can read it.")
    listed = await stage.listed()
    is_there = own.id in {each.id for each in listed}
    require(is_there, "cti1_owner_entry_not_readable", "The run's tenant cannot read its entry.")
    return {
        "ownerProbe": shown(listed),
        "ownerEntryId": own.id,
        "crossTenantProbe": await _seen_of_another_tenant(stage),
    }


async def _is_omitted_alone(stage: Stage) -> bool:
    """Whether nothing is given of a list that has an entry over the budget alone."""
    tag = f"alone:{stage.run}"
    put = await stage.put("y" * TOO_LONG, tag)
    is_put = put.id in {each.id for each in await stage.listed(tag=tag)}
    return is_put and not await stage.listed(tag=tag, budget=BUDGET)


async def _seen_of_another_tenant(stage: Stage, budget: int | None = None) -> list[JsonObject]:
    """What this tenant finds of an entry that is there in the other one, and is removed then."""
    there = stage.elsewhere
    theirs = await there.put_apart(THERE, "Another tenant wrote this: nobody else sees it.")
    try:
        ids = {each.id for each in await there.listed(THERE, budget=budget)}
        is_there = theirs.id in ids
        require(is_there, "cti1_seed_not_visible_to_owner", "The other tenant cannot read its own.")
        found = await stage.listed(THERE, budget=budget)
        is_hidden = not found and await stage.get(theirs.id, THERE) is None
        require(is_hidden, "cti1_cross_tenant_leak", "An entry of another tenant was given.")
        return shown(found)
    finally:
        await there.forget()


def _require_redacted(content: str, value: str) -> None:
    require(value not in content, "sr1_redaction_failed", "A registered value was stored.")
    require(MARKER in content, "sr1_marker_missing", "Nothing stands where the value stood.")


OWN: Mapping[str, Fixture] = {
    "conformance-noop": noop,
    "conformance-idempotent": noop,  # its scenarios are about Idempotency-Key
    "conformance-agent-memory-roundtrip": roundtrip,
    "conformance-agent-memory-redaction": redaction,
    "conformance-agent-memory-ttl": ttl,
}
ACROSS: Mapping[str, Fixture] = {  # those that need the other tenant
    "conformance-agent-memory-injection-budget": injection_budget,
    "conformance-agent-memory-cross-tenant": cross_tenant,
}
