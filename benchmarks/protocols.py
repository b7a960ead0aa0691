"""What clients of each protocol ask one after another, as kinds of `benchmarks.compare`."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle

from .client import Client, get, post, put
from .openintent import Agent, Working
from .openwop_host import H, Host, Work
from .openwop_refs import texts
from .plan import Subject

REQUESTS = 200  # in a turn
LISTED = 50  # entries of the ref that is listed
CLOUD = "/api/v1/cloud/memory_stores"

Turn = Callable[[Subject, int], tuple[int, Callable[[], None]]]
"""What one service is asked in the turn of a number: how many requests, or rows, and the asking.

The texts are made before, as they take a client longer than the service takes for a read.
"""


def turns() -> Iterator[tuple[str, Turn]]:
    """Each kind of request, by its name."""
    kinds: dict[str, Callable[[int, int], Work]] = {
        "OpenIntent, a create": _created,
        "OpenIntent, a change": lambda port, turn: Working(Agent(Client(port), f"w{turn}")).patch,
        "OpenWOP, a put": lambda port, turn: Host(port, turn).put,
        "OpenWOP, a read": partial(_put_and_asked, listing=False),
        "OpenWOP, a list": partial(_put_and_asked, listing=True),
        "stores, an update": _updated,
    }
    for name, made in kinds.items():
        yield name, partial(_turn, made)


def _turn(
    made: Callable[[int, int], Work], asked: Subject, number: int
) -> tuple[int, Callable[[], None]]:
    work = made(asked.service.port, number)

    def ask() -> None:
        for _ in range(REQUESTS):
            work()

    return REQUESTS, ask


def _created(port: int, turn: int) -> Work:
    return partial(Agent(Client(port), f"agent-{turn}").create, "episodic")


def _put_and_asked(port: int, turn: int, *, listing: bool) -> Work:
    host, ref = Host(port, turn), f"mem://listed-{turn}"
    ids = [host.put(ref)["entry"]["id"] for _ in range(LISTED)]
    if listing:
        return host.listing(ref)
    return lambda: host.client.ask(get(f"{H}/memory/{ids[0]}", memoryRef=ref))


def _updated(port: int, turn: int) -> Work:
    client, numbers, contents = Client(port), count(), cycle(texts(turn, 500))
    store = json.loads(client.ask(post(CLOUD, {"name": f"store {turn}"})))["id"]
    memories = f"{CLOUD}/{store}/memories"
    entry = json.loads(client.ask(post(memories, {"path": "a.md", "content": "a"})))["id"]
    path = f"{memories}/{entry}"
    return lambda: client.ask(put(path, {"content": f"{next(numbers)} {next(contents)}"}))
