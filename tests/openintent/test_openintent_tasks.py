"""Working memory that is bound to tasks: who binds and reads it, its limits, its end."""

import pytest

from ..support.openintent_agents import (
    COORDINATORS,
    INTENTS,
    MEMORY,
    TASKS,
    Agent,
    Json,
    Team,
    faults,
    ok,
    refused,
    report,
    team,
    working,
)
from ..support.requirements import requirement

__all__ = ["team"]

FINAL = ("completed", "failed", "cancelled", "skipped")


@pytest.mark.slow
@requirement("OI-18", "OI-32", "OI-33")
def test_the_assigned_agent_alone_binds_working_memory(team: Team) -> None:
    intent = team.intent()
    task, other = team.task(intent), team.task(intent, "bob")
    made = working(team.ada, task)
    assert made["scope"] == {"task_id": task["id"], "intent_id": intent["id"]}

    def scoped(agent: Agent, **scope: str) -> Json:
        return agent.body(memory_type="working", key="planted", scope=scope)

    planted = team.ada.ask("POST", MEMORY, scoped(team.ada, task_id=other["id"]))
    assert refused(planted) == (403, "ACCESS_DENIED")
    wrong = scoped(team.ada, task_id=task["id"], intent_id=team.intent()["id"])
    assert faults(team.ada.ask("POST", MEMORY, wrong)) == ["scope.intent_id"]
    cyn = team.agent("cyn")
    answers = [
        cyn.ask("POST", MEMORY, scoped(cyn, task_id=it) | {"key": it})
        for it in (task["id"], "task_unknown")
    ]
    unseen, unknown = (ok(it, 201) for it in answers)
    assert [unseen["scope"], unknown["scope"]] == [
        {"task_id": task["id"]}, {"task_id": "task_unknown"},
    ]  # fmt: skip
    assert team.bob.query(**{"scope.task_id": task["id"]})["total"] == 0
    end = {"ttl": "task_lifetime", "expires_at": "2031-01-01T00:00:00Z"}
    until = team.ada.make(key="until", scope={"task_id": task["id"]}, **end)
    ok(report(team.ada, task, status="completed"))
    late = team.ada.ask("POST", MEMORY, scoped(team.ada, task_id=task["id"]))
    assert refused(late) == (409, "TASK_FINISHED")
    assert refused(team.ada.get(made)) == (404, "ENTRY_NOT_FOUND")
    assert ok(cyn.get(unseen))["version"] == 1
    # Other tiers are bound to what their agent may see; they outlive it.
    assert team.ada.make(key="learnt", scope={"task_id": task["id"]})["scope"] == made["scope"]
    lasting = team.ada.post(key="b", scope={"task_id": task["id"]}, ttl="task_lifetime")
    assert refused(lasting) == (409, "TASK_FINISHED")
    assert refused(team.ada.patch(until, expires_at=None)) == (409, "TASK_FINISHED")
    assert ok(team.ada.get(until)) == until  # it has an end of its own
    freed = ok(team.ada.patch(until, expires_at=None, ttl=None))
    assert (freed["ttl"], freed["expires_at"]) == (None, None)


@pytest.mark.slow
@requirement("OI-29", "OI-30", "OI-31", "OI-38", "OI-40", "OI-41", "OI-43", "OI-79")
def test_others_read_an_agents_memory_while_they_have_to_do_with_its_task(team: Team) -> None:
    intent = team.intent()
    task, acl = team.task(intent), f"{INTENTS}/{intent['id']}/acl/entries"
    cyn, dan, eve, fay = (team.agent(it) for it in ("cyn", "dan", "eve", "fay"))
    entries = [
        working(team.ada, task), team.ada.make(key="learnt"),
        team.ada.make(memory_type="working", key="own"),
    ]  # fmt: skip

    def readers() -> dict[str, list[str]]:
        """What each of the others reads of the agent's, and changes nothing of."""
        found: dict[str, list[str]] = {}
        for agent in (team.bob, team.root, cyn, dan, eve, fay):
            keys = sorted(it["key"] for it in agent.query(agent_id="ada")["entries"])
            for entry in entries:
                assert agent.get(entry).is_success is (entry["key"] in keys)
                if entry["key"] in keys:
                    assert refused(agent.patch(entry, value={})) == (403, "ACCESS_DENIED")
            found |= {agent.id: keys} if keys else {}
        return found

    def coordinated(**fields: str) -> Json:
        body = {"intent_id": intent["id"], "agent_id": "cyn", **fields}
        made: Json = ok(team.lead.ask("POST", COORDINATORS, body), 201)
        return made

    assert readers() == {}
    soon, heir = "2030-01-01T12:01:00Z", {"memory_policy": {"inherit_from_parent": True}}
    grants = [
        ok(team.lead.ask("POST", acl, {"principal_id": who, "expires_at": end}), 201)
        for who, end in (("dan", None), ("eve", soon))
    ]
    coordinated(expires_at=soon)
    part = team.task(intent, "fay", parent_task_id=task["id"], **heir)
    other = team.task(intent, "bob", parent_task_id=task["id"])  # inherits nothing
    every = {"cyn": ["learnt", "progress"]} | {it: ["progress"] for it in ("dan", "eve", "fay")}
    assert readers() == every
    team.service.clock.advance(minutes=1)
    assert readers() == {"dan": ["progress"], "fay": ["progress"]}
    ok(team.lead.ask("DELETE", f"{acl}/{grants[0]['id']}"))
    ok(report(fay, part, status="completed"))
    assert readers() == {}
    assert refused(dan.ask("GET", f"{TASKS}/{task['id']}")) == (404, "NOT_FOUND")
    again = coordinated()
    assert readers() == {"cyn": every["cyn"]}
    ok(cyn.ask("DELETE", f"{COORDINATORS}/{again['id']}"))
    assert readers() == {}

    coordinated()
    ok(report(team.lead, task, assigned_agent="bob"))  # so that no task is the first agent's
    assert readers() == {"bob": ["progress"], "cyn": ["progress"]}
    theirs, learnt = working(team.bob, task), team.bob.make(key="learnt, too")
    assert ok(cyn.get(learnt)) == learnt
    assert refused(team.ada.get(theirs)) == (404, "ENTRY_NOT_FOUND")
    assert ok(team.ada.patch(entries[0], value={}))["version"] == 2
    ok(report(team.bob, task, status="completed"))
    assert readers() == {}
    assert ok(cyn.get(learnt)) == learnt
    ok(report(team.bob, other, status="completed"))  # which was the last
    assert refused(cyn.get(learnt)) == (404, "ENTRY_NOT_FOUND")
    assert team.ada.found() == ["own", "learnt"]


@requirement("OI-42", "OI-56")
def test_a_task_takes_no_entry_that_names_another_intent(team: Team) -> None:
    intent = team.intent()
    team.task(intent)
    other = team.agent("cyn", coordinates=True)
    foreign = ok(other.ask("POST", INTENTS, {"title": "Elsewhere"}), 201)
    scope = {"task_id": "job-7", "intent_id": intent["id"]}
    learnt = team.ada.make(key="learnt", scope=scope)
    label = team.ada.make(key="label", scope={"task_id": "job-7", "intent_id": "unknown"})
    free = team.ada.make(key="free", scope={"task_id": "job-7"})
    made = {"intent_id": foreign["id"], "name": "n", "id": "job-7", "assigned_agent": "ada"}
    ok(other.ask("POST", TASKS, made), 201)
    assert [ok(team.ada.get(it))["scope"] for it in (learnt, label)] == [scope, label["scope"]]
    assert ok(team.ada.get(free))["scope"]["intent_id"] == foreign["id"]
    ok(team.ada.patch(learnt))
    assert [it["type"] for it in team.log(intent)][-1] == "memory.updated"


@pytest.mark.slow
@pytest.mark.representative(2)
@requirement("OI-34", "OI-35", "OI-36", "OI-75", "OI-18")
@pytest.mark.parametrize("status", FINAL)
def test_the_end_of_a_task_archives_and_clears_its_working_memory(team: Team, status: str) -> None:
    task = team.work()
    first = working(team.ada, task, tags=["batch"], value={"total": 47})
    ok(team.ada.patch(first, value={"total": 48}))
    working(team.ada, task, "secret", value={"word": "xylem"}, sensitivity="confidential")
    short = team.ada.make(key="short", scope={"task_id": task["id"]}, ttl="task_lifetime")
    kept = team.ada.make(key="learnt", scope={"task_id": task["id"]})
    own = team.ada.make(memory_type="working", key="own")

    ended = ok(report(team.ada, task, status=status, output={"ok": True}))

    assert (ended["status"], ended["state"], ended["output"]) == (status, status, {"ok": True})
    assert ended["completed_at"] is not None
    assert sorted(team.ada.found()) == ["learnt", "own"]
    for gone in (first, short):
        assert refused(team.ada.get(gone)) == (404, "ENTRY_NOT_FOUND")
    assert (ok(team.ada.get(kept)), ok(team.ada.get(own))) == (kept, own)
    log = team.log(task)
    assert [it["type"] for it in log] == [
        "task.created", "agent_assigned", "memory.created", "memory.updated", "memory.created",
        "memory.created", "memory.created", f"task.{status}", "memory.expired",
        "memory.archived",
    ]  # fmt: skip
    archived = log[-1]
    assert archived["payload"] == {
        "entries_archived": 2,
        "snapshot": [
            {"namespace": "notes", "key": "progress", "tags": ["batch"], "version": 2,
             "value": {"total": 48}},
            {"namespace": "notes", "key": "secret", "tags": [], "version": 1, "redacted": True},
        ],
    }  # fmt: skip
    assert (archived["agent_id"], archived["task_id"]) == ("ada", task["id"])
    assert log[-2]["payload"]["reason"] == "task_ended"
    stream = team.ada.events(after=0, limit=1000)
    assert [it["sequence"] for it in stream if it["type"].startswith("memory.")] == [
        it["sequence"] for it in stream
    ]
    assert archived in stream
    assert working(team.ada, team.work(), "progress")["version"] == 1  # the key is free


@requirement("OI-37")
def test_without_an_archive_the_entries_leave_their_ends_alone(team: Team) -> None:
    intent = team.intent()
    policy = {"archive_on_completion": False}
    task, other = (team.task(intent, memory_policy=policy) for _ in range(2))
    assert task["memory_policy"] == {
        "archive_on_completion": False, "inherit_from_parent": False, "max_entries": None,
        "max_total_size_kb": None,
    }  # fmt: skip
    working(team.ada, task)
    ok(report(team.ada, task, status="cancelled"))
    ends = [it for it in team.log(task) if it["type"].startswith("memory.")]
    assert [it["type"] for it in ends] == ["memory.created", "memory.expired"]
    assert ends[1]["payload"]["reason"] == "task_ended"
    assert "value" not in str(ends)

    team.coordinate(intent, memory_archive_required=True)  # wins, where it was sent
    working(team.ada, other)
    ok(report(team.ada, other, status="completed"))
    assert team.log(task)[-1]["payload"]["snapshot"][0]["key"] == "progress"


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


@requirement("OI-37", "OI-55")
def test_a_coordinator_that_requires_no_archive_leaves_it_to_the_policy(team: Team) -> None:
    intent = team.intent()
    team.coordinate(intent, memory_archive_required=False)
    task = team.task(intent, memory_policy={"archive_on_completion": False})
    working(team.ada, task)

    ok(report(team.ada, task, status="completed"))

    assert team.log(intent)[-1]["type"] == "memory.expired"
    assert team.ada.found() == []


@pytest.mark.slow
@requirement("OI-42", "OI-32")
def test_a_task_that_is_mirrored_late_binds_what_its_agent_has_of_it(team: Team) -> None:
    mine, theirs = (
        agent.make(memory_type="working", key="progress", scope={"task_id": "their-task:1"})
        for agent in (team.ada, team.bob)
    )
    task = team.work(None, id="their-task:1")
    assert (task["id"], task["assigned_agent"]) == ("their-task:1", None)
    ok(report(team.lead, task, assigned_agent="ada"))

    bound = ok(team.ada.get(mine))
    assert bound["scope"] == {"task_id": "their-task:1", "intent_id": task["intent_id"]}
    assert bound["version"] == 1
    assert ok(team.bob.get(theirs))["scope"] == {"task_id": "their-task:1"}
    ok(report(team.ada, task, status="completed"))
    assert refused(team.ada.get(mine)) == (404, "ENTRY_NOT_FOUND")
    assert ok(team.bob.get(theirs)) == theirs
    taken = {"intent_id": task["intent_id"], "name": "x", "id": "their-task:1"}
    assert refused(team.lead.ask("POST", TASKS, taken)) == (409, "ALREADY_EXISTS")


@requirement("OI-39", "OI-55")
def test_working_memory_of_a_task_has_limits(team: Team) -> None:
    intent = team.intent()
    task = team.task(intent, memory_policy={"max_entries": 2, "max_total_size_kb": 1})
    first = working(team.ada, task, "a")
    working(team.ada, task, "b")
    body = {"memory_type": "working", "key": "c", "scope": {"task_id": task["id"]}}
    full = team.ada.post(**body)
    assert refused(full) == (429, "CAPACITY_EXCEEDED")
    figures = {name: full.json()[name] for name in ("limit", "current_count", "max_capacity")}
    assert figures == {"limit": "max_entries", "current_count": 2, "max_capacity": 2}
    assert "retry-after" not in full.headers
    long = team.ada.patch(first, value={"text": "x" * 996})  # beside 18 bytes of the other
    assert (refused(long)[0], long.json()["limit"], long.json()["max_capacity"]) == (
        429, "max_total_size_kb", 1,
    )  # fmt: skip
    assert ok(team.ada.get(first)) == first
    assert ok(team.ada.patch(first, value={"text": "x" * 995}))["version"] == 2
    outside = team.ada.make(memory_type="working", key="c")  # of no task
    other = team.task(team.intent())
    assert working(team.ada, other, "d")["version"] == 1

    team.coordinate(intent, max_working_memory_per_task=1)
    more = team.ada.post(**body | {"key": "e"})
    assert more.json()["limit"] == "max_working_memory_per_task"
    assert working(team.ada, other, "e")["version"] == 1
    stop = team.coordinate({"id": other["intent_id"]}, max_working_memory_per_task=0)
    none = team.ada.post(key="f", memory_type="working", scope={"task_id": other["id"]})
    assert (refused(none)[0], none.json()["max_capacity"]) == (429, 0)
    ok(team.lead.ask("DELETE", f"{COORDINATORS}/{stop['id']}"))  # whose guardrails end with it
    assert working(team.ada, other, "f")["version"] == 1
    entries = [team.ada.body(**body | {"key": str(it)}) for it in range(3)]
    batch = team.ada.ask("POST", f"{MEMORY}/batch", {"entries": entries})
    assert refused(batch) == (429, "CAPACITY_EXCEEDED")
    assert outside["key"] in team.ada.found()


@pytest.mark.slow
@requirement("OI-80", "OI-10")
def test_a_task_is_changed_at_its_version_until_it_is_final(team: Team) -> None:
    task = team.work(max_attempts=5, metadata={"a": 1})
    path = f"{TASKS}/{task['id']}"
    assert refused(team.ada.ask("PATCH", path, {"status": "running"})) == (428, "VERSION_REQUIRED")
    stale = report(team.ada, task, version=7, status="running")
    assert (refused(stale), stale.json()["current_version"]) == ((409, "VERSION_MISMATCH"), 1)
    assert "current" not in stale.json()
    running = ok(report(team.ada, task, status="running"))
    assert (running["version"], running["attempt"]) == (2, 1)
    assert running["started_at"] is not None
    working(team.ada, task)
    failed = ok(report(team.ada, task, status="failed", error="no paper"))
    for answer in (
        report(team.ada, task, status="running"), report(team.ada, task, status="failed"),
        report(team.lead, task, assigned_agent="bob"),
    ):  # fmt: skip
        assert refused(answer) == (409, "TASK_FINISHED")
    again = ok(report(team.ada, task, status="ready", error=None))
    assert (again["attempt"], again["error"], again["completed_at"]) == (2, None, None)
    assert again["version"] == failed["version"] + 1
    assert team.ada.found() == []  # it starts with nothing
    assert working(team.ada, task)["version"] == 1
    ok(report(team.ada, task, status="completed"))
    assert refused(report(team.ada, task, status="ready")) == (409, "TASK_FINISHED")
    assert [it["type"] for it in team.log(task) if it["type"].startswith("task.")] == [
        "task.created", "task.started", "task.failed", "task.retrying", "task.completed",
    ]  # fmt: skip
    assert faults(report(team.lead, task, status="done", metadata=[])) == ["status", "metadata"]
