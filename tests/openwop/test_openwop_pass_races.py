"""Passes, puts, deletions and undos of one ref at once: counts are exact and nothing is lost."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from ..support.database import assert_index_is_whole
from ..support.openwop_followers import Follower
from ..support.openwop_hosts import REF, Host, Json, ok, refused
from ..support.openwop_passes import (
    COMPACTED,
    CONSOLIDATED,
    FORGOTTEN,
    NOT_UNDOABLE,
    about,
    events,
    ids,
    of_type,
    passed,
)
from ..support.openwop_tenants import counted
from ..support.requirements import requirement
from ..support.service import PLAIN, Service

WRITERS, PUTS = 4, 12
ALLOWED = {
    (409, "memory_changed"), (409, "nothing_to_compact"), (409, "nothing_to_distill"),
    (409, "pass_not_undoable"),
}  # fmt: skip

Work = Callable[[Host], httpx.Response]


def at_once(service: Service, *works: Callable[[Host], Any]) -> list[Any]:
    """What the works give, each with a client of its own, all begun together."""
    start = threading.Barrier(len(works))

    def work(number: int) -> Any:
        with httpx.Client(base_url=service.url, timeout=60, verify=PLAIN) as http:
            start.wait(60)
            return works[number](Host(http))

    with ThreadPoolExecutor(len(works)) as pool:
        return [*pool.map(work, range(len(works)))]


def putting(number: int) -> Callable[[Host], list[Json]]:
    return lambda host: [
        host.put(f"{'herons storks egrets'.split()[turn % 3]} of {number % 2}", tags=["t"])
        for turn in range(PUTS)
    ]


def passing(work: Work, times: int = 6) -> Callable[[Host], list[str]]:
    """Runs of passes that were done; what was not is refused as it may be."""

    def passes(host: Host) -> list[str]:
        done = list[str]()
        for _ in range(times):
            answer = work(host)
            if answer.status_code == 200:
                done.append(answer.json()["runId"])
            else:
                assert refused(answer) in ALLOWED
        return done

    return passes


@pytest.mark.heavy
@requirement("OW-82", "OW-29", "OW-77", "OW-80")
def test_consolidations_and_puts_end_with_each_word_said_once(service: Service, host: Host) -> None:
    done = at_once(service, *map(putting, range(WRITERS)), *[passing(Host.consolidate)] * 3)
    made = [it for one in done[:WRITERS] for it in one]
    last = passed(host.consolidate(), CONSOLIDATED)

    assert last["outputCount"] == len(host.entries()) == 6
    assert {*host.contents()} == {it["content"] for it in made}
    told = [about(host, it) for it in ids(host.entries())]
    assert sum(it["seen"] for it in told) == len(made) == WRITERS * PUTS
    for entry in made:
        assert ok(host.get(entry["id"]))["entry"] == entry
    assert counted(host) == {REF: (len(made), sum(len(it["content"]) for it in made))}
    merged = [it for one in of_type(host, CONSOLIDATED) for it in one.get("mergedIds", [])]
    assert sorted(merged) == sorted({*ids(made)} - {*ids(host.entries())})
    assert_index_is_whole(service.path)


@pytest.mark.slow
@requirement("OW-82", "OW-29", "OW-66")
def test_compactions_and_puts_take_each_source_once(service: Service, host: Host) -> None:
    done = at_once(service, *map(putting, range(WRITERS)), *[passing(Host.compact)] * 3)
    made = [it for one in done[:WRITERS] for it in one]

    compacted = of_type(host, COMPACTED)
    sources = [it for one in compacted for it in one["sourceIds"]]
    archives = [it["outputId"] for it in compacted]
    assert len(sources) == len({*sources})
    assert len(archives) == len({*archives}) == sum(len(it) for it in done[WRITERS:])
    assert {*ids(host.entries())} == ({*ids(made)} - {*sources}) | {*archives}
    every = [ok(host.get(it))["entry"] for it in [*ids(made), *archives]]
    assert every[: len(made)] == made
    assert counted(host) == {REF: (len(every), sum(len(it["content"]) for it in every))}
    assert_index_is_whole(service.path)


@requirement("OW-82", "OW-73", "OW-29")
def test_racing_distillations_of_the_same_make_one_archive(service: Service, host: Host) -> None:
    sources = [host.put(it) for it in ("herons wade", "egrets fly")]

    at_once(service, *[passing(Host.distill, 3)] * 4)

    (archive,) = {it["outputId"] for it in of_type(host, COMPACTED)}
    assert ids(host.entries()) == [archive, *ids(sources[::-1])]
    assert counted(host)[REF][0] == 3


def undoing(work: Work) -> Callable[[Host], None]:
    """Pass, and undo it, as far as may be."""

    def undo(host: Host) -> None:
        for run in passing(work, 4)(host):
            answer = host.undo(run)
            assert answer.status_code == 200 or refused(answer) in ALLOWED

    return undo


def deleting(host: Host) -> None:
    for _ in range(8):
        for entry in host.entries(limit=1):
            assert host.delete(entry["id"]).status_code in (200, 404)


def made_of(host: Host, entries: list[str]) -> set[str]:
    """These entries and all that they were made of, as far as it is there."""
    found, waiting = set[str](), [*entries]
    while waiting:
        it = waiting.pop()
        if it not in found and host.get(it).status_code == 200:
            found.add(it)
            waiting += about(host, it)["derivedFrom"]
    return found


@pytest.mark.heavy
@requirement("OW-82", "OW-71", "OW-29", "OW-58")
def test_everything_at_once_leaves_what_can_be_counted(service: Service, host: Host) -> None:
    for number in range(20):
        host.put(f"herons {number % 3}")

    start, is_over = threading.Barrier(1), threading.Event()
    follower = Follower(service.url, start, is_over, limit=7)
    follower.start()
    at_once(
        service, *map(putting, range(2)), undoing(Host.compact), undoing(Host.consolidate),
        undoing(Host.distill), passing(Host.compact, 3), deleting,
    )  # fmt: skip
    is_over.set()
    follower.join(60)

    every = events(host)
    assert follower.events == every
    for run in {it["runId"] for it in every}:
        told = [it for it in every if it["runId"] == run]
        is_given_up = [it["type"] for it in told] == ["run.started", "run.failed"]
        assert [it["sequence"] for it in told] == ([0, 1] if is_given_up else [0, 1, 2])
    listed = host.entries(limit=500)
    entries, size = counted(host).get(REF, (0, 0))
    assert entries >= len(listed)
    assert size >= sum(len(it["content"]) for it in listed)
    assert len(made_of(host, ids(listed))) <= entries
    assert_index_is_whole(service.path)


@pytest.mark.heavy
@requirement("OW-82", "OW-93", "OW-53", "OW-29")
def test_forgetting_while_passes_run_leaves_nothing_of_the_subject(
    service: Service, host: Host
) -> None:
    for number in range(30):
        host.put(f"otto {number}", tags=["subject:otto"]), host.put(f"storks {number}")
    works = [passing(Host.compact, 4), passing(Host.consolidate, 4), passing(Host.distill, 4)]

    at_once(service, *works, lambda it: ok(it.forget("otto")), lambda it: ok(it.forget("otto")))

    assert not [it for it in host.contents(limit=500) if "otto" in it]
    assert host.search("otto") == []
    left = {it for it in host.contents(limit=500) if it.startswith("storks")}
    found = [it for it in host.entries(limit=500) if "archive" in it["tags"]]
    told = {it for one in found for it in about(host, one["id"])["derivedFrom"]}
    said = {ok(host.get(it))["entry"]["content"] for it in told}
    assert {f"storks {number}" for number in range(30)} <= left | said
    assert host.forget("otto").json()["entries"] == 0
    assert_index_is_whole(service.path)


@pytest.mark.heavy
@requirement("OW-82", "OW-93", "OW-95", "OW-13")
@pytest.mark.parametrize("key", [None, "k1"])
def test_racing_forgettings_count_each_entry_once(
    service: Service, host: Host, key: str | None
) -> None:
    for number in range(60):
        host.put(f"ada {number}", tags=["subject:ada"])
    headers = {} if key is None else {"Idempotency-Key": key}

    def forget(it: Host) -> Json:
        told: Json = ok(replace(it, headers=headers).forget("ada"))
        return told

    answers = at_once(service, *[forget] * 3)

    erasures = {it["erasureId"]: it["entries"] for it in answers if "erasureId" in it}
    assert sum(erasures.values()) == 60
    for erasure, entries in erasures.items():
        assert ok(host.ask("GET", f"/erasures/{erasure}"))["entries"] == entries
    assert sum(it["entries"] for it in of_type(host, FORGOTTEN)) == 60
    assert host.entries() == []


def delete_in(run: Host, made: list[str], own: Host) -> None:
    """Delete entries one after another, while a pass thinks."""
    other = replace(own, ref="mem://other")
    for gone in made:
        for _ in range(30):
            other.put()
        ok(run.delete(gone))


@pytest.mark.heavy
@requirement("OW-66", "OW-82")
def test_an_archive_is_made_of_none_that_was_deleted_before_it_was_put(
    service: Service, host: Host
) -> None:
    words = " ".join(f"heron{number} wades." for number in range(3000))
    made = ids([host.put(f"{number} {words}") for number in range(30)])
    run = host.in_run("r1")

    done, _ = at_once(service, lambda it: it.compact(), partial(delete_in, run, made[:2]))

    payload = passed(done)
    told = [it["type"] for it in events(host)]
    before = told[: told.index(COMPACTED)].count("agentops-memory.memory.deleted")
    assert not {*made[:before]} & {*payload["sourceIds"]}
    assert payload["sourceCount"] == 30 - before


@pytest.mark.heavy
@requirement("OW-82", "OW-71")
def test_a_consolidation_replaces_none_that_was_deleted_before_its_step(
    service: Service, host: Host
) -> None:
    words = " ".join(f"heron{number} wades." for number in range(2000))
    made = ids([host.put(f"{number // 2} {words}") for number in range(120)])
    run = host.in_run("r1")

    some = made[:4:2]  # of each of which another says the same
    done, _ = at_once(service, lambda it: it.consolidate(), partial(delete_in, run, some))

    payload = passed(done, CONSOLIDATED)
    assert payload["outputCount"] == 60 == len(host.entries())
    told = [it["type"] for it in events(host)]
    before = told[: told.index(CONSOLIDATED)].count("agentops-memory.memory.deleted")
    answer = host.undo(ok(done)["runId"])
    if before < 2:  # one came too late, and was replaced by then
        assert refused(answer) == NOT_UNDOABLE
    else:
        assert ok(answer)["restored"] == payload["inputCount"] - 60
