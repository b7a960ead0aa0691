"""Faults under agents' memory: entry, event and index stay in line, and nothing told is lost."""

import json
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from ..operations.test_disk import FAILED, MEBIBYTE, failing
from ..support.database import assert_index_is_whole, assert_undamaged
from ..support.engines import broken, is_postgresql, rows
from ..support.files import disk
from ..support.openintent_agents import BATCH, MEMORY, Agent, Json, ok, refused
from ..support.process import DEADLINE, served
from ..support.requirements import requirement
from ..support.samples import sampled
from ..support.service import PLAIN, Service, serving

AGENTS = 6
GONE = {"memory.deleted", "memory.evicted", "memory.expired"}
TIERS = ("episodic", "working", "semantic")


@dataclass(slots=True)
class Acknowledged:
    """What agents were told of their writes."""

    entries: dict[str, Json] = field(default_factory=dict)  # by id, as they were told last
    deleted: set[str] = field(default_factory=set)
    in_doubt: set[str] = field(default_factory=set)  # of which a change got no answer
    refused: dict[str, int] = field(default_factory=dict)  # the texts, and the statuses
    unanswered: set[str] = field(default_factory=set)  # the texts

    def is_kept_by(self, path: Path) -> None:
        """Assert that the file has all of it, and nothing that was refused."""
        live, ended = in_line(path)
        for id_, told in self.entries.items():
            if id_ in ended and id_ not in self.deleted:
                by_itself = {"memory.expired"} if told["expires_at"] else {"memory.evicted"}
                assert ended[id_] == by_itself or id_ in self.in_doubt, told
                continue
            assert id_ in live, told
            if id_ not in self.in_doubt:
                assert (live[id_]["version"], live[id_]["value"]) == (
                    told["version"], told["value"]
                )  # fmt: skip
        assert {id_ for id_ in self.deleted if "memory.deleted" not in ended[id_]} == set()
        texts = {str(it["value"]["text"]) for it in live.values()}
        assert texts & self.refused.keys() == set()
        known = self.entries.keys() | self.in_doubt
        assert {str(it["value"]["text"]) for id_, it in live.items() if id_ not in known} <= (
            self.unanswered
        )


class AgentLoad:
    """Several agents at once: each makes entries, changes and deletes them, also in batches."""

    def __init__(self, url: str, about: str, *, turns: int = 1000, size: int = 0) -> None:
        self._url, self._about, self._turns, self._size = url, about, turns, size
        self._progress = threading.Condition()
        self._count = 0
        self._agents = [
            threading.Thread(target=self._write, args=(f"agent-{number}",))
            for number in range(AGENTS)
        ]
        self.told = Acknowledged()

    def start(self) -> "AgentLoad":
        for agent in self._agents:
            agent.start()
        return self

    def reach(self, count: int) -> None:
        """Wait until so many writes are acknowledged."""
        with self._progress:
            assert self._progress.wait_for(lambda: self._count >= count, DEADLINE)

    def join(self) -> Acknowledged:
        """What the agents were told, once each has ended: its turns, or its connection."""
        for agent in self._agents:
            agent.join(DEADLINE)
            assert not agent.is_alive()
        return self.told

    def _write(self, name: str) -> None:
        with httpx.Client(base_url=self._url, timeout=DEADLINE, verify=PLAIN) as http:
            agent = Agent(http, name)
            for turn in range(self._turns):
                text = f"{self._about}, {name}, turn {turn}"
                if not self._turn(agent, text, TIERS[turn % len(TIERS)], turn):
                    return

    def _turn(self, agent: Agent, text: str, tier: str, turn: int) -> bool:
        """Make, change and delete something; whether the service still answers."""
        fields = {"memory_type": tier, "namespace": agent.id}
        first = agent.body(key=text, value=self._value(text), **fields)
        again = agent.body(key=f"{text} again", value=self._value(f"{text} again"), **fields)
        if turn % 8 == 3:
            again["ttl"] = "duration:PT0.2S"
        if turn % 4 == 3:
            batch = {"entries": [first, again]}
            return self._sent(agent, "POST", BATCH, batch, [text, f"{text} again"])
        if not self._sent(agent, "POST", MEMORY, first, [text]):
            return False
        with self._progress:
            made = [id_ for id_, it in self.told.entries.items() if it["key"] == text]
        if not made or turn % 4 == 0:
            return True
        path, changed = f"{MEMORY}/{made[0]}", f"{text} changed"
        if turn % 4 == 1:
            return self._sent(agent, "DELETE", path, None, [], of=made[0])
        body = {"value": self._value(changed), "version": 1}
        return self._sent(agent, "PATCH", path, body, [changed], of=made[0])

    def _value(self, text: str) -> Json:
        return {"text": text, "filling": "what fills a disk " * self._size}

    def _sent(
        self, agent: Agent, method: str, path: str, body: Json | None, texts: list[str],
        *, of: str | None = None,
    ) -> bool:  # fmt: skip
        try:
            headers = {"If-Match": "1"} if method == "PATCH" else {}
            answer = agent.ask(method, path, body, headers=headers)
        except httpx.TransportError:
            self.told.unanswered.update(texts)
            self.told.in_doubt.update([of] if of else [])
            return False
        with self._progress:
            if answer.is_success:
                self._count += 1
                self._note(answer.json(), of if method == "DELETE" else None)
            elif answer.status_code != 404:  # what was evicted meanwhile
                self.told.refused |= dict.fromkeys(texts or [path], answer.status_code)
            self._progress.notify_all()
        return True

    def _note(self, answer: Json, deleted: str | None) -> None:
        if deleted:
            del self.told.entries[deleted]
            self.told.deleted.add(deleted)
            return
        for entry in answer.get("entries", [answer]):
            self.told.entries[entry["id"]] = entry


def permitted(http: httpx.Client) -> None:
    """Let every agent of a load write its own namespace."""
    for number in range(AGENTS):
        Agent(http).permit(f"agent-{number}", "write")


def seen(http: httpx.Client, told: Acknowledged) -> None:
    """Assert that a service shows what was acknowledged, but for what was evicted since."""
    for id_, entry in told.entries.items():
        answer = Agent(http, entry["agent_id"]).get(entry)
        if answer.status_code != 404 and id_ not in told.in_doubt:
            assert ok(answer) == entry


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
