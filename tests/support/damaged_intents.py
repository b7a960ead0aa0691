"""Intents, tasks and who takes part in them in a database whose values are damaged: what there is,
and what is asked of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from agentops_memory.memory.rows import micros

from .service import START
from .stores import ok

ADA = {"X-Agent-ID": "ada"}
INTENTS, TASKS, COORDINATORS = (f"/api/v1/{it}" for it in ("intents", "tasks", "coordinators"))
POLICY = {
    "archive_on_completion": True, "inherit_from_parent": True, "max_entries": 10,
    "max_total_size_kb": 64,
}  # fmt: skip
GUARDRAILS = {
    "max_working_memory_per_task": 9, "max_episodic_memory_per_agent": 9,
    "allowed_semantic_namespaces": ["shared"], "denied_semantic_namespaces": ["secret"],
    "memory_archive_required": True,
}  # fmt: skip

LEFT = f"""
    UPDATE tasks SET status = 'completed', completed_at = {micros(START)} WHERE id = 'ended';
    INSERT INTO events (uid, type, payload, at)
    VALUES ('0194a0a0-0000-7000-8000-000000000001', 'memory.archived', '{{"entries_archived": 1}}',
            {micros(START)});
    INSERT INTO agent_events (event_id, agent, actor, task, intent, binding)
    SELECT max(events.id), 'ada', 'ada', tasks.id, tasks.intent, 2
      FROM events, tasks
     WHERE tasks.id = 'ended';
    INSERT INTO pending_archives (event_id, task, attempt, agent, first, last, size)
    SELECT (SELECT max(id) FROM events), 'ended', 1, 'ada', memory_id, memory_id, size
      FROM agent_memories
     WHERE task = 'ended';
    INSERT INTO met_tags (space_id, tag, newest)
    SELECT space_id, tag, id
      FROM commitments
     WHERE tag = 'harvest';
"""
"""What a process leaves that was killed before it had moved the values of a large task, and before
all commitments had fired that were met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownIntents:
    """How intents and what is of them are addressed."""

    intent_id: str
    task_id: str
    coordinator_id: str
    grant_id: str


def fill_intents(http: httpx.Client) -> KnownIntents:
    """Make an intent with everything that there can be of one."""

    def made(where: str, **body: object) -> str:
        return str(ok(http.post(where, json=body, headers=ADA), 201)["id"])

    intent = made(
        INTENTS, title="Apples", description="All of them.", state={"ripe": True},
        constraints={"until": "May"}, depends_on=["spring"], governance_policy={"a": 1},
    )  # fmt: skip
    of = {"intent_id": intent, "assigned_agent": "ada"}
    task = made(
        TASKS, name="Pick", memory_policy=POLICY, artifacts=["a basket"], input={"trees": 7},
        requires_tools=[{"service": "ladder", "scopes": ["high"]}], metadata={"a": "b"}, **of,
    )  # fmt: skip
    part = made(TASKS, name="Pick some", parent_task_id=task, memory_policy=POLICY, **of)
    made(TASKS, name="Carry", id="ended", **of)
    over = made(TASKS, name="Eat", **of)
    coordinator = made(
        COORDINATORS, intent_id=intent, agent_id="ada", guardrails=GUARDRAILS,
        expires_at="2040-01-01T00:00:00Z", metadata={"a": "b"},
    )  # fmt: skip
    grant = made(
        f"{INTENTS}/{intent}/acl/entries", principal_id="bob", permission="write",
        reason="He asked.", expires_at="2040-01-01T00:00:00Z",
    )  # fmt: skip
    made(f"{INTENTS}/{intent}/events", event_type="comment", payload={"said": "a red one"})
    kinds = [(task, "working"), (part, "working"), ("ended", "working"), (over, "working"),
             (task, "episodic")]  # fmt: skip
    for number, (name, tier) in enumerate(kinds):
        made(
            "/api/v1/memory", agent_id="ada", namespace=f"bound {tier}", key=f"apple {number}",
            value={"apple": "red"}, memory_type=tier, scope={"task_id": name}, tags=["fruit"],
        )  # fmt: skip
    for status in ("running", "completed"):  # the versions 1 and 2
        match = ADA | {"If-Match": "1" if status == "running" else "2"}
        ok(http.patch(f"{TASKS}/{over}", json={"status": status}, headers=match))
    return KnownIntents(intent_id=intent, task_id=task, coordinator_id=coordinator, grant_id=grant)


def intent_questions() -> dict[str, tuple[str, ...]]:
    """What is asked of each route that reads, by its path as it is described."""
    one = f"{INTENTS}/{{intent_id}}"
    return {
        one: ("",), f"{one}/coordinators": ("",), f"{one}/acl": ("",),
        f"{one}/tasks": ("", "?status=pending&limit=1"),
        f"{one}/events": ("", "?after=0&limit=2", "?event_type=comment"),
        f"{TASKS}/{{task_id}}": ("", f"{TASKS}/ended"),
        f"{COORDINATORS}/{{coordinator_id}}": ("",),
    }  # fmt: skip


def intent_changes(
    known: KnownIntents,
) -> Iterator[tuple[str, str, dict[str, Any] | None, str | None]]:
    """Requests that change them: the last one ends a task, which the first has brought there."""
    one, task = f"{INTENTS}/{known.intent_id}", f"{TASKS}/{known.task_id}"
    bound = {
        "agent_id": "ada", "namespace": "bound working", "key": "new", "value": {"apple": "blue"},
        "memory_type": "working", "scope": {"task_id": known.task_id}, "ttl": "task_lifetime",
    }  # fmt: skip
    yield "PATCH", task, {"status": "running", "metadata": {"a": "c"}}, None
    yield "POST", "/api/v1/memory", bound, None
    shared = {"namespace": "shared", "memory_type": "semantic"}
    yield "POST", "/api/v1/memory", bound | shared, None
    yield "POST", INTENTS, {"title": "Pears", "id": "pears"}, None
    yield "POST", TASKS, {"intent_id": known.intent_id, "name": "Sell", "id": "sell"}, "sold"
    yield "POST", TASKS, {"intent_id": known.intent_id, "name": "Sell", "id": "sell"}, "sold"
    yield "POST", f"{one}/events", {"event_type": "comment"}, None
    yield "POST", COORDINATORS, {"intent_id": known.intent_id, "agent_id": "bob"}, None
    yield "DELETE", f"{COORDINATORS}/{known.coordinator_id}", None, None
    yield "POST", f"{one}/acl/entries", {"principal_id": "eve"}, None
    yield "DELETE", f"{one}/acl/entries/{known.grant_id}", None, None
    yield "PATCH", task, {"status": "completed"}, None
    yield "PATCH", f"{TASKS}/ended", {"status": "ready"}, None
