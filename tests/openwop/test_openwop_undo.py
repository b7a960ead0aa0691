"""Undo: what a pass has done is as it was, byte for byte, or it is refused and nothing changes."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from ..support.openwop_hosts import REF, Host, ok, refused
from ..support.openwop_passes import (
    NOT_UNDOABLE,
    UNDONE,
    about,
    corpus,
    events,
    ids,
    passed,
    state,
)
from ..support.openwop_tenants import NEVER, counted
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

Pass = Callable[[Host], httpx.Response]
MADE = [
    ("Herons wade. Storks nest.", []), ("herons wade", []), ("It waits 12 s.", ["key:wait"]),
    ("It waits 30 s.", ["key:wait"]), ("Storks nest.", []), ("pinned", ["pinned"]),
]  # fmt: skip


def filled(service: Service, ref: str = REF) -> Host:
    """A host whose ref has entries, a second between each."""
    host = Host(service.http, ref)
    for text, tags in MADE:
        host.put(text, tags=tags)
        service.clock.advance(seconds=1)
    return host


def merge(host: Host) -> httpx.Response:
    apart = ids([it for it in host.entries() if it["content"].startswith("It waits")])
    return host.consolidate({"ids": apart, "content": "It waits."})


# Each with what its undo restores and removes.
PASSES: dict[str, tuple[Pass, int, int]] = {
    "compaction": (lambda it: it.compact(), 5, 1),
    "compaction with sources": (lambda it: it.compact(keepSources=True), 0, 1),
    "compaction by a host": (lambda it: it.compact(content="birds"), 5, 1),
    "distillation": (lambda it: it.distill(), 0, 1),
    "consolidation": (lambda it: it.consolidate(), 3, 0),
    "merge": (merge, 4, 1),
}


def known(host: Host) -> list[Any]:
    """The list as it is, its counts, and how often each entry was seen."""
    told = [about(host, it["id"]) for it in host.entries()]
    seen = [(it["seen"], it["lastSeenAt"], it.get("supersededBy")) for it in told]
    listed = host.ask("GET", "/memory", params={"memoryRef": host.ref, "limit": 500})
    assert listed.status_code == 200
    return [listed.content, counted(host), seen]


@pytest.mark.slow
@for_each("name", PASSES)
@requirement("OW-71", "OW-29", "OW-80", "OW-51", "OW-57", "OW-66")
def test_an_undo_brings_all_back_but_in_runs_that_have_seen_the_pass(
    service: Service, name: str
) -> None:
    work, restored, removed = PASSES[name]
    host = filled(service, f"of {name}")
    before, sources = known(host), host.entries()
    early = host.in_run(f"before {name}")
    service.clock.advance(seconds=60)
    run = ok(work(host))["runId"]
    left = host.entries()
    assert left != sources
    late = host.in_run(f"after {name}")
    new, held = [it for it in ids(left) if it not in ids(sources)], len(events(host))
    service.clock.advance(seconds=60)

    assert ok(host.undo(run)) == {"runId": run, "restored": restored, "removed": removed}

    log = events(host)[held:]
    assert [(it["type"], it["sequence"]) for it in log] == [
        ("run.started", 0), (UNDONE, 1), ("run.completed", 2)
    ]  # fmt: skip
    assert log[1]["payload"] == {"runId": run}
    (own,) = {it["runId"] for it in log}
    assert ok(host.ask("GET", f"/runs/{own}"))["kind"] == "pass"
    assert refused(host.undo(own)) in [(404, "not_found"), NOT_UNDOABLE]
    assert (known(host), len(host.told(run)), len(new)) == (before, 3, removed)
    assert [seen for seen, *_ in before[2]] == [1] * len(sources)
    for it in new:
        assert host.get(it).content == host.get(NEVER).content
    for at, entries in ((early, sources), (late, left), (host.in_run(name), sources)):
        assert at.entries() == entries
        assert [ok(at.get(it["id"]))["entry"] for it in entries] == entries


SPOILS: dict[str, Callable[[Host, str], object]] = {
    "its output is deleted": lambda it, output: ok(it.delete(output)),
    "a source is deleted": lambda it, output: ok(it.delete(about(it, output)["derivedFrom"][1])),
    "a source is forgotten": lambda it, _: ok(it.forget("ada")),
    "it is undone": lambda it, output: ok(it.undo(about(it, output)["writtenBy"]["runId"])),
}


@pytest.mark.slow
@for_each("name", SPOILS)
@requirement("OW-71", "OW-69")
def test_what_is_gone_since_makes_an_undo_impossible_and_it_does_nothing(
    service: Service, name: str
) -> None:
    host = Host(service.http, f"of {name}")
    host.put("ada: tea", tags=["subject:ada"]), corpus(service, host)
    answer = host.compact()
    SPOILS[name](host, passed(answer)["outputId"])
    before = known(host), len(events(host))

    refusal = host.undo(ok(answer)["runId"])

    assert refused(refusal) == NOT_UNDOABLE
    assert (known(host), len(events(host))) == before


@requirement("OW-71")
def test_what_has_ended_since_makes_an_undo_impossible(service: Service) -> None:
    host = Host(service.http)
    host.put("green apples", ttlSeconds=60)
    kept = host.put("green apples")
    run = ok(host.consolidate())["runId"]
    service.clock.advance(seconds=60)

    assert refused(host.undo(run)) == NOT_UNDOABLE

    assert host.entries() == [kept]


@pytest.mark.slow
@requirement("OW-80")
def test_seen_counts_an_entry_once_whatever_is_undone(service: Service) -> None:
    host = Host(service.http)
    host.put("herons wade"), host.put("Herons wade. Storks nest.")
    first = ok(host.consolidate())["runId"]
    top = host.put("Herons wade. Storks nest. Egrets fly.")
    ok(host.consolidate())
    assert about(host, top["id"])["seen"] == 3
    ok(host.undo(first))
    ok(host.consolidate())

    assert about(host, top["id"])["seen"] == 3


@pytest.mark.slow
@requirement("OW-71", "OW-80")
def test_the_order_of_undos_does_not_matter_where_nothing_is_gone(service: Service) -> None:
    host = Host(service.http)
    for text in ("herons wade", "herons wade", "egrets fly"):
        host.put(text)
    before = state(host)[:2]
    merged, compacted = ok(host.consolidate())["runId"], ok(host.compact())["runId"]

    ok(host.undo(merged))
    assert len(host.entries()) == 2
    ok(host.undo(compacted))

    assert state(host)[:2] == before
    assert [about(host, it)["seen"] for it in ids(before[0])] == [1, 1, 1]
