"""Refs in files: upgraded, restored, scanned and erased with all else."""

import json
from pathlib import Path

import pytest

from agentops_memory.errors import StartRefused
from agentops_memory.sqlite import migrate
from agentops_memory.sqlite.migrate import migrated

from ..sqlite.test_migrations import KEPT, THREE, make_older, scripts
from ..support.archives import at, backed_up
from ..support.database import assert_index_is_whole
from ..support.engines import rows
from ..support.erasing import remains
from ..support.files import NEWEST, NOW, assert_sound
from ..support.openwop_hosts import Host, ok
from ..support.openwop_tenants import anew, counted
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import serving

__all__ = ["scripts"]

BEFORE = 15  # the format of a file that knows no refs
WORD = "xylographer"
GITHUB = "ghp" + "_" + "xylotomistA1b2C3d4E5f6G7h8I9j0K1l2M3"


@pytest.mark.heavy
@pytest.mark.sqlite_files
@requirement("OW-102")
def test_refs_come_to_a_file_and_change_nothing_of_it(path: Path, scripts: Path) -> None:
    make_older(path, scripts, BEFORE, THREE)
    kept = [*KEPT[:-1], ("id, hex(block)", "memories_fts_0_data")]
    before = [rows(path, f"SELECT {columns} FROM {table} ORDER BY 1") for columns, table in kept]

    migrated(path, NOW)

    after = [rows(path, f"SELECT {columns} FROM {table} ORDER BY 1") for columns, table in kept]
    assert after == before
    assert_sound(path, live=1)
    with serving(path) as service:
        host = Host(service.http)
        assert ok(host.ask("GET", "/refs")) == {"refs": []}
        made = host.put("a zebra of a ref")
        assert host.search("zebra") == [made]
        assert [hit["title"] for hit in service.http.get("/search?q=zebra").json()] == ["kept"]
    assert_index_is_whole(path)


@requirement("OW-102")
def test_an_older_version_refuses_a_file_with_refs_and_leaves_it(path: Path, scripts: Path) -> None:
    migrated(path, NOW)
    assert NEWEST > BEFORE
    for script in scripts.iterdir():
        if script.name > f"{BEFORE + 1:04}":
            script.rename(script.with_suffix(".later"))
    migrate.scripts.cache_clear()
    before = path.read_bytes()

    with pytest.raises(StartRefused, match=rf"format {NEWEST}.*up to {BEFORE}"):
        migrated(path, NOW)

    assert path.read_bytes() == before


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


@pytest.mark.slow
@requirement("OW-103", "OW-37")
def test_a_scan_takes_secrets_out_of_entries_which_keep_their_ids(
    path: Path, tmp_path: Path
) -> None:
    exceptions = tmp_path / "memory.db.redaction"
    exceptions.write_text(json.dumps({"default": {"allow_kinds": ["github-token"]}}))
    with serving(path) as service:
        host = Host(service.http)
        made = host.put(f"it is {GITHUB}", tags=[f"a {GITHUB}", "b"], id="plan")
        gone = anew(host)
        ok(gone.delete(gone.put(f"deleted {GITHUB}")["id"]))
        clean = host.put("nothing is wrong with this one")
        waits = {"memoryRef": host.ref, "memoryId": "plan", "condition": "predicate"}
        ok(host.ask("POST", "/commitments", waits | {"tag": f"a {GITHUB}"}), 201)
    exceptions.unlink()

    told = at(path).run("scan")
    done = at(path).run("scan", "--redact")

    assert (told.exit_code, done.exit_code) == (1, 0)
    assert "4 secrets found" in told.output
    assert GITHUB not in told.output + done.output
    assert at(path).say("scan").startswith("no secrets found")
    with serving(path) as service:
        host = Host(service.http)
        entry = ok(host.get("plan"))["entry"]
        assert entry["content"] == "it is [REDACTED:github-token]"
        assert entry["tags"] == ["a [REDACTED:github-token]", "b"]
        assert {**entry, "content": "", "tags": []} == {**made, "content": "", "tags": []}
        assert host.entries() == [clean, entry]
        assert host.entries(tag="b") == host.entries(tag=entry["tags"][0]) == [entry]
        assert host.entries(tag=made["tags"][0]) == []
        (armed,) = ok(host.ask("GET", "/commitments"))["commitments"]
        assert (armed["tag"], armed["state"]) == ("a [REDACTED:github-token]", "armed")
        size = len(entry["content"]) + len(clean["content"])
        assert counted(host) == {host.ref: (2, size)}
        until(lambda: not remains(tmp_path, GITHUB))
    assert_index_is_whole(path)


@pytest.mark.slow
@requirement("OW-103", "OW-23")
def test_deleted_entries_are_erased_when_their_time_is_over(path: Path, tmp_path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="5ms", MEMORY_KEEP_DELETED="1d") as service:
        host = Host(service.http)
        kept = host.put("a heron")
        ok(host.delete(host.put(f"a {WORD}", tags=["xylotomist"], id="xylophagan")["id"]))
        service.clock.advance(days=2)
        until(lambda: rows(path, "SELECT count(*) FROM memories") == [(1,)])
        until(lambda: not remains(tmp_path, WORD, "xylotomist", "xylophagan"))
        assert host.entries() == [kept]
        assert counted(host) == {host.ref: (1, 7)}
        assert rows(path, "SELECT count(*) FROM ref_tags WHERE tag = 'xylotomist'") == [(0,)]
    assert_index_is_whole(path)
