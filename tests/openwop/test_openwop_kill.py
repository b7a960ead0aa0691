"""kill -9 in the midst of puts with runs: entry and event are there together, or neither is."""

import signal
from pathlib import Path
from threading import Barrier, Lock, Thread

import httpx
import pytest

from ..support.database import assert_index_is_whole, assert_undamaged
from ..support.openwop_hosts import Host, Json, ok
from ..support.openwop_tenants import listed
from ..support.process import DEADLINE, Program, served, until
from ..support.requirements import requirement
from ..support.service import PLAIN

pytestmark = pytest.mark.slow

ROUNDS = 2
RUNS = 3
WRITERS = 2 * RUNS
WRITES = 60  # acknowledged in a round, at least
REF = "mem://load"


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
            host, turn, asked = Host(http, REF, f"run-{number % RUNS}"), 0, ""
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
            _assert_in_line(Host(http, REF), loads)
    assert any(it.unanswered for it in loads)
    assert_undamaged(path)
    assert_index_is_whole(path)


def _assert_in_line(host: Host, loads: list[Load]) -> None:
    """All that was told is there, with its events; what is there was told, or got no answer."""
    made = {id_: it for load in loads for id_, it in load.made.items()}
    deleted = set[str]().union(*(it.deleted for it in loads))
    doubtful = set[str]().union(*(it.unanswered for it in loads))
    everything = _followed(host)
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


def _followed(host: Host) -> list[Json]:
    """Every event of the tenant."""
    found, query = list[Json](), dict[str, object]({"limit": 1000})
    while (page := ok(host.ask("GET", "/events", params=query)))["events"]:
        found += page["events"]
        query["after"] = page["next"]
    assert len({it["eventId"] for it in found}) == len(found)
    return found


@requirement("OW-43", "OW-39", "OW-40")
def test_kill_9_takes_the_secrets_of_a_run_and_the_next_process_stores_none_of_them(
    tmp_path: Path,
) -> None:
    path, value = tmp_path / "memory.db", "zanzibar-hunter2-quokka"
    with served(path) as (program, http):
        run = Host(http).in_run("r1")
        run.register("s", value)
        program.send(signal.SIGKILL)
        program.wait()
    with served(path) as (_, http):
        run = Host(http, run="r1")
        assert run.post(value).json()["error"] == "run_secrets_lost"
        run.register("s", value)
        assert run.put(value)["content"] == "[REDACTED:s]"
    assert not [it for it in tmp_path.iterdir() if value.encode() in it.read_bytes()]
