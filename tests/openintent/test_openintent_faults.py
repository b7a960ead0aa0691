"""What fails in part leaves nothing: entry, event, task and index stay in line.

What a full or failing disk and kill -9 under load take, `operations` tests: one writer commits all.
"""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ..support.engines import broken, is_postgresql, rows
from ..support.files import assert_index_is_whole, assert_undamaged
from ..support.openintent_agents import (
    BATCH,
    INTENTS,
    TASKS,
    Agent,
    Json,
    ok,
    report,
    working,
)
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service, serving

Deed = Callable[[], httpx.Response]


# What an agent does that has an entry; another one of its entries has expired.
DEEDS: dict[str, Callable[[Agent, Json], httpx.Response]] = {
    "a create that evicts": lambda it, _: it.post(key="new"),
    "a create where one has expired": lambda it, _: it.post(key="ended"),
    "a change": lambda it, held: it.patch(held, value={"colour": "mauve"}, tags=["b"]),
    "a deletion": lambda it, held: it.delete(held),
    "a batch": lambda it, held: it.ask("POST", BATCH, {"entries": [
        it.body(key="one"), it.body(key=held["key"], version=1, pinned=True)
    ]}),
    "a deletion of many": lambda it, _: it.ask("DELETE", BATCH, params={"namespace": "notes"}),
}  # fmt: skip


@pytest.mark.slow
@requirement("OI-93", "OI-34")
def test_a_deed_of_which_one_part_fails_leaves_nothing_of_the_others(path: Path) -> None:
    words = "INSERT memories_fts_2048_data"
    if is_postgresql():
        words = "INSERT OR UPDATE OR DELETE postings"
    with serving(path, MEMORY_EPISODIC_CAPACITY="3", MEMORY_SWEEP_EVERY="0") as service:
        for number, (name, deed) in enumerate(DEEDS.items()):
            agent = Agent(service.http, f"agent-{number}")
            held = _furnished(service, agent)
            for part in ("INSERT events", "INSERT agent_events", words):
                _assert_undone(path, name, part, lambda: deed(agent, held))  # noqa: B023
            until(lambda: deed(agent, held).is_success)  # noqa: B023 - once the index is mended
        lead, ada = Agent(service.http, "lead"), Agent(service.http)
        intent = ok(lead.ask("POST", INTENTS, {"title": "Large"}), 201)
        body = {"intent_id": intent["id"], "name": "read", "assigned_agent": "ada"}
        task = ok(lead.ask("POST", TASKS, body), 201)
        for key in "abc":
            working(ada, task, key)
        for part in ("INSERT events", "INSERT agent_events", "UPDATE tasks", "INSERT erasures",
                     "INSERT pending_archives", "DELETE memories"):  # fmt: skip
            end = lambda: report(ada, task, status="completed")  # noqa: E731
            _assert_undone(path, "an end", part, end)
        ok(report(ada, task, status="completed"))
        assert ada.query()["total"] == 0
    for statement in (
        "SELECT id FROM events EXCEPT SELECT event_id FROM agent_events",
        "SELECT event_id FROM agent_events EXCEPT SELECT id FROM events",
        """SELECT m.id FROM memories m JOIN agent_spaces USING (space_id)
           EXCEPT SELECT memory_id FROM agent_memories""",
        "SELECT memory_id FROM agent_memories EXCEPT SELECT id FROM memories",
    ):
        assert rows(path, statement) == [], statement
    assert_undamaged(path)
    assert_index_is_whole(path)


def _assert_undone(path: Path, name: str, part: str, deed: Deed) -> None:
    before = _stored(path)
    statement, table = part.rsplit(" ", 1)
    with broken(path, statement, table):
        assert deed().is_error, (name, part)
        assert _stored(path) == before, (name, part)


def _furnished(service: Service, agent: Agent) -> Json:
    """An entry of an agent that is at its capacity; another of its entries has expired."""
    agent.make(key="ended", memory_type="working", ttl="duration:PT1S")
    agent.make(key="ended", ttl="duration:PT1S")
    held = agent.make(key="held", value={"colour": "green"}, tags=["a"])
    service.clock.advance(seconds=1)
    agent.make(key="other", pinned=True)
    agent.make(key="unimportant", priority="low")
    return held


def _stored(path: Path) -> list[list[tuple[object, ...]]]:
    """All that is stored of agents."""
    kept = ("memories", "lifecycles", "events", "agent_events", "tasks", "pending_archives")
    beside = "memory_id, is_pinned, priority, size"  # but for accesses, which reads note
    return [
        *(sorted(rows(path, f"SELECT * FROM {table}"), key=repr) for table in kept),
        sorted(rows(path, f"SELECT {beside} FROM agent_memories")),
    ]
