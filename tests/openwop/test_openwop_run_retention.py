"""How long runs and their events are kept, and what an open run keeps of memory."""

from datetime import timedelta
from pathlib import Path

import pytest

from ..support.erasing import remains
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_sweeps import deleted_long_ago, is_stored, steadily, sweeping, swept_index
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service

LOST = (422, "replay_memory_snapshot_unavailable")
DAY = timedelta(days=1)
TEXT = "a hippopotamus"


def status(host: Host, run: str = "r1") -> str:
    """What is known of a run; a status of its own when nothing is."""
    answer = host.ask("GET", f"/runs/{run}")
    return answer.json().get("status", str(answer.status_code))  # type: ignore[no-any-return]


@pytest.mark.heavy
@requirement("OW-51")
def test_what_is_deleted_keeps_its_text_while_an_open_run_may_see_it_and_no_longer(
    tmp_path: Path,
) -> None:
    with sweeping(tmp_path) as service:
        host = Host(service.http)
        made = host.put(TEXT)
        first, second = host.in_run("r1"), host.in_run("r2")
        ok(host.delete(made["id"]))
        later = host.in_run("r3")
        deleted_long_ago(service)

        assert first.entries() == second.entries() == [made]
        assert ok(first.get(made["id"]))["entry"] == made
        assert later.entries() == []
        first.end()
        deleted_long_ago(service)
        assert second.entries() == [made]
        second.end()
        deleted_long_ago(service)

        assert not is_stored(service.path, TEXT)
        until(lambda: not remains(tmp_path, "hippopotamus"))
        assert later.entries() == []


@pytest.mark.slow
@requirement("OW-51")
def test_what_is_deleted_in_a_run_is_seen_in_it_on_and_what_came_later_is_not_kept(
    tmp_path: Path,
) -> None:
    with sweeping(tmp_path) as service:
        host = Host(service.http)
        made = host.put(TEXT)
        run = host.in_run("r1")
        own = run.put("a rhinoceros")
        for it in (made, own):
            ok(run.delete(it["id"]))
        deleted_long_ago(service)

        assert is_stored(service.path, TEXT)
        assert not is_stored(service.path, "a rhinoceros")
        assert run.entries() == [made]


@pytest.mark.heavy
@requirement("OW-64")
def test_a_run_of_which_nothing_is_heard_is_cancelled_when_its_time_is_over(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        host = Host(service.http)
        silent, busy = host.in_run("r1"), host.in_run("r2")
        silent.put()
        for _ in range(3):
            steadily(service, 3 * DAY)
            busy.put()
        deleted_long_ago(service)
        assert (status(host, "r1"), status(host, "r2")) == ("running", "running")

        steadily(service, DAY)
        until(lambda: status(host, "r1") == "cancelled")

        assert status(host, "r2") == "running"
        assert [it["type"] for it in busy.told()] == ["run.started", *["memory.written"] * 3]
        assert refused(silent.post()) == (409, "run_terminal")
        told = silent.told()
        assert told[-1]["type"] == "run.cancelled"
        assert [it["sequence"] for it in told] == [0, 1, 2]
        assert silent.end("cancelled")["status"] == "cancelled"
        run = ok(host.ask("GET", "/runs/r1"))
        assert run["endedAt"] == told[-1]["timestamp"]


@pytest.mark.heavy
@requirement("OW-64")
def test_what_a_cancelled_run_saw_may_go(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        host = Host(service.http)
        made = host.put(TEXT)
        host.in_run("r1")
        ok(host.delete(made["id"]))
        deleted_long_ago(service)
        assert is_stored(service.path, TEXT)

        steadily(service, 11 * DAY)

        until(lambda: status(host) == "cancelled")
        until(lambda: not is_stored(service.path, TEXT))


@pytest.mark.heavy
@requirement("OW-62", "OW-57")
def test_the_events_of_an_ended_run_go_and_later_the_run_itself(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        host = Host(service.http)
        run, other = host.in_run("r1"), host.in_run("r2")
        run.put()
        steadily(service, 8 * DAY)
        other.put()
        run.end()
        told, at = run.told(), cursor(host)
        steadily(service, 8 * DAY)
        other.put()
        deleted_long_ago(service)
        assert run.told() == told  # its time counts from its end
        ok(run.fork(), 201)

        steadily(service, 2 * DAY)
        until(lambda: run.told() == [])

        for mode in ("replay", "branch"):
            answer = run.fork(mode, fromSeq=0)
            assert refused(answer) == LOST
            assert answer.json()["details"] == {
                "fromSeq": 0, "sourceRunId": "r1", "reason": "retention_expired"
            }  # fmt: skip
        assert status(host, "r1") == "completed"
        assert len(other.told()) == 3
        after = ok(host.ask("GET", "/events", params={"after": at}))["events"]
        assert "r1" not in {it["runId"] for it in after}
        assert other.told()[-1] in after

        steadily(service, 5 * DAY)
        other.put()
        deleted_long_ago(service)
        assert status(host, "r1") == "completed"
        steadily(service, 6 * DAY)
        until(lambda: status(host, "r1") == "404")
        assert refused(run.fork()) == (404, "not_found")
        assert refused(run.ask("GET", "/runs/r1/events")) == (404, "not_found")
        params = {"memoryRef": host.ref, "runId": "r1"}
        assert refused(host.ask("GET", "/memory", params=params)) == (404, "not_found")
        assert host.in_run("r1").told()[0]["sequence"] == 0  # the id is free


def cursor(host: Host) -> object:
    """Where the tenant's events are."""
    return ok(host.ask("GET", "/events", params={"limit": 1000}))["next"]


@requirement("OW-64", "OW-62")
def test_a_clock_that_jumps_cancels_no_run_and_removes_none(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        host = Host(service.http)
        run, ended = host.in_run("r1"), host.in_run("r2")
        ended.end()
        steadily(service, timedelta())
        service.clock.now += 100 * DAY
        swept_index(service)

        assert (status(host, "r1"), status(host, "r2")) == ("running", "completed")
        assert len(ended.told()) == 2
        service.clock.now -= 100 * DAY
        swept_index(service)
        assert run.put()
        assert ok(ended.fork(), 201)


@pytest.mark.heavy
@pytest.mark.representative(2)
@requirement("OW-64")
@pytest.mark.parametrize("name", ["put", "delete", "secret"])
def test_a_run_is_heard_of_by_what_it_does(tmp_path: Path, name: str) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        host = Host(service.http)
        run = host.in_run("r1")
        silent = host.in_run("r2")
        steadily(service, 6 * DAY)
        made: Json = host.put()
        match name:
            case "put":
                run.put()
            case "delete":
                ok(run.delete(made["id"]))
            case "secret":
                run.register("s", "hunter2-hunter2")
        steadily(service, 6 * DAY)
        until(lambda: status(host, silent.run or "") == "cancelled")

        deleted_long_ago(service)
        assert status(host) == "running"


@pytest.mark.slow
@requirement("OW-64", "OW-57")
def test_runs_are_kept_for_ever_where_events_are(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="0", MEMORY_SESSION_IDLE="0") as service:
        host = Host(service.http)
        run, ended = host.in_run("r1"), host.in_run("r2")
        run.register("s", "hunter2-hunter2")
        ended.end()
        told = run.told(), ended.told()
        steadily(service, 900 * DAY)
        deleted_long_ago(service)

        assert (run.told(), ended.told()) == told
        assert run.put("hunter2-hunter2")["content"] == "[REDACTED:s]"
        assert ok(ended.fork(), 201)


@requirement("OW-51", "OW-47")
def test_what_expires_in_an_open_run_is_erased_in_its_time(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EXPIRED="1d") as service:
        host = Host(service.http)
        host.put(TEXT, ttlSeconds=3600)
        run = host.in_run("r1")
        steadily(service, timedelta(hours=2))
        assert run.entries() == []
        assert is_stored(service.path, TEXT)
        steadily(service, DAY)

        until(lambda: not is_stored(service.path, TEXT))
        assert run.entries() == []


def kept(service: Service) -> Json:
    """All that is told of runs."""
    found: Json = ok(Host(service.http).ask("GET", "/events", params={"limit": 1000}))
    return found


@pytest.mark.heavy
@requirement("OW-64")
def test_a_restart_hears_nothing_and_cancels_nothing_too_early(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        Host(service.http).in_run("r1").put()
        told, clock = kept(service)["events"], service.clock
    clock.advance(days=9)
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d", clock=clock) as service:
        host = Host(service.http)
        steadily(service, timedelta())
        deleted_long_ago(service)
        assert status(host) == "running"
        assert kept(service)["events"] == told
        steadily(service, DAY)
        until(lambda: status(host) == "cancelled")
