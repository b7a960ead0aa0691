"""The play: deeds of all parts by chance, some more often than others."""

from collections.abc import Callable

from .agentops import AgentOps
from .agents import Agents
from .hostile import Hostile
from .hosts import Hosts
from .pair import Pair
from .place import Place
from .stores import Stores
from .tools import Tools

Deed = Callable[[], None]


def play(pair: Pair, seed: int, requests: int) -> None:
    """Ask both services so many requests, the same for a seed as long as answers are the same."""
    place = Place(pair, seed)
    memory = AgentOps(place)
    stores = Stores(place, memory.stores)
    agents = Agents(place)
    deeds = [
        *_of_memory(memory, Tools(place, memory)), *_of_stores(stores), *_of_agents(agents),
        *_of_hosts(Hosts(place)), place.wait, place.wait, place.wait, place.wait, place.restart,
        *_hostile(Hostile(place)),
    ]  # fmt: skip
    for beginning in (memory, stores, agents):
        beginning.begin()
    for _ in range(15):
        memory.save()
    pair.analyze()
    while len(pair.statuses) < requests:
        place.choice(deeds)()


def _of_memory(of: AgentOps, tools: Tools) -> list[Deed]:
    return [
        *[of.save] * 7, *[of.save_alike] * 2, *[of.amend] * 3, *[of.delete] * 2, of.restore,
        of.confirm,
        of.read, of.list_recent, of.review, *[of.search] * 8, *[of.context] * 8, of.begin_session,
        *[of.talk] * 2, *[of.end_session] * 2, of.list_sessions, of.count, of.export, of.take_in,
        of.erase_project, of.move_project, of.receipt, tools.save, tools.find, tools.use,
        tools.use, tools.speak,
    ]  # fmt: skip


def _of_stores(of: Stores) -> list[Deed]:
    return [
        *[of.put] * 4, *[of.replace] * 2, *[of.update] * 2, of.delete, of.read, of.list_entries,
        of.list_versions, of.read_version, of.redact, of.search, of.search, of.make, of.change,
        of.close,
        of.list_stores,
    ]  # fmt: skip


def _of_agents(of: Agents) -> list[Deed]:
    return [
        *[of.make] * 5, of.make_many, *[of.change] * 2, of.delete, of.delete_some, of.read,
        of.put_by_key,
        of.find, of.find, of.search, of.search, of.look_at_namespaces, of.look_at_an_agent,
        of.make_intent,
        *[of.make_task] * 2, *[of.change_task] * 2, of.look_at_an_intent, of.look_at_an_intent,
        of.log,
        of.coordinate, of.grant,
    ]  # fmt: skip


def _of_hosts(of: Hosts) -> list[Deed]:
    return [
        *[of.put] * 5, of.put_alike, of.delete, of.read, of.list_entries, of.list_entries,
        of.search,
        of.search, of.look_around, of.open, of.end, of.register, of.fork, of.look_at_a_run,
        of.follow,
        of.compact, of.distill, of.consolidate, of.undo, of.forget, of.commit, of.commit,
        of.propose,
        of.decide, of.decide,
    ]  # fmt: skip


def _hostile(of: Hostile) -> list[Deed]:
    return [of.write, of.write, of.write, of.read, of.read]
