"""What hosts have stored, in files: restored, scanned, erased, full, damaged, and killed."""

import json
from pathlib import Path

import pytest

from ..support.archives import at, backed_up
from ..support.engines import filler, quota
from ..support.erasing import remains
from ..support.files import assert_index_is_whole
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_passes import events, ids
from ..support.openwop_proposals import (
    applied,
    artifact,
    artifacts,
    got,
    handed_in,
    moved,
    proposed,
    revised,
)
from ..support.openwop_tenants import anew, counted
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import serving

GITHUB = "ghp" + "_" + "xylotomistA1b2C3d4E5f6G7h8I9j0K1l2M3"


@pytest.mark.sqlite_files
@requirement("OW-103", "OW-96")
def test_a_restore_tells_of_a_subject_that_was_forgotten_since(path: Path, tmp_path: Path) -> None:
    with serving(path) as service:
        Host(service.http).put("red", tags=["subject:xyla"])
    archive = backed_up(path, tmp_path)
    with serving(path) as service:
        ok(Host(service.http).forget("xyla"))

    told = at(path).say("restore", archive, "--dry-run")

    assert "archive: subject #1. To erase again: POST /v1/host/agentops-memory/forget" in told
    assert "xyla" not in told


MARK = "[REDACTED:github-token]"


@pytest.mark.slow
@requirement("OW-103", "OW-37")
def test_a_scan_takes_secrets_out_of_all_that_hosts_have_stored(path: Path, tmp_path: Path) -> None:
    exceptions = tmp_path / "memory.db.redaction"
    exceptions.write_text(json.dumps({"default": {"allow_kinds": ["github-token"]}}))
    with serving(path) as service:
        host = Host(service.http)
        run = host.in_run("r1")
        made = host.put(f"it is {GITHUB}", tags=[f"a {GITHUB}", "b"], id="plan")
        own = run.put(f"of a run: {GITHUB}", tags=[f"of {GITHUB}"])
        gone = anew(host)
        ok(gone.delete(gone.put(f"deleted {GITHUB}")["id"]))
        clean = host.put("nothing is wrong with this one")
        waits = {"memoryRef": host.ref, "memoryId": "plan", "condition": "predicate"}
        ok(host.ask("POST", "/commitments", waits | {"tag": f"a {GITHUB}"}), 201)
        secret: Json = {"name": f"a {GITHUB}", "version": "1", f"of {GITHUB}": [GITHUB]}
        draft = proposed(host, secret, title=GITHUB, rationale=f"as {GITHUB}")
        whole = proposed(host, kind="workflow-chain-pack")
        old = applied(host, proposed(host, secret)["id"])
        told = run.told()
    exceptions.unlink()

    found, done = at(path).run("scan"), at(path).run("scan", "--redact")

    assert (found.exit_code, done.exit_code) == (1, 0)
    assert "15 secrets found" in found.output
    assert f"proposal {draft['id']}" in found.output
    assert "run r1: github-token 1" in found.output
    assert GITHUB not in found.output + done.output
    assert at(path).say("scan").startswith("no secrets found")
    artifact_left = {"name": f"a {MARK}", "version": "1", f"of {MARK}": [MARK]}
    with serving(path) as service:
        host = Host(service.http)
        entry = ok(host.get("plan"))["entry"]
        assert entry == made | {"content": f"it is {MARK}", "tags": [f"a {MARK}", "b"]}
        own = own | {"content": f"of a run: {MARK}", "tags": [f"of {MARK}"]}
        assert host.entries() == [clean, own, entry]
        assert host.entries(tag="b") == host.entries(tag=entry["tags"][0]) == [entry]
        assert host.entries(tag=made["tags"][0]) == []
        assert host.told("r1") == json.loads(json.dumps(told).replace(GITHUB, MARK))
        (armed,) = ok(host.ask("GET", "/commitments"))["commitments"]
        assert (armed["tag"], armed["state"]) == (f"a {MARK}", "armed")
        size = sum(len(it["content"]) for it in (entry, own, clean))
        assert counted(host) == {host.ref: (3, size)}
        assert got(host, draft["id"]) == draft | {
            "artifact": artifact_left, "title": MARK, "rationale": f"as {MARK}"
        }  # fmt: skip
        assert got(host, whole["id"]) == whole
        (one,) = artifacts(host)
        assert one["installedArtifactRef"] != old
        assert refused(artifact(host, old)) == (404, "not_found")
        assert ok(artifact(host, one["installedArtifactRef"])) == artifact_left
        assert applied(host, one["proposalId"]) == one["installedArtifactRef"]
        assert proposed(host, artifact_left)["duplicateOf"] == draft["id"]
        until(lambda: not remains(tmp_path, GITHUB))
    assert_index_is_whole(path)


@pytest.mark.slow
@requirement("OW-6", "OW-24", "OW-29", "OW-66", "OW-71", "OW-88", "OW-93", "OW-103")
def test_a_full_tenant_takes_no_text_and_reads_ends_and_removes_what_it_has(path: Path) -> None:
    with serving(path, MEMORY_TENANT_QUOTA=quota(path, 2048)) as service:
        host, ours = Host(service.http), Host(service.http, "ours")
        run, large = host.in_run("r1"), {"name": filler(200_000), "version": "1"}
        for text in ("herons wade", "egrets fly"):
            ours.put(text, tags=["subject:ada"])
        distilled = ok(ours.distill())["runId"]
        drafts = [proposed(host, {"name": f"{it}", "version": "1"})["id"] for it in range(3)]
        for number in range(1000):
            if (answer := host.post(f"{number} {filler(8000)}")).status_code != 201:
                break
        before = host.entries(limit=500), counted(host), len(events(host))

        for answer in (
            host.post(filler(60_000)), run.post("late" * 2000), handed_in(host, large),
            revised(host, drafts[0], artifact=large), host.compact(), host.consolidate(),
            ours.compact(), ours.distill(tokenBudget=90),
            ours.consolidate({"ids": ids(ours.entries()[1:]), "content": "birds"}),
        ):  # fmt: skip
            assert refused(answer) == (507, "quota_exceeded")

        assert (host.entries(limit=500), counted(host), len(events(host))) == before
        assert applied(host, drafts[0])
        assert ok(moved(host, drafts[1], "reject"))["state"] == "rejected"
        assert ok(moved(host, drafts[2], "archive"))["state"] == "archived"
        run.register("s", "hunter2-hunter2")
        host.in_run("r2").end()
        assert run.end()["status"] == "completed"
        assert ok(run.fork(), 201)
        assert ok(ours.undo(distilled))["removed"] == 1
        assert ok(ours.forget("ada"))["entries"] == 2
        ok(host.delete(host.entries()[0]["id"]))
