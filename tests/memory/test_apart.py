"""What is stored through one protocol is shown and erased by no route of another one."""

from dataclasses import replace

import httpx
import pytest

from ..support.files import assert_index_is_whole
from ..support.openintent_agents import MEMORY, NAMESPACES, Agent
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import REF, H, Host, ok, refused
from ..support.openwop_passes import archived
from ..support.openwop_proposals import proposed, revised
from ..support.requirements import requirement
from ..support.service import Service
from ..support.store_dialects import ANTHROPIC
from ..support.stores import STORES, entry as store_entry, store as new_store

WORD = "xylographer"
OF = {it: f"The {WORD} of a {it}." for it in ("project", "store", "agent", "host", "draft")}
# What each protocol lists and finds; `home` is the id of the store, `project` that of the memory.
LISTS = {
    "project": [
        f"/search?q={WORD}", "/search?q=notes/a", f"/search?q={WORD}&scope={{home}}",
        f"/search?q={WORD}&scope={REF}", f"/context?query={WORD}", "/context?project=",
        f"/context?query={WORD}&project=demo", "/observations/recent?type=memory", "/export",
        "/observations/recent?project=", "/sessions/recent", "/stats", "/review",
        "/timeline?observation_id={project}&before=9&after=9", "mem_search", "mem_context",
    ],
    "store": [
        STORES, f"{STORES}/{{home}}/memories", f"{STORES}/{{home}}/search?q={WORD}+notes/a",
        ANTHROPIC.stores, f"{ANTHROPIC.stores}/{{home}}/memories?view=full",
        f"{ANTHROPIC.stores}/{{home}}/memory_versions?view=full",
    ],
    "agent": [
        MEMORY, f"{MEMORY}?namespace=*", f"{MEMORY}/search?q={WORD}", NAMESPACES,
        f"{MEMORY}/search?q={WORD}&namespace=*", "/api/v1/agents/ada/events",
    ],
    "host": [
        f"{H}/memory?memoryRef={REF}", f"{H}/memory?memoryRef=demo", f"{H}/memory", f"{H}/refs",
        f"{H}/search?memoryRef={REF}&q={WORD}", f"{H}/events", f"{H}/artifacts",
        f"{H}/artifacts/{{draft}}",
    ],
    "draft": [f"{H}/proposals"],
}  # fmt: skip
# How each reads one of its own by its id.
ONE = {
    "project": "/observations/{}", "store": f"{STORES}/{{home}}/memories/{{}}",
    "agent": f"{MEMORY}/{{}}", "host": f"{H}/memory/{{}}?memoryRef={REF}",
    "draft": f"{H}/proposals/{{}}", "other dialect": f"{ANTHROPIC.stores}/{{home}}/memories/{{}}",
}  # fmt: skip


@pytest.fixture
def ids(service: Service) -> dict[str, str]:
    """An entry of each protocol, all of one word, in places of equal names; their ids."""
    http, host = service.http, Host(service.http)
    home = new_store(http)
    tags: dict[str, object] = {"tags": ["due:2030-01-01T13:00:00Z", "when:rain"]}
    saved = service.save(OF["project"], topic_key="notes/a", scope="global", **tags)
    replace(host, ref="demo").put(OF["host"], id="1")
    draft = proposed(host, {"name": OF["draft"], "version": WORD}, title=OF["draft"])
    ok(revised(host, draft["id"], rationale=f"Again: {OF['draft']}"))
    return {
        "home": home["id"], "project": str(saved["id"]), "draft": draft["id"],
        "store": store_entry(http, home, "notes/a", OF["store"])["id"],
        "agent": Agent(http).make(value={"text": OF["agent"]}, memory_type="semantic")["id"],
        "host": host.put(OF["host"], tags=[WORD])["id"],
    }  # fmt: skip


def shown(http: httpx.Client, path: str) -> httpx.Response:
    if not path.startswith("mem_"):
        return http.get(path, headers={"X-Agent-ID": "ada"})
    params = {"name": path, "arguments": {"query": WORD}}
    return http.post("/mcp/demo", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                                        "params": params})  # fmt: skip


@pytest.mark.slow
@requirement("stores:apart", "anthropic:separate", "OI-91", "OW-36", "OW-67", "OW-88")
def test_no_protocol_shows_or_erases_what_is_another_ones(
    service: Service, ids: dict[str, str]
) -> None:
    http, host = service.http, Host(service.http)
    archive = archived(host, host.distill())
    assert WORD in archive["content"]
    for protocol, paths in LISTS.items():
        answers = [shown(http, path.format(**ids)) for path in paths]
        for answer in answers:
            assert answer.status_code == 200 or "artifacts/" in str(answer.url), answer.text
            for other in OF.keys() - {protocol}:
                assert f"of a {other}" not in answer.text, (protocol, answer.url)
                # A memory of a project is a small number, and events name a proposal.
                assert other in ("project", "draft") or ids[other] not in answer.text, answer.url
        assert any(OF[protocol] in answer.text for answer in answers), protocol
    uid = http.get("/export").json()["observations"][0]["uid"].replace("-", "")
    for other, id_ in ({**ids, "project": f"mem_{uid}", "archive": archive["id"]}).items():
        for protocol, path in ONE.items():
            if {protocol, other} not in ({other}, {"store", "other dialect"}, {"host", "archive"}):
                answer = shown(http, path.format(id_, **ids))
                assert answer.status_code in (400, 404), (protocol, other)
    assert http.get("/stats").json() == {
        "total_sessions": 1, "total_observations": 1, "projects": ["demo"],
    }  # fmt: skip
    service.clock.advance(hours=2)  # the tags of a project's memory arm nothing
    intents = Intents(host)
    assert (intents.listed(), intents.fired()) == ([], [])
    armed = intents.post(memoryId=ids["project"], condition="predicate", tag="rain")
    assert refused(armed) == (404, "not_found")

    kept = [shown(http, path.format(**ids)).text for it in ("store", "agent") for path in LISTS[it]]
    assert http.delete("/projects/demo?hard=true").status_code == 200
    for project in (ids["home"], REF.replace("/", "%2F"), "%20", ""):
        assert http.delete(f"/projects/{project}?hard=true").status_code in (400, 404)
    assert kept == [
        shown(http, path.format(**ids)).text for it in ("store", "agent") for path in LISTS[it]
    ]
    assert OF["host"] in host.contents()
    assert_index_is_whole(service.path)
