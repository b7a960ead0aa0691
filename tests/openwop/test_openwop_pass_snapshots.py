"""What runs see of passes: what was there when they began, whatever is merged or undone since."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_looks import wire
from ..support.openwop_passes import archived, ids, passed
from ..support.requirements import requirement
from ..support.service import Service

WORDS = ["Herons wade. Storks nest.", "herons wade", "Storks nest."]


def filled(host: Host) -> list[Json]:
    """Entries of which the first says all, newest first."""
    return [host.put(it) for it in WORDS][::-1]


def merge(host: Host) -> Json:
    return {"ids": ids(host.entries()[:2]), "content": "birds"}


PASSES: dict[str, Callable[[Host], object]] = {
    "compaction": lambda it: it.compact(), "consolidation": lambda it: it.consolidate(),
    "distillation": lambda it: it.distill(), "merge": lambda it: it.consolidate(merge(it)),
}  # fmt: skip


def run_of(answer: object) -> str:
    return str(ok(answer)["runId"])  # type: ignore[arg-type]


@pytest.mark.heavy
@pytest.mark.parametrize("name", PASSES)
@requirement("OW-51", "OW-66", "OW-71")
def test_a_run_sees_passes_before_it_and_none_since(
    service: Service, host: Host, name: str
) -> None:
    sources = filled(host)
    before = host.in_run("before")
    service.clock.advance(seconds=1)
    run = run_of(PASSES[name](host))
    listed = host.entries()
    after = host.in_run("after")
    assert listed != sources
    assert (before.entries(), after.entries()) == (sources, listed)

    service.clock.advance(seconds=1)
    ok(host.undo(run))

    assert (before.entries(), after.entries()) == (sources, listed)
    assert host.entries() == host.in_run("undone").entries() == sources
    for entry in listed:
        assert ok(after.get(entry["id"]))["entry"] == entry
    for entry in sources:
        assert ok(before.get(entry["id"]))["entry"] == entry


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


@pytest.mark.slow
@requirement("OW-53", "OW-66")
def test_an_archive_that_ends_is_gone_from_runs_and_its_sources_are_back(
    service: Service, host: Host
) -> None:
    kept = host.put("herons wade")
    end = service.clock.now + timedelta(seconds=60)
    host.put("egrets fly", expiresAt=wire(end))
    before = host.in_run("before")
    archive = archived(host, host.compact())
    after = host.in_run("after")
    assert after.entries() == [archive]

    service.clock.now = end

    assert before.entries() == after.entries() == host.entries() == [kept]


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
    filled(host)
    answer = host.compact()
    inside = replace(host, run=run_of(answer))

    assert refused(inside.post("late")) == (409, "run_terminal")
    taken = host.ask("POST", "/runs", {"runId": run_of(answer)})
    assert refused(taken) == (409, "run_conflict")
    assert ids(host.entries()) == [passed(answer)["outputId"]]
