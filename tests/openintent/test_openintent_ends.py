"""The end of a large task, and where there is no room: nobody sees half of it; nothing is lost."""

import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.agent_memory import HAS_SHARED
from agentops_memory.openintent.events import past_events
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.sqlite.connection import connect

from ..support.engine import run
from ..support.engines import broken, quota, rows
from ..support.openintent_agents import (
    BATCH,
    INTENTS,
    MEMORY,
    TASKS,
    Agent,
    Json,
    Team,
    ok,
    refused,
    report,
    team,
    working,
)
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import serving

__all__ = ["team"]

LEAD, HAND = "lead", "ada"
POLICY = {"max_entries": 10_000, "max_total_size_kb": 65_536}


def task_with(lead: Agent, ada: Agent, count: int, size: int = 2000) -> Json:
    """A task with so many working entries, each with a value of about this size."""
    intent = ok(lead.ask("POST", INTENTS, {"title": "Large"}), 201)
    body = {"intent_id": intent["id"], "name": "read", "assigned_agent": ada.id,
            "memory_policy": POLICY}  # fmt: skip
    task: Json = ok(lead.ask("POST", TASKS, body), 201)
    fields = {"memory_type": "working", "scope": {"task_id": task["id"]}}
    for first in range(0, count, 100):
        keys = range(first, min(first + 100, count))
        entries = [ada.body(key=str(it), value={"text": f"{it} " * (size // 4)}, **fields)
                   for it in keys]  # fmt: skip
        ok(ada.ask("POST", BATCH, {"entries": entries}))
    return task


def archives(lead: Agent, task: Json) -> list[Json]:
    path = f"{INTENTS}/{task['intent_id']}/events"
    asked = {"event_type": "memory.archived", "after": 0, "limit": 1000}
    return [it["payload"] for it in ok(lead.ask("GET", path, params=asked))]


def archived(lead: Agent, task: Json) -> list[str]:
    """The keys in all archives of a task, each of which has its bounds."""
    parts = archives(lead, task)
    for number, part in enumerate(parts, start=1):
        assert part["entries_archived"] == len(part["snapshot"]) <= 200
        assert (part.get("part", 1), part.get("parts", 1)) == (number, len(parts))
        assert sum(len(json.dumps(it["value"])) for it in part["snapshot"]) <= 1024 * 1024
    return [entry["key"] for part in parts for entry in part["snapshot"]]


def goes_of_the_log(counts: list[int]) -> Callable[[SqliteEngine], Awaitable[None]]:
    """Notes how many events of logs would go if nothing were kept."""

    async def count(engine: SqliteEngine) -> None:
        def past(tx: Transaction) -> int:
            return len(past_events(tx, tx.now, 10_000, of_log=True))

        counts.append(await engine.read(OPERATOR, past))

    return count


@pytest.mark.slow
@requirement("OI-93", "OI-35", "OI-34")
def test_a_large_end_is_seen_whole_while_its_archives_are_moved(path: Path) -> None:
    count = 350
    with serving(path, MEMORY_SWEEP_EVERY="50ms", MEMORY_WORKING_CAPACITY="10000") as service:
        lead, ada = Agent(service.http, LEAD), Agent(service.http, HAND)
        task = task_with(lead, ada, count, size=6000)
        kept = ok(ada.ask("GET", f"{MEMORY}", params={"limit": 1}))["entries"][0]
        with broken(path, "DELETE", "pending_archives", when="OLD.size > 0"):
            refusal = report(ada, task, status="completed")
            assert refusal.is_error  # what is small moves with the status, or not at all
        ends = "(SELECT {}(id) FROM events WHERE type = 'memory.archived')"
        between = f"OLD.event_id > {ends.format('min')} AND OLD.event_id < {ends.format('max')}"
        with broken(path, "DELETE", "pending_archives", when=between):
            ended = ok(report(ada, task, status="failed"))

            assert rows(path, "SELECT count(*) > 1 FROM pending_archives") == [(1,)]
            everything = [str(it) for it in range(count)]
            assert archived(lead, task) == everything
            assert (ada.query()["total"], ada.summary()["working"]["entry_count"]) == (0, 0)
            assert refused(ada.get(kept)) == (404, "ENTRY_NOT_FOUND")
            assert refused(ada.patch(kept)) == (404, "ENTRY_NOT_FOUND")
            assert ok(ada.ask("DELETE", BATCH, params={"namespace": "notes"}))["deleted"] == 0
            assert ended["status"] == "failed"
            ok(report(ada, task, status="ready"))
            again = working(ada, task, kept["key"])  # the key is free at once
            assert [it["id"] for it in ada.query()["entries"]] == [again["id"]]
            assert archived(lead, task) == everything
            then: list[int] = []
            run(path, goes_of_the_log(then))  # what is pending is no old event yet
        until(lambda: rows(path, "SELECT count(*) FROM pending_archives") == [(0,)])
        run(path, goes_of_the_log(then))
        assert then[0] < then[1]
        assert archived(lead, task) == everything
        assert [it["id"] for it in ada.query()["entries"]] == [again["id"]]
        assert rows(path, "SELECT count(*) FROM agent_memories") == [(1,)]
        ok(report(ada, task, status="completed"))
        last = archives(lead, task)[-1]
        assert [it["key"] for it in last["snapshot"]] == [kept["key"]]


@requirement("OI-32", "OI-89")
def test_another_task_under_a_forgotten_id_ends_nothing_of_the_first(path: Path) -> None:
    with serving(path) as service:
        lead, ada, other = (Agent(service.http, it) for it in (LEAD, HAND, "other"))
        task = task_with(lead, ada, 0)
        ok(report(ada, task, status="completed"))
        again = {"id": "again", "name": "n", "assigned_agent": HAND}
        ok(lead.ask("POST", TASKS, again | {"intent_id": task["intent_id"]}), 201)
        scope, end = {"task_id": "again"}, "2031-01-01T00:00:00Z"
        entry = ada.make(scope=scope, ttl="task_lifetime", expires_at=end)
        ok(report(ada, {"id": "again"}, status="completed"))
        rows(path, "DELETE FROM tasks WHERE id = 'again'")  # as MEMORY_KEEP_LOG says
        entry = ok(ada.patch(entry, expires_at=None))

        intent = ok(other.ask("POST", INTENTS, {"title": "Other"}), 201)
        ok(other.ask("POST", TASKS, again | {"intent_id": intent["id"]}), 201)
        ok(report(other, {"id": "again"}, status="completed"))

        assert ok(ada.get(entry)) == entry


@pytest.mark.slow
@requirement("OI-34")
def test_a_task_ends_in_a_tenant_that_is_full(path: Path) -> None:
    with serving(path, MEMORY_TENANT_QUOTA=quota(path, 1024)) as service:
        lead, ada = Agent(service.http, "lead"), Agent(service.http)
        intent = ok(lead.ask("POST", INTENTS, {"title": "Invoices"}), 201)
        made = {"intent_id": intent["id"], "name": "read", "assigned_agent": "ada"}
        task = ok(lead.ask("POST", TASKS, made), 201)
        entry = working(ada, task)
        filler = {"namespace": "wiki", "memory_type": "semantic", "value": {"text": "ab " * 20_000}}
        while ada.post(key=str(uuid4()), **filler).status_code == 201:
            pass
        assert refused(report(ada, task, error="slow")) == (507, "QUOTA_EXCEEDED")
        ok(report(ada, task, status="completed"))
        assert refused(ada.get(entry)) == (404, "ENTRY_NOT_FOUND")
        assert refused(lead.ask("POST", TASKS, made)) == (507, "QUOTA_EXCEEDED")


@pytest.mark.sqlite_files
@requirement("OI-30", "OI-31", "OI-79")
def test_tasks_that_are_finished_or_others_are_passed_over_unread(team: Team) -> None:
    team.coordinate(team.intent())
    takes_part = "SELECT 1 FROM tasks WHERE intent = 'any' AND agent = 'ada'"
    with closing(connect(team.service.path)) as database:
        plan, own = (
            [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {it}", values)]
            for it, values in ((HAS_SHARED, {"viewer": "lead", "now": 0}), (takes_part, {}))
        )
    tasks = [step for step in plan if step.split()[1] in ("t", "s")]
    assert tasks
    assert all("tasks_open_of_" in step or "(id=?)" in step for step in tasks), plan
    assert own == ["SEARCH tasks USING COVERING INDEX tasks_of_agent (agent=? AND intent=?)"]
