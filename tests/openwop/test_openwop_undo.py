"""Undo: what a pass has done is as it was, byte for byte, or it is refused and nothing changes."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from ..support.openwop_hosts import Host, ok, refused
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
from ..support.openwop_tenants import NEVER, counted, keyed
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

Pass = Callable[[Host], httpx.Response]
MADE = [
    ("Herons wade. Storks nest.", []), ("herons wade", []), ("It waits 12 s.", ["key:wait"]),
    ("It waits 30 s.", ["key:wait"]), ("Storks nest.", []), ("pinned", ["pinned"]),
]  # fmt: skip


@pytest.fixture
def host(service: Service) -> Host:
    made = Host(service.http)
    for text, tags in MADE:
        made.put(text, tags=tags)
    return made


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


def raw(host: Host) -> bytes:
    """The list, byte for byte."""
    answer = host.ask("GET", "/memory", params={"memoryRef": host.ref, "limit": 500})
    assert answer.status_code == 200
    return answer.content


def known(host: Host) -> list[Any]:
    """The list as it is, its counts, and how often each entry was seen."""
    told = [about(host, it["id"]) for it in host.entries()]
    return [raw(host), counted(host), [(it["seen"], it.get("supersededBy")) for it in told]]


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize("name", PASSES)
@requirement("OW-71", "OW-29", "OW-80")
def test_an_undo_brings_all_back_and_takes_the_output_away(
    service: Service, host: Host, name: str
) -> None:
    work, restored, removed = PASSES[name]
    before = known(host)
    service.clock.advance(seconds=60)
    run = ok(work(host))["runId"]
    assert raw(host) != before[0]
    new = [it for it in ids(host.entries()) if it.encode() not in before[0]]
    service.clock.advance(seconds=60)

    undone = ok(host.undo(run))

    assert undone.keys() == {"runId", "restored", "removed"}
    assert (undone["restored"], undone["removed"]) == (restored, removed)
    assert known(host) == before
    assert len(new) == removed
    for it in new:
        assert host.get(it).content == host.get(NEVER).content
    assert [about(host, it)["seen"] for it in ids(host.entries())] == [1] * 6


@requirement("OW-71", "OW-80")
def test_what_is_seen_no_more_was_last_seen_when_it_was_put(service: Service) -> None:
    host = Host(service.http)
    host.put("Herons wade. Storks nest.")
    service.clock.advance(seconds=60)
    host.put("herons wade")
    before = [about(host, it) for it in ids(host.entries())]
    run = ok(host.consolidate())["runId"]
    assert about(host, before[1]["memoryId"])["lastSeenAt"] == "2030-01-01T12:01:00.000Z"

    ok(host.undo(run))

    after = [about(host, it) for it in ids(host.entries())]
    assert [it["lastSeenAt"] for it in after] == [it["lastSeenAt"] for it in before]


@pytest.mark.slow
@requirement("OW-71", "OW-57")
def test_an_undo_is_a_run_of_its_own_which_tells_of_what(host: Host) -> None:
    run = ok(host.compact())["runId"]
    held = len(events(host))

    assert ok(host.undo(run))["runId"] == run

    told = events(host)[held:]
    assert [it["type"] for it in told] == ["run.started", UNDONE, "run.completed"]
    assert [it["sequence"] for it in told] == [0, 1, 2]
    (own,) = {it["runId"] for it in told}
    assert own != run
    assert told[1]["payload"] == {"runId": run}
    assert ok(host.ask("GET", f"/runs/{own}"))["kind"] == "pass"
    assert len(host.told(run)) == 3
    before = known(host)
    assert refused(host.undo(own)) in [(404, "not_found"), NOT_UNDOABLE]
    assert known(host) == before


def _undo_pass(host: Host, output: str) -> None:
    ok(host.undo(about(host, output)["writtenBy"]["runId"]))


SPOILS: dict[str, Callable[[Host, str], object]] = {
    "its output is deleted": lambda it, output: ok(it.delete(output)),
    "a source is deleted": lambda it, output: ok(it.delete(about(it, output)["derivedFrom"][1])),
    "it is undone": _undo_pass,
}


@pytest.mark.slow
@for_each("name", SPOILS)
@requirement("OW-71", "OW-69")
def test_what_is_gone_since_makes_an_undo_impossible_and_it_does_nothing(
    service: Service, name: str
) -> None:
    host = Host(service.http, f"of {name}")
    corpus(service, host)
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
@pytest.mark.usefixtures("host")
@requirement("OW-32", "OW-33", "OW-71")
def test_a_pass_of_another_tenant_is_as_none(service: Service) -> None:
    with keyed(service) as ours, keyed(service, "admin", "acme") as theirs:
        run = ok(ours.compact())["runId"]
        before = raw(ours)
        theirs.put("theirs"), theirs.put("too")

        assert theirs.undo(run).content == theirs.undo("run_" + "0" * 32).content
        assert refused(theirs.undo(run)) == (404, "not_found")

        assert raw(ours) == before


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
