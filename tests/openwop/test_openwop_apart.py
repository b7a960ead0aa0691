"""Tenants beside each other, and this protocol beside the others: nobody sees what is another's."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ..support.database import assert_index_is_whole
from ..support.openintent_agents import Agent
from ..support.openwop_hosts import REF, H, Host, faults, ok, refused
from ..support.openwop_tenants import NEVER, anew, counted, keyed, named, of_one, page, provenance
from ..support.requirements import requirement
from ..support.service import Service, observation, serving
from ..support.stores import STORES
from ..support.stores import at as at_store
from ..support.stores import entry as store_entry
from ..support.stores import ids as store_ids
from ..support.stores import store as new_store

WORD = "xylographer"
MISSING = (404, "not_found")
STEADY = {"date", "x-request-id"}  # what differs from answer to answer


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Service, Host, Host]]:
    """A service with a host of each of two tenants."""
    with ExitStack() as stack:
        service = stack.enter_context(serving(tmp_path / "memory.db"))
        ours = stack.enter_context(keyed(service, "writer"))
        yield service, ours, stack.enter_context(keyed(service, "writer", "acme"))


def raw(answer: httpx.Response) -> tuple[int, bytes, list[tuple[str, str]]]:
    """All of an answer that a caller could compare."""
    headers = [(name, it) for name, it in answer.headers.items() if name not in STEADY]
    return answer.status_code, answer.content, headers


@pytest.mark.slow
@requirement("OW-32")
def test_two_tenants_with_the_same_ref_and_id_see_their_own_alone(
    hosts: tuple[Service, Host, Host],
) -> None:
    service, ours, theirs = hosts
    made = {
        host: host.put(f"an apple of {name}", id="plan", tags=[name, "both"])
        for host, name in ((ours, "ours"), (theirs, "theirs"))
    }
    more = theirs.put("an apple of theirs", id="more")

    assert page(ours) == {"memoryRef": REF, "entries": [made[ours]]}
    assert page(theirs) == {"memoryRef": REF, "entries": [more, made[theirs]]}
    assert ours.entries(tag="both", tokenBudget=100) == [made[ours]]
    assert ours.entries(tag="theirs") == []
    assert ours.search("apple theirs") == [made[ours]]
    assert ok(ours.get("plan"))["entry"] == made[ours]
    assert ok(provenance(ours, "plan"))["lastSeenAt"] == made[ours]["createdAt"]
    assert counted(ours) == {REF: (1, len("an apple of ours"))}
    assert counted(theirs) == {REF: (2, 2 * len("an apple of theirs"))}
    assert faults(ours.ask("GET", "/memory", params={"memoryRef": REF, "before": "more"})) == [
        "before"
    ]
    assert refused(ours.post(supersedes=["more"])) == (409, "memory_changed")

    ok(ours.delete("plan"))

    assert refused(ours.get("plan")) == MISSING
    assert page(theirs)["entries"] == [more, made[theirs]]
    assert ok(theirs.get("plan"))["entry"] == made[theirs]
    for path in (service.path, service.path.parent / "memory.db.tenants" / "acme.db"):
        assert_index_is_whole(path)


@pytest.mark.heavy
@requirement("OW-33", "OW-22")
def test_whatever_is_not_there_is_answered_byte_for_byte_alike(
    hosts: tuple[Service, Host, Host],
) -> None:
    service, ours, theirs = hosts
    theirs.put(f"a {WORD}", id="of acme")
    anew(ours).put(f"a {WORD}", id="of another ref")
    ours.put(f"a {WORD}", id="deleted")
    ok(ours.delete("deleted"))
    ours.put(f"a {WORD}", id="expired", ttlSeconds=1)
    service.clock.advance(seconds=1)
    foreign = theirs.put(f"a {WORD}")["id"]
    kept = ours.put("an apple")

    told = [
        [raw(answer) for answer in of_one(ours, memory)]
        for memory in (NEVER, "nothing", "x" * 300, "of acme", foreign, "of another ref", "deleted",
                       "expired", f"archive_{'0' * 32}", "a/../b", "'", "a\nb")
    ]  # fmt: skip

    assert all(it == told[0] for it in told)
    assert {status for status, _, _ in told[0]} == {404}
    before = [
        raw(ours.ask("GET", "/memory", params={"memoryRef": REF, "before": memory}))
        for memory in (NEVER, "of acme", foreign, "of another ref")
    ]
    assert {status for status, _, _ in before} == {400}
    assert all(it == before[0] for it in before)
    assert page(ours)["entries"] == [kept]


@pytest.mark.heavy
@requirement("OW-33", "OW-30", "OW-31")
def test_an_empty_list_is_the_same_for_every_ref_that_holds_nothing(
    hosts: tuple[Service, Host, Host],
) -> None:
    _, ours, theirs = hosts
    theirs.put(ttlSeconds=90)
    replace(theirs, ref="tenants/acme/x").put("apples")
    emptied = anew(ours)
    ok(emptied.delete(emptied.put("apples")["id"]))
    refs = [
        REF, "unknown", emptied.ref, "..", "a/../b", "a\x01b", "x" * 257, "tenants/acme/x",
        "tenant:acme", "[BYOK:apple]", "sk-" + "a1b2" * 5,
    ]  # fmt: skip

    for route, more in (("/memory", {}), ("/search", {"q": "apples"})):
        for query in ({}, {"limit": "1"}, {"tokenBudget": "5"}, {"tag": "t"}):
            told = [
                ours.ask("GET", route, params={**query, **more, "memoryRef": ref}) for ref in refs
            ]
            assert {it.status_code for it in told} == {200}
            assert [it.json().pop("memoryRef") for it in told] == refs
            rest = [{**it.json(), "memoryRef": ""} for it in told]
            assert all(it == rest[0] for it in rest)
            assert rest[0]["entries"] == []
            assert rest[0].keys() <= {"memoryRef", "entries", "ranks"}
            lengths = {
                len(it.content) - len(it.json()["memoryRef"].encode()) for it in told
                if it.json()["memoryRef"] != "a\x01b"  # which is escaped
            }  # fmt: skip
            assert len(lengths) == 1
    gone = [raw(answer) for answer in of_one(replace(ours, ref="unknown"), NEVER)]
    for ref in refs:
        assert [raw(answer) for answer in of_one(replace(ours, ref=ref), NEVER)] == gone, ref


# Beside the other protocols


@pytest.fixture
def beside(service: Service) -> tuple[Service, Host]:
    """Entries of each protocol, with the same word in them."""
    host = Host(service.http)
    host.put(f"The {WORD} of a ref.", tags=[WORD])
    replace(host, ref="demo").put(f"The {WORD} of a ref.", id="1")
    service.save(f"The {WORD} of a project.", project="demo", topic_key="notes/a")
    store_entry(service.http, new_store(service.http), "notes/a", f"The {WORD} of a store.")
    Agent(service.http).make(value={"text": f"The {WORD} of an agent."}, memory_type="semantic")
    return service, host


@requirement("OW-36")
def test_no_other_protocol_shows_an_entry_of_a_ref(beside: tuple[Service, Host]) -> None:
    service, host = beside
    http, (entry,) = service.http, host.entries()
    (home,) = [it["id"] for it in http.get(STORES).json()["data"]]
    answers = [
        http.get(path)
        for path in (
            f"/search?q={WORD}", f"/search?q={WORD}&explain=true&why_not=1",
            f"/search?q={WORD}&scope={REF}", f"/context?query={WORD}", "/context?project=demo",
            f"/context?query={WORD}&project=demo&stores={home}", "/observations/recent",
            "/observations/recent?type=memory", "/export", "/sessions/recent", "/stats", "/review",
            "/timeline?observation_id=3&before=9&after=9", STORES, f"{STORES}/{home}/memories",
            f"{STORES}/{home}/search?q={WORD}", "/anthropic/v1/memory_stores",
        )
    ]  # fmt: skip
    agent = Agent(http)
    answers += [
        agent.ask("GET", path)
        for path in (
            "/api/v1/memory?namespace=*", f"/api/v1/memory/search?q={WORD}", "/api/v1/memory",
            f"/api/v1/memory/search?q={WORD}&namespace=*", "/api/v1/memory/namespaces",
            "/api/v1/agents/ada/events",
        )
    ]  # fmt: skip
    for tool in ("mem_search", "mem_context"):
        params = {"name": tool, "arguments": {"query": WORD}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answers.append(http.post("/mcp/demo", json=call))

    for answer in answers:
        assert "of a ref" not in answer.text, answer.url
        assert entry["id"] not in answer.text, answer.url
    assert {it.status_code for it in answers} <= {200, 404}
    assert http.get("/stats").json() == {
        "total_sessions": 1, "total_observations": 1, "projects": ["demo"],
    }  # fmt: skip
    for path in (f"{STORES}/{home}/memories/{entry['id']}", f"{STORES}/{entry['id']}"):
        assert http.get(path).status_code == 404
    assert agent.get(entry).status_code == 404


@pytest.mark.heavy
@requirement("OW-36")
def test_no_number_reaches_an_entry_of_a_ref(beside: tuple[Service, Host]) -> None:
    service, host = beside
    kept = host.entries()

    for number in (1, 2):  # the first memories of the file are those of refs
        for method, path, body in [
            ("GET", "/observations/{}", None), ("GET", "/observations/{}/history", None),
            ("PATCH", "/observations/{}", {"title": "mine", "ttl": 1}),
            ("POST", "/observations/{}/restore", {"revision": 1}),
            ("POST", "/observations/{}/confirm", None), ("DELETE", "/observations/{}", None),
            ("DELETE", "/observations/{}?hard=true", None),
            ("GET", "/timeline?observation_id={}", None),
            ("GET", f"/search?q={WORD}&explain=true&why_not={{}}", None),
            ("GET", f"/context?project=demo&query={WORD}&why_not={{}}", None),
        ]:  # fmt: skip
            told, never = (
                service.http.request(method, path.format(it), json=body) for it in (number, 999_999)
            )
            assert told.status_code == never.status_code, path
            assert told.text.replace(f'"id":{number},', '"id":999999,') == never.text, path
    linked = observation("newer", supersedes=[1])
    assert service.http.post("/observations", json=linked).status_code == 404
    assert service.http.delete("/projects/demo?hard=true").status_code == 200
    service.clock.advance(days=1)
    assert host.entries() == kept
    assert replace(host, ref="demo").contents() == [f"The {WORD} of a ref."]
    assert_index_is_whole(service.path)


@pytest.mark.heavy
@requirement("OW-36", "OW-28")
def test_these_routes_show_nothing_of_other_protocols(beside: tuple[Service, Host]) -> None:
    service, host = beside
    http = service.http
    (home,) = [it["id"] for it in http.get(STORES).json()["data"]]
    uids = [it["uid"] for it in http.get("/export").json()["observations"]]
    others = [
        *store_ids(http.get(at_store({"id": home}, "memories"))), *uids,
        *(f"mem_{uid.replace('-', '')}" for uid in uids),
        *(it["id"] for it in Agent(http).query(namespace="*")["entries"]), home, "3", "4", "5",
    ]  # fmt: skip
    assert len(others) >= 6

    for ref in (REF, "demo", "notes", home, "project", "ada", "tenant-memory"):
        at = replace(host, ref=ref)
        wanted = 1 if ref in (REF, "demo") else 0
        assert len(at.entries()) == len(at.search(f"{WORD} notes/a")) == wanted
        for memory in others:
            for answer in of_one(at, memory):
                assert refused(answer) == MISSING
    assert {*counted(host)} == {REF, "demo"}
    assert len(http.get("/export").json()["observations"]) == 1
    assert http.get(f"{H}/memory/{named('3')}?memoryRef=demo").status_code == 404
