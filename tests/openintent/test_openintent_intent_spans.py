"""What a request about intents leaves in a trace and in the audit, and what it keeps to itself."""

from pathlib import Path

import pytest

from ..support.callers import audit, calling, made_key
from ..support.openintent_agents import Agent, ok, refused
from ..support.openintent_spans import PREFIX, SECRETS, of_intents, secrets
from ..support.openintent_team import COORDINATORS, INTENTS, TASKS, working
from ..support.requirements import requirement
from ..support.service import serving
from ..telemetry.test_tracing import traced

TEXT = {"colour": "saffron"}


@pytest.mark.slow
@requirement("OI-94")
def test_each_operation_says_who_asked_and_how_much_and_tells_nothing_of_it(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        ada = Agent(service.http)
        told = {"title": "saffron", "description": "saffron", "state": TEXT}
        intent = ok(ada.ask("POST", INTENTS, told), 201)
        one = f"{INTENTS}/{intent['id']}"
        said = {"name": "saffron", "input": TEXT, "assigned_agent": "ada"}
        task = ok(ada.ask("POST", TASKS, {"intent_id": intent["id"], **said}), 201)
        for key in ("quill", "quilled"):
            working(ada, task, key=key, value=TEXT, tags=["tagged"])
        logged = {"event_type": "comment", "payload": TEXT}
        ok(ada.ask("POST", f"{one}/events", logged), 201)
        named = {"intent_id": intent["id"], "agent_id": "bob", "metadata": TEXT}
        coordinator = ok(ada.ask("POST", COORDINATORS, named), 201)
        acl = f"{one}/acl/entries"
        grant = ok(ada.ask("POST", acl, {"principal_id": "eve", "reason": "saffron"}), 201)
        for path in (one, f"{one}/tasks", f"{one}/events", f"{one}/coordinators", f"{one}/acl",
                     f"{TASKS}/{task['id']}",
                     f"{COORDINATORS}/{coordinator['id']}"):  # fmt: skip
            ok(ada.ask("GET", path))
        ended = {"status": "completed", "output": TEXT}
        ok(ada.ask("PATCH", f"{TASKS}/{task['id']}", ended, headers={"If-Match": "1"}))
        ok(ada.ask("DELETE", f"{COORDINATORS}/{coordinator['id']}"))
        ok(ada.ask("DELETE", f"{acl}/{grant['id']}"))
        paths = ok(service.http.get("/openapi.json"))["paths"]
        collector = received()

    results = {
        "list_tasks": 1, "list_events": 5, "list_coordinators": 1, "get_access_list": 1,
    }  # fmt: skip
    assert results.keys() < {name.removeprefix(PREFIX) for name in of_intents(paths)}
    for name in of_intents(paths):
        span = collector.one(f"memory.{name}")
        assert span.attributes["memory.operation"] == name
        assert span.attributes["memory.agent.id"] == "ada"
        counted = results.get(name.removeprefix(PREFIX))
        assert span.attributes.get("memory.result_count") == counted, name
        archived = 2 if name == f"{PREFIX}update_task" else None
        assert span.attributes.get("memory.archived_count") == archived, name
        assert (span.is_server, span.failed) == (True, False)
    assert [it.attributes for it in collector.all("store.archive")] == [{"memory.agent.id": "ada"}]
    assert secrets(collector) == set()


@requirement("OI-94")
def test_a_refusal_about_an_intent_is_a_failed_span_that_quotes_nothing(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        ada, bob = (Agent(service.http, it) for it in ("ada", "bob"))
        body = {"title": "saffron", "id": "quill"}
        ok(ada.ask("POST", INTENTS, body), 201)
        task = ok(ada.ask("POST", TASKS, {"intent_id": "quill", "name": "saffron"}), 201)
        path, change = f"{TASKS}/{task['id']}", {"error": "saffron"}
        answers = [
            ada.ask("POST", INTENTS, body),
            ada.ask("POST", TASKS, {"intent_id": "quills", "name": "saffron"}),
            ada.ask("PATCH", path, change),
            bob.ask("PATCH", path, change, headers={"If-Match": "7"}),
            ada.ask("POST", f"{INTENTS}/quill/events", {"event_type": "saffron"}),
            ada.ask("GET", f"{COORDINATORS}/quill"),
        ]
        collector = received()

    assert [refused(it)[0] for it in answers] == [409, 404, 428, 409, 400, 404]
    failed = [span for span in collector.spans if span.failed and span.is_server]
    assert len(failed) == len(answers)
    assert secrets(collector) == set()


@requirement("OI-94", "OI-79")
def test_an_audit_line_tells_who_lets_whom_take_part_and_is_written_once(path: Path) -> None:
    token = made_key(path, "writer", agents=("lead",), coordinates=True)
    key = token.split("_")[1]
    foreign = made_key(path, "writer", agents=("eve",))
    with (
        serving(path) as service,
        calling(service, token) as http,
        calling(service, foreign) as other,
    ):
        lead, eve, once = Agent(http, "lead"), Agent(other, "eve"), {"Idempotency-Key": "k1"}
        told = {"title": "saffron", "id": "invoices"}
        ok(lead.ask("POST", INTENTS, told), 201)
        named = {"intent_id": "invoices", "agent_id": "bob", "metadata": TEXT}
        acl = f"{INTENTS}/invoices/acl/entries"
        granted = {"principal_id": "ada", "reason": "saffron"}
        for _ in range(2):  # the second is a repetition
            coordinator = ok(lead.ask("POST", COORDINATORS, named, headers=once), 201)
            grant = ok(lead.ask("POST", acl, granted, headers={"Idempotency-Key": "k2"}), 201)
        refusals = [
            eve.ask("POST", COORDINATORS, named),
            eve.ask("POST", acl, granted),
            eve.ask("DELETE", f"{acl}/{grant['id']}"),
            eve.ask("DELETE", f"{COORDINATORS}/{coordinator['id']}"),
        ]
        for _ in range(2):  # it has ended by then
            ok(lead.ask("DELETE", f"{COORDINATORS}/{coordinator['id']}"))
        ok(lead.ask("DELETE", f"{acl}/{grant['id']}"))
        assert refused(lead.ask("DELETE", f"{acl}/{grant['id']}"))[0] == 404

    assert [it.status_code for it in refusals] == [404] * 4
    lines = [line for line in audit(path) if line["action"] != "key.created"]
    by = {"by": {"key": key}, "tenant": "default", "agent": "lead", "intent": "invoices"}
    assert [{name: it for name, it in line.items() if name != "at"} for line in lines] == [
        {"action": "coordinator.made", **by, "coordinator": "bob"},
        {"action": "grant.made", **by, "grantee": "ada"},
        {"action": "coordinator.ended", **by, "coordinator": "bob"},
        {"action": "grant.revoked", **by, "grantee": "ada"},
    ]
    assert not any(word in str(lines) for word in (*SECRETS, token))
