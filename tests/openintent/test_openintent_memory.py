"""Tiers, namespaces, lists, batches and events of agents' memory over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agentops_memory.memory.rows import micros

from ..support.callers import audit
from ..support.engines import rows
from ..support.erasing import remains
from ..support.openintent_agents import (
    BATCH,
    MEMORY,
    NAMESPACES,
    Agent,
    Json,
    Team,
    faults,
    ok,
    racing,
    refused,
    team,
    time_passes,
)
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import PLAIN, Service, serving

__all__ = ["team"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Service]:
    """A service in which an agent may hold little."""
    with serving(
        tmp_path / "memory.db", MEMORY_EPISODIC_CAPACITY="3", MEMORY_WORKING_CAPACITY="2"
    ) as running:
        yield running


@requirement("OI-39", "OI-32")
def test_working_memory_ends_at_its_capacity(small: Service) -> None:
    ada, bob = Agent(small.http), Agent(small.http, "bob")
    for key in ("a", "b"):
        ada.make(key=key, memory_type="working", scope={"task_id": "t1", "intent_id": "i1"})

    answer = ada.post(key="c", memory_type="working")

    assert refused(answer) == (429, "CAPACITY_EXCEEDED")
    figures = {name: answer.json()[name] for name in ("limit", "current_count", "max_capacity")}
    assert figures == {"limit": "working_capacity", "current_count": 2, "max_capacity": 2}
    assert "retry-after" not in answer.headers
    assert ada.found() == ["b", "a"]
    raced = racing(9, lambda number: bob.post(key=str(number), memory_type="working"))
    assert sorted(it.status_code for it in raced) == [201] * 2 + [429] * 7
    assert ada.found(**{"scope.task_id": "t1"}) == ["b", "a"]
    assert ada.found(**{"scope.intent_id": "i2"}) == []
    assert ada.summary()["working"] == {
        "entry_count": 2, "total_size_kb": 1, "tasks_with_memory": ["t1"],
    }  # fmt: skip


@pytest.mark.slow
@requirement("OI-44", "OI-45", "OI-46", "OI-48", "OI-73")
def test_episodic_memory_makes_room_by_priority_and_access(small: Service) -> None:
    ada, bob = Agent(small.http), Agent(small.http, "bob")

    def at_capacity(**priorities: str) -> None:
        ok(ada.ask("DELETE", f"{BATCH}?memory_type=episodic"))
        for key, priority in priorities.items():
            ada.make(key=key, priority=priority)
            small.clock.advance(seconds=1)

    at_capacity(a="high", b="normal", c="low")
    ada.make(key="d")
    assert ada.found() == ["d", "b", "a"]

    at_capacity(a="normal", b="normal", c="normal")
    (first,) = ada.query(key="a")["entries"]  # is access, as a read by id and a change are
    small.clock.advance(seconds=1)
    bob.get(first)
    ada.make(key="d")
    assert ada.found() == ["d", "c", "a"]

    at_capacity(a="normal", b="normal", c="normal")
    entries = {  # by its events, as to list them would be access
        it["payload"]["key"]: {"id": it["payload"]["entry_id"], "version": 1}
        for it in ada.events()[::-1] if it["type"] == "memory.created"
    }  # fmt: skip
    ada.get(entries["a"])
    small.clock.advance(seconds=1)
    ok(ada.patch(entries["b"], value={}))
    small.clock.advance(seconds=1)
    ada.make(key="d")
    assert ada.found() == ["d", "b", "a"]
    assert ada.told()[-2:] == [("evicted", "c"), ("created", "d")]


@pytest.mark.slow
@requirement("OI-46", "OI-45")
def test_an_access_is_written_once_though_changes_beside_it_are_refused_or_run_again(
    small: Service,
) -> None:
    ada, bob = Agent(small.http), Agent(small.http, "bob")
    bob.make(key="taken")
    made = {}
    for key in "abc":
        made[key] = ada.make(key=key)
        small.clock.advance(seconds=1)
    created, accessed = (accesses(small, "a"), small.clock())
    ok(ada.get(made["a"]))  # is noted, and written with the next change
    small.clock.advance(seconds=1)

    def refuse(_: int) -> httpx.Response:
        # It has written the access and its first entry by then, so changes beside it run again.
        items = [bob.body(key="new"), bob.body(key="taken")]
        return bob.ask("POST", BATCH, {"entries": items})

    assert refused(refuse(0))[0] == 409
    assert accesses(small, "a") == created
    raced = racing(6, lambda it: refuse(it) if it else ada.post(key="d"))
    assert [it.status_code for it in raced] == [201, *[409] * 5]
    assert accesses(small, "a") == [(micros(accessed),)]
    assert [key for key in "abcd" if accesses(small, key)] == ["a", "c", "d"]
    small.clock.advance(seconds=1)
    ok(ada.patch(made["a"], value={}))  # sets a later time, which no earlier one replaces
    changed = accesses(small, "a")
    bob.make(key="other")
    assert changed == accesses(small, "a") != [(micros(accessed),)]


def accesses(service: Service, key: str) -> list[tuple[int]]:
    """When an entry of ada's at this key was last read or changed; none if it is gone."""
    return rows(
        service.path,
        """SELECT a.accessed_at
             FROM agent_memories a
             JOIN memories m ON m.id = a.memory_id
            WHERE m.key = :key AND a.agent = 'ada'""",
        key=key,
    )


@requirement("OI-47", "OI-45")
def test_pinned_entries_stay_and_count(small: Service) -> None:
    ada = Agent(small.http)
    for key in "abc":
        ada.make(key=key, pinned=True)
    before = ada.events()

    answer = ada.post(key="d")

    assert refused(answer) == (429, "CAPACITY_EXCEEDED")
    assert answer.json()["limit"] == "episodic_capacity"
    assert (ada.events(), ada.found()) == (before, ["c", "b", "a"])
    assert ada.summary()["episodic"]["pinned_count"] == 3


@requirement("OI-49")
def test_what_has_expired_goes_first_and_does_not_count(small: Service) -> None:
    ada = Agent(small.http)
    for key in "abc":
        ada.make(key=key, ttl="duration:PT10S" if key == "c" else None)
    small.clock.advance(seconds=10)

    ada.make(key="d")
    assert ada.found() == ["d", "b", "a"]
    ada.make(key="e")

    assert ada.told()[3:] == [
        ("created", "d"), ("expired", "c"), ("evicted", "a"), ("created", "e"),
    ]  # fmt: skip


@requirement("OI-64", "OI-48")
def test_a_batch_evicts_none_of_its_own(small: Service) -> None:
    ada = Agent(small.http)
    ada.make(key="old", priority="high")
    items = {"entries": [ada.body(key=key, priority="low") for key in "abc"]}

    ok(ada.ask("POST", BATCH, items))
    assert ada.found() == ["c", "b", "a"]

    items = {"entries": [ada.body(key=key) for key in "wxyz"]}
    assert refused(ada.ask("POST", BATCH, items)) == (429, "CAPACITY_EXCEEDED")
    assert ada.found() == ["c", "b", "a"]


@requirement("OI-64")
def test_a_batch_is_done_whole_or_not_at_all(service: Service) -> None:
    ada = Agent(service.http)
    entry = ada.make()
    many = [ada.body(key="b"), ada.body(value={"colour": "red"}, version=1), ada.body(key="c")]

    done = ok(ada.ask("POST", BATCH, {"entries": many}))["entries"]

    assert [(it["key"], it["version"]) for it in done] == [("b", 1), ("apple", 2), ("c", 1)]
    assert done[1]["id"] == entry["id"]
    again = [ada.body(key="d"), ada.body(value={}, version=1)]
    answer = ada.ask("POST", BATCH, {"entries": again})
    assert refused(answer) == (409, "VERSION_MISMATCH")
    assert answer.json()["message"].startswith("entries[1]: ")
    assert answer.json()["current_version"] == 2
    wrong = {"entries": [ada.body(key="e"), ada.body(value=7, tags=["a", ""])]}
    assert faults(ada.ask("POST", BATCH, wrong)) == ["entries[1].value", "entries[1].tags[1]"]
    bodies: list[Json] = [
        {}, {"entries": []}, {"entries": [ada.body(key=str(n)) for n in range(101)]},
    ]  # fmt: skip
    for body in bodies:
        assert faults(ada.ask("POST", BATCH, body)) == ["entries"]
    assert refused(ada.ask("POST", BATCH, {"entries": [ada.body(key="z", version=1)]})) == (
        404, "ENTRY_NOT_FOUND",
    )  # fmt: skip
    assert ada.query()["total"] == 3


@requirement("OI-65")
def test_a_deletion_of_many_wants_a_filter_and_tells_whether_there_are_more(
    service: Service,
) -> None:
    ada, bob = Agent(service.http), Agent(service.http, "bob")
    for number in range(5):
        ada.make(key=str(number), tags=["even"] if number % 2 == 0 else [])
    bob.make(key="0", tags=["even"])

    assert refused(ada.ask("DELETE", BATCH)) == (400, "INVALID_REQUEST")
    assert ok(ada.ask("DELETE", f"{BATCH}?tags=even&limit=2")) == {"deleted": 2, "has_more": True}
    assert ok(ada.ask("DELETE", f"{BATCH}?tags=even")) == {"deleted": 1, "has_more": False}
    assert ada.found() == ["3", "1"]
    assert bob.found() == ["0"]


@requirement("OI-51", "OI-52", "OI-53", "OI-54", "OI-60", "OI-66", "OI-11")
def test_permissions_decide_what_a_namespace_is_to_an_agent(team: Team) -> None:
    root, ada, bob, cyn = team.root, team.ada, team.bob, team.agent("cyn")

    assert refused(ada.post(memory_type="semantic")) == (403, "ACCESS_DENIED")
    entry = root.make(memory_type="semantic")
    assert ada.get(entry).json() == entry  # of which nothing was said
    assert refused(ada.patch(entry)) == (403, "ACCESS_DENIED")
    assert refused(ada.delete(entry)) == (403, "ACCESS_DENIED")

    root.permit("notes", "none", ada="write", bob="read")
    hidden = root.make(memory_type="semantic", key="pear")

    assert ok(ada.patch(entry))["version"] == 2
    assert refused(ada.post(memory_type="semantic")) == (409, "VERSION_MISMATCH")
    assert bob.found() == ["pear", "apple"]
    assert refused(bob.post(memory_type="semantic")) == (403, "ACCESS_DENIED")
    assert ok(bob.ask("DELETE", f"{BATCH}?namespace=notes")) == {"deleted": 0, "has_more": False}
    assert bob.query()["total"] == 2
    assert cyn.query() == {"entries": [], "total": 0, "limit": 100, "offset": 0}
    for answer in (cyn.get(hidden), cyn.patch(hidden), cyn.delete(hidden)):
        assert refused(answer) == (404, "ENTRY_NOT_FOUND")
    assert refused(cyn.post(memory_type="semantic")) == (403, "ACCESS_DENIED")
    listed = {who.id: ok(who.ask("GET", NAMESPACES)) for who in (root, ada, bob, cyn)}
    assert {who: [(it["namespace"], it["access"]) for it in told["namespaces"]]
            for who, told in listed.items()} == {
        "root": [("notes", "admin")], "ada": [("notes", "write")], "bob": [("notes", "read")],
        "cyn": [],
    }  # fmt: skip
    assert [told["total"] for told in listed.values()] == [1, 1, 1, 0]
    path, body = f"{NAMESPACES}/notes", {"permissions": {"default": "read"}}
    assert refused(ada.ask("PATCH", path, body)) == (403, "ACCESS_DENIED")
    for answer in (cyn.ask("PATCH", path, body), cyn.ask("GET", path)):
        assert answer.content == cyn.ask("GET", f"{NAMESPACES}/unknown").content
        assert refused(answer) == (404, "NOT_FOUND")
    assert refused(cyn.ask("PATCH", f"{NAMESPACES}/unknown", body)) == (404, "NOT_FOUND")


@pytest.mark.slow
@requirement("OI-54", "OI-51")
def test_who_administers_a_namespace_changes_its_permissions(team: Team) -> None:
    root, ada = team.root, team.ada
    made = root.permit("team", "none", ada="admin")
    assert (made["version"], made["access"], made["entry_count"]) == (1, "admin", 0)
    path = f"{NAMESPACES}/team"

    body = {"permissions": {"allow": [{"agent": "ada", "access": "admin"},
                                      {"agent": "bob", "access": "none"}]}}  # fmt: skip
    answer = ada.ask("PATCH", path, body, headers={"If-Match": '"1"'})

    assert ok(answer)["permissions"] == {"default": "none", **body["permissions"]}
    assert answer.headers["etag"] == '"2"'
    stale = ada.ask("PATCH", path, body, headers={"If-Match": '"1"'})
    assert refused(stale) == (409, "VERSION_MISMATCH")
    assert stale.json()["current_version"] == 2
    twice = {"permissions": {"allow": [{"agent": "bob", "access": "read"}] * 2}}
    assert faults(ada.ask("PATCH", path, twice)) == ["permissions.allow"]
    odd = {"permissions": {"default": "all", "allow": [{"agent": "b/b", "access": "read"}]}}
    assert faults(ada.ask("PATCH", path, odd)) == ["permissions.default",
                                                   "permissions.allow[0].agent"]  # fmt: skip
    gone = ok(ada.ask("PATCH", path, {"permissions": {"allow": []}}))
    assert gone["access"] == "none"
    assert refused(ada.ask("GET", path)) == (404, "NOT_FOUND")
    lines = [it for it in audit(team.service.path) if it["action"] == "namespace.permitted"]
    assert [(it["agent"], it["namespace"], it["allow"]) for it in lines] == [
        ("root", "team", {"ada": "admin"}), ("ada", "team", {"ada": "admin", "bob": "none"}),
        ("ada", "team", {}),
    ]  # fmt: skip


@requirement("OI-4", "OI-5", "OI-6", "OI-7", "OI-8", "OI-3")
def test_the_key_decides_who_asks(team: Team) -> None:
    coder, several = team.agent("coder"), team.agent("team-1", speaks=("team-*", "lead"))
    none, reader = team.agent("ada", speaks=()), team.agent("ada", "reader")
    narrow = team.agent("ada", projects=("billing",))
    entry = coder.make()

    assert ok(Agent(coder.http, "").ask("GET", MEMORY))["total"] == 1
    assert refused(Agent(several.http, "").ask("GET", MEMORY)) == (400, "INVALID_REQUEST")
    assert refused(Agent(coder.http, "other").ask("GET", MEMORY)) == (403, "ACCESS_DENIED")
    assert refused(Agent(several.http, "lead-2").ask("GET", MEMORY)) == (403, "ACCESS_DENIED")
    assert refused(Agent(several.http, "a b").ask("GET", MEMORY)) == (400, "INVALID_REQUEST")
    assert ok(Agent(several.http, "lead").ask("GET", MEMORY))["total"] == 0
    named = none.ask("GET", MEMORY)
    assert refused(named) == (403, "ACCESS_DENIED")
    assert "--agent" in named.json()["message"]
    assert none.http.get("/stats").status_code == 200
    assert ok(reader.ask("GET", MEMORY))["total"] == 0
    assert refused(reader.post()) == (403, "ACCESS_DENIED")
    assert narrow.make()["agent_id"] == "ada"
    admin = team.agent("ada", "admin")
    assert refused(admin.get(entry)) == (404, "ENTRY_NOT_FOUND")
    assert admin.found() == ["apple"]
    with httpx.Client(base_url=coder.http.base_url, verify=PLAIN) as nobody:
        token = coder.http.headers["authorization"].removeprefix("Bearer ")
        assert nobody.get(MEMORY, headers={"X-API-Key": token}).status_code == 200
        told = nobody.get("/.well-known/openintent.json")
        wrong = [nobody.get(MEMORY, headers={"X-API-Key": key}) for key in ("", "amk_wrong")]
    assert [refused(answer) for answer in wrong] == [(401, "UNAUTHENTICATED")] * 2
    assert ok(told)["capabilities"] == [
        "agent-memory", "agent-memory-search", "tasks", "events", "coordinators",
        "access-control", "optimistic-concurrency",
    ]  # fmt: skip


@requirement("OI-29", "OI-43", "OI-61")
def test_an_agents_own_memory_is_nobody_elses(service: Service) -> None:
    ada, bob = Agent(service.http), Agent(service.http, "bob")
    entries = [ada.make(memory_type=tier) for tier in ("working", "episodic")]

    for entry in entries:
        for answer in (bob.get(entry), bob.patch(entry), bob.delete(entry)):
            assert refused(answer) == (404, "ENTRY_NOT_FOUND")
    assert bob.query(agent_id="ada")["total"] == 0
    assert ok(bob.ask("GET", "/api/v1/agents/ada/memory")) == []
    assert refused(bob.post(agent_id="ada", key="c")) == (403, "ACCESS_DENIED")
    shared = ada.make(memory_type="semantic")
    assert bob.query(agent_id="ada")["entries"] == [shared]
    assert [it["id"] for it in ada.query()["entries"]] == [
        shared["id"], *[it["id"] for it in reversed(entries)],
    ]  # fmt: skip


@requirement("OI-57", "OI-58", "OI-62", "OI-60")
def test_filters_hold_alone_and_together(service: Service) -> None:
    ada = Agent(service.http)
    ada.make(key="a", namespace="n_tes", tags=["x", "y"], pinned=True)
    service.clock.advance(seconds=1)
    ada.make(key="b", namespace="notes", tags=["x"], memory_type="working")
    service.clock.advance(seconds=1)
    ada.make(key="%", namespace="Notes%", tags=["z"])

    found = {
        "namespace=notes": ["b"], "namespace=n_tes": ["a"], "namespace=n_*": ["a"],
        "namespace=n*": ["b", "a"], "namespace=N*": ["%"], "namespace=*": ["%", "b", "a"],
        "namespace=Notes%25": ["%"], "namespace=%25": [], "key=%25": ["%"], "key=_": [],
        "memory_type=working": ["b"], "pinned=true": ["a"], "pinned=false": ["%", "b"],
        "tags=x": ["b", "a"], "tags=x,y": ["a"], "tags_any=y,z": ["%", "a"],
        "tags=x&tags_any=y,z": ["a"], "tags=": ["%", "b", "a"], "agent_id=bob": [],
        "updated_after=2030-01-01T12:00:00Z": ["%", "b"],
        "updated_before=2030-01-01T12:00:01Z": ["a"],
        "updated_after=2030-01-01T13:00:00%2B01:00&namespace=n*": ["b"],
        "limit=1": ["%"], "limit=1&offset=1": ["b"], "offset=3": [], "limit=1001": ["%", "b", "a"],
        "key=a&key=b": ["a"], "unknown=1": ["%", "b", "a"],
    }  # fmt: skip
    for query, keys in found.items():
        page = ok(ada.ask("GET", f"{MEMORY}?{query}"))
        assert [it["key"] for it in page["entries"]] == keys, query
        listed = ada.ask("GET", f"/api/v1/agents/ada/memory?{query.replace('agent_id', 'x')}")
        if "agent_id" not in query:
            assert ok(listed) == page["entries"]
            assert listed.headers["x-total-count"] == str(page["total"])
    assert ok(ada.ask("GET", f"{MEMORY}?limit=2&offset=1"))["total"] == 3
    for query, field in {
        "memory_type=x": "memory_type", "pinned=1": "pinned", "limit=0": "limit",
        "limit=x": "limit", "offset=-1": "offset", "updated_after=x": "updated_after",
    }.items():  # fmt: skip
        assert faults(ada.ask("GET", f"{MEMORY}?{query}")) == [field]


@requirement("OI-59", "OI-62")
def test_a_change_moves_no_entry_to_another_page(service: Service) -> None:
    ada = Agent(service.http)
    made = [ada.make(key=str(number)) for number in range(6)]

    seen = []
    for offset in (0, 2, 4):
        seen += ada.found(limit=2, offset=offset)
        ok(ada.patch(made[offset], value={}))

    assert seen == ["5", "4", "3", "2", "1", "0"]


@requirement("OI-67")
def test_the_summary_is_the_agents_own(service: Service) -> None:
    ada, bob = Agent(service.http), Agent(service.http, "bob")
    ada.make(value={"text": "x" * 2_000})
    service.clock.advance(seconds=1)
    ada.make(key="b")
    bob.make(memory_type="semantic", namespace="team")

    assert ada.summary() == {
        "agent_id": "ada",
        "working": {"entry_count": 0, "total_size_kb": 0, "tasks_with_memory": []},
        "episodic": {
            "entry_count": 2, "capacity": 1000, "pinned_count": 0, "total_size_kb": 2,
            "oldest_entry": "2030-01-01T12:00:00.000000+00:00",
            "newest_entry": "2030-01-01T12:00:01.000000+00:00", "eviction_policy": "lru",
        },
        "semantic_namespaces_accessible": ["team"],
    }  # fmt: skip
    assert refused(bob.ask("GET", "/api/v1/agents/ada/memory/summary")) == (403, "ACCESS_DENIED")


@pytest.mark.slow
@requirement("OI-73", "OI-74", "OI-75", "OI-76")
def test_each_change_is_one_event_of_the_agents_stream(service: Service) -> None:
    ada, bob = Agent(service.http), Agent(service.http, "bob")
    entry = ada.make(tags=["fruit"], value={"secret": "of the value"})
    ok(bob.post(), 201)
    service.clock.advance(seconds=1)
    ok(ada.patch(entry))
    assert refused(ada.patch(entry)) == (409, "VERSION_MISMATCH")
    ok(ada.delete(entry))

    newest = ada.events()
    assert [it["type"] for it in newest] == ["memory.deleted", "memory.updated", "memory.created"]
    assert [it["sequence"] for it in newest] == [4, 3, 1]
    payload = {
        "entry_id": entry["id"], "namespace": "notes", "key": "apple", "memory_type": "episodic",
        "version": 2, "tags": ["fruit"], "previous_version": 1,
    }  # fmt: skip
    at = "2030-01-01T12:00:01.000000+00:00"
    assert newest[1] == {
        "id": newest[1]["id"], "sequence": 3, "intent_id": None, "task_id": None,
        "agent_id": "ada", "actor": "ada", "event_type": "memory.updated", "type": "memory.updated",
        "payload": payload, "data": payload, "created_at": at, "timestamp": at,
    }  # fmt: skip
    assert newest[1]["id"].startswith("evt_")
    assert "of the value" not in json.dumps(newest)
    assert ada.events(after=0, limit=2) == newest[:0:-1]
    assert ada.events(after=3) == newest[:1]
    assert ada.events(event_type="memory.created") == newest[2:]
    assert ada.events(since="2030-01-01T12:00:00Z", limit=1) == newest[:1]
    assert ada.events(since=at) == []
    foreign = bob.ask("GET", "/api/v1/agents/ada/events")
    assert refused(foreign) == (403, "ACCESS_DENIED")
    for query in ("since=x", "after=-1", "limit=0"):
        assert faults(ada.ask("GET", f"/api/v1/agents/ada/events?{query}")) == [
            query[:5].strip("=")
        ]


@requirement("OI-82", "OI-83", "OI-84", "OI-89", "OI-73")
def test_what_is_gone_leaves_the_files_and_events_go_in_time(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    word = "xylographer"
    with serving(path, MEMORY_EPISODIC_CAPACITY="1", MEMORY_SWEEP_EVERY="50ms") as service:
        ada = Agent(service.http)
        deleted = ada.make(memory_type="working", value={"text": "xylographer"})
        ok(ada.delete(deleted))
        until(lambda: not remains(tmp_path, word))

        ada.make(key="evicted", value={"text": "xylographer"})
        ada.make(key="b", ttl="duration:PT10S", value={"text": "xylographer"})
        service.clock.advance(seconds=10)
        assert ada.found() == []
        time_passes(service)
        until(lambda: ("expired", "b") in ada.told())
        until(lambda: not remains(tmp_path, word))
        assert [kind for kind, _ in ada.told()] == [
            "created", "deleted", "created", "evicted", "created", "expired",
        ]  # fmt: skip

        service.clock.advance(days=31)
        time_passes(service)
        until(lambda: ada.told() == [])
