"""Agents that write their memory without pause, and whether a file is in line with their events."""

import json
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from .database import assert_index_is_whole, assert_undamaged
from .engines import rows
from .openintent_agents import BATCH, MEMORY, Agent, Json, ok
from .process import DEADLINE
from .service import PLAIN

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
