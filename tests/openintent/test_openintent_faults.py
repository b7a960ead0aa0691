"""Faults under agents' memory: entry, event and index stay in line, and nothing told is lost."""

import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ..operations.test_disk import FAILED, MEBIBYTE, failing
from ..support.agent_load import Acknowledged, AgentLoad, in_line, permitted, seen
from ..support.engines import broken, is_postgresql, rows
from ..support.files import disk
from ..support.openintent_agents import BATCH, Agent, Json, ok, refused
from ..support.process import served
from ..support.requirements import requirement
from ..support.samples import sampled
from ..support.service import Service, serving

ROUNDS = 4
WRITES = 150  # acknowledged in a round, at least
FILLING = 1000  # words, of what fills a disk
CAPACITY = {"MEMORY_EPISODIC_CAPACITY": "20"}

Write = Callable[[Agent, Json], httpx.Response]

WRITES_OF_ONE: dict[str, Write] = {
    "a create that evicts": lambda ada, _: ada.post(key="new"),
    "a create where one has expired": lambda ada, _: ada.post(key="ended"),
    "a change": lambda ada, held: ada.patch(held, value={"colour": "mauve"}, tags=["b"]),
    "a deletion": lambda ada, held: ada.delete(held),
    "a batch": lambda ada, held: ada.ask(
        "POST",
        BATCH,
        {"entries": [ada.body(key="one"), ada.body(key=held["key"], version=1, pinned=True)]},
    ),
    "a deletion of many": lambda ada, _: ada.ask("DELETE", BATCH, params={"namespace": "notes"}),
}
TABLES = {
    "the event": ("INSERT", "events"),
    "its stream": ("INSERT", "agent_events"),
    "the words": ("INSERT", "memories_fts_2048_data"),
}


@pytest.mark.heavy
@pytest.mark.parametrize("write", sampled(WRITES_OF_ONE, 2))
@pytest.mark.parametrize("part", TABLES)
@requirement("OI-93")
def test_a_write_of_which_one_part_fails_leaves_nothing_of_the_others(
    tmp_path: Path, part: str, write: str
) -> None:
    (deed, table), path = TABLES[part], tmp_path / "memory.db"
    if is_postgresql() and part == "the words":
        deed, table = "INSERT OR UPDATE OR DELETE", "postings"
    with serving(path, MEMORY_EPISODIC_CAPACITY="3", MEMORY_SWEEP_EVERY="0") as service:
        ada, held = Agent(service.http), _furnished(service)
        before = _all_of(path), ada.query(), ada.events()
        with broken(path, deed, table):
            answer = WRITES_OF_ONE[write](ada, held)

            assert answer.is_error, answer.text
            assert (_all_of(path), ada.query(), ada.events()) == before
            in_line(path)
        assert WRITES_OF_ONE[write](ada, held).is_success
        assert _all_of(path) != before[0]
    in_line(path)


def _furnished(service: Service) -> Json:
    """An entry of an agent that is at its capacity; another of its entries has expired."""
    ada = Agent(service.http)
    ada.make(key="ended", memory_type="working", ttl="duration:PT1S")
    ada.make(key="ended", ttl="duration:PT1S")
    held = ada.make(key="held", value={"colour": "green"}, tags=["a"])
    service.clock.advance(seconds=1)
    ada.make(key="other", pinned=True)
    ada.make(key="unimportant", priority="low")
    return held


def _all_of(path: Path) -> list[list[tuple[object, ...]]]:
    """All that is stored of agents."""
    kept = ("memories", "lifecycles", "events", "agent_events")
    beside = "memory_id, is_pinned, priority, size"  # but for accesses, which reads note
    return [
        *(sorted(rows(path, f"SELECT * FROM {table}"), key=repr) for table in kept),
        sorted(rows(path, f"SELECT {beside} FROM agent_memories")),
    ]


@pytest.mark.sqlite_files
@pytest.mark.parametrize("fault", ["fdatasync:error=EIO", "pwrite64:error=EIO"])
@requirement("OI-93")
def test_a_commit_that_fails_leaves_entries_and_events_as_they_were(path: Path, fault: str) -> None:
    with served(path, **CAPACITY) as (program, http):
        ada = Agent(http)
        held = ada.make()
        ok(ada.patch(held, tags=["a"]))
        before = ada.query(), ada.events()
        with failing(program, fault):
            for answer in (
                ada.post(key="refused"),
                ada.patch(held, 2, value={"text": "refused"}),
                ada.delete(held),
            ):
                assert refused(answer) == (503, "UNAVAILABLE")
                assert answer.json()["message"] == FAILED
            assert (ada.query(), ada.events()) == before
        program.send(signal.SIGKILL)  # with the log as the failures left it
        program.wait()

    live, ended = in_line(path)
    assert [it["version"] for it in live.values()] == [2]
    assert ended == {}
    with served(path) as (_, http):
        assert (Agent(http).query(), Agent(http).events()) == before
        ok(Agent(http).patch(held, 2, value={"text": "after"}))
    in_line(path)


@pytest.mark.slow
@requirement("OI-93")
def test_a_full_disk_keeps_what_was_acknowledged_and_nothing_of_what_it_refused(
    tmp_path: Path,
) -> None:
    with disk(tmp_path / "disk", size=6 * MEBIBYTE) as folder:
        path, ballast = folder / "memory.db", folder / "ballast"
        ballast.write_bytes(bytes(3 * MEBIBYTE))
        with served(path) as (program, http):
            permitted(http)
            full = AgentLoad(str(http.base_url), "full", turns=40, size=FILLING).start().join()
            assert set(full.refused.values()) == {503}
            seen(http, full)
            full.is_kept_by(path)
            ballast.unlink()
            again = AgentLoad(str(http.base_url), "emptied", turns=4).start().join()
            assert again.refused == {}
            program.send(signal.SIGKILL)
            program.wait()

        _all_kept(path, full, again)


@pytest.mark.slow
@requirement("OI-93")
def test_kill_9_under_load_again_and_again_leaves_entries_events_and_index_in_line(
    path: Path,
) -> None:
    told = list[Acknowledged]()
    for number in range(ROUNDS):
        with served(path, MEMORY_SWEEP_EVERY="5ms", **CAPACITY) as (program, http):
            permitted(http)
            load = AgentLoad(str(http.base_url), f"round {number}").start()
            load.reach(WRITES)
            program.send(signal.SIGKILL)
            told.append(load.join())
        assert told[-1].refused == {}
        assert told[-1].unanswered
        _all_kept(path, *told)

    assert rows(path, "SELECT count(*) > 0 FROM events WHERE type = 'memory.evicted'") == [(1,)]
    with served(path, **CAPACITY) as (_, http):
        for each in told:
            seen(http, each)
        last = AgentLoad(str(http.base_url), "after", turns=8).start().join()
        assert last.refused == {}
    _all_kept(path, *told, last)


@pytest.mark.representative(1)
@pytest.mark.slow
@pytest.mark.parametrize(("call", "every"), [("fdatasync", 4), ("pwrite64", 97)])
@requirement("OI-93")
def test_a_disk_that_fails_now_and_then_leaves_entries_events_and_index_in_line(
    path: Path, call: str, every: int
) -> None:
    with served(path, **CAPACITY) as (program, http):
        permitted(http)
        with failing(program, f"{call}:error=EIO:when=5+{every}"):
            told = AgentLoad(str(http.base_url), "failing", turns=40).start().join()
        program.send(signal.SIGKILL)  # with the log as the failures left it
        program.wait()

    assert set(told.refused.values()) == {503}
    assert told.unanswered == set()
    _all_kept(path, told)
    with served(path, **CAPACITY) as (_, http):
        seen(http, told)
    _all_kept(path, told)


def _all_kept(path: Path, *told: Acknowledged) -> None:
    """All that was told is in the file."""
    whole = Acknowledged()
    for each in told:
        whole.entries |= each.entries
        whole.deleted |= each.deleted
        whole.in_doubt |= each.in_doubt
        whole.refused |= each.refused
        whole.unanswered |= each.unanswered
    whole.is_kept_by(path)
