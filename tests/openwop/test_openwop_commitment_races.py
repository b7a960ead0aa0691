"""Of what races for a commitment, one thing happens."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TypeVar

import httpx
import pytest

from ..support.engine import impatient
from ..support.openwop_commitments import Intents, firing, soon, stored
from ..support.openwop_hosts import Host, ok
from ..support.requirements import requirement
from ..support.service import Service

THREADS = 8

T = TypeVar("T")


@requirement("OW-85")
def test_of_puts_that_race_one_fires(service: Service, host: Host, intents: Intents) -> None:
    armed = [intents.on(host.put(f"{number}")["id"], "rain") for number in range(3)]

    together([partial(host.put, "wet", tags=["rain"])] * THREADS)

    assert intents.fired() == [firing(each) for each in armed]
    assert len(host.entries(tag="rain")) == THREADS
    assert stored(service.path) == ["fired"] * 3


@pytest.mark.heavy
@requirement("OW-84")
def test_of_looks_that_race_one_fires_and_each_sees_all_of_it(
    service: Service, host: Host, intents: Intents, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, timedelta(minutes=1))  # one that gives up answers what is there
    due = soon(service, minutes=1)
    memories = [host.put(f"{number}")["id"] for number in range(3)]
    for memory in memories:
        for number in range(66):  # all of them are one step
            intents.at(memory, due + timedelta(milliseconds=number))
    service.clock.advance(minutes=2)

    seen = together([partial(host.ask, "GET", "/events?limit=1000")] * THREADS)

    for answer in seen:
        told = [it["payload"] for it in ok(answer)["events"] if it["type"] == "commitment.fired"]
        assert len(told) == len({it["commitmentId"] for it in told}) == 198
    assert stored(service.path) == ["fired"] * 198


@pytest.mark.slow
@requirement("OW-84", "OW-87")
def test_of_a_firing_and_a_deletion_that_race_one_has_happened(
    service: Service, host: Host, intents: Intents
) -> None:
    due = soon(service, minutes=1).isoformat()
    memories = [host.put(f"{n}", tags=[f"due:{due}", "when:rain"])["id"] for n in range(20)]
    cancelled = [it["id"] for it in intents.listed()[30:]]
    service.clock.advance(minutes=1)

    answers: list[httpx.Response] = together([
        *(partial(host.delete, memory) for memory in memories),
        *(partial(intents.cancel, it) for it in cancelled),
        *[partial(host.ask, "GET", "/events")] * 5,
        *[partial(host.post, "wet", tags=["rain"])] * 5,
    ])  # fmt: skip
    assert all(it.is_success for it in answers)

    by_state: dict[str, set[str]] = {"fired": set(), "cancelled": set()}
    for each in intents.listed():
        by_state[each["state"]].add(each["id"])
    told = [it["commitmentId"] for it in intents.fired()]
    assert len(told) == len({*told})
    assert {*told} == by_state["fired"]


def together(work: list[Callable[[], T]]) -> list[T]:
    """What each of them answers, asked at once."""
    with ThreadPoolExecutor(THREADS) as threads:
        return [it.result() for it in [threads.submit(each) for each in work]]
