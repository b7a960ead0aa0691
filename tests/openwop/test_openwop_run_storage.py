"""What is made of a file with runs in it: upgrades, the doctor, scans, quotas."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ..secrets.test_redaction import GITHUB
from ..support.archives import all_rows, at
from ..support.engines import quota, rows
from ..support.files import NEWEST
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.original import filled
from ..support.requirements import requirement
from ..support.service import Service, serving


def played(host: Host) -> Json:
    """A run that has ended and one that is open, whose snapshot has what is deleted since."""
    made = host.put("kept for the run", tags=["a"])
    run = host.in_run("r1", agentId="ada", memoryRefs=[host.ref])
    run.put("by the run", nodeId="n1")
    ok(run.delete(made["id"]))
    done = host.in_run("r2", workflowId="triage")
    done.end("failed")
    return made


def told(host: Host) -> Json:
    """All that a host is told of memory and runs."""
    run = Host(host.http, host.ref, "r1")
    return {
        "events": ok(host.ask("GET", "/events", params={"limit": 1000}))["events"],
        "runs": [ok(host.ask("GET", f"/runs/{it}")) for it in ("r1", "r2")],
        "of the runs": [host.told("r1"), host.told("r2")],
        "live": host.entries(), "seen": run.entries(), "refs": ok(host.ask("GET", "/refs")),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.sqlite_files
@requirement("OW-103")
def test_the_doctor_finds_runs_well_and_misses_what_is_gone(path: Path) -> None:
    with serving(path) as service:
        played(Host(service.http))
    well = at(path).json("doctor", "--thorough")
    assert [it for it in well["findings"] if it["status"] == "error"] == []

    with closing(sqlite3.connect(path)) as database, database:  # which enforces no references
        database.execute("DELETE FROM run_events WHERE id = (SELECT min(id) FROM run_events)")
    broken = at(path).run("doctor", "--json")

    assert '"references"' in broken.stdout
    assert broken.exit_code != 0


@pytest.mark.slow
@requirement("OW-103")
def test_a_scan_takes_secrets_out_of_what_runs_have_put_and_leaves_their_events(path: Path) -> None:
    with serving(path) as service:
        host = Host(service.http)
        run = host.in_run("r1")
        made = run.put("stands for a token")
        before = run.told()
        rows(path, f"UPDATE memories SET content = 'It is {GITHUB}.'")

        assert at(path).run("scan").exit_code == 1
        assert at(path).run("scan", "--redact").exit_code == 0

        entry = ok(host.get(made["id"]))["entry"]
        assert entry == made | {"content": "It is [REDACTED:github-token]."}
        assert run.told() == before


@pytest.mark.heavy
@pytest.mark.sqlite_files
@requirement("OW-102")
@pytest.mark.parametrize("count", [1, 5])
def test_a_file_of_the_original_has_all_its_rows_and_takes_runs(tmp_path: Path, count: int) -> None:
    path = filled(tmp_path / "memory.db", rows=count)
    with serving(path) as service:
        found = service.http.get("/export").json()["observations"]
        played(Host(service.http))
        assert service.http.get("/export").json()["observations"] == found
        assert len(found) == count
    assert rows(path, "PRAGMA foreign_key_check") == []


@pytest.mark.slow
@pytest.mark.sqlite_files
@requirement("OW-102")
def test_a_file_that_a_newer_version_made_is_refused_and_stays(path: Path) -> None:
    with serving(path) as service:
        played(Host(service.http))
    assert rows(path, "PRAGMA user_version") == [(NEWEST,)]
    rows(path, f"PRAGMA user_version = {NEWEST + 1}")
    before = all_rows(path)

    done = at(path).run("migrate")

    assert done.exit_code == 1
    assert "made by a newer version" in done.output
    assert all_rows(path) == before


@requirement("OW-103")
def test_runs_go_on_a_little_in_a_tenant_that_is_full(path: Path) -> None:
    with serving(path, MEMORY_TENANT_QUOTA=quota(path, 1024)) as service:
        host = Host(service.http)
        run = host.in_run("r1")
        number = 0
        while (answer := host.post(f"{number} " + "ab " * 20_000)).status_code == 201:
            number += 1
        assert refused(answer) == (507, "quota_exceeded")
        assert refused(run.post("late" * 2000)) == (507, "quota_exceeded")
        run.register("s", "hunter2-hunter2")
        host.in_run("r2").end()
        assert run.end()["status"] == "completed"
        assert ok(run.fork(), 201)


@pytest.mark.sqlite_files
@requirement("OW-62")
def test_a_run_whose_events_are_damaged_is_not_forked(service: Service) -> None:
    host = Host(service.http)
    run = host.in_run("r1")
    for number in range(3):
        run.put(str(number))
    run.end()
    rows(service.path, "DELETE FROM run_events WHERE sequence = 2")

    answer = run.fork("replay")

    assert refused(answer) == (422, "replay_memory_snapshot_unavailable")
    assert answer.json()["details"] == {
        "fromSeq": 0, "sourceRunId": "r1", "reason": "event_log_unavailable"
    }  # fmt: skip
