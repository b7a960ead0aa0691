"""Intents, coordinators, grants, logs and guardrails: who may do what, and what it is worth."""

from collections.abc import Callable

import pytest
from openintent import OpenIntentClient
from openintent.exceptions import NotFoundError, OpenIntentError
from openintent.models import CoordinatorStatus, EventType, Permission, TaskStatus

from ..support.callers import audit
from ..support.engines import rows
from ..support.openintent_agents import (
    BATCH,
    COORDINATORS,
    INTENTS,
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


def sdk(team: Team, agent: Agent) -> OpenIntentClient:
    token = agent.http.headers["authorization"].removeprefix("Bearer ")
    return OpenIntentClient(team.service.url, api_key=token, agent_id=agent.id)


@pytest.mark.slow
@requirement("OI-78", "OI-1", "OI-77", "OI-10")
def test_the_work_goes_through_the_packages_calls(team: Team) -> None:
    with sdk(team, team.lead) as lead, sdk(team, team.ada) as ada:
        intent = lead.create_intent(
            "Invoices", "Read them all", constraints={"rules": ["fast"]},
            initial_state={"done": 0}, depends_on=["intent_x"],
            governance_policy={"max_cost": 5.0},
        )  # fmt: skip
        assert lead.get_intent(intent.id) == intent
        assert (intent.created_by, intent.state.data, intent.version) == ("lead", {"done": 0}, 1)
        task = lead.create_task(
            intent.id, "read", assigned_agent="ada", input={"from": "inbox"}, priority="high",
            memory_policy={"archive_on_completion": True, "max_entries": 9},
            requires_tools=[{"service": "ocr"}], depends_on=["task_x"], max_attempts=2,
            metadata={"n": 1}, timeout_seconds=60, lease_id="lease_1",
        )  # fmt: skip
        assert task.memory_policy is not None
        assert (task.memory_policy.max_entries, task.requires_tools[0].scopes) == (9, [])
        assert (task.lease_id, task.priority, task.assigned_agent) == (None, "high", "ada")
        assert ada.get_task(task.id) == task
        running = ada.update_task(task.id, task.version, "running")
        assert (running.status, running.version) == (TaskStatus.RUNNING, 2)
        with pytest.raises(OpenIntentError) as stale:
            ada.update_task(task.id, 1, "completed")
        assert getattr(stale.value, "current_version", None) == 2
        assert lead.list_tasks(intent.id, status=TaskStatus.RUNNING) == [running]
        assert lead.list_tasks(intent.id, status=TaskStatus.BLOCKED) == []

        coordinator = lead.create_coordinator_lease(
            "lead", intent.id, coordinator_type="human",
            guardrails={"max_working_memory_per_task": 5, "on_exceed": "fail", "x": None},
        )  # fmt: skip
        assert coordinator.guardrails is not None
        assert coordinator.guardrails.max_working_memory_per_task == 5
        assert lead.get_coordinator_lease(coordinator.id) == coordinator
        assert ada.list_coordinator_leases(intent.id) == [coordinator]
        granted = lead.grant_access(intent.id, "bob", permission=Permission.WRITE, reason="looks")
        acl = lead.get_acl(intent.id)
        assert (acl.default_policy.value, acl.entries) == ("closed", [granted])
        lead.revoke_access(intent.id, granted.id)
        assert lead.get_acl(intent.id).entries == []

        logged = ada.log_event(intent.id, EventType.COMMENT, {"text": "page 3"})
        assert (logged.actor, logged.payload) == ("ada", {"text": "page 3"})
        assert lead.get_events(intent.id, event_type=EventType.COMMENT) == [logged]
        assert [it.event_type for it in lead.get_events(intent.id, limit=2)] == [
            EventType.COMMENT, EventType.TASK_STARTED,
        ]  # fmt: skip
        with pytest.raises(NotFoundError):
            lead.get_intent("intent_unknown")
    assert ok(team.lead.ask("DELETE", f"{COORDINATORS}/{coordinator.id}"))["status"] == "completed"
    with sdk(team, team.lead) as lead:
        ended = lead.get_coordinator_lease(coordinator.id)
        assert (ended.status, ended.version) == (CoordinatorStatus.COMPLETED, 2)
    lines = audit(team.service.path)
    told = [it for it in lines if str(it["action"]).startswith(("coordinator", "grant"))]
    assert [(it["action"], it["agent"]) for it in told] == [
        ("coordinator.made", "lead"), ("grant.made", "lead"), ("grant.revoked", "lead"),
        ("coordinator.ended", "lead"),
    ]  # fmt: skip


@requirement("OI-76", "OI-75", "OI-77")
def test_a_log_is_read_on_from_the_last_event_that_was_seen(team: Team) -> None:
    intent = team.intent()
    task = team.task(intent)
    entry = working(team.ada, task)
    labelled = team.bob.make(scope={"task_id": task["id"], "intent_id": intent["id"]})
    seen = team.log(intent)
    ok(team.ada.patch(entry))
    ok(report(team.ada, task, status="completed"))
    after = team.log(intent, after=seen[-1]["sequence"])

    assert [it["type"] for it in seen] == ["task.created", "agent_assigned", "memory.created"]
    assert [it["type"] for it in after] == ["memory.updated", "task.completed", "memory.archived"]
    assert [it["sequence"] for it in seen + after] == sorted(
        it["sequence"] for it in team.log(intent)
    )
    for type_ in ("memory.archived", "task.completed", "agent_assigned", "odd"):
        body: Json = {
            "event_type": type_,
            "payload": {},
        }  # clients tell nothing that the service does
        answer = team.lead.ask("POST", f"{INTENTS}/{intent['id']}/events", body)
        assert faults(answer) == ["event_type"]
    newest = ok(team.ada.ask("GET", f"{INTENTS}/{intent['id']}/events?limit=1"))
    assert [it["id"] for it in newest] == [after[-1]["id"]]
    assert seen[1]["payload"] == {
        "task_id": task["id"], "agent": "ada", "previous_agent": None,
    }  # fmt: skip
    assert after[1]["payload"] == {
        "task_id": task["id"], "name": "read", "status": "completed",
        "previous_status": "pending",
    }  # fmt: skip
    assert [it["payload"]["entry_id"] for it in team.bob.events()] == [labelled["id"]]


@pytest.mark.slow
@requirement("OI-79", "OI-56", "OI-11")
def test_each_right_is_refused_to_everybody_else(team: Team) -> None:
    intent = team.intent()
    task = team.task(intent)
    coordinator = team.coordinate(intent, "cyn")
    acl = f"{INTENTS}/{intent['id']}/acl"
    grant = {"principal_id": "dan"}
    granted = ok(team.lead.ask("POST", f"{acl}/entries", grant), 201)
    cyn, dan, eve = (team.agent(it) for it in ("cyn", "dan", "eve"))
    everybody = {"lead": team.lead, "root": team.root, "cyn": cyn, "ada": team.ada, "dan": dan,
                 "eve": eve}  # fmt: skip

    def who(deed: Callable[[Agent], int], *may: str, rest: int, hidden: int = 404) -> None:
        got = {name: deed(agent) for name, agent in everybody.items()}
        wanted = {name: hidden if name == "eve" else rest for name in everybody if name not in may}
        assert {name: got[name] for name in wanted} == wanted
        assert all(got[name] in (200, 201) for name in may), got

    def asks(method: str, path: str, body: object = None) -> Callable[[Agent], int]:
        return lambda agent: agent.ask(method, path, body).status_code

    def changes(**fields: object) -> Callable[[Agent], int]:
        def changed(agent: Agent) -> int:
            at = ok(team.lead.ask("GET", f"{TASKS}/{task['id']}"))["version"]
            return report(agent, task, at, **fields).status_code

        return changed

    takes_part = ("lead", "root", "cyn", "ada", "dan")
    made = {"intent_id": intent["id"], "name": "more"}
    eve_too = {"intent_id": intent["id"], "agent_id": "eve"}
    for path in (f"{INTENTS}/{intent['id']}", f"{INTENTS}/{intent['id']}/tasks",
                 f"{INTENTS}/{intent['id']}/events", f"{INTENTS}/{intent['id']}/coordinators",
                 f"{TASKS}/{task['id']}", f"{COORDINATORS}/{coordinator['id']}"):  # fmt: skip
        who(asks("GET", path), *takes_part, rest=403)
    who(asks("POST", TASKS, made), "lead", "root", "cyn", rest=403)
    who(changes(metadata={"n": 2}), "lead", "root", "cyn", rest=403)
    who(changes(assigned_agent="ada"), "lead", "root", "cyn", rest=403)
    who(changes(memory_policy=None), "lead", "root", "cyn", rest=403)
    who(changes(status="running", output={}), "lead", "root", "cyn", "ada", rest=403)
    who(asks("GET", acl), "lead", "root", rest=403)
    who(asks("POST", f"{acl}/entries", grant), "lead", "root", rest=403)
    who(asks("POST", COORDINATORS, eve_too | {"agent_id": "dan"}), "lead", "root", rest=403)
    own = asks("DELETE", f"{COORDINATORS}/{coordinator['id']}")
    assert [own(it) for it in (team.ada, dan, eve, cyn)] == [403, 403, 404, 200]
    removal = asks("DELETE", f"{acl}/entries/{granted['id']}")
    assert [removal(it) for it in (team.ada, dan, eve, team.lead)] == [403, 403, 404, 200]
    assert refused(eve.ask("POST", INTENTS, {"title": "Mine"})) == (403, "ACCESS_DENIED")
    heir = made | {"parent_task_id": task["id"], "assigned_agent": "eve"}
    assert refused(eve.ask("POST", TASKS, heir)) == (404, "NOT_FOUND")
    unknown = eve.ask("GET", f"{INTENTS}/intent_unknown")
    assert eve.ask("GET", f"{INTENTS}/{intent['id']}").content == unknown.content
    again = team.lead.ask("POST", INTENTS, {"title": "again", "id": intent["id"]})
    assert refused(again) == (409, "ALREADY_EXISTS")
    reader = team.agent("reader", "reader")
    assert refused(reader.ask("POST", TASKS, made)) == (403, "ACCESS_DENIED")


@requirement("OI-7", "OI-53", "OI-79")
def test_a_log_tells_nobody_what_it_may_not_read(team: Team) -> None:
    intent = team.intent()
    task = team.task(intent)
    team.root.permit("plans", "none", ada="write")
    scope = {"scope": {"task_id": task["id"]}}
    shared = team.ada.make(memory_type="semantic", namespace="plans", key="merger", **scope)
    held = working(team.ada, task, value={"word": "xylem"})
    assert refused(team.root.get(held)) == (404, "ENTRY_NOT_FOUND")
    ok(report(team.ada, task, status="completed"))

    told = {it["type"]: it["payload"] for it in team.log(intent)[2:]}
    assert told["memory.created"]["key"] == "progress"
    first = team.log(intent)[2]["payload"]
    assert first == {"entry_id": shared["id"], "memory_type": "semantic", "version": 1}
    assert team.log(intent, team.ada)[2]["payload"]["key"] == "merger"
    assert told["memory.archived"]["snapshot"][0]["value"] == {"word": "xylem"}
    (entry,) = team.log(intent, team.root)[-1]["payload"]["snapshot"]
    assert (entry["key"], entry["redacted"], "value" in entry) == ("progress", True, False)

    mine, other = team.task(intent), team.task(intent)
    ok(report(team.root, mine, assigned_agent="root"))
    ok(report(team.lead, other, assigned_agent="bob"))
    lines = [it for it in audit(team.service.path) if it["action"] == "task.assigned"]
    assert [(it["agent"], it["intent"], it["assignee"]) for it in lines] == [
        ("root", intent["id"], "root"),
    ]  # fmt: skip


@requirement("OI-79", "OI-80")
def test_what_is_refused_is_not_in_the_audit(team: Team) -> None:
    intent = team.intent()
    task = team.task(intent)
    acl = f"{INTENTS}/{intent['id']}/acl/entries"
    part = {"intent_id": intent["id"], "agent_id": "bob"}
    before = len(audit(team.service.path))
    stale = report(team.root, task, 9, assigned_agent="root")
    assert refused(stale) == (409, "VERSION_MISMATCH")
    foreign = {"intent_id": intent["id"], "name": "x", "assigned_agent": "root",
               "parent_task_id": "unknown"}  # fmt: skip
    assert faults(team.root.ask("POST", TASKS, foreign)) == ["parent_task_id"]
    assert len(audit(team.service.path)) == before

    for path, body, table, most in (
        (COORDINATORS, part, "coordinators", 100), (acl, {"principal_id": "bob"}, "grants", 1_000),
    ):  # fmt: skip
        ok(team.lead.ask("POST", path, body), 201)
        columns = _COLUMNS[table]
        rows(  # as many that are alike but for their ids, less one
            team.service.path,
            f"""INSERT INTO {table} (id, {columns})
                  WITH RECURSIVE numbers (number) AS (
                      SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < :count)
                SELECT id || '-' || number, {columns} FROM {table} CROSS JOIN numbers""",
            count=most - 2,
        )
        ok(team.lead.ask("POST", path, body), 201)
        lines = len(audit(team.service.path))
        full = team.lead.ask("POST", path, body)
        assert refused(full) == (400, "INVALID_REQUEST")
        assert f"at most {most:,}" in full.json()["message"]
        assert len(audit(team.service.path)) == lines


_COLUMNS = {
    "coordinators": "intent, agent, is_ended, details, version, granted_at, expires_at",
    "grants": "intent, agent, permission, reason, granted_by, granted_at, expires_at",
}


@pytest.mark.slow
@requirement("OI-55")
def test_guardrails_bind_what_is_bound_to_their_intent_alone(team: Team) -> None:
    intent, other = team.intent(), team.intent()
    team.task(intent), team.task(other)
    for name in ("policies", "wiki", "config"):
        team.root.permit(name, "write")
    team.coordinate(
        intent, max_episodic_memory_per_agent=2, allowed_semantic_namespaces=["policies", "wiki"],
        denied_semantic_namespaces=["wiki"],
    )  # fmt: skip

    def bound(namespace: str, to: Json | None = intent, **fields: object) -> Json:
        scope = {"scope": {"intent_id": to["id"]}} if to else {}
        return {"memory_type": "semantic", "namespace": namespace} | scope | fields

    allowed = team.ada.make(**bound("policies"))
    for namespace in ("wiki", "config"):
        assert refused(team.ada.post(**bound(namespace))) == (403, "ACCESS_DENIED")
    free = team.ada.make(**bound("wiki", other))
    assert team.ada.make(**bound("config", None))["version"] == 1
    assert ok(team.ada.patch(allowed))["version"] == 2
    team.coordinate(intent, denied_semantic_namespaces=["policies"])
    assert refused(team.ada.patch(allowed)) == (403, "ACCESS_DENIED")
    assert refused(team.ada.delete(allowed)) == (403, "ACCESS_DENIED")
    kept = ok(team.ada.ask("DELETE", BATCH, params={"namespace": "p*"}))
    assert kept["deleted"] == 0
    assert ok(team.ada.patch(free))["version"] == 2

    scope = {"scope": {"intent_id": intent["id"]}}
    pinned = [team.bob.make(key=it, pinned=True) for it in ("a", "b")]
    assert len(pinned) == 2
    team.task(intent, "bob")
    for key in ("c", "d"):
        team.bob.make(key=key, pinned=True, **scope)
    full = team.bob.post(key="e", **scope)
    assert (refused(full)[0], full.json()["limit"]) == (429, "max_episodic_memory_per_agent")


@pytest.mark.slow
@requirement("OI-55", "OI-65")
def test_a_deletion_of_many_passes_over_what_guardrails_keep(team: Team) -> None:
    intent = team.intent()
    of_all = {"memory_type": "semantic", "scope": {"intent_id": intent["id"]}}
    for namespace in ("facts", "kept"):
        team.root.permit(namespace, lead="write")
    team.lead.make(namespace="facts", **of_all)
    kept = of_all | {"namespace": "kept"}
    entries = [team.lead.body(key=str(it), **kept) for it in range(100)]  # as many as are read
    ok(team.lead.ask("POST", BATCH, {"entries": entries}))
    team.coordinate(intent, denied_semantic_namespaces=["kept"])

    deleted = ok(team.lead.ask("DELETE", BATCH, params={"memory_type": "semantic", "limit": 1}))

    assert deleted == {"deleted": 1, "has_more": False}
    assert team.lead.query(namespace="kept")["total"] == 100
    assert team.lead.query(namespace="facts")["total"] == 0


@requirement("OI-87", "OI-88", "OI-12", "OI-78")
def test_what_is_sent_about_work_is_screened_and_made_once(team: Team) -> None:
    token = "ghp_" + "a1B2" * 9
    once = {"Idempotency-Key": "once"}
    body = {"title": f"Use {token}", "state": {"token": token}}
    answers = [team.lead.ask("POST", INTENTS, body, headers=once) for _ in range(2)]
    assert answers[0].headers["x-redacted"] == "2"
    assert token not in answers[0].text
    assert ok(answers[0], 201) == ok(answers[1], 201)
    intent = answers[0].json()
    made = {"intent_id": intent["id"], "name": "read", "assigned_agent": "ada"}
    tasks = [ok(team.lead.ask("POST", TASKS, made, headers=once | {"Idempotency-Key": "t"}), 201)
             for _ in range(2)]  # fmt: skip
    assert tasks[0] == tasks[1]
    leads = {"intent_id": intent["id"], "agent_id": "bob"}
    led = [ok(team.lead.ask("POST", COORDINATORS, leads, headers=once | {"Idempotency-Key": "c"}),
              201) for _ in range(2)]  # fmt: skip
    assert led[0] == led[1]
    assert [it["action"] for it in audit(team.service.path)].count("coordinator.made") == 1
    reports = [report(team.ada, tasks[0], 1, status="completed").status_code for _ in range(2)]
    assert reports == [200, 409]
    text = r"JSON writes NUL as \u0000, and \\u0000 is none"
    told = team.intent(description=text, state={text: [text]})
    assert (told["description"], told["state"]) == (text, {text: [text]})
    nulls = {"archive_on_completion": None, "max_entries": None}
    part = team.work(memory_policy=nulls, requires_tools=[{"service": "ocr", "scopes": None}])
    assert part["memory_policy"]["archive_on_completion"] is True  # null is absent
    assert part["requires_tools"] == [{"service": "ocr", "scopes": [], "required": True}]
    for method, path, wrong, named in [
        ("POST", INTENTS, {"title": "t", "state": {"a": "\\\0"}}, ["state"]),
        ("POST", INTENTS, {"title": "t", "state": {"a": r"\u0000" + "\0"}}, ["state"]),
        ("POST", INTENTS, {}, ["title"]),
        ("POST", INTENTS, {"title": "t" * 501, "id": "a b"}, ["id", "title"]),
        ("POST", INTENTS, {"title": "t", "state": {"a": "\0"}}, ["state"]),
        ("POST", TASKS, made | {"status": "done", "name": ""}, ["name", "status"]),
        ("POST", TASKS, made | {"assigned_agent": "a b"}, ["assigned_agent"]),
        ("POST", TASKS, made | {"memory_policy": {"max_entries": 10_001}},
         ["memory_policy.max_entries"]),
        ("POST", TASKS, made | {"requires_tools": [{}]}, ["requires_tools[0].service"]),
        ("POST", TASKS, made | {"input": {"a": "x" * 65_536}}, ["the body"]),
        ("POST", COORDINATORS, {"agent_id": "ada"}, ["intent_id"]),
        ("POST", COORDINATORS, {"agent_id": "ada", "intent_id": intent["id"],
                                "guardrails": {"on_exceed": "burn"}}, ["guardrails.on_exceed"]),
        ("POST", f"{INTENTS}/{intent['id']}/acl/entries",
         {"principal_id": "bob", "principal_type": "group"}, ["principal_type"]),
        ("POST", f"{INTENTS}/{intent['id']}/acl/entries",
         {"principal_id": "bob", "expires_at": "2020-01-01T00:00:00Z"}, ["expires_at"]),
        ("POST", f"{INTENTS}/{intent['id']}/events", {"event_type": "comment", "payload": []},
         ["payload"]),
    ]:  # fmt: skip
        assert sorted(faults(team.lead.ask(method, path, wrong))) == named, (path, wrong)
