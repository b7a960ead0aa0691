"""Faults under agents' memory: entry, event and index stay in line.

What a full or failing disk and kill -9 under load take, `operations` tests: one writer commits all.
"""

import json
import signal
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ..operations.test_disk import FAILED, failing
from ..support.engines import broken, is_postgresql, rows
from ..support.files import assert_index_is_whole, assert_undamaged
from ..support.openintent_agents import BATCH, Agent, Json, ok, refused
from ..support.process import served
from ..support.requirements import requirement
from ..support.samples import sampled
from ..support.service import Service, serving

GONE = {"memory.deleted", "memory.evicted", "memory.expired"}


def in_line(path: Path) -> tuple[dict[str, Json], dict[str, set[str]]]:
    """The live entries of a file, and how others ended; entries, events and index must agree."""
    live = {
        f"mem_{uid.replace('-', '')}": {"version": version, "value": json.loads(content)}
        for uid, version, content in rows(
            path,
            """SELECT m.uid, m.revision, m.content
                 FROM agent_memories a JOIN memories m ON m.id = a.memory_id""",
        )
    }
    events = defaultdict[str, Counter[str]](Counter)
    for payload, type_ in rows(path, "SELECT payload, type FROM events"):
        events[f"mem_{json.loads(payload)['entry_id'].replace('-', '')}"][type_] += 1
    for id_, told in events.items():
        assert told["memory.created"] == 1, told
        assert sum(told[it] for it in GONE) == (id_ not in live), (id_, told)
    for id_, entry in live.items():
        told = events[id_]
        assert entry["version"] == told["memory.created"] + told["memory.updated"], (id_, told)
    assert events.keys() >= live.keys()
    _assert_whole(path)
    return live, {id_: set(told) & GONE for id_, told in events.items() if id_ not in live}


def _assert_whole(path: Path) -> None:
    """No part of an entry or of an event is there without the others, and the index is whole."""
    for statement in (
        "SELECT id FROM events EXCEPT SELECT event_id FROM agent_events",
        "SELECT event_id FROM agent_events EXCEPT SELECT id FROM events",
        """SELECT m.id FROM memories m JOIN agent_spaces USING (space_id)
           EXCEPT SELECT memory_id FROM agent_memories""",
        "SELECT memory_id FROM agent_memories EXCEPT SELECT id FROM memories",
    ):
        assert rows(path, statement) == [], statement
    assert_undamaged(path)
    assert_index_is_whole(path)


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.sqlite_files
@pytest.mark.parametrize(
    "fault", [pytest.param("fdatasync:error=EIO", marks=pytest.mark.slow), "pwrite64:error=EIO"]
)
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
