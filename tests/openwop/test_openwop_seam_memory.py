"""Seeds, lists and passes of a suite: the requests of the published scenarios, and their shapes."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_looks import wire
from ..support.openwop_seams import REF, Suite, count_of, driven
from ..support.openwop_tenants import counted
from ..support.requirements import requirement
from ..support.service import START

OF_TENANT = "mem_tenant:default_agent:conformance-rfc0012_longTerm"
SOURCES = [
    {"id": "src-1", "content": "User confirmed: [BYOK:hk_live_canary_42]"},
    {"id": "src-2", "content": "Resolved <REDACTED:db-prod-creds> outage."},
    {"id": "src-3", "content": "Customer asked about pricing tiers."},
]
SECRET = "sk-canary-" + "rfc0062-do-not-leak-qrs456"
HOSTS = ("sample", "openwop-app")


def distilled(suite: Suite, status: int = 200, **fields: Any) -> Json:
    body = {"memoryRef": "conformance-distill", "tokenBudget": 8000, **fields}
    done: Json = ok(suite.post("/host/sample/memory/distill", body), status)
    return done


def consolidated(suite: Suite, **fields: object) -> Json:
    body = {"memoryRef": "mem://conformance/consolidation", **fields}
    done: Json = ok(suite.post("/host/sample/memory/consolidate", body))
    return done


@pytest.mark.heavy
@requirement("OW-99", "OW-30")
@pytest.mark.parametrize("ref", ["%00", "a%00b", "a%2F..%2F%00"])
def test_a_ref_with_nul_is_malformed_in_paths_and_parameters(suite: Suite, ref: str) -> None:
    assert ok(suite.http.get(f"/v1/memory/{ref}")) == {"entries": []}
    for host in HOSTS:
        at = f"/v1/host/{host}/memory"
        assert ok(suite.http.get(f"{at}?memoryRef={ref}"))["entries"] == []
        assert refused(suite.http.get(f"{at}/x?memoryRef={ref}")) == (404, "not_found")
        assert refused(suite.http.delete(f"{at}/x?memoryRef={ref}")) == (400, "validation_error")


@requirement("OW-99", "OW-41", "OW-45")
def test_seeds_are_screened_and_may_have_ended(suite: Suite) -> None:
    ended = {"id": "old", "content": "gone", "expiresAt": wire(START - timedelta(seconds=1))}
    ending = {"id": "new", "content": "here", "tags": ["t"], "expiresAt": "2030-01-01T13:00:00Z"}

    answer = suite.post(
        "/test/memory/seed", {"memoryRef": REF, "entries": [*SOURCES, ended, ending]}
    )

    assert ok(answer, 201) == {"seeded": 5}
    assert answer.headers["x-redacted"] == "2"
    listed = suite.listed()
    assert listed[0] == {
        "id": "new", "content": "here", "tags": ["t"], "createdAt": wire(START),
        "expiresAt": "2030-01-01T13:00:00.000Z",
    }  # fmt: skip
    assert [it["content"] for it in listed[1:]] == [
        "Customer asked about pricing tiers.",
        "Resolved [REDACTED:db-prod-creds] outage.",
        "User confirmed: [REDACTED:byok]",
    ]
    assert refused(Host(suite.http, ref=REF).get("old")) == (404, "not_found")
    assert counted(suite.host)[REF][0] == 5  # until it is swept


@requirement("OW-99", "OW-11", "OW-29")
def test_seeds_replace_what_lives_under_their_ids_all_or_none(suite: Suite) -> None:
    assert refused(suite.post("/test/memory/compact", {})) == (400, "validation_error")
    answer = suite.post("/test/memory/compact", {"memoryRef": REF})
    assert refused(answer) == (409, "nothing_to_compact")

    bad = {"memoryRef": REF, "entries": [*SOURCES, {"id": "a [BYOK:x]", "content": "x"}]}

    assert refused(suite.post("/test/memory/seed", bad)) == (400, "validation_error")

    assert suite.listed() == []

    suite.seed({"id": "a", "content": "before"}, {"id": "b", "content": "other"})

    assert suite.seed({"id": "a", "content": "after"}, {"id": "a", "content": "at last"}) == 2

    assert [it["content"] for it in suite.listed()] == ["at last", "other"]
    assert counted(suite.host)[REF] == (2, len("at last") + len("other"))
    assert suite.host.ask("GET", "/events").json()["events"] == []


@requirement("OW-99", "OW-13")
def test_seeds_are_put_once_for_an_idempotency_key(suite: Suite) -> None:
    body = {"memoryRef": REF, "entries": SOURCES}
    answers = [
        suite.post("/test/memory/seed", body, headers={"Idempotency-Key": "k"}) for _ in range(2)
    ]

    assert [ok(it, 201) for it in answers] == [{"seeded": 3}] * 2
    assert answers[1].headers["openwop-idempotent-replay"] == "true"
    assert counted(suite.host)[REF][0] == 3


@requirement("OW-99", "OW-18", "OW-19")
def test_a_ref_in_the_path_is_listed_exactly(suite: Suite) -> None:
    ref = "mem://a b/ü?x=1&limit=1"
    suite.seed(*({"id": f"e{it}", "content": f"text {it}"} for it in range(5)), ref=ref)

    assert [it["id"] for it in suite.listed(ref, limit=50)] == ["e4", "e3", "e2", "e1", "e0"]
    assert [it["id"] for it in suite.listed(ref, limit=2)] == ["e4", "e3"]
    assert suite.listed("mem://a b/ü") == []
    assert suite.listed("tenants/acme/x") == suite.listed("a/../b") == []
    assert refused(suite.get("/memory/%FF")) == (400, "validation_error")
    assert refused(suite.get("/memory/x", limit=-1)) == (400, "validation_error")


@pytest.mark.heavy
@requirement("OW-99", "OW-22", "OW-23")
@pytest.mark.parametrize("host", HOSTS)
def test_the_adapter_is_there_under_the_paths_of_other_hosts(suite: Suite, host: str) -> None:
    own = Host(suite.http, ref="tenant-memory")
    first, second = own.put("one", tags=["t"]), own.put("two")
    path = f"/host/{host}/memory"

    assert ok(suite.get(path)) == {"memoryRef": "tenant-memory", "entries": [second, first]}
    assert ok(suite.get(path, tag="t", limit=5))["entries"] == [first]
    assert ok(suite.get(f"{path}/{first['id']}", memoryRef="tenant-memory"))["entry"] == first
    assert ok(suite.http.delete(f"/v1{path}/{first['id']}")) == {
        "memoryRef": "tenant-memory", "memoryId": first["id"], "removed": True
    }  # fmt: skip
    assert refused(suite.http.delete(f"/v1{path}/{first['id']}")) == (404, "not_found")
    assert own.entries() == [second]


@pytest.mark.slow
@requirement("OW-99")
def test_compaction_gives_its_event_and_what_the_archive_says(suite: Suite) -> None:
    suite.seed(*SOURCES, ref=OF_TENANT)

    done = suite.compacted(OF_TENANT)

    assert done.keys() == {"type", "payload", "outputContent"}
    assert done["type"] == "memory.compacted"
    payload = done["payload"]
    assert payload["memoryRef"] == OF_TENANT
    assert payload["sourceCount"] == 3
    assert payload["sourceIds"] == ["src-1", "src-2", "src-3"]
    assert payload["trigger"] == "host-managed"
    assert payload["byteSize"] == len(done["outputContent"].encode())
    assert "canary" not in json.dumps(done)
    (archive,) = suite.listed(OF_TENANT, limit=50)
    assert archive["id"] == payload["outputId"]
    assert archive["content"] == done["outputContent"]
    (tag,) = [it for it in archive["tags"] if it.startswith("compacted-from:")]
    events = ok(suite.host.ask("GET", "/events", params={"type": "memory.compacted"}))["events"]
    assert [(it["runId"], it["payload"]) for it in events] == [
        (tag.removeprefix("compacted-from:"), payload)
    ]


@requirement("OW-99")
def test_distillation_stays_within_its_budget_or_writes_nothing(suite: Suite) -> None:
    done = distilled(suite)

    assert done.keys() == {"event", "archiveChecksum", "indexUpdated"}
    told = done["event"]["distillation"]
    assert told["tokensUsed"] <= told["tokenBudget"] == 8000
    assert done["indexUpdated"] is told["indexUpdated"] is False
    before = suite.listed("conformance-distill")
    assert len(before) == 4  # the corpus that it was given, and the archive
    small = distilled(suite, 422, tokenBudget=1)
    assert small["error"] == "token_budget_exceeded"
    assert "archiveChecksum" not in small
    assert suite.listed("conformance-distill") == before


@pytest.mark.slow
@requirement("OW-99")
def test_the_same_sources_are_the_same_archive_on_any_day_and_service(
    suite: Suite, tmp_path: Path
) -> None:
    texts = ["s1", "s2", "s3"]
    first = distilled(suite, sources=texts)
    suite.service.clock.advance(days=40)

    assert distilled(suite, sources=texts) == first
    assert distilled(suite, sources=[{"content": it} for it in texts]) == first
    assert distilled(suite, sources=texts[:2]) != first
    with driven(tmp_path / "other.db") as other:
        other.service.clock.advance(days=1)
        assert distilled(other, sources=texts) == first
    assert suite.listed("conformance-distill") == []  # they have a ref of their own


@requirement("OW-99", "OW-44")
def test_a_secret_among_the_sources_is_in_no_archive_and_no_name(suite: Suite) -> None:
    sources = [{"content": f"notes with embedded secret {SECRET}"}]
    answer = suite.post(
        "/host/sample/memory/distill",
        {"memoryRef": "x", "tokenBudget": 8000, "includeSecretCanary": True, "sources": sources},
    )

    assert SECRET not in json.dumps(ok(answer))
    (ref,) = counted(suite.host)
    assert [SECRET in it["content"] for it in suite.listed(ref)] == [False] * 2
    clean = [{"content": "notes with embedded secret [REDACTED:openai-key]"}]
    assert distilled(suite, sources=clean)["archiveChecksum"] == (answer.json()["archiveChecksum"])


@pytest.mark.slow
@requirement("OW-99")
def test_consolidation_merges_leaks_nothing_and_then_has_nothing_to_do(suite: Suite) -> None:
    first = consolidated(suite, includeSecretCanary=True)

    assert first["event"].keys() == {"inputCount", "outputCount"}
    assert first["event"]["outputCount"] < first["event"]["inputCount"] == 6
    assert first["secretLeaked"] is False
    second = consolidated(suite)
    assert second["event"]["inputCount"] == second["event"]["outputCount"]
    assert "secretLeaked" not in second  # nothing was planted
    contents = [it["content"] for it in suite.listed("mem://conformance/consolidation")]
    assert "The nightly job logs in with [REDACTED:conformance-canary]." in contents
    planted = "memories WHERE content LIKE '%logs in%' AND content NOT LIKE '%REDACTED%'"
    assert count_of(suite.service.path, planted) == 0
