"""Runs of runs: a replay tells the same again, a branch goes on from where its source was."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from ..support.engines import rows
from ..support.openwop_hosts import Host, Json, faults, ok, refused
from ..support.openwop_looks import wire
from ..support.openwop_sweeps import deleted_long_ago, sweeping
from ..support.requirements import requirement
from ..support.service import Service

LOST = (422, "replay_memory_snapshot_unavailable")
OUT_OF_BOUNDS = (422, "invalid_from_seq")
OTHER = "user:42"


def forked(host: Host, mode: str = "replay", **fields: object) -> Host:
    """A run that is forked from the host's."""
    made = ok(host.fork(mode, **fields), 201)
    return Host(host.http, host.ref, made["runId"])


def row_counts(service: Service) -> list[tuple[object, ...]]:
    """How much is stored of memory, without runs and their events."""
    tables = "memories revisions supersessions ref_tags refs".split()
    return [(name, *rows(service.path, f"SELECT count(*) FROM {name}")[0]) for name in tables]


def played(service: Service, host: Host) -> Host:
    """A run with a put, a deletion and another put, a second between each; it is open."""
    run, before = host.in_run("r1", agentId="ada"), host.entries()
    steps: list[Callable[[], object]] = [
        lambda: run.put("one", nodeId="n1", tags=["a"]),
        lambda: run.delete(before[-1]["id"]),
        lambda: run.put("two", supersedes=[host.entries()[0]["id"]]),
    ]
    for step in steps:
        service.clock.advance(seconds=1)
        step()
    return run


@pytest.mark.slow
@requirement("OW-60")
def test_a_replay_has_the_events_and_the_memory_of_its_source_and_writes_nothing(
    service: Service, host: Host
) -> None:
    host.put("before")
    kept = host.put("kept")
    run = played(service, host)
    run.end("failed")
    told, seen, live, stored = run.told(), run.entries(), host.entries(), row_counts(service)
    service.clock.advance(days=1)

    answer = ok(run.fork("replay"), 201)

    again = Host(host.http, run=answer["runId"])
    assert answer == {
        "runId": again.run, "sourceRunId": "r1", "fromSeq": 0, "mode": "replay", "status": "failed"
    }  # fmt: skip
    new = again.told()
    assert [it | {"eventId": "", "runId": ""} for it in new] == [
        it | {"eventId": "", "runId": ""} for it in told
    ]
    assert len({it["eventId"] for it in told + new}) == 2 * len(told)
    assert {it["runId"] for it in new} == {again.run}
    assert again.entries() == seen
    assert [it["content"] for it in seen] == ["kept", "before"]
    assert ok(again.get(kept["id"]))["entry"] == kept
    assert (host.entries(), row_counts(service)) == (live, stored)
    shown = ok(host.ask("GET", f"/runs/{again.run}"))
    assert (shown["kind"], shown["sourceRunId"], shown["status"]) == ("replay", "r1", "failed")
    every = ok(host.ask("GET", "/events", params={"limit": 1000}))["events"]
    assert every == told + new
    for refusal in (again.post(), again.delete(kept["id"])):
        assert refused(refusal) == (409, "run_terminal")


@requirement("OW-60")
def test_a_replay_may_be_replayed_and_says_the_same(service: Service, host: Host) -> None:
    host.put("before")
    run = played(service, host)
    run.end()
    first = forked(run)
    second = forked(first)

    assert second.entries() == first.entries() == run.entries()
    for it in (first, second):
        assert [(one["type"], one["payload"], one["timestamp"]) for one in it.told()] == [
            (one["type"], one["payload"], one["timestamp"]) for one in run.told()
        ]
    assert ok(host.ask("GET", f"/runs/{second.run}"))["sourceRunId"] == first.run


@pytest.mark.heavy
@requirement("OW-60")
@pytest.mark.parametrize("from_seq", [1, 3, 4])
def test_a_replay_from_any_event_has_the_snapshot_of_the_start(
    service: Service, host: Host, from_seq: int
) -> None:
    host.put("before")
    run = played(service, host)

    again = forked(run, fromSeq=from_seq)

    assert again.contents() == run.contents() == ["before"]
    assert refused(again.post()) == (409, "run_terminal")
    assert run.put("the source goes on")


@pytest.mark.slow
@requirement("OW-61")
def test_a_branch_sees_memory_as_it_was_after_each_event(service: Service, host: Host) -> None:
    host.put("before")
    kept = host.put("kept")
    run = played(service, host)
    host.put("of nobody")
    run.end()
    host.put("late", supersedes=[kept["id"]])

    seen = [forked(run, "branch", fromSeq=it).contents() for it in range(6)]

    assert seen == [
        ["kept", "before"], ["one", "kept", "before"], ["one", "kept"], ["two", "kept"],
        ["of nobody", "two", "kept"], ["of nobody", "two", "kept"],
    ]  # fmt: skip
    assert host.contents() == ["late", "of nobody", "two"]


@pytest.mark.slow
@requirement("OW-61")
def test_a_branch_is_an_open_run_of_its_own(service: Service, host: Host) -> None:
    host.put("before")
    run = played(service, host)
    service.clock.advance(hours=1)

    answer = ok(run.fork("branch", fromSeq=1), 201)

    branch = Host(host.http, run=answer["runId"])
    assert answer == {
        "runId": branch.run, "sourceRunId": "r1", "fromSeq": 1, "mode": "branch",
        "status": "running",
    }  # fmt: skip
    shown = ok(host.ask("GET", f"/runs/{branch.run}"))
    assert (shown["kind"], shown["sourceRunId"]) == ("branch", "r1")
    assert shown["startedAt"] == wire(service.clock.now)
    base = branch.told()
    assert (base[0]["type"], base[0]["sequence"]) == ("run.started", 0)
    made = branch.put("of the branch")
    assert branch.contents() == ["one", "before"]
    assert made in host.entries()
    branch.end()
    assert [it["type"] for it in branch.told()[len(base) :]] == ["memory.written", "run.completed"]
    assert [it["sequence"] for it in branch.told()] == list(range(len(base) + 2))
    assert "run.completed" not in [it["type"] for it in run.told()]
    last = forked(branch, "branch", fromSeq=len(base))
    assert "of the branch" in last.contents()


@pytest.mark.heavy
@requirement("OW-63")
@pytest.mark.parametrize("mode", ["replay", "branch"])
def test_where_a_fork_may_begin(service: Service, host: Host, mode: str) -> None:
    host.put("before")
    run = played(service, host)
    last = run.told()[-1]["sequence"]
    stored = row_counts(service)

    for bad in (-1, "x", "1", 1.5, True, [0]):
        assert faults(run.fork(mode, fromSeq=bad)) == ["fromSeq"], bad
    for far in (last + 2, 10**6, 2**62):
        assert refused(run.fork(mode, fromSeq=far)) == OUT_OF_BOUNDS, far
    for fine in (0, last, last + 1):
        assert ok(run.fork(mode, fromSeq=fine), 201)["fromSeq"] == fine
    assert row_counts(service) == stored


@requirement("OW-63")
def test_a_fork_says_its_mode_and_a_branch_where_it_begins(host: Host) -> None:
    run = host.in_run("r1")

    assert faults(run.fork("branch")) == ["fromSeq"]
    for mode in (None, "", "rerun", 7):
        assert faults(run.fork(mode)) == ["mode"]  # type: ignore[arg-type]
    assert sorted(faults(run.fork("rerun", fromSeq=-1))) == ["fromSeq", "mode"]
    assert ok(run.fork("replay", fromSeq=None), 201)["fromSeq"] == 0
    assert len({it["runId"] for it in ok(host.ask("GET", "/events"))["events"]}) == 2


def _expired(service: Service, _: Host) -> None:
    service.clock.now += timedelta(hours=2)


def _erased(service: Service, host: Host) -> None:
    held = next(it for it in host.entries() if it["content"] == "fleeting")
    ok(host.delete(held["id"]))
    deleted_long_ago(service)


LOSSES = {"it has expired": _expired, "it was deleted and erased": _erased}
WAYS: dict[str, Json] = {"it was declared": {"memoryRefs": [OTHER]}, "it was written to": {}}


@pytest.mark.heavy
@pytest.mark.representative(2)
@requirement("OW-62", "OW-63")
@pytest.mark.parametrize("mode", ["replay", "branch"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_snapshot_that_lost_something_is_refused_and_never_served_in_part(
    tmp_path: Path, loss: str, way: str, mode: str
) -> None:
    with sweeping(tmp_path) as service:
        host = Host(service.http, OTHER)
        end = wire(service.clock.now + timedelta(hours=1))
        host.put("kept")
        host.put("fleeting", expiresAt=end if loss == "it has expired" else None)
        run = host.in_run("r1", **WAYS[way])
        if way == "it was written to":
            run.put("written")
        run.end()
        LOSSES[loss](service, host)

        answer = run.fork(mode, fromSeq=0)

        assert refused(answer) == LOST
        assert answer.json()["details"] == {
            "fromSeq": 0, "sourceRunId": "r1", "reason": "retention_expired"
        }  # fmt: skip
        assert refused(run.fork(mode, fromSeq=99)) == OUT_OF_BOUNDS
        assert faults(run.fork(mode, fromSeq=-1)) == ["fromSeq"]
        assert len({it["runId"] for it in ok(host.ask("GET", "/events"))["events"]}) == 1


@pytest.mark.heavy
@pytest.mark.representative(2)
@requirement("OW-62")
@pytest.mark.parametrize("mode", ["replay", "branch"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_ref_that_a_run_did_not_name_is_refused_when_it_is_read(
    tmp_path: Path, loss: str, mode: str
) -> None:
    with sweeping(tmp_path) as service:
        host, other = Host(service.http), Host(service.http, OTHER)
        whole = host.put("whole")
        end = wire(service.clock.now + timedelta(hours=1))
        kept = other.put("kept")
        other.put("fleeting", expiresAt=end if loss == "it has expired" else None)
        run = host.in_run("r1")
        run.end()
        LOSSES[loss](service, other)

        fork = forked(run, mode, fromSeq=0)

        assert fork.entries() == [whole]
        reader = Host(service.http, OTHER, fork.run)
        params = {"memoryRef": OTHER, "runId": fork.run}
        for answer in (reader.ask("GET", "/memory", params=params), reader.get(kept["id"])):
            assert refused(answer) == LOST
            assert answer.json()["details"] == {
                "fromSeq": 0, "sourceRunId": "r1", "reason": "retention_expired"
            }  # fmt: skip
        assert other.entries() == [kept]


@pytest.mark.heavy
@requirement("OW-62", "OW-61")
def test_what_is_deleted_and_not_yet_erased_is_whole_and_a_branch_keeps_it(tmp_path: Path) -> None:
    with sweeping(tmp_path) as service:
        host = Host(service.http)
        made = host.put("deleted later")
        run = host.in_run("r1", memoryRefs=[host.ref])
        run.end()
        ok(host.delete(made["id"]))

        branch = forked(run, "branch", fromSeq=0)
        deleted_long_ago(service)

        assert branch.entries() == [made]
        assert ok(run.fork("replay"), 201)
        branch.end()
        deleted_long_ago(service)
        assert refused(run.fork("replay")) == LOST
