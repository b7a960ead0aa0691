"""Who may not read a thing cannot tell that it is there: two worlds, one of them without it."""

import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from ..support.callers import calling, made_key
from ..support.openintent_agents import BATCH, MEMORY, NAMESPACES, Agent, Json
from ..support.requirements import requirement
from ..support.samples import sampled
from ..support.service import Service, observation, serving

STEPS = 40
SPACES, KEYS, TAGS = ("notes", "notes_2"), ("a", "b", "c"), ("x", "y")
WORDS = ("heron", "stork", "egret", "crane", "ibis")
HIDDEN = "vault"  # a namespace that the observer may not read


@dataclass(frozen=True, slots=True)
class World:
    """A service and those who ask it; what is hidden from the observer is there, or it is not."""

    service: Service
    root: Agent
    observer: Agent
    others: list[Agent]

    def everything(self) -> Iterator[httpx.Response]:
        """What the observer is told by every route that reads."""
        ask, own = self.observer.ask, f"/api/v1/agents/{self.observer.id}"
        for query in ("", "?limit=2&offset=1", "?namespace=*", "?tags=x", "?memory_type=semantic",
                      f"?namespace={HIDDEN}", "?agent_id=bob", "?agent_id=cyn"):  # fmt: skip
            yield ask("GET", MEMORY + query)
        yield ask("GET", "/api/v1/agents/bob/memory")
        yield ask("GET", f"{own}/memory")
        yield ask("GET", f"{own}/memory/summary")
        yield ask("GET", f"{own}/events?limit=1000")
        yield ask("GET", "/api/v1/agents/bob/events")
        yield ask("GET", NAMESPACES)
        yield ask("GET", f"{NAMESPACES}?limit=1&offset=1")
        for name in (*SPACES, HIDDEN, "nowhere"):
            yield ask("GET", f"{NAMESPACES}/{name}")
        for text in (*WORDS, "herom stork", "stork. egrett ibis?"):  # and how they are corrected
            for narrowed in ({}, {"namespace": "notes"}, {"memory_type": "episodic"}):
                yield ask("GET", f"{MEMORY}/search", params={"q": text, **narrowed})


def opened(stack: ExitStack, path: Path) -> World:
    service = stack.enter_context(serving(path))

    def agent(id_: str, role: str, tenant: str = "default") -> Agent:
        token = made_key(path, role, tenant, agents=(id_,))
        return Agent(stack.enter_context(calling(service, token)), id_)

    others = [agent("bob", "writer"), agent("cyn", "writer"), agent("ada", "admin", "acme")]
    world = World(service, agent("root", "admin"), agent("ada", "writer"), others)
    for name in SPACES:
        world.root.permit(name, "write")
    return world


def shown(answer: httpx.Response) -> tuple[int, str, str]:
    """An answer without generated ids, instants and sequences."""
    text = re.sub(r'\b(mem|evt)_[0-9a-f]{32}|"sequence":\d+', "?", answer.text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", "?", text)
    return answer.status_code, text, answer.headers.get("etag", "")


def deed(chance: random.Random, agent: Agent, spaces: tuple[str, ...]) -> tuple[str, Json]:
    tier = chance.choice(["working", "episodic", "semantic"])
    space = chance.choice(spaces)
    body = agent.body(
        namespace=space, key=chance.choice(KEYS), memory_type=tier,
        value={"n": chance.randrange(9), "of": chance.sample(WORDS, 3)},
        tags=chance.sample(TAGS, chance.randrange(3)), pinned=chance.random() < 0.2,
    )  # fmt: skip
    return chance.choice(["create", "create", "change", "delete", "clear", "batch"]), body


def done(agent: Agent, what: str, body: Json) -> httpx.Response:
    """The answer to what an agent does at a place."""
    named = {"namespace": body["namespace"], "key": body["key"], "memory_type": body["memory_type"]}
    held = agent.ask("GET", MEMORY, params=named).json()["entries"]
    match what:
        case "change" if held:
            return agent.patch(held[0], value=body["value"])
        case "delete" if held:
            return agent.delete(held[0])
        case "clear":
            return agent.ask("DELETE", BATCH, params=named)
        case "batch":
            items = [body | {"version": 1}, body]
            return agent.ask("POST", BATCH, {"entries": items[: 1 + body["value"]["n"] % 2]})
    return agent.ask("POST", MEMORY, body)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(2), 2))
@requirement("OI-11", "OI-53", "OI-60", "OI-66", "OI-69", "OI-75", "OI-92")
def test_nothing_that_is_hidden_can_be_told_from_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same each time
    with ExitStack() as stack:
        with_it = opened(stack, tmp_path / "with.db")
        without = opened(stack, tmp_path / "without.db")
        with_it.root.permit(HIDDEN, "none", bob="write")
        for step in range(STEPS):
            who = chance.randrange(4)
            if who < 3:  # something that the observer must not learn of, in one world alone
                other = with_it.others[who]
                what, body = deed(chance, other, (*SPACES, HIDDEN))
                saved = observation(" ".join(chance.choices(WORDS, k=2)))  # of a project
                assert with_it.root.http.post("/observations", json=saved).is_success
                if who == 2 or body["memory_type"] != "semantic" or body["namespace"] == HIDDEN:
                    done(other, what, body)
            else:  # something that it does itself
                what, body = deed(chance, with_it.observer, (*SPACES, HIDDEN))
                answers = [done(world.observer, what, body) for world in (with_it, without)]
                assert shown(answers[0]) == shown(answers[1]), (what, body)
            if step % 6 == 0:
                told = [[*map(shown, world.everything())] for world in (with_it, without)]
                assert told[0] == told[1]
