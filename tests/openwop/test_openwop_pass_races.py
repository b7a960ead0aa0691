"""Passes, puts, deletions and undos of one ref at once: counts are exact and nothing is lost."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ..support.callers import audit
from ..support.files import assert_index_is_whole
from ..support.openwop_hosts import REF, Host, Json, ok, refused
from ..support.openwop_passes import (
    COMPACTED,
    ids,
    of_type,
)
from ..support.openwop_proposals import moved, proposed
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


@pytest.mark.slow
@requirement("OW-101")
def test_what_is_withdrawn_undone_or_forgotten_is_audited_once_with_its_tenant(
    service: Service, host: Host
) -> None:
    for text in ("The proxy waits.", "The checkout works."):
        host.put(text, tags=["subject:ada"])
    run, id_ = ok(host.compact())["runId"], proposed(host)["id"]
    ok(moved(host, id_, "apply"))
    before = len(audit(service.path))

    at_once(service, *[lambda it: it.undo(run), lambda it: moved(it, id_, "archive")] * 4)
    at_once(service, *[lambda it: it.forget("ada")] * 4)

    told = audit(service.path)[before:]
    actions = ["memory.forgotten", "pass.undone", "proposal.withdrawn"]
    assert sorted(str(it["action"]) for it in told) == actions
    assert {it["tenant"] for it in told} == {"default"}
