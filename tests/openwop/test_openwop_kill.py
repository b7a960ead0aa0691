"""kill -9 in the midst of puts and passes: all is there or nothing, and the next one goes on."""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Barrier, Lock, Thread

import httpx
import pytest

from ..support.database import assert_index_is_whole, assert_undamaged
from ..support.engines import rows
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
ROUNDS = 2
RUNS = 3
WRITERS = 2 * RUNS
WRITES = 60  # acknowledged in a round, at least
LOADED = "mem://load"


class Load:
    """Hosts that put in runs without pause, and delete now and again; what they were told."""

    def __init__(self, url: str, about: str) -> None:
        self._url, self._about = url, about
        self._lock, self._start = Lock(), Barrier(WRITERS)
        self._threads = [Thread(target=self._write, args=(it,)) for it in range(WRITERS)]
        self.made: dict[str, tuple[str, str]] = {}  # contents, by id, with their runs
        self.deleted: set[str] = set()
        self.unanswered: set[str] = set()  # contents, and ids whose deletion got no answer

    def run_until(self, count: int, program: Program) -> None:
        """Write until so much is acknowledged, and the program is killed."""
        for it in self._threads:
            it.start()
        until(lambda: len(self.made) >= count)
        program.send(signal.SIGKILL)
        for it in self._threads:
            it.join(DEADLINE)
            assert not it.is_alive()

    def _write(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=DEADLINE, verify=PLAIN) as http:
            host, turn, asked = Host(http, LOADED, f"run-{number % RUNS}"), 0, ""
            self._start.wait(DEADLINE)
            try:
                while True:
                    asked = f"{self._about}, writer {number}, turn {turn}"
                    entry = host.put(asked, tags=["load"], nodeId=f"n{number}")
                    with self._lock:
                        self.made[entry["id"]] = (asked, str(host.run))
                    turn += 1
                    if turn % 4 == 0:
                        asked = entry["id"]
                        ok(host.delete(asked))
                        with self._lock:
                            self.deleted.add(asked)
            except httpx.TransportError:
                with self._lock:
                    self.unanswered.add(asked)


@requirement("OW-55", "OW-57", "OW-58")
def test_kill_9_leaves_every_put_with_its_event_and_no_gap(path: Path) -> None:
    loads: list[Load] = []
    with served(path) as (_, http):
        for number in range(RUNS):
            Host(http).in_run(f"run-{number}")
    for number in range(ROUNDS):
        with served(path) as (program, http):
            loads.append(Load(str(http.base_url), f"round {number}"))
            loads[-1].run_until(WRITES, program)
            program.wait()
        with served(path) as (_, http):
            _assert_in_line(Host(http, LOADED), loads)
    assert any(it.unanswered for it in loads)
    assert_undamaged(path)
    assert_index_is_whole(path)


def _assert_in_line(host: Host, loads: list[Load]) -> None:
    """All that was told is there, with its events; what is there was told, or got no answer."""
    made = {id_: it for load in loads for id_, it in load.made.items()}
    deleted = set[str]().union(*(it.deleted for it in loads))
    doubtful = set[str]().union(*(it.unanswered for it in loads))
    everything = events(host)
    written, removed = dict[str, str](), set[str]()
    for number in range(RUNS):
        run = f"run-{number}"
        told = [it for it in everything if it["runId"] == run]
        assert [it["sequence"] for it in told] == list(range(len(told)))
        for it in told[1:]:
            id_ = it["payload"]["memoryId"]
            if it["type"] == "memory.written":
                assert id_ not in written
                written[id_] = run
            else:
                assert id_ in written.keys() - removed
                removed.add(id_)
    live = {it["id"]: it["content"] for it in listed(host)}
    assert written.keys() - removed == live.keys()
    for id_, (content, run) in made.items():
        assert written[id_] == run
        assert live.get(id_, content) == content
    assert deleted <= removed <= deleted | doubtful
    unknown = {live[it] for it in written.keys() - made.keys() - removed}
    assert unknown <= doubtful


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
