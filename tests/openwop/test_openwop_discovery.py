"""What a host finds out of the service before it brings a key."""

import re
from pathlib import Path

import pytest

from agentops_memory import __version__

from ..support.openwop_facts import ANSWERS
from ..support.openwop_hosts import DISCOVERY, REF, H, Host, ok, refused
from ..support.openwop_tenants import keyed, page
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving

MEMORY = {
    "supported": True,
    "writable": True,
    "maxEntrySizeBytes": 65_536,
    "ttlSupported": True,
    "search": {"supported": True, "modes": ["filter"]},
    "retention": {"ttl": True, "forget": True},
    "attribution": {"supported": True, "emitsWriteEvents": True},
    "compaction": {
        "supported": True, "trigger": "host-managed", "maxInputEntries": 500,
        "maxOutputBytes": 65_536,
    },
    "distillation": {
        "supported": True, "maxTokenBudget": 100_000, "scheduled": False, "indexEmitted": False,
        "tokenizerName": "utf8-bytes-div-4",
    },
    "injectionBudget": {"supported": True, "tokenCounter": "chars"},
}  # fmt: skip
KINDS = ["agent-pack", "workflow-chain-pack", "prompt-template", "automation"]
AGENTS = {
    "memoryBackends": ["long-term"],
    "memoryConsolidation": {"supported": True, "schedule": "on-demand"},
    "commitments": {"supported": True, "fireConditions": ["time", "predicate"]},
    "proposals": {
        "artifactKinds": KINDS, "duplicationDetection": True, "activation": "direct-rbac",
    },
}  # fmt: skip
NOT_OURS = {
    "secrets", "multiAgent", "scheduling", "replay", "workspace", "authorization", "fixtures",
}  # fmt: skip


@requirement("OW-1", "OW-2", "OW-3")
def test_discovery_has_the_published_members_and_claims_just_what_is_served(
    service: Service,
) -> None:
    answer = service.http.get(DISCOVERY)
    document = ok(answer)

    assert answer.headers["content-type"].startswith("application/json")
    assert document["memory"] == MEMORY
    assert document["agents"] == AGENTS
    assert document["capabilities"] == {"memory": MEMORY, "agents": AGENTS}
    assert document["protocolVersion"] == "1.0"
    assert (document["supportedEnvelopes"], document["schemaVersions"]) == ([], {})
    assert document["limits"] == {
        "clarificationRounds": 0, "schemaRounds": 0, "envelopesPerTurn": 0,
        "maxRequestBodyBytes": 1_048_576,
    }  # fmt: skip
    assert document["implementation"] == {"name": "agentops-memory"}
    assert document["supportedTransports"] == ["rest"]
    ours = document["agentops-memory"]
    assert (ours["scope"], ours["base"]) == ("x-host-agentops-memory-query", H)
    assert ours["activationScope"] == "packs:publish"
    assert not document.keys() & NOT_OURS


@pytest.mark.slow
@requirement("OW-1", "OW-3")
def test_discovery_is_the_same_for_everybody_whatever_is_stored(path: Path) -> None:
    with serving(path) as service:
        before = service.http.get(DISCOVERY)
        with keyed(service, "writer", "acme") as acme, keyed(service, "reader", "default", "a-*"):
            acme.put()
            with_key = acme.http.get(DISCOVERY)
        without = service.http.get(DISCOVERY)
        wrong = service.http.get(DISCOVERY, headers={"Authorization": "Bearer nonsense"})

    for answer in (with_key, without, wrong):
        assert (answer.status_code, answer.content) == (200, before.content)
        assert answer.headers["etag"] == before.headers["etag"]
        assert answer.headers["cache-control"] == "public, max-age=300"
    for word in ("acme", "default", REF, __version__):
        assert word not in before.text


@requirement("OW-4")
def test_discovery_is_sent_again_only_when_it_has_changed(service: Service) -> None:
    first = service.http.get(DISCOVERY)
    tag = first.headers["etag"]
    assert tag.startswith('"')

    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = service.http.get(DISCOVERY, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b""), known
        assert again.headers["etag"] == tag
        assert again.headers["cache-control"] == "public, max-age=300"
    other = service.http.get(DISCOVERY, headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


@requirement("OW-3")
def test_what_settings_decide_is_claimed_where_they_are_set(path: Path) -> None:
    with serving(path, MEMORY_KEEP_ARCHIVES="30d", MEMORY_CONSOLIDATE_EVERY="1h") as service:
        document = ok(service.http.get(DISCOVERY))

    assert document["memory"]["distillation"]["archiveRetention"] == "P30D"
    assert document["agents"]["memoryConsolidation"]["schedule"] == "host-managed"


@requirement("OW-1")
def test_what_is_a_tenants_is_kept_in_no_cache_and_the_protocols_version_is_ignored(
    service: Service,
) -> None:
    host = Host(service.http)
    memory = host.put()["id"]

    for answer in (host.ask("GET", "/memory"), host.get(memory), host.post(), host.ask("GET", "/")):
        assert answer.headers["cache-control"] == "no-store"
    asked = host.ask("GET", "/memory", headers={"OpenWOP-Version": "2.0"})
    assert ok(asked)["memoryRef"] == "tenant-memory"
    assert len(page(host)["entries"]) == 2


@requirement("OW-5")
def test_the_description_is_of_this_protocol_alone_and_needs_no_key(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service, keyed(service):
        document = ok(service.http.get("/v1/openapi.json"))
        assert service.http.get(f"{H}/memory").status_code == 401

    assert document["openapi"].startswith("3.1")
    paths = document["paths"]
    assert {path for path in paths if not path.startswith(H)} <= {DISCOVERY, "/v1/openapi.json"}
    assert paths[f"{H}/memory"].keys() >= {"get", "post"}
    assert paths[f"{H}/memory/{{memoryId}}"].keys() >= {"get", "delete"}
    for path in ("search", "provenance/{memoryId}", "refs", "runs", "events"):
        assert "get" in paths[f"{H}/{path}"] or "post" in paths[f"{H}/{path}"]


SEAMS = [
    (method, re.sub(r"\{\w+\}", "x", path.removeprefix("/v1")))
    for method, path in ANSWERS
    if path.startswith("/v1/") and not path.startswith((H, "/v1/openapi"))
]


@for_each(
    "method, path",
    [*SEAMS, ("GET", "/agents"), ("GET", "/memory"), ("GET", "/test/"), ("POST", "/runs/r1:fork")],
)
@requirement("OW-5", "OW-2", "OW-98")
def test_what_is_not_told_of_is_not_there(service: Service, method: str, path: str) -> None:
    answer = service.http.request(method, f"/v1{path}", json={})

    assert refused(answer) == (404, "not_found")
    assert answer.content == service.http.get("/v1/nothing").content
