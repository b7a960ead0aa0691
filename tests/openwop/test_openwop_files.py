"""Refs in files: upgraded, backed up, examined, scanned and erased with all else; and failures."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from agentops_memory.errors import StartRefused
from agentops_memory.sqlite import migrate
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.migrate import migrated

from ..sqlite.test_migrations import KEPT, THREE, make_older, scripts
from ..support.archives import at, backed_up
from ..support.callers import calling, made_key
from ..support.database import assert_index_is_whole
from ..support.engines import broken, rows
from ..support.erasing import remains
from ..support.files import NEWEST, NOW, assert_sound
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_tenants import anew, counted, keyed, provenance
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service, serving

__all__ = ["scripts"]

BEFORE = 15  # the format of a file that knows no refs
WORD = "xylographer"
GITHUB = "ghp" + "_" + "xylotomistA1b2C3d4E5f6G7h8I9j0K1l2M3"


def stocked(service: Service) -> dict[str, list[Json]]:
    """Entries of two refs, one of them superseded, one deleted, one with an end and a run."""
    host = Host(service.http)
    old = host.put(f"an old {WORD}", id="old")
    host.put(f"a {WORD}", id="new", supersedes=[old["id"]], tags=["t"])
    ok(host.delete(host.put("a zebra")["id"]))
    host.put("a brief stork", ttlSeconds=86_400)
    run = Host(service.http, "other").in_run("r1")
    run.put("a heron", nodeId="n1")
    return shown(service)


def shown(service: Service) -> dict[str, list[Json]]:
    """All that the routes tell of them."""
    host, other = Host(service.http), Host(service.http, "other")
    return {
        "listed": host.entries() + other.entries(tag="t") + other.entries(),
        "old": [ok(host.get("old"))["entry"], ok(provenance(host, "old"))],
        "found": host.search(WORD) + host.search("zebra stork") + other.search("heron"),
        "refs": ok(host.ask("GET", "/refs"))["refs"],
        "told": host.told("r1"),
    }


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


@pytest.mark.heavy
@pytest.mark.sqlite_files
@requirement("OW-103")
def test_a_backup_has_the_refs_and_a_restore_brings_them_back(path: Path, tmp_path: Path) -> None:
    with serving(path) as service:
        before = stocked(service)
        counts = counted(Host(service.http))
    archive, new = backed_up(path, tmp_path), tmp_path / "deep" / "new.db"

    at(new).say("restore", archive)

    with serving(new) as service:
        assert shown(service) == before
        host = Host(service.http)
        assert counted(host) == counts
        host.put("after")
        ok(host.delete("new"))
        assert {it["id"] for it in host.entries()} > {"old"}
    assert_index_is_whole(new)


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


@pytest.mark.heavy
@requirement("OW-103")
def test_a_service_that_starts_again_has_what_was_put(path: Path) -> None:
    with serving(path) as service:
        before = stocked(service)
    with serving(path) as service:
        assert shown(service) == before


@pytest.mark.heavy
@pytest.mark.sqlite_files
@requirement("OW-103")
def test_the_doctor_finds_nothing_amiss_in_refs_and_misses_one_that_is_gone(path: Path) -> None:
    with serving(path) as service:
        stocked(service)
    for options in ((), ("--thorough",)):
        assert at(path).run("doctor", *options).exit_code == 0
    with closing(connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("DELETE FROM refs WHERE ref = 'other'")

    found = at(path).run("doctor", "--thorough")

    assert found.exit_code == 1
    assert "heron" not in found.output


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


@pytest.mark.heavy
@requirement("OW-103", "OW-32")
def test_a_tenant_that_is_erased_takes_its_refs_with_it(path: Path, tmp_path: Path) -> None:
    with serving(path) as service, keyed(service) as ours, keyed(service, "writer", "acme") as acme:
        kept = ours.put("a heron", id="plan")
        acme.put(f"a {WORD}", id="plan", tags=["xylotomist"])
    assert remains(tmp_path, WORD, "xylotomist")

    at(path).say("tenants", "erase", "acme", "--yes")

    assert not remains(tmp_path, WORD, "xylotomist")
    with serving(path) as service:
        token = made_key(path, "writer", "acme")
        with keyed(service) as ours, calling(service, token) as http:
            assert ours.entries() == [kept]
            assert Host(http).entries() == []
            assert counted(Host(http)) == {}


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


TABLES = ("memories", "ref_tags", "ref_entries", "run_events")


@pytest.mark.heavy
@pytest.mark.representative(3)
@pytest.mark.parametrize("table", TABLES)
@requirement("OW-6", "OW-16", "OW-29")
def test_a_failure_is_told_with_the_requests_id_and_stores_nothing(path: Path, table: str) -> None:
    with serving(path) as service:
        host = Host(service.http)
        run, kept = host.in_run("r1"), host.put()
        with (
            broken(path, "INSERT", table, error="the program"),
            calling(service, None) as other,  # the service closes such a connection
        ):
            failing = Host(other, run="r1")
            answer = failing.post("an apple", tags=["t"], nodeId="n1", id="plan")

        assert refused(answer) in ((500, "internal_error"), (503, "service_unavailable"))
        assert answer.json()["details"]["correlationId"] == answer.headers["x-request-id"]
        assert "xylo" not in answer.text
        assert host.entries() == [kept]
        assert host.search("apple") == [kept]
        assert counted(host) == {host.ref: (1, len(kept["content"]))}
        assert [it["type"] for it in run.told()] == ["run.started"]
        assert run.put("an apple", tags=["t"], nodeId="n1", id="plan")["id"] == "plan"
    assert_index_is_whole(path)
