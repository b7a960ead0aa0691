"""The play: deeds of all parts by chance, some more often than others."""

from collections.abc import Callable, Iterator

from .agentops import AgentOps
from .agents import Agents
from .hostile import Hostile
from .hosts import Hosts
from .pair import Pair
from .place import Place
from .stores import Stores
from .tools import Tools

# How often a deed is done that is done more than once, by the name of its part and its own.
OFTEN = {
    "AgentOps": {
        "save": 7, "save_alike": 2, "amend": 3, "delete": 2, "search": 8, "context": 8, "talk": 2,
        "end_session": 2,
    },
    "Tools": {"use": 4},
    "Stores": {"put": 4, "replace": 2, "update": 2, "search": 2},
    "Agents": {
        "make": 5, "change": 2, "find": 2, "search": 2, "make_task": 2, "change_task": 2,
        "look_at_an_intent": 2,
    },
    "Hosts": {"put": 5, "list_entries": 2, "search": 2, "commit": 2, "decide": 2},
    "Hostile": {"write": 3, "read": 2},
}  # fmt: skip


def play(pair: Pair, seed: int, requests: int) -> None:
    """Ask both services so many requests, the same for a seed as long as answers are the same."""
    place = Place(pair, seed)
    deeds = [*begun(place), *[place.wait] * 4, place.restart]
    for side in pair.sides:
        side.analyze()
    while len(pair.statuses) < requests:
        place.choice(deeds)()


def begun(place: Place) -> list[Callable[[], None]]:
    """The deeds of all parts, once there is something of each."""
    memory = AgentOps(place)
    stores = Stores(place, memory.stores)
    agents = Agents(place)
    parts = (memory, Tools(place, memory), stores, agents, Hosts(place), Hostile(place))
    for beginning in (memory, stores, agents):
        beginning.begin()
    for _ in range(15):
        memory.save()
    return [deed for part in parts for deed in deeds_of(part)]


def deeds_of(part: object) -> Iterator[Callable[[], None]]:
    """Each as often as it is done, in their order in the source."""
    often = OFTEN[type(part).__name__]
    for name in vars(type(part)):
        if not name.startswith("_") and name != "begin":
            yield from [getattr(part, name)] * often.get(name, 1)
