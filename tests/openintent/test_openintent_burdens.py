"""What one agent may ask for does not keep the others waiting."""

from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agentops_memory.memory.guardrails import Guardrails
from agentops_memory.memory.sight import OPENS
from agentops_memory.openintent import changes, intents
from agentops_memory.sqlite.connection import connect

from ..support.engines import quota
from ..support.openintent_agents import (
    BATCH,
    COORDINATORS,
    INTENTS,
    TASKS,
    Agent,
    Team,
    ok,
    refused,
    report,
    team,
    working,
)
from ..support.requirements import requirement
from ..support.service import serving

__all__ = ["team"]


@pytest.mark.heavy
@requirement("OI-65", "OI-55")
def test_a_deletion_passes_over_what_guardrails_keep_in_few_steps(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.root.permit("wiki", "write")
    task = team.work()
    fields = {"memory_type": "semantic", "namespace": "wiki", "scope": {"task_id": task["id"]}}
    for first in (0, 100, 200):
        entries = [team.ada.body(key=str(it), **fields) for it in range(first, first + 100)]
        ok(team.ada.ask("POST", BATCH, {"entries": entries}))
    team.coordinate({"id": task["intent_id"]}, denied_semantic_namespaces=["wiki"])
    asked: list[str] = []
    for kind, name in ((changes, "writable"), (intents, "guardrails")):
        before = getattr(kind, name)

        def counted(
            *given: object, before: Any = before, name: str = name, **named: object
        ) -> object:
            asked.append(name)
            return before(*given, **named)

        monkeypatch.setattr(kind, name, counted)
    for limit in (1, 1000):
        asked.clear()
        params = {"namespace": "wiki", "limit": limit}
        done = ok(team.ada.ask("DELETE", BATCH, params=params))
        assert done == {"deleted": 0, "has_more": False}
        assert asked.count("writable") <= 4
        assert asked.count("guardrails") == 1


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
            for it, values in ((OPENS, {"viewer": "lead", "now": 0}), (takes_part, {}))
        )
    tasks = [step for step in plan if step.split()[1] in ("t", "s")]
    assert tasks
    assert all("tasks_open_of_" in step or "(id=?)" in step for step in tasks), plan
    assert own == ["SEARCH tasks USING COVERING INDEX tasks_of_agent (agent=? AND intent=?)"]


@requirement("OI-55")
def test_coordinators_who_have_ended_are_not_read_for_their_guardrails(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = team.work()
    made = [team.coordinate({"id": task["intent_id"]}, max_working_memory_per_task=0)
            for _ in range(3)]  # fmt: skip
    for each in made:
        ok(team.lead.ask("DELETE", f"{COORDINATORS}/{each['id']}"))
    read: list[Guardrails] = []
    before = intents.guardrails

    def kept(*given: Any) -> list[Guardrails]:
        found = before(*given)
        read.extend(found)
        return found

    monkeypatch.setattr(intents, "guardrails", kept)
    working(team.ada, task)
    assert read == []
    team.coordinate({"id": task["intent_id"]}, max_working_memory_per_task=9)
    working(team.ada, task, "more")
    assert {it.max_working_memory_per_task for it in read} == {9}
