"""Proposals in files: kept, scanned, erased with their tenant; failures, which store nothing."""

import json
from pathlib import Path

import pytest

from ..support.archives import at
from ..support.callers import calling
from ..support.engines import broken, filler, quota, rows
from ..support.erasing import remains
from ..support.openwop_hosts import DISCOVERY, Host, Json, ok, refused
from ..support.openwop_proposals import (
    applied,
    artifact,
    artifacts,
    got,
    handed_in,
    listed,
    moved,
    proposed,
    revised,
    told_of,
)
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service, serving

MISSING = (404, "not_found")
GITHUB = "ghp_" + "a1B2c3D4e5" * 4


@pytest.mark.heavy
@pytest.mark.parametrize("table", ["proposals", "runs", "run_events"])
@requirement("OW-6", "OW-88")
def test_a_failure_stores_nothing_and_tells_nothing(path: Path, table: str) -> None:
    with serving(path) as service:
        host = Host(service.http)
        made = proposed(host)
        deed = "UPDATE" if table == "proposals" else "INSERT"
        for failed in ("INSERT", deed):
            with broken(path, failed, table, error="the program"), calling(service, None) as other:
                failing = Host(other)
                answer = (
                    handed_in(failing)
                    if failed == "INSERT"
                    else moved(failing, made["id"], "apply")
                )
            assert answer.status_code in (500, 503)
            assert listed(host) == [made]
            assert len(told_of(host, "proposal.created")) == 1
            assert artifacts(host) == told_of(host, "proposal.activated") == []
        assert applied(host, made["id"])


@pytest.mark.heavy
@requirement("OW-103", "OW-37")
def test_a_scan_takes_secrets_out_of_proposals_and_names_what_is_installed_anew(
    path: Path, tmp_path: Path
) -> None:
    exceptions = tmp_path / "memory.db.redaction"
    exceptions.write_text(json.dumps({"default": {"allow_kinds": ["github-token"]}}))
    with serving(path) as service:
        host = Host(service.http)
        secret: Json = {"name": f"a {GITHUB}", "version": "1", f"of {GITHUB}": [GITHUB]}
        draft = proposed(host, secret, title=GITHUB, rationale=f"as {GITHUB}")
        whole = proposed(host, kind="workflow-chain-pack")
        old = applied(host, proposed(host, secret)["id"])
    exceptions.unlink()

    told = at(path).run("scan")
    done = at(path).run("scan", "--redact")

    assert (told.exit_code, done.exit_code) == (1, 0)
    assert f"proposal {draft['id']}" in told.output
    assert "8 secrets found" in told.output
    assert GITHUB not in told.output + done.output
    assert at(path).say("scan").startswith("no secrets found")
    clean = {"name": "a [REDACTED:github-token]", "version": "1",
             "of [REDACTED:github-token]": ["[REDACTED:github-token]"]}  # fmt: skip
    with serving(path) as service:
        host = Host(service.http)
        shown = got(host, draft["id"])
        assert shown == draft | {
            "artifact": clean, "title": "[REDACTED:github-token]",
            "rationale": "as [REDACTED:github-token]",
        }  # fmt: skip
        assert got(host, whole["id"]) == whole
        (one,) = artifacts(host)
        assert one["installedArtifactRef"] != old
        assert refused(artifact(host, old)) == MISSING
        assert ok(artifact(host, one["installedArtifactRef"])) == clean
        assert applied(host, one["proposalId"]) == one["installedArtifactRef"]
        assert proposed(host, clean)["duplicateOf"] == draft["id"]
        until(lambda: not remains(tmp_path, GITHUB))


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


@pytest.mark.slow
@requirement("OW-88")
def test_a_full_tenant_takes_no_proposal_and_can_end_those_that_it_has(path: Path) -> None:
    with serving(path, MEMORY_TENANT_QUOTA=quota(path, 1536)) as service:
        host = Host(service.http)
        made = []
        while (answer := handed_in(host, {"name": filler(250_000), "version": "1"})).is_success:
            made.append(answer.json()["id"])
        assert refused(answer) == (507, "quota_exceeded")
        assert refused(revised(host, made[0], title="x")) == (507, "quota_exceeded")
        assert [it["id"] for it in listed(host)] == made
        assert applied(host, made[0])
        assert ok(moved(host, made[1], "reject"))["state"] == "rejected"
        assert ok(moved(host, made[0], "archive"))["state"] == "archived"


@requirement("OW-2", "OW-3")
def test_proposals_are_claimed_as_they_are_served(service: Service) -> None:
    document = ok(service.http.get(DISCOVERY))

    claimed = document["agents"]["proposals"]
    assert claimed == {
        "artifactKinds": ["agent-pack", "workflow-chain-pack", "prompt-template", "automation"],
        "duplicationDetection": True,
        "activation": "direct-rbac",
    }
    assert document["agentops-memory"]["activationScope"] == "packs:publish"
    host = Host(service.http)
    for kind in claimed["artifactKinds"]:
        assert proposed(host, kind=kind)["duplicateOf"] is None
        assert proposed(host, kind=kind)["duplicateOf"] is not None
