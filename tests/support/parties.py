"""Callers side by side, who do what they may: what each knows to be its own, and what they try."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

NEVER = 987_654_321  # an id that was never given

Body = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Work:
    """The ids of an intent, and of what is of it."""

    intent: str
    task: str
    coordinator: str
    grant: str


@dataclass(kw_only=True)
class Party:
    """A caller, and what it knows to be its own."""

    tenant: str
    prefix: str
    number: int
    client: httpx.Client
    writer: httpx.Client  # with a key of an agent that may make intents
    live: dict[int, str] = field(default_factory=dict)  # the projects of its memories
    sessions: list[str] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)
    stores: list[str] = field(default_factory=list)  # their ids
    entries: list[str] = field(default_factory=list)  # of its own memory as an agent
    works: list[Work] = field(default_factory=list)  # its own
    proposals: list[str] = field(default_factory=list)  # their ids
    installed: list[str] = field(default_factory=list)  # what is applied of them
    foreign_stores: list[tuple[str, str, str]] = field(default_factory=list)  # in each tenant

    @property
    def word(self) -> str:
        """What only this caller writes."""
        return f"canary{self.number}word"

    @property
    def trace(self) -> str:
        return f"{self.number + 1:032x}"

    @property
    def _headers(self) -> dict[str, str]:
        return {
            "traceparent": f"00-{self.trace}-00f067aa0ba902b7-01",
            "x-request-id": "any",  # else answers would differ by it
        }

    def ask(self, method: str, path: str, body: Body | None = None) -> httpx.Response:
        return self.client.request(method, path, json=body, headers=self._headers)

    def work(
        self, method: str, path: str, body: Body | None = None, **headers: str
    ) -> httpx.Response:
        return self.writer.request(method, path, json=body, headers=self._headers | headers)


@dataclass(kw_only=True)
class Place:
    """Callers side by side, and chance."""

    parties: list[Party]
    keepers: list[Party] = field(default_factory=list)  # of memory stores
    chance: random.Random
    driven: set[str] = field(default_factory=set)

    def others(self, party: Party) -> list[Party]:
        return [other for other in self.parties if other is not party]

    def foreign_id(self, party: Party) -> int:
        """An id that another has, or had, and this one never."""
        ids = {i for other in self.others(party) for i in {*other.live, *other.dead}}
        return self.chance.choice(sorted(ids - {*party.live, *party.dead}) or [NEVER])

    def own_id(self, party: Party) -> int:
        return self.chance.choice(sorted(party.live) or [NEVER])

    def project(self, party: Party) -> str:
        return f"{party.prefix}{self.chance.choice('xy')}"

    def foreign_project(self, party: Party) -> str:
        others = [other for other in self.others(party) if other.prefix != party.prefix]
        return self.project(self.chance.choice(others))

    def body(self, party: Party, project: str, session: str) -> dict[str, object]:
        number = self.chance.randrange(6)
        return {
            "session_id": session, "project": project, "type": f"type {party.word}",
            "title": f"apple {number} {party.word}",
            "content": f"The apple {number} is {party.word}, and so is the pear.",
            "tags": [party.word],
            "topic_key": f"fruit/{number}" if self.chance.random() < 0.4 else None,
        }  # fmt: skip


def same(one: httpx.Response, other: httpx.Response, *, ids: tuple[int, int] = (0, 0)) -> None:
    """The same status, headers and bytes, but for the id where an answer names it again."""
    text = one.text.replace(f'"id":{ids[0]},"reason"', f'"id":{ids[1]},"reason"')
    assert (one.status_code, _plain(text)) == (other.status_code, _plain(other.text))
    changing = {"date", "content-length"}
    headers = [{k: v for k, v in a.headers.items() if k not in changing} for a in (one, other)]
    assert headers[0] == headers[1]


def _plain(text: str) -> str:
    """Without the instant of an export."""
    return text.partition('"exported_at"')[0] + text.partition('","sessions"')[2]
