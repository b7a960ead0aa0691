"""Runs of runs: a replay tells the same again, a branch goes on, both see what was seen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ..support.engines import rows
from ..support.openwop_hosts import REF, Host, Json, faults, ok, refused, wire
from ..support.openwop_passes import ids, passed
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving

LOST = (422, "replay_memory_snapshot_unavailable")
OUT_OF_BOUNDS = (422, "invalid_from_seq")


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


@for_each("mode", ["replay", "branch"])
@requirement("OW-63")
def test_a_fork_begins_at_an_event_or_after_the_last(host: Host, mode: str) -> None:
    run = host.in_run(mode)
    run.put("before")
    last = run.told()[-1]["sequence"]

    for far in (last + 2, 10**6, 2**62):
        assert refused(run.fork(mode, fromSeq=far)) == OUT_OF_BOUNDS, far
    for fine in (0, last, last + 1):
        assert ok(run.fork(mode, fromSeq=fine), 201)["fromSeq"] == fine
    assert sorted(faults(run.fork("rerun", fromSeq=-1))) == ["fromSeq", "mode"]
    assert ok(run.fork("replay", fromSeq=None), 201)["fromSeq"] == 0


def listed(host: Host, ref: str = REF) -> httpx.Response:
    return host.ask("GET", "/memory", params={"memoryRef": ref, "runId": host.run})


@requirement("OW-60", "OW-62")
def test_a_log_that_lacks_an_event_is_not_replayed(service: Service, host: Host) -> None:
    for name, lost, reason in (
        ("r1", "type = 'run.completed'", "retention_expired"),
        ("r2", "sequence = 1", "event_log_unavailable"),
    ):
        run = host.in_run(name)
        run.put(), run.put()
        run.end()
        rows(service.path, f"DELETE FROM run_events WHERE {lost}")
        answers = [run.fork(), run.fork("branch", fromSeq=1)]
        if name == "r1":
            answers.append(listed(run))
        for answer in answers:
            assert refused(answer) == LOST
            assert answer.json()["details"]["reason"] == reason


@requirement("OW-62")
def test_what_a_run_never_saw_makes_no_fork_impossible(path: Path) -> None:
    with serving(path, MEMORY_KEEP_DELETED="1h", MEMORY_KEEP_EXPIRED="1h") as service:
        host = Host(service.http)
        host.put("gone before", ttlSeconds=60)
        service.clock.advance(minutes=2)
        run = host.in_run("r1", memoryRefs=[REF])
        own = run.put("its own")
        ok(host.delete(own["id"]))
        run.end()
        rows(service.path, "DELETE FROM memories")  # as a sweep erases them

        assert run.contents() == []
        assert run.fork().status_code == 201


@pytest.mark.slow
@requirement("OW-53", "OW-61", "OW-62")
def test_nothing_stands_in_for_what_has_ended_or_is_erased_since(
    service: Service, host: Host
) -> None:
    kept, other = host.put("kept"), replace(host, ref="other")
    host.put("brief", ttlSeconds=60), other.put("brief", ttlSeconds=60)
    silent, run = host.in_run("r0"), host.in_run("r1", memoryRefs=[REF])
    run.put("own"), run.put("after")
    early = forked(run), forked(run, "branch", fromSeq=1)
    service.clock.advance(seconds=60)

    for erased in ("nothing", "brief"):  # as a sweep does it
        rows(service.path, f"DELETE FROM memories WHERE content = '{erased}'")
        assert run.contents() == early[0].contents() == ["kept"]  # it ends in a run, too
        assert early[1].contents() == ["own", "kept"]
        assert [ok(listed(it, "other"))["entries"] for it in early] == [[], []]
        for mode, number in (("replay", 0), ("branch", 1)):
            answer = run.fork(mode, fromSeq=number)
            assert refused(answer) == LOST
            assert answer.json()["details"] == {
                "fromSeq": number, "sourceRunId": "r1", "reason": "retention_expired"
            }  # fmt: skip
        for unnamed in (forked(silent), forked(silent, "branch", fromSeq=0)):
            assert [refused(listed(unnamed, it)) for it in (REF, "other")] == [LOST, LOST]

    late = host.in_run("r2", memoryRefs=[REF])
    late.end()
    copy = forked(late)
    assert copy.contents() == late.contents() == ["after", "own", "kept"]
    ok(host.delete(kept["id"]))
    assert copy.contents() == late.contents() == ["after", "own", "kept"]
    rows(service.path, "DELETE FROM memories WHERE content = 'kept'")  # as a sweep erases it
    assert {refused(it) for it in (listed(late), listed(copy), late.fork())} == {LOST}
    assert forked(host.in_run("r3", memoryRefs=[REF])).contents() == ["after", "own"]


def run_of(answer: object) -> str:
    return str(ok(answer)["runId"])  # type: ignore[arg-type]


@pytest.mark.slow
@requirement("OW-61", "OW-51")
def test_a_branch_sees_what_was_there_at_its_event(host: Host) -> None:
    run, looks = host.in_run("r1"), list[list[Json]]()
    for deed in (host.compact, host.distill, None):
        for text in ("herons wade", "egrets fly"):
            run.put(text, tags=[str(len(looks))])
            looks.append(host.entries())
        if deed is not None:
            ok(deed())
    undone = run_of(host.compact())
    run.put("storks nest")
    looks.append(host.entries())
    ok(host.undo(undone))
    run.put("cranes dance")
    looks.append(host.entries())

    for number, look in enumerate(looks, 1):
        made = ok(run.fork("branch", fromSeq=number), 201)["runId"]
        branch = Host(host.http, host.ref, made)
        assert branch.entries() == look, number
        ok(branch.ask("POST", f"/runs/{made}/end", {"status": "completed"}))
    assert run.entries() == []


@requirement("OW-55", "OW-57", "OW-60")
def test_a_pass_tells_nothing_in_the_runs_of_hosts_and_is_replayed_as_told(host: Host) -> None:
    run = host.in_run("r1")
    run.put("herons wade"), run.put("egrets fly")
    told = run.told()
    done = run_of(host.compact())
    assert run.told() == told
    ok(host.undo(done))
    assert run.told() == told
    held = host.entries()

    replay = ok(Host(host.http, run=done).fork(), 201)["runId"]

    copied = host.told(replay)
    assert [(it["type"], it["payload"], it["timestamp"]) for it in copied] == [
        (it["type"], it["payload"], it["timestamp"]) for it in host.told(done)
    ]
    assert host.entries() == held


@requirement("OW-54", "OW-66")
def test_nothing_is_put_in_the_run_of_a_pass(host: Host) -> None:
    host.put("herons wade"), host.put("egrets fly")
    answer = host.compact()
    inside = replace(host, run=run_of(answer))

    assert refused(inside.post("late")) == (409, "run_terminal")
    taken = host.ask("POST", "/runs", {"runId": run_of(answer)})
    assert refused(taken) == (409, "run_conflict")
    assert ids(host.entries()) == [passed(answer)["outputId"]]
