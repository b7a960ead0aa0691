"""How long runs and their events are kept, and what an open run keeps of memory."""

from datetime import timedelta
from pathlib import Path

import pytest

from ..support.erasing import remains
from ..support.openwop_hosts import Host, ok, refused
from ..support.openwop_sweeps import deleted_long_ago, is_stored, steadily, sweeping, swept_index
from ..support.process import until
from ..support.requirements import requirement

LOST = (422, "replay_memory_snapshot_unavailable")
DAY = timedelta(days=1)
TEXT = "a hippopotamus"


def status(host: Host, run: str = "r1") -> str:
    """What is known of a run; a status of its own when nothing is."""
    answer = host.ask("GET", f"/runs/{run}")
    return answer.json().get("status", str(answer.status_code))  # type: ignore[no-any-return]


@pytest.mark.slow
@requirement("OW-51", "OW-64")
def test_what_is_deleted_keeps_its_text_while_an_open_run_may_see_it_and_no_longer(
    tmp_path: Path,
) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        host = Host(service.http)
        made = host.put(TEXT)
        first, second = host.in_run("r1"), host.in_run("r2")
        own = first.put("a rhinoceros")
        for it in (made, own):
            ok(first.delete(it["id"]))
        later = host.in_run("r3")
        deleted_long_ago(service)

        assert not is_stored(service.path, "a rhinoceros")  # which came after its start
        assert first.entries() == second.entries() == [made]
        assert ok(first.get(made["id"]))["entry"] == made
        assert later.entries() == []
        first.end()
        deleted_long_ago(service)
        assert second.entries() == [made]
        steadily(service, 11 * DAY)  # nothing is heard of the second one

        until(lambda: status(host, "r2") == "cancelled")
        until(lambda: not is_stored(service.path, TEXT))
        until(lambda: not remains(tmp_path, "hippopotamus"))


@pytest.mark.slow
@requirement("OW-64")
def test_a_run_of_which_nothing_is_heard_is_cancelled_when_its_time_is_over(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        host, clock = Host(service.http), service.clock
        silent, putting, deleting, registering = (host.in_run(f"r{it}") for it in range(4))
        silent.put()
        made = host.put()
        steadily(service, 6 * DAY)
        putting.put()
        ok(deleting.delete(made["id"]))
        registering.register("s", "hunter2-hunter2")
        told = host.ask("GET", "/events", params={"limit": 1000}).content
    clock.advance(days=3)
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d", clock=clock) as service:
        host = Host(service.http)
        steadily(service, timedelta())
        deleted_long_ago(service)
        assert host.ask("GET", "/events", params={"limit": 1000}).content == told
        steadily(service, DAY)
        until(lambda: status(host, "r0") == "cancelled")

        deleted_long_ago(service)
        assert [status(host, f"r{it}") for it in range(1, 4)] == ["running"] * 3
        silent = Host(service.http, run="r0")
        assert refused(silent.post()) == (409, "run_terminal")
        log = silent.told()
        assert [it["type"] for it in log] == ["run.started", "memory.written", "run.cancelled"]
        assert silent.end("cancelled")["endedAt"] == log[-1]["timestamp"]


@pytest.mark.slow
@requirement("OW-62", "OW-57")
def test_the_events_of_an_ended_run_go_and_later_the_run_itself(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="10d") as service:
        host = Host(service.http)
        run, other = host.in_run("r1"), host.in_run("r2")
        run.put()
        steadily(service, 8 * DAY)
        other.put()
        run.end()
        told, at = run.told(), ok(host.ask("GET", "/events", params={"limit": 1000}))["next"]
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
