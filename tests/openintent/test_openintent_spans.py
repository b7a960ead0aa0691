"""What a request to agents' memory leaves in a trace and in the audit, and what it keeps to itself.

`quill` stands in keys, `tagged` in tags, `saffron` in values, titles and payloads.
"""

from pathlib import Path

import pytest

from ..support.callers import audit, calling, made_key
from ..support.openintent_agents import (
    BATCH,
    COORDINATORS,
    INTENTS,
    MEMORY,
    NAMESPACES,
    TASKS,
    Agent,
    ok,
    refused,
    working,
)
from ..support.otlp import Collector
from ..support.requirements import requirement
from ..support.service import serving
from ..telemetry.test_tracing import traced

PREFIX = "openintent_"
SECRETS = ("quill", "tagged", "saffron")
OF_INTENTS = ("/api/v1/intents", "/api/v1/tasks", "/api/v1/coordinators")
TEXT = {"colour": "saffron"}


def served(paths: dict[str, dict[str, dict[str, str]]], *, of_intents: bool) -> set[str]:
    """The operations that the service describes, of intents or of memory itself."""
    return {
        operation["operationId"]
        for path, methods in paths.items()
        for operation in methods.values()
        if operation["operationId"].startswith(PREFIX) and path.startswith(OF_INTENTS) is of_intents
    }


def assert_silent(collector: Collector) -> None:
    """No span tells a word of keys, tags and values, in any attribute or event."""
    assert [word for word in SECRETS if word in repr(collector.spans)] == []


@pytest.mark.slow
@requirement("OI-94")
def test_each_operation_says_who_asked_what_it_was_about_and_no_key_tag_or_value(
    tmp_path: Path,
) -> None:
    with traced(tmp_path) as (service, received):
        ada, agents = Agent(service.http), "/api/v1/agents/ada"
        made = ada.make(key="quill", value={"colour": "saffron"}, tags=["tagged"])
        ok(ada.patch(made, value={"colour": "saffron", "n": 1}))
        ok(ada.get(made))
        ada.permit("team", "none", ada="write")
        shared = ada.body(key="quill", namespace="team", memory_type="semantic")
        ok(ada.ask("POST", BATCH, {"entries": [shared, ada.body(key="quills")]}))
        ada.query(key="quill", tags="tagged")
        for path in (f"{agents}/memory?tags_any=tagged", f"{agents}/memory/summary",
                     f"{agents}/events", NAMESPACES, f"{NAMESPACES}/team",
                     f"{MEMORY}/search?q=green"):  # fmt: skip
            ok(ada.ask("GET", path))
        ok(ada.delete(made))
        ok(ada.ask("DELETE", BATCH, params={"key": "quills"}))
        ok(ada.ask("GET", "/.well-known/openintent.json"))
        kept = ok(ada.ask("PUT", f"{agents}/memory/notes/quilt", {"value": "saffron"}), 201)
        ok(ada.ask("GET", f"{agents}/memory/notes/quilt"))
        ok(ada.ask("GET", f"{agents}/memory/notes"))
        work_on_an_intent(ada)
        paths = ok(service.http.get("/openapi.json"))["paths"]
        collector = received()

    by: dict[str, object] = {"memory.agent.id": "ada"}
    about = by | {"memory.entry.id": made["id"]}
    place = about | {"memory.tier": "episodic", "memory.namespace": "notes"}
    keyed = place | {"memory.entry.id": kept["id"], "memory.entry.version": 1}
    told: dict[str, dict[str, object]] = {
        "put_entry": keyed, "get_keyed_entry": keyed,
        "list_namespace_entries": by | {"memory.result_count": 1}, "discover": {},
        "create_entry": place | {"memory.entry.version": 1, "memory.entry.size": 20},
        "get_entry": place | {"memory.entry.version": 2, "memory.entry.size": 26},
        "query_entries": by | {"memory.result_count": 1},
        "list_entries": by | {"memory.result_count": 1},
        "update_entry": place | {"memory.entry.version": 2, "memory.entry.size": 26},
        "delete_entry": about, "write_batch": by | {"memory.result_count": 2},
        "delete_batch": by | {"memory.result_count": 1},
        "search_entries": by | {"memory.search.result_count": 2},
        "list_namespaces": by | {"memory.result_count": 1},
        "get_namespace": by | {"memory.namespace": "team"},
        "update_namespace": by | {"memory.namespace": "team"}, "get_summary": by,
        "list_agent_events": by | {"memory.result_count": 4},
    }  # fmt: skip
    results = {"list_tasks": 1, "list_events": 5, "list_coordinators": 1, "get_access_list": 1}
    of_intents = {it.removeprefix(PREFIX) for it in served(paths, of_intents=True)}
    assert {PREFIX + name for name in told} == served(paths, of_intents=False)
    assert results.keys() < of_intents
    for name in of_intents:
        archived = 2 if name == "update_task" else None
        counts = {"memory.result_count": results.get(name), "memory.archived_count": archived}
        told[name] = by | counts
    for name, attributes in told.items():
        span = collector.all(f"memory.{PREFIX}{name}")[0]
        wanted = {"memory.operation": PREFIX + name, **attributes}
        assert {it: span.attributes.get(it) for it in wanted} == wanted
        assert (span.is_server, span.failed) == (True, False)
    assert [it.attributes for it in collector.all("store.archive")] == [by]
    assert_silent(collector)


def work_on_an_intent(ada: Agent) -> None:
    """Every operation of intents, with words in all that is said."""
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
                 f"{TASKS}/{task['id']}", f"{COORDINATORS}/{coordinator['id']}"):  # fmt: skip
        ok(ada.ask("GET", path))
    ended = {"status": "completed", "output": TEXT}
    ok(ada.ask("PATCH", f"{TASKS}/{task['id']}", ended, headers={"If-Match": "1"}))
    ok(ada.ask("DELETE", f"{COORDINATORS}/{coordinator['id']}"))
    ok(ada.ask("DELETE", f"{acl}/{grant['id']}"))


@requirement("OI-94")
def test_a_search_tells_its_hits_by_id_and_rank_and_not_by_their_words(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        ada = Agent(service.http)
        made = ada.make(key="quill", value={"colour": "saffron", "of": "whales"}, tags=["tagged"])
        (hit,) = ok(ada.ask("GET", f"{MEMORY}/search?q=whales"))["entries"]
        shared = ada.make(memory_type="semantic")
        ok(Agent(service.http, "bob").get(shared))
        collector = received()

    reads = [it.attributes["memory.agent.id"] for it in collector.all(f"memory.{PREFIX}get_entry")]
    assert reads == ["bob"]  # who asks, and not who made it

    search = collector.one(f"memory.{PREFIX}search_entries")
    assert search.attributes["memory.search.query"] == "whales"
    (event,) = search.events
    assert event.name == "search.result"
    assert event.attributes == {
        "memory.entry.id": made["id"],
        "memory.injected.rank": hit["rank"],
        "memory.injected.method": "fts5_bm25",
    }
    assert_silent(collector)
    assert "whales" not in repr([span for span in collector.spans if span is not search])


@requirement("OI-94")
def test_an_eviction_is_a_step_and_is_counted_where_it_was_made(tmp_path: Path) -> None:
    variables = {"MEMORY_EPISODIC_CAPACITY": "2"}
    with traced(tmp_path, **variables) as (service, received):
        ada = Agent(service.http)
        for key in ("quill", "quilled", "quilling"):
            ada.make(key=key)
        batch = {"entries": [ada.body(key="quillwort"), ada.body(key="quillaja")]}
        ok(ada.ask("POST", BATCH, batch))
        collector = received()

    counts = [
        span.attributes.get("memory.evicted_count")
        for name in ("create_entry", "write_batch")
        for span in collector.all(f"memory.{PREFIX}{name}")
    ]
    assert counts == [0, 0, 1, 2]
    assert [it.attributes for it in collector.all("store.evict")] == [
        {"memory.evicted_count": 1}, {"memory.evicted_count": 1}, {"memory.evicted_count": 1},
    ]  # fmt: skip
    assert_silent(collector)


@pytest.mark.slow
@requirement("OI-94")
def test_a_refusal_is_a_failed_span_that_quotes_nothing(tmp_path: Path) -> None:
    variables = {"MEMORY_WORKING_CAPACITY": "1"}
    with traced(tmp_path, **variables) as (service, received):
        ada, bob = Agent(service.http), Agent(service.http, "bob")
        fields = {"key": "quill", "value": TEXT, "tags": ["tagged"]}
        made = ada.make(memory_type="working", **fields)
        again = {"key": "quilled", "memory_type": "working"}
        of_entries = [
            ada.post(memory_type="working", **fields), ada.post(**{**fields, **again}),
            ada.post(**{**fields, "tags": ["tagged,"], "value": "saffron"}),
            ada.post(**{**fields, "agent_id": "bob"}), ada.patch(made, 7, value=TEXT),
            bob.get(made), bob.delete(made),
            ada.ask("POST", BATCH, {"entries": [ada.body(**fields), ada.body(**fields)]}),
        ]  # fmt: skip
        body, change = {"title": "saffron", "id": "quill"}, {"error": "saffron"}
        ok(ada.ask("POST", INTENTS, body), 201)
        task = ok(ada.ask("POST", TASKS, {"intent_id": "quill", "name": "saffron"}), 201)
        path = f"{TASKS}/{task['id']}"
        of_intents = [
            ada.ask("POST", INTENTS, body),
            ada.ask("POST", TASKS, {"intent_id": "quills", "name": "saffron"}),
            ada.ask("PATCH", path, change),
            bob.ask("PATCH", path, change, headers={"If-Match": "7"}),
            ada.ask("POST", f"{INTENTS}/quill/events", {"event_type": "saffron"}),
            ada.ask("GET", f"{COORDINATORS}/quill"),
        ]
        collector = received()

    assert [refused(it)[0] for it in of_entries] == [409, 429, 400, 403, 409, 404, 404, 409]
    assert [refused(it)[0] for it in of_intents] == [409, 404, 428, 409, 400, 404]
    failed = [
        (span.name.removeprefix(f"memory.{PREFIX}"), span.attributes["error.type"])
        for span in collector.spans
        if span.failed and span.is_server
    ]
    assert len(failed) == len(of_entries) + len(of_intents)
    assert {*failed} >= {
        ("create_entry", "constraint_violation"), ("create_entry", "invalid_input"),
        ("create_entry", "error"), ("update_entry", "constraint_violation"),
        ("get_entry", "not_found"), ("delete_entry", "not_found"),
        ("write_batch", "constraint_violation"),
    }  # fmt: skip
    assert_silent(collector)


@requirement("OI-94", "OI-79", "OI-54")
def test_an_audit_line_names_the_key_and_who_was_let_in_and_is_written_once(path: Path) -> None:
    token = made_key(path, "admin", agents=("lead", "bob"), coordinates=True)
    foreign = made_key(path, "writer", agents=("eve",))
    with (
        serving(path) as service, calling(service, token) as http,
        calling(service, foreign) as other,
    ):  # fmt: skip
        lead, eve = Agent(http, "lead"), Agent(other, "eve")
        ok(lead.ask("POST", INTENTS, {"title": "saffron", "id": "invoices"}), 201)
        acl = f"{INTENTS}/invoices/acl/entries"
        team, allowed = f"{NAMESPACES}/team", [{"agent": "bob", "access": "write"}]
        let = {"permissions": {"default": "read", "allow": allowed}}
        named = {"intent_id": "invoices", "agent_id": "bob", "metadata": TEXT}
        granted = {"principal_id": "ada", "reason": "saffron"}
        for _ in range(2):  # the second is a repetition
            for key, (method, path_, body) in enumerate([
                ("PATCH", team, let), ("POST", COORDINATORS, named), ("POST", acl, granted),
            ]):  # fmt: skip
                once = {"Idempotency-Key": str(key)}
                answer = lead.ask(method, path_, body, headers=once)
                assert answer.is_success, answer.text
        (one,) = ok(lead.ask("GET", f"{INTENTS}/invoices/coordinators"))
        coordinator = f"{COORDINATORS}/{one['id']}"
        grant = f"{acl}/{answer.json()['id']}"
        refusals = [
            lead.ask("PATCH", team, let, headers={"If-Match": "9"}), eve.ask("PATCH", team, let),
            eve.ask("POST", COORDINATORS, named), eve.ask("POST", acl, granted),
            eve.ask("DELETE", grant), eve.ask("DELETE", coordinator),
        ]  # fmt: skip
        Agent(http, "bob").permit("team", "none")
        made = lead.make(key="quill", value=TEXT, tags=["tagged"])
        ok(lead.patch(made, value={}))
        ok(lead.delete(made))
        for _ in range(2):  # it has ended by then
            ok(lead.ask("DELETE", coordinator))
        ok(lead.ask("DELETE", grant))
        assert refused(lead.ask("DELETE", grant))[0] == 404

    assert [it.status_code for it in refusals] == [409, 403, 404, 404, 404, 404]
    lines = [line for line in audit(path) if line["action"] != "key.created"]
    by = {"by": {"key": token.split("_")[1]}, "tenant": "default", "agent": "lead"}
    about, space = {**by, "intent": "invoices"}, {**by, "namespace": "team"}
    permitted = {"action": "namespace.permitted"}
    assert [{name: it for name, it in line.items() if name != "at"} for line in lines] == [
        {**permitted, **space, "default": "read", "allow": {"bob": "write"}},
        {"action": "coordinator.made", **about, "coordinator": "bob"},
        {"action": "grant.made", **about, "grantee": "ada"},
        {**permitted, **space, "agent": "bob", "default": "none", "allow": {}},
        {"action": "coordinator.ended", **about, "coordinator": "bob"},
        {"action": "grant.revoked", **about, "grantee": "ada"},
    ]
    assert not any(word in str(lines) for word in (*SECRETS, token))
