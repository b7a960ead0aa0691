"""kill -9 in the midst of a pass: all of a step is there or nothing, and the next one goes on."""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from ..support.engines import rows
from ..support.files import assert_index_is_whole
from ..support.openwop_hosts import REF, Host, Json, ok
from ..support.openwop_passes import (
    CONSOLIDATED,
    about,
    events,
    ids,
    passed,
)
from ..support.openwop_tenants import counted, listed
from ..support.process import DEADLINE, Program, served, until
from ..support.requirements import requirement
from ..support.service import PLAIN

pytestmark = pytest.mark.slow


STEP = 200  # links that a consolidation makes at once
TEXTS, TIMES = 70, 12
LINKS = TEXTS * (TIMES - 1)
SUBJECT = "subject:ada"
Work = Callable[[Host], httpx.Response]


def filled(host: Host, *tags: str) -> list[Json]:
    return [
        host.put(f"heron number {text}", tags=list(tags))
        for _ in range(TIMES)
        for text in range(TEXTS)
    ]


def killed(program: Program, http: httpx.Client, work: Work, due: Callable[[], object]) -> bool:
    """Kill the program when it is due, while it does the work; whether that was answered."""
    answers, begun = list[httpx.Response](), threading.Event()

    def ask() -> None:
        with (
            suppress(httpx.TransportError),
            httpx.Client(base_url=http.base_url, timeout=DEADLINE, verify=PLAIN) as own,
        ):
            begun.set()
            answers.append(work(Host(own)))

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(DEADLINE)
    until(lambda: answers or due())
    program.send(signal.SIGKILL)
    asking.join(DEADLINE)
    program.wait()
    return bool(answers)


def linked(path: Path) -> int:
    found: int = rows(path, "SELECT count(*) FROM ref_supersessions")[0][0]
    return found


def is_whole(path: Path) -> None:
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(path, "PRAGMA foreign_key_check") == []
    assert_index_is_whole(path)


def runs_are_whole(host: Host, broken_off: int = 0) -> None:
    """Every run of a pass tells of it and is over, but for so many that were broken off."""
    every, broken = events(host), 0
    for run in {it["runId"] for it in every}:
        told = [it["type"] for it in every if it["runId"] == run]
        assert [it["sequence"] for it in every if it["runId"] == run] == [*range(len(told))]
        assert told[0] == "run.started"
        broken += len(told) < 3
    assert broken <= broken_off


@pytest.mark.representative(1)
@pytest.mark.parametrize("step", range(LINKS // STEP + 1))
@requirement("OW-77", "OW-78", "OW-80", "OW-29", "OW-82")
def test_kill_9_at_a_step_of_a_consolidation_and_the_next_pass_goes_on(
    path: Path, step: int
) -> None:
    with served(path) as (program, http):
        made = filled(Host(http))
        killed(program, http, Host.consolidate, lambda: linked(path) > step * STEP)
    wanted = {it["content"] for it in made}
    with served(path) as (_, http):
        host = Host(http)
        assert {it["content"] for it in listed(host)} == wanted
        assert counted(host)[REF][0] == len(made)
        runs_are_whole(host, 1)
        left = len(listed(host))
        payload = passed(host.consolidate(), CONSOLIDATED)
        assert (payload["inputCount"], payload["outputCount"]) == (left, TEXTS)
        assert ids(listed(host)) == ids(made[: -TEXTS - 1 : -1])
        assert sum(about(host, it)["seen"] for it in ids(listed(host))) == len(made)
        again = passed(host.consolidate(), CONSOLIDATED)
        assert (again["inputCount"], again["outputCount"]) == (TEXTS, TEXTS)
        runs_are_whole(host, 1)
        for run in {it["runId"] for it in events(host)}:
            assert ok(host.ask("GET", f"/runs/{run}"))["status"] != "running"
    is_whole(path)


@pytest.mark.representative(1)
@pytest.mark.parametrize("step", range(1, LINKS // STEP + 1))
@requirement("OW-93", "OW-94", "OW-29")
def test_kill_9_in_a_forgetting_and_the_next_one_goes_on(path: Path, step: int) -> None:
    with served(path) as (program, http):
        host = Host(http)
        kept = host.put("storks nest")
        made = filled(host, SUBJECT)
        ok(host.compact())

        def is_due() -> bool:
            (held,) = rows(path, "SELECT count(*) FROM memories")[0]
            return bool(held <= len(made) + 2 - step * STEP)

        killed(program, http, lambda it: it.forget("ada"), is_due)
    with served(path) as (_, http):
        host = Host(http)
        ok(host.forget("ada"))
        assert host.forget("ada").json()["entries"] == 0
        assert listed(host) == [kept]
        assert counted(host)[REF] == (1, len("storks nest"))
        runs_are_whole(host)
    is_whole(path)
