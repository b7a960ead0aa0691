"""A team's work and memory against a model: rights, bindings, limits, ends, events."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from agentops_memory.operations.files.seals import SealFile
from agentops_memory.sqlite import SqliteEngine

from ..support.openintent_agents import BATCH, MEMORY, Agent, Json, ok, refused
from ..support.openintent_team import COORDINATORS, INTENTS, TASKS, Team, report, team, working
from ..support.requirements import requirement
from ..support.samples import sampled
from ..support.service import Clock
from ..support.team_play import Play

__all__ = ["team"]

HEIR = {"inherit_from_parent": True}


def played(path: Path, seed: int, steps: int) -> Counter[str]:
    """What was done, and refused, in a history of so many steps, each of which was compared."""
    clock = Clock()

    async def whole() -> Counter[str]:
        sealer = SealFile(path / "memory.seal", clock)
        async with SqliteEngine.opened(
            path / "memory.db", clock=clock, sealer=sealer.sealer
        ) as engine:
            play = Play(engine, clock, seed)
            for _ in range(steps):
                await play.step()
            return play.counts

    return asyncio.run(whole())


@pytest.mark.heavy
@requirement("OI-18", "OI-29", "OI-30", "OI-31", "OI-32", "OI-33", "OI-34", "OI-35", "OI-36")
@pytest.mark.parametrize("seed", sampled(range(2), 2))
def test_a_team_is_as_a_model_says(tmp_path: Path, seed: int) -> None:
    counts = played(tmp_path, seed, 120)

    assert min(counts[deed] for deed in ("create", "amend", "change_task", "grant")) > 0


@requirement("OI-37", "OI-38", "OI-39", "OI-40", "OI-41", "OI-42", "OI-43", "OI-55", "OI-80")
@pytest.mark.parametrize("seed", sampled(range(100, 103), 1, first=1))
def test_many_teams_are_as_a_model_says(tmp_path: Path, seed: int) -> None:
    counts = played(tmp_path, seed, 400)

    assert min(counts[deed] for deed in ("batch", "coordinate", "create: Taken")) > 0


@pytest.mark.slow
@requirement("OI-56", "OI-79", "OI-77")
def test_no_agent_makes_itself_part_of_the_work_of_others(team: Team) -> None:
    intent = team.intent(id="goal")
    task = team.task(intent, id="reading")
    entry = working(team.ada, task)
    eve, path = team.agent("eve"), f"{INTENTS}/{intent['id']}"

    def tried(by: Agent) -> list[tuple[int, str]]:
        part = {"intent_id": intent["id"], "agent_id": by.id}
        grant = {"principal_id": by.id, "principal_type": "agent", "permission": "admin"}
        heir = {"intent_id": intent["id"], "name": "heir", "parent_task_id": task["id"],
                "assigned_agent": by.id, "memory_policy": HEIR}  # fmt: skip
        version = {"If-Match": str(task["version"])}
        asked = [
            by.ask("POST", COORDINATORS, part), by.ask("POST", f"{path}/acl/entries", grant),
            by.ask("GET", f"{path}/acl"), by.ask("POST", TASKS, heir),
            by.ask("POST", TASKS, {"intent_id": intent["id"], "name": "new", "id": "reading"}),
            by.ask("PATCH", f"{TASKS}/reading", {"assigned_agent": "eve"}, headers=version),
            by.ask("PATCH", f"{TASKS}/reading", {"memory_policy": HEIR}, headers=version),
        ]  # fmt: skip
        return [refused(each) for each in asked]

    assert tried(eve) == [(404, "NOT_FOUND")] * 7
    assert tried(team.ada) == [(403, "ACCESS_DENIED")] * 7  # not its own assignment, either
    made = eve.ask("POST", INTENTS, {"title": "mine"})
    assert refused(made) == (403, "ACCESS_DENIED")
    scope = {"task_id": "reading", "intent_id": "goal"}
    body = eve.body(memory_type="working", key="planted", scope=scope)
    assert ok(eve.ask("POST", MEMORY, body), 201)["scope"] == scope  # labels, without effect
    planted = eve.body(agent_id="ada", memory_type="working", key="planted")
    assert refused(eve.ask("POST", MEMORY, planted)) == (403, "ACCESS_DENIED")
    assert [it["key"] for it in team.ada.query(**{"scope.task_id": "reading"})["entries"]] == [
        entry["key"]
    ]
    assert "planted" not in str(team.log(intent))
    assert refused(report(team.ada, task, assigned_agent="eve")) == (403, "ACCESS_DENIED")
    again = team.lead.ask("POST", INTENTS, {"title": "again", "id": "goal"})
    assert refused(again) == (409, "ALREADY_EXISTS")
    same = team.lead.ask("POST", TASKS, {"intent_id": "goal", "name": "again", "id": "reading"})
    assert refused(same) == (409, "ALREADY_EXISTS")


@pytest.mark.slow
@requirement("OI-56", "OI-11")
def test_what_is_hidden_is_answered_as_what_there_is_not(team: Team) -> None:
    intent = team.intent()
    task = team.task(intent)
    part, entry = team.coordinate(intent), working(team.ada, task)
    eve = team.agent("eve")
    own = team.ada.make(key="own")

    for path, id_ in (
        (f"{INTENTS}/{{}}", intent["id"]), (f"{INTENTS}/{{}}/tasks", intent["id"]),
        (f"{INTENTS}/{{}}/events", intent["id"]), (f"{INTENTS}/{{}}/acl", intent["id"]),
        (f"{INTENTS}/{{}}/coordinators", intent["id"]), (f"{TASKS}/{{}}", task["id"]),
        (f"{COORDINATORS}/{{}}", part["id"]), (f"{MEMORY}/{{}}", entry["id"]),
    ):  # fmt: skip
        unknown = id_[:-12] + "0" * 12
        hidden = eve.ask("GET", path.format(id_))
        none = eve.ask("GET", path.format(unknown))
        assert (hidden.status_code, hidden.content) == (404, none.content), path
    for hidden_entry in (entry, own):  # from an administrator, too
        assert refused(team.root.get(hidden_entry)) == (404, "ENTRY_NOT_FOUND")
    assert team.root.query()["total"] == 0


@requirement("OI-77")
def test_the_log_is_not_forged(team: Team) -> None:
    intent: Json = team.intent()
    before = team.log(intent)

    for type_ in ("memory.archived", "memory.created", "task.completed", "agent_assigned", "no"):
        answer = team.lead.ask("POST", f"{INTENTS}/{intent['id']}/events", {"event_type": type_})
        assert refused(answer) == (400, "INVALID_REQUEST"), type_
    assert team.log(intent) == before


@pytest.mark.slow
@requirement("OI-34", "OI-42")
def test_a_task_that_is_mirrored_as_finished_archives_what_its_agent_has_of_it(team: Team) -> None:
    intent = team.intent()
    for id_ in ("early", "late"):
        scope = {"task_id": id_}
        team.ada.make(memory_type="working", key=id_, scope=scope)
        team.bob.make(memory_type="working", key=id_, scope=scope)
    team.task(intent, id="early", status="completed")
    late = team.task(intent, None, id="late")
    ok(report(team.lead, late, assigned_agent="ada", status="cancelled"))

    assert team.ada.found() == []
    assert sorted(team.bob.found()) == ["early", "late"]
    archived = [it["payload"] for it in team.log(intent) if it["type"] == "memory.archived"]
    assert [it["key"] for each in archived for it in each["snapshot"]] == ["early", "late"]


@pytest.mark.slow
@requirement("OI-55", "OI-65")
def test_a_deletion_of_many_passes_over_what_guardrails_keep(team: Team) -> None:
    intent = team.intent()
    for namespace, keys, scope in (
        ("facts", ["a"], {}), ("kept", ["b", "c"], {"intent_id": intent["id"]})
    ):  # fmt: skip
        team.root.permit(namespace, lead="write")
        for key in keys:
            team.lead.make(memory_type="semantic", namespace=namespace, key=key, scope=scope)
    team.coordinate(intent, denied_semantic_namespaces=["kept"])

    filters = {"memory_type": "semantic", "limit": 1}
    deleted = ok(team.lead.ask("DELETE", BATCH, params=filters))

    assert deleted == {"deleted": 1, "has_more": False}
    assert team.lead.found() == ["c", "b"]


@pytest.mark.slow
@requirement("OI-37", "OI-55")
@pytest.mark.parametrize(("required", "type_"), [(True, "archived"), (False, "expired")])
def test_an_archive_that_a_coordinator_requires_is_made(
    team: Team, *, required: bool, type_: str
) -> None:
    intent = team.intent()
    team.coordinate(intent, memory_archive_required=required)
    task = team.task(intent, memory_policy={"archive_on_completion": False})
    working(team.ada, task)

    ok(report(team.ada, task, status="completed"))

    assert team.log(intent)[-1]["type"] == f"memory.{type_}"
    assert team.ada.found() == []


@requirement("OI-39")
def test_working_memory_grows_to_what_its_task_may_hold_and_no_further(team: Team) -> None:
    task = team.work(memory_policy={"max_total_size_kb": 1})
    entry = working(team.ada, task, value={"n": "v" * 1000})

    over = team.ada.patch(entry, value={"n": "v" * 1020})

    assert refused(over) == (429, "CAPACITY_EXCEEDED")
    assert over.json()["limit"] == "max_total_size_kb"
    assert ok(team.ada.get(entry)) == entry
    assert ok(team.ada.patch(entry, value={"n": "v" * 1016}))["version"] == 2
