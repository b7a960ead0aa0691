"""Commitments and proposals of a suite: the requests of the published scenarios."""

import json
from concurrent.futures import ThreadPoolExecutor, wait

from ..support.openwop_hosts import Json, ok, refused
from ..support.openwop_seams import Suite, let_in
from ..support.requirements import requirement

REF = "mem://conformance/commitments"


def fired(suite: Suite, condition: str, **fields: object) -> Json:
    body = {"memoryRef": REF, "condition": condition, **fields}
    done: Json = ok(suite.post("/host/sample/commitment/fire", body))
    return done


def told(suite: Suite) -> list[Json]:
    """What the events of all that has fired tell."""
    events = ok(suite.host.ask("GET", "/events", params={"type": "commitment.fired"}))["events"]
    return [it["payload"] for it in events]


@requirement("OW-99")
def test_a_predicate_that_comes_true_twice_fires_once(suite: Suite) -> None:
    for _ in range(2):
        done = fired(suite, "predicate", includeIntentionCanary=True)

        assert done["fireCount"] == 1
        assert done["event"].keys() == {"commitmentId", "memoryRef", "memoryId", "condition"}
        assert done["event"]["memoryRef"] == REF
        assert done["event"]["condition"] == "predicate"
        assert done["intentionCanary"] not in json.dumps(done["event"])
        source = ok(suite.get(f"/host/sample/memory/{done['event']['memoryId']}", memoryRef=REF))[
            "entry"
        ]
        assert source["content"] == done["intentionCanary"]
    assert "intentionCanary" not in fired(suite, "predicate")


@requirement("OW-99")
def test_a_time_that_has_come_fires_once(suite: Suite) -> None:
    with ThreadPoolExecutor(1) as asking:
        waiting = asking.submit(fired, suite, "time")
        while not wait([waiting], timeout=0.02).done:
            suite.service.clock.advance(milliseconds=100)
        done = waiting.result()

    assert done["fireCount"] == 1
    assert done["event"]["condition"] == "time"
    assert told(suite) == [done["event"]]


@requirement("OW-99", "OW-85")
def test_a_seed_arms_and_fires_as_a_put_does_unless_it_has_ended(suite: Suite) -> None:
    suite.seed({"id": "waits", "content": "ask", "tags": ["when:come"]})
    ended = {"content": "it came", "tags": ["come"], "expiresAt": "2029-12-31T00:00:00Z"}
    suite.seed({"id": "late", **ended})
    assert told(suite) == []

    suite.seed({"id": "now", "content": "it has come", "tags": ["come"]})

    assert [it["memoryId"] for it in told(suite)] == ["waits"]


@requirement("OW-99", "OW-89")
def test_a_writer_finds_a_draft_and_may_not_apply_it(suite: Suite) -> None:
    (draft,) = ok(suite.get("/host/sample/proposals", state="draft"))["proposals"]
    path = f"/host/sample/proposals/{draft['id']}"

    assert refused(suite.post(f"{path}/apply", {})) == (403, "forbidden")

    assert ok(suite.get("/host/sample/proposals"))["proposals"] == [draft]  # not another one
    assert ok(suite.get(path)) == draft
    assert ok(suite.host.ask("GET", f"/proposals/{draft['id']}")) == draft
    assert ok(suite.host.ask("GET", "/artifacts"))["artifacts"] == []


@requirement("OW-99", "OW-89")
def test_a_proposal_is_moved_under_the_path_of_the_sample_host(suite: Suite) -> None:
    body = {
        "kind": "workflow-chain-pack", "artifact": {"name": "digest", "version": "1.0.0"},
        "provenance": {"sourceRunIds": ["run-a"]},
    }  # fmt: skip
    made = ok(suite.post("/host/sample/proposals", body), 201)
    path = f"/host/sample/proposals/{made['id']}"

    revised = ok(suite.http.patch(f"/v1{path}", json={"title": "Weekly digest"}))
    assert revised["state"] == "revised"
    with let_in(suite, "admin") as admin:
        ref = ok(admin.post(f"{path}/apply", {}))["installedArtifactRef"]
    assert json.loads(suite.host.ask("GET", f"/artifacts/{ref}").content) == body["artifact"]
    assert ok(suite.http.delete(f"/v1{path}"))["state"] == "archived"
    other = ok(suite.post("/host/sample/proposals", body), 201)
    rejected = ok(suite.post(f"/host/sample/proposals/{other['id']}/reject", {}))
    assert rejected["state"] == "rejected"


@requirement("OW-98")
def test_a_reader_is_given_no_draft(suite: Suite) -> None:
    with let_in(suite, "reader") as reader:
        assert ok(reader.get("/host/sample/proposals"))["proposals"] == []
