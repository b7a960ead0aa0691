"""How an agent may try to get at the work and the memory of others, each with its refusal."""

from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from agentops_memory.errors import Denied, Invalid, NotFound
from agentops_memory.memory.access import AgentId
from agentops_memory.memory.agents import EventType, IntentId
from agentops_memory.openintent.api import AlreadyThere, BadField
from agentops_memory.openintent.drafts import AgentChangeBody, AgentEntryBody
from agentops_memory.openintent.intents import IntentBody
from agentops_memory.openintent.participants import CoordinatorBody, GrantBody, visible_grants
from agentops_memory.openintent.tasks import MemoryPolicy, Task, TaskBody, TaskChangeBody

from .team_chance import LEAD
from .team_memory import Memory

HEIR = MemoryPolicy(inherit_from_parent=True)


@dataclass(frozen=True, slots=True)
class Attack:
    """What is asked, and how it is to be refused."""

    name: str
    refusal: type[Exception]
    asked: Coroutine[Any, Any, object]


def attacks(play: Memory) -> Iterator[Attack]:
    """Those of one agent on an intent and a task of others; it is made anew for each question."""
    agent, task = play.agent(), play.state.tasks.get(play.task())
    if task is None:
        return
    if not play.state.governs(agent, task.intent_id):
        yield from _on_intent(play, agent, task.intent_id)
    if not play.state.directs(agent, task.intent_id):
        yield from _on_task(play, agent, task)
    yield from _on_entries(play, agent)
    yield from _on_ids(play, agent, task)


def _on_intent(play: Memory, agent: AgentId, intent: IntentId) -> Iterator[Attack]:
    """To become its coordinator, or a grantee; to end those who are."""
    caller, viewer = play.caller(agent), play.viewer(agent)
    refusal = Denied if play.state.sees(agent, intent) else NotFound
    part = CoordinatorBody(intent_id=intent, agent_id=agent)
    yield Attack("coordinator", refusal, play.participants.coordinate(caller, viewer, part))
    grant = GrantBody(principal_id=agent, permission="admin")
    yield Attack("grantee", refusal, play.participants.grant(caller, viewer, intent, grant))
    yield Attack("access list", refusal, play.engine.read(caller, visible_grants, viewer, intent))
    for held in play.state.grants.values():
        if held.intent == intent:
            revoked = play.participants.revoke(caller, viewer, intent, held.id)
            yield Attack("revocation", refusal, revoked)
    for each in play.state.coordinators.values():
        if each.intent_id == intent and each.agent_id != agent:
            ended = play.participants.end_coordinator(caller, viewer, each.id)
            yield Attack("end of a coordinator", refusal, ended)


def _on_task(play: Memory, agent: AgentId, task: Task) -> Iterator[Attack]:
    """To become its assignee or its heir; to set its policy; to plant what a successor reads."""
    caller, viewer = play.caller(agent), play.viewer(agent)
    refusal = Denied if play.state.sees(agent, task.intent_id) else NotFound
    others = [it for it in play.agents if it != task.assigned_agent]
    whom = (
        play.chance.choice(others) if task.assigned_agent == agent else agent
    )  # its own assignment, too
    changes = {
        "assignee": TaskChangeBody(assigned_agent=whom),
        "policy": TaskChangeBody(memory_policy=HEIR),
    }
    for name, change in changes.items():
        amended = play.tasks.amend(caller, viewer, task.id, change, task.version)
        yield Attack(name, refusal, amended)
    for parent in (None, task.id):
        heir = _heir(task.intent_id, parent, agent)
        yield Attack("heir", refusal, play.tasks.create(caller, viewer, heir))
    own = [
        it for it in play.state.intents if it != task.intent_id and play.state.directs(agent, it)
    ]
    for intent in own:
        heir = _heir(intent, task.id, agent)
        yield Attack("heir from afar", BadField, play.tasks.create(caller, viewer, heir))
    if refusal is Denied and task.assigned_agent != agent:
        planted = AgentEntryBody.model_validate(
            {
                "agent_id": agent, "namespace": "notes", "key": "planted", "value": {},
                "memory_type": "working", "scope": {"task_id": task.id},
            }
        )  # fmt: skip
        yield Attack("planted entry", Denied, play.entries.create(caller, viewer, planted))


def _on_entries(play: Memory, agent: AgentId) -> Iterator[Attack]:
    """To read what is hidden, an administrator too; to write what is another's."""
    caller, viewer = play.caller(agent), play.viewer(agent)
    rows = play.state.rows.values()
    others = [it for it in rows if it.owner not in (None, agent)]
    for it in play.some(others):
        is_read = play.state.reads(agent, it)
        refusal = Denied if is_read else NotFound
        change = AgentChangeBody(value={"n": "forged"})
        amended = play.entries.amend(caller, viewer, it.id, change, it.version)
        yield Attack("another's entry changed", refusal, amended)
        yield Attack(
            "another's entry deleted", refusal, play.entries.delete(caller, viewer, it.id, None)
        )
        forged = AgentEntryBody(
            agent_id=it.owner, namespace=it.namespace, key=it.key, value={"n": "forged"},
            memory_type=it.memory_type.value,
        )  # fmt: skip
        yield Attack("another's place", Denied, play.entries.create(caller, viewer, forged))
        if not is_read:
            name = "administrator" if play.state.is_admin(agent) else "another's entry read"
            yield Attack(name, NotFound, play.entries.get(caller, viewer, it.id))


def _on_ids(play: Memory, agent: AgentId, task: Task) -> Iterator[Attack]:
    """To forge what the service tells; to make something under an id that is taken."""
    caller, viewer = play.caller(agent), play.viewer(agent)
    for type_ in (*play.some(sorted(EventType)), "memory.", "task.", "no.such"):
        logged = play.events.log(caller, viewer, task.intent_id, type_, "{}")
        yield Attack("forged event", Invalid, logged)
    lead, by = play.caller(LEAD), play.viewer(LEAD)
    again = play.intents.create(lead, by, IntentBody(title="again", id=task.intent_id))
    yield Attack("intent under a taken id", AlreadyThere, again)
    director = play.director(task.intent_id)
    draft = TaskBody(intent_id=task.intent_id, id=task.id, assigned_agent=agent, name="again")
    made = play.tasks.create(play.caller(director), play.viewer(director), draft)
    yield Attack("task under a taken id", AlreadyThere, made)


def _heir(intent: IntentId, parent: str | None, agent: AgentId) -> TaskBody:
    return TaskBody(
        intent_id=intent, parent_task_id=parent, assigned_agent=agent, memory_policy=HEIR,
        name="heir",
    )  # fmt: skip
