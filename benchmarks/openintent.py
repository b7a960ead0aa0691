"""`python -m benchmarks.openintent`: agents' memory beside what the REST API costs, in turns."""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode

from . import corpus, openintent_tasks
from .client import Client, Request, get, post, with_body
from .figures import Figure, at_least, at_most, show
from .measures import crowds_in_turns, times_in_turns
from .process import Running, running

MEMORY = "/api/v1/memory"
AGENTS, ENTRIES = 10, 1_000  # and how many episodic entries each has
ROUNDS = 300
LISTED = 40  # rounds of what takes long
VALUE_BYTES = 400
CAPACITY = "1000"
WRITERS, CROWDED = 16, 480  # at a time, and the entries that they make
LONG = 65_000  # bytes

NONE: Mapping[str, str] = {}

Work = Callable[[], object]


class Agent:
    """An agent that asks a service on a connection of its own."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.numbers = count()
        self.texts = cycle(_texts(len(name), 500))

    @property
    def value(self) -> dict[str, object]:
        return {"text": next(self.texts), "done": next(self.numbers)}

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        return json.loads(self.client.ask(self.request(method, path, body, headers)))

    def body(self, tier: str, **fields: object) -> dict[str, object]:
        return {
            "agent_id": self.name, "namespace": "notes", "key": f"key {next(self.numbers)}",
            "value": self.value, "memory_type": tier, "tags": ["batch", "shop"],
        } | fields  # fmt: skip

    def create(self, tier: str, **fields: object) -> Any:
        return self.ask("POST", MEMORY, self.body(tier, **fields))

    def batch(self, number: int, **fields: object) -> Any:
        entries = [self.body("episodic", **fields) for _ in range(number)]
        return self.ask("POST", f"{MEMORY}/batch", {"entries": entries})

    def request(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] = NONE
    ) -> Request:
        sent = b"" if body is None else json.dumps(body).encode()
        given = {"X-Agent-ID": self.name} | {k.replace("_", "-"): v for k, v in headers.items()}
        return with_body(method, path, sent, given)


class Working:
    """A working entry, and its version."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.id = agent.create("working")["id"]
        self.version = 1

    def patch(self) -> None:
        path, match = f"{MEMORY}/{self.id}", str(self.version)
        self.agent.ask("PATCH", path, {"value": self.agent.value}, If_Match=match)
        self.version += 1


def main() -> None:
    """Seed, start, take turns, print."""
    seed = ArgumentParser(prog="benchmarks.openintent", description=__doc__)
    seed.add_argument("--seed", type=int, default=7)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        show(_figures(Path(folder), stack, seed.parse_args().seed))


def _figures(folder: Path, stack: ExitStack, seed: int) -> Iterator[Figure]:
    settings = {
        "MEMORY_EPISODIC_CAPACITY": CAPACITY,
        "MEMORY_WORKING_CAPACITY": "10000",
        "MEMORY_DEDUPE_WINDOW": "0",
    }
    first = get("/health")
    whole = stack.enter_context(running(folder / "a.db", first=first, settings=settings))
    bare = stack.enter_context(running(folder / "b.db", first=first, settings=settings))
    client, other = Client(whole.port), Client(bare.port)
    prompts, numbers = cycle(corpus.prompts(seed, 2_000)), count()
    texts = cycle(_texts(seed, 500))

    def save(to: Client, project: str = "project-9") -> None:
        content = f"{next(numbers)} {next(texts)}"
        body = {"session_id": "s", "type": "note", "title": "t", "content": content,
                "project": project}  # fmt: skip
        to.ask(post("/observations", body))

    for text in _texts(seed + 1, 500):
        for to in (client, other):
            body = {"session_id": "s", "type": "note", "title": "t", "content": text,
                    "project": "project-0"}  # fmt: skip
            to.ask(post("/observations", body))
    full = [Agent(client, f"agent-{number}") for number in range(AGENTS)]
    for agent in full:
        for _ in range(ENTRIES // 100):
            agent.batch(100)
    roomy, small = Agent(client, "roomy"), Working(Agent(client, "small"))
    discreet = Agent(client, "discreet")
    batcher, entry = Agent(client, "batcher"), roomy.create("episodic")["id"]
    query = f"{MEMORY}?tags=batch,shop&limit=100"

    yield from _beside(
        {
            "POST /observations": partial(save, client),
            "create episodic": partial(roomy.create, "episodic"),
            "PATCH of a working entry": small.patch,
        },
        ROUNDS,
        {"create episodic": 1.25, "PATCH of a working entry": 0.7},
    )
    yield from _beside(
        {
            "create episodic": partial(roomy.create, "episodic"),
            "create that evicts": partial(full[0].create, "episodic"),
        },
        ROUNDS,
        {"create that evicts": 1.5},
    )
    yield from _beside(
        {
            "create episodic": partial(roomy.create, "episodic"),
            "create confidential": partial(discreet.create, "episodic", sensitivity="confidential"),
        },
        ROUNDS,
        {},
    )
    yield from _beside(
        {
            "GET /observations/{id}": lambda: client.ask(get("/observations/1")),
            "GET an entry": lambda: roomy.ask("GET", f"{MEMORY}/{entry}"),
        },
        ROUNDS,
        {"GET an entry": 1.2},
    )
    yield from _beside(
        {
            "/search": lambda: client.ask(get("/search", q=next(prompts), project="project-0")),
            "search of an agent": lambda: full[1].ask(
                "GET", f"{MEMORY}/search?q={quote(next(prompts))}"
            ),
        },
        ROUNDS,
        {"search of an agent": 1.3},
    )
    yield from _beside(
        {
            "100 creates": lambda: [batcher.create("working") for _ in range(100)],
            "a batch of 100": lambda: batcher.batch(100),
        },
        5,
        {"a batch of 100": 0.3},
    )
    yield from _beside(
        {
            "list of 100": lambda: full[3].ask("GET", f"{MEMORY}?limit=100"),
            "query by two tags": lambda: full[3].ask("GET", query),
        },
        LISTED,
        {},
    )
    for number in range(4):
        full[4].create("semantic", namespace=f"n{number}")
    prompt = {"project": "project-0", "query": "Which lock does the import hold?"}
    yield from _beside(
        {
            "/context": lambda: client.ask(get("/context", **prompt)),
            "/context with four namespaces": lambda: full[4].ask(
                "GET", f"/context?{urlencode(prompt)}&agent=agent-4&namespaces=n0,n1,n2,n3"
            ),
        },
        ROUNDS,
        {"/context with four namespaces": 2},
    )
    for what, asked in {
        "POST /observations": save,
        "/context": lambda to: to.ask(get("/context", project="project-0", query=next(prompts))),
        "/search": lambda to: to.ask(get("/search", project="project-0", q=next(prompts))),
    }.items():
        name = f"{what} with 10,000 agents' entries in the file"
        works: dict[str, Work] = {"without": partial(asked, other), name: partial(asked, client)}
        yield from _beside(works, 2 * ROUNDS, {name: 1.05})
    yield _crowd(whole.port)
    yield from openintent_tasks.figures(
        openintent_tasks.Worker(Agent(Client(whole.port), "worker").ask, "worker"),
        partial(roomy.create, "episodic"),
    )
    yield _resident(whole, Agent(client, "long"))


def _crowd(port: int) -> Figure:
    """Writers of distinct entries, one and sixteen at a time."""
    agents = [Agent(Client(port), f"crowd-{number}") for number in range(WRITERS)]

    def requests() -> list[Request]:
        asking = islice(cycle(agents), CROWDED)
        return [it.request("POST", MEMORY, it.body("working")) for it in asking]

    times = crowds_in_turns(port, {1: requests(), WRITERS: requests()}, turns=5)
    return Figure(
        what=f"{WRITERS} writers against 1: rate",
        value=times[WRITERS].rate / times[1].rate,
        aim=at_least(1.5),
        beside=f"{times[WRITERS].rate:.0f} against {times[1].rate:.0f} a second",
    )


def _resident(service: Running, agent: Agent) -> Figure:
    """What is held in memory after 1,000 long entries were listed, against before."""
    value = {"text": "x" * LONG}
    for _ in range(20):
        agent.batch(50, value=value)
    before, _ = service.memory()
    agent.client.ask(agent.request("GET", f"{MEMORY}?limit=1000"))
    after, _ = service.memory()
    return Figure(
        what="resident memory after 1,000 x 64 KB listed",
        value=after / before,
        aim=at_most(1.1),
        beside=f"{after:.1f} against {before:.1f} MiB",
    )


def _texts(seed: int, number: int) -> list[str]:
    """Texts of some 400 bytes."""
    prompts = cycle(corpus.prompts(seed, 900))
    return [" ".join(islice(prompts, 6))[:VALUE_BYTES] for _ in range(number)]


def _beside(works: dict[str, Work], rounds: int, aims: dict[str, float]) -> Iterator[Figure]:
    """Each beside the first of them."""
    times = times_in_turns(works for _ in range(rounds))
    base, *others = works
    for name in others:
        yield Figure(
            what=f"{name} against {base}: p50",
            value=times[name].p50 / times[base].p50,
            aim=at_most(aims[name]) if name in aims else None,
            beside=f"{times[name]} against {times[base]}",
        )


if __name__ == "__main__":
    main()
