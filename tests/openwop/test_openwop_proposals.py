"""Proposals: handed in, reviewed, applied byte for byte, and told of."""

import re
from hashlib import sha256
from pathlib import Path

import pytest

from ..support.engines import rows
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_proposals import (
    COMPLETE,
    CONFLICT,
    NO_PROPOSAL,
    PACK,
    PACK_TEXT,
    applied,
    artifact,
    artifacts,
    got,
    listed,
    moved,
    proposed,
    revised,
    told_of,
)
from ..support.requirements import requirement
from ..support.service import Service, serving

MISSING = (404, "not_found")
ENDS = {"apply": "applied", "reject": "rejected", "archive": "archived"}


@requirement("OW-88")
def test_a_proposal_has_the_published_fields_and_no_others(service: Service, host: Host) -> None:
    service.clock.advance(microseconds=1_999)
    full = proposed(
        host, title="Triage", rationale="It recurs.", unknown=1,
        provenance={"sourceRunIds": ["r1", "r2"], "synthesizerModel": "a model", "more": 1},
    )  # fmt: skip

    assert re.fullmatch("prop_[0-9a-f]{12}7[0-9a-f]{19}", full["id"])
    assert full == {
        "id": full["id"], "kind": "agent-pack", "state": "draft", "title": "Triage",
        "rationale": "It recurs.", "artifact": PACK,
        "provenance": {"sourceRunIds": ["r1", "r2"], "synthesizerModel": "a model"},
        "duplicateOf": None, "owner": {"tenant": "default"},
        "createdAt": "2030-01-01T12:00:00.001Z", "updatedAt": "2030-01-01T12:00:00.001Z",
    }  # fmt: skip
    least = proposed(host, {"other": 1}, title=None)
    assert least.keys() == full.keys() - {"title", "rationale"}
    assert least["provenance"] == {"sourceRunIds": []}
    assert (got(host, full["id"]), listed(host)) == (full, [full, least])


@requirement("OW-89")
def test_what_is_applied_is_installed_byte_for_byte(service: Service, host: Host) -> None:
    id_ = proposed(host)["id"]
    service.clock.advance(seconds=1)

    ref = applied(host, id_)

    assert ref == f"installed:agent-pack:{id_}:{sha256(PACK_TEXT.encode()).hexdigest()[:16]}"
    answer = artifact(host, ref)
    assert (answer.status_code, answer.text) == (200, PACK_TEXT)
    assert answer.headers["content-type"] == "application/json"
    assert artifacts(host) == [
        {"installedArtifactRef": ref, "kind": "agent-pack", "proposalId": id_}
    ]
    shown = got(host, id_)
    assert (shown["state"], shown["activation"]) == ("applied", {"installedArtifactRef": ref})
    assert f'"artifact":{PACK_TEXT},' in host.ask("GET", f"/proposals/{id_}").text
    assert shown["updatedAt"] == "2030-01-01T12:00:01.000Z"


@requirement("OW-89", "OW-56")
def test_a_proposal_and_its_activation_are_told_of_without_content(host: Host) -> None:
    runs = {"sourceRunIds": ["r1"]}
    id_ = proposed(host, title="saffron", rationale="saffron", provenance=runs)["id"]
    ok(revised(host, id_, title="more saffron"))
    ref = applied(host, id_)
    ok(moved(host, proposed(host, {"a": 1})["id"], "reject"))

    one: Json = {"proposalId": id_, "kind": "agent-pack"}
    first, second = told_of(host, "proposal.created")
    assert first == one | {"sourceRunIds": ["r1"], "duplicateOf": None}
    assert second.keys() == first.keys()
    assert told_of(host, "proposal.activated") == [one | {"installedArtifactRef": ref}]
    events = ok(host.ask("GET", "/events"))["events"]
    runs_of = [it["runId"] for it in events if it["type"].startswith("proposal.")]
    for run in runs_of:
        told = [it["type"] for it in host.told(run)]
        assert (told[0], told[2]) == ("run.started", "run.completed")
        assert ok(host.ask("GET", f"/runs/{run}"))["kind"] == "pass"
    assert "saffron" not in str(events)


@requirement("OW-88")
def test_a_revision_replaces_what_it_names_and_installs_nothing(
    service: Service, host: Host
) -> None:
    made = proposed(host, title="one", rationale="because")
    service.clock.advance(seconds=1)

    after = ok(revised(host, made["id"], title="two", rationale=None, state="applied"))

    assert after == made | {
        "title": "two", "state": "revised", "updatedAt": "2030-01-01T12:00:01.000Z",
    }  # fmt: skip
    assert ok(revised(host, made["id"], artifact={"name": "b"}))["artifact"] == {"name": "b"}
    assert got(host, made["id"])["title"] == "two"
    assert artifacts(host) == []
    assert told_of(host, "proposal.activated") == []


@pytest.mark.representative(3)
@pytest.mark.parametrize("first", ENDS)
@pytest.mark.parametrize("then", [*ENDS, "revise"])
@requirement("OW-90")
def test_ends_allow_no_other_move_and_the_same_again(host: Host, first: str, then: str) -> None:
    id_ = proposed(host)["id"]
    done = ok(moved(host, id_, first))
    before = got(host, id_)
    assert before["state"] == ENDS[first]

    again = revised(host, id_, title="x") if then == "revise" else moved(host, id_, then)

    if then == first:
        assert ok(again) == done
        assert got(host, id_) == before
    elif (first, then) == ("apply", "archive"):
        assert ok(again)["state"] == "archived"
        assert artifacts(host) == []
        assert refused(artifact(host, done["installedArtifactRef"])) == MISSING
    else:
        assert refused(again) == CONFLICT
        assert got(host, id_) == before
    assert len(told_of(host, "proposal.activated")) == (first == "apply")


@pytest.mark.slow
@requirement("OW-90")
def test_what_is_not_there_is_told_alike_by_every_route(host: Host) -> None:
    proposed(host)
    for id_ in (NO_PROPOSAL, "prop_x", "x", "%F0%9F%98%80", "prop_" + "F" * 32):
        answers = [
            host.ask("GET", f"/proposals/{id_}"), revised(host, id_, title="x"),
            *(moved(host, id_, move) for move in ENDS),
        ]  # fmt: skip
        assert {refused(it) for it in answers} == {MISSING}
        assert len({it.content for it in answers}) == 1
    for ref in ("x", "installed", f"installed:agent-pack:{NO_PROPOSAL}:{'0' * 16}", "::::"):
        assert refused(artifact(host, ref)) == MISSING


@requirement("OW-91")
def test_equal_artifacts_are_told_whatever_the_order_of_their_members(host: Host) -> None:
    first = proposed(host, {"name": "a", "of": {"x": 1, "y": [1, 2]}})
    same = {"of": {"y": [1, 2], "x": 1}, "name": "a"}
    second = proposed(host, same)
    other = proposed(host, {"name": "a", "of": {"x": 1, "y": [2, 1]}})
    kind = proposed(host, same, kind="workflow-chain-pack")

    assert [it["duplicateOf"] for it in (first, second, other, kind)] == [
        None, first["id"], None, None,
    ]  # fmt: skip
    assert told_of(host, "proposal.created")[1]["duplicateOf"] == first["id"]
    assert [it["duplicateOf"] for it in listed(host)] == [None, first["id"], None, None]
    ok(moved(host, first["id"], "reject"))
    assert got(host, second["id"])["duplicateOf"] is None
    third = proposed(host, same)
    assert third["duplicateOf"] == second["id"]


@requirement("OW-91")
def test_what_repeats_an_installed_artifact_names_its_ref(host: Host) -> None:
    first, other = proposed(host), proposed(host, {"a": 1})
    ref = applied(host, first["id"])

    assert proposed(host)["duplicateOf"] == ref
    assert ok(revised(host, other["id"], artifact=PACK))["duplicateOf"] == ref
    assert got(host, first["id"])["duplicateOf"] is None
    ok(moved(host, first["id"], "archive"))
    assert proposed(host)["duplicateOf"].startswith("prop_")


@pytest.mark.representative(2)
@pytest.mark.parametrize("kind", COMPLETE)
@requirement("OW-92")
def test_what_its_kind_needs_is_asked_at_apply_alone(host: Host, kind: str) -> None:
    whole = COMPLETE[kind]
    for name in whole:
        for lacking in ({}, {name: ""}, {name: None}, {name: 7}, {name: [whole[name]]}):
            rest = {it: value for it, value in whole.items() if it != name}
            before = proposed(host, rest | lacking, kind=kind)
            answer = moved(host, before["id"], "apply")
            assert refused(answer) == (422, "artifact_invalid")
            assert got(host, before["id"]) == before
    assert artifacts(host) == told_of(host, "proposal.activated") == []
    made = proposed(host, whole | {"more": {"of": "it"}}, kind=kind)
    assert ok(artifact(host, applied(host, made["id"]))) == whole | {"more": {"of": "it"}}


@requirement("OW-88")
def test_lists_walk_over_all_the_oldest_first(host: Host) -> None:
    made = [proposed(host, {"n": n}, kind=kind)["id"] for n in range(4) for kind in COMPLETE]
    ok(moved(host, made[1], "reject"))
    ok(revised(host, made[2], title="x"))

    def walked(**query: object) -> list[str]:
        found: list[str] = []
        while True:
            page = ok(host.ask("GET", "/proposals", params=query))
            found += [it["id"] for it in page["proposals"]]
            if "next" not in page:
                return found
            assert page["next"] == found[-1]
            query["after"] = page["next"]

    assert walked() == walked(limit=3) == walked(limit=16) == made
    assert walked(state="rejected") == [made[1]]
    assert walked(state="revised", kind="prompt-template") == [made[2]]
    assert walked(kind="automation", limit=1) == made[3::4]
    assert walked(state="", kind="", after="", limit=0) == made


@pytest.mark.slow
@requirement("OW-89")
def test_what_is_installed_is_listed_by_kind_and_in_pages(host: Host) -> None:
    refs = []
    for kind, whole in [*COMPLETE.items()] * 2:
        refs.append(applied(host, proposed(host, whole, kind=kind)["id"]))
        proposed(host, whole, kind=kind)

    assert [it["installedArtifactRef"] for it in artifacts(host)] == refs
    assert [it["installedArtifactRef"] for it in artifacts(host, kind="automation")] == refs[3::4]
    page = ok(host.ask("GET", "/artifacts", params={"limit": 5}))
    assert page["next"] == refs[4]
    rest = ok(host.ask("GET", "/artifacts", params={"limit": 5, "after": page["next"]}))
    assert [it["installedArtifactRef"] for it in rest["artifacts"]] == refs[5:]
    assert "next" not in rest


@pytest.mark.slow
@requirement("OW-89")
def test_bytes_that_are_not_those_that_were_stored_are_never_installed(path: Path) -> None:
    with serving(path) as service:
        host = Host(service.http)
        id_ = proposed(host)["id"]
        ref = applied(host, proposed(host)["id"])
        for text in ('{"name":"b","version":"1"}', "{", '{"a":1e999}'):
            rows(path, f"UPDATE proposals SET artifact = '{text}'")
            assert artifact(host, ref).status_code == 503
            assert moved(host, id_, "apply").status_code == 503
            assert listed(host) == []
