"""What a request to agents' memory leaves in a trace and in the audit, and what it keeps to itself.

Words that a span must not tell: `quill` stands in keys, `tagged` in tags, `saffron` in values.
"""

from pathlib import Path

import pytest

from ..support.callers import audit, calling, made_key
from ..support.openintent_agents import BATCH, MEMORY, NAMESPACES, Agent, ok, refused
from ..support.openintent_spans import PREFIX, SECRETS, of_intents, secrets, served
from ..support.requirements import requirement
from ..support.service import serving
from ..telemetry.test_tracing import traced


@pytest.mark.slow
@requirement("OI-94")
def test_each_operation_says_what_it_was_about_and_no_key_tag_or_value(tmp_path: Path) -> None:
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
    assert {PREFIX + name for name in told} == served(paths) - of_intents(paths)
    for name, attributes in told.items():
        span = collector.one(f"memory.{PREFIX}{name}")
        wanted = {"memory.operation": PREFIX + name, **attributes}
        assert {it: span.attributes.get(it) for it in wanted} == wanted
        assert (span.is_server, span.failed) == (True, False)
    assert secrets(collector) == set()


@requirement("OI-94")
def test_a_search_tells_its_hits_by_id_and_rank_and_not_by_their_words(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        ada = Agent(service.http)
        made = ada.make(key="quill", value={"colour": "saffron", "of": "whales"}, tags=["tagged"])
        (hit,) = ok(ada.ask("GET", f"{MEMORY}/search?q=whales"))["entries"]
        collector = received()

    search = collector.one(f"memory.{PREFIX}search_entries")
    assert search.attributes["memory.search.query"] == "whales"
    (event,) = search.events
    assert event.name == "search.result"
    assert event.attributes == {
        "memory.entry.id": made["id"],
        "memory.injected.rank": hit["rank"],
        "memory.injected.method": "fts5_bm25",
    }
    assert secrets(collector) == set()
    assert "whales" not in repr([span for span in collector.spans if span is not search])


@requirement("OI-94")
def test_a_span_names_the_agent_that_asks_and_not_the_one_that_made_the_entry(
    tmp_path: Path,
) -> None:
    with traced(tmp_path) as (service, received):
        made = Agent(service.http).make(memory_type="semantic")
        ok(Agent(service.http, "bob").get(made))
        collector = received()

    names = ("create_entry", "get_entry")
    spans = [collector.one(f"memory.{PREFIX}{name}") for name in names]
    assert [span.attributes["memory.agent.id"] for span in spans] == ["ada", "bob"]


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
    assert secrets(collector) == set()


@pytest.mark.slow
@requirement("OI-94")
def test_a_refusal_is_a_failed_span_that_quotes_nothing(tmp_path: Path) -> None:
    variables = {"MEMORY_WORKING_CAPACITY": "1"}
    with traced(tmp_path, **variables) as (service, received):
        ada = Agent(service.http)
        fields = {"key": "quill", "value": {"colour": "saffron"}, "tags": ["tagged"]}
        made = ada.make(memory_type="working", **fields)
        foreign = Agent(service.http, "bob")
        again = {"key": "quilled", "memory_type": "working"}
        answers = [
            ada.post(memory_type="working", **fields), ada.post(**{**fields, **again}),
            ada.post(**{**fields, "tags": ["tagged,"], "value": "saffron"}),
            ada.post(**{**fields, "agent_id": "bob"}),
            ada.patch(made, 7, value={"colour": "saffron"}), foreign.get(made),
            foreign.delete(made),
            ada.ask("POST", BATCH, {"entries": [ada.body(**fields), ada.body(**fields)]}),
        ]  # fmt: skip
        collector = received()

    assert [refused(it)[0] for it in answers] == [409, 429, 400, 403, 409, 404, 404, 409]
    failed = {
        (span.name.removeprefix(f"memory.{PREFIX}"), span.attributes["error.type"])
        for span in collector.spans
        if span.failed and span.is_server
    }
    assert failed == {
        ("create_entry", "constraint_violation"), ("create_entry", "invalid_input"),
        ("create_entry", "error"), ("update_entry", "constraint_violation"),
        ("get_entry", "not_found"), ("delete_entry", "not_found"),
        ("write_batch", "constraint_violation"),
    }  # fmt: skip
    assert secrets(collector) == set()


@requirement("OI-94")
def test_an_audit_line_names_the_key_and_the_agent_and_is_written_once(path: Path) -> None:
    token = made_key(path, "admin", agents=("ada", "bob"))
    key = token.split("_")[1]
    with serving(path) as service, calling(service, token) as http:
        ada, bob, once = Agent(http), Agent(http, "bob"), {"Idempotency-Key": "k1"}
        body = {"permissions": {"default": "read", "allow": [{"agent": "bob", "access": "write"}]}}
        for _ in range(2):  # the second is a repetition
            ok(ada.ask("PATCH", f"{NAMESPACES}/team", body, headers=once))
        bob.permit("team", "none")
        stale = ada.ask("PATCH", f"{NAMESPACES}/team", body, headers={"If-Match": "9"})
        made = ada.make(key="quill", value={"colour": "saffron"}, tags=["tagged"])
        ok(ada.patch(made, value={}))
        ok(ada.delete(made))

    assert refused(stale) == (409, "VERSION_MISMATCH")
    lines = [line for line in audit(path) if line["action"] != "key.created"]
    told = {"action": "namespace.permitted", "by": {"key": key}, "tenant": "default",
            "namespace": "team"}  # fmt: skip
    assert [{name: it for name, it in line.items() if name != "at"} for line in lines] == [
        {**told, "agent": "ada", "default": "read", "allow": {"bob": "write"}},
        {**told, "agent": "bob", "default": "none", "allow": {}},
    ]
    assert not any(word in str(lines) for word in (*SECRETS, token))


@pytest.mark.parametrize("role", ["reader", "writer"])
@requirement("OI-94", "OI-54")
def test_what_was_refused_is_no_audit_line(path: Path, role: str) -> None:
    with serving(path) as service, calling(service, made_key(path, role, agents=("ada",))) as http:
        body = {"permissions": {"default": "write"}}
        assert Agent(http).ask("PATCH", f"{NAMESPACES}/team", body).status_code in (403, 404)

    assert [line["action"] for line in audit(path)] == ["key.created"]
