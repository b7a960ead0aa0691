"""Search in agents' memory: an agent's own episodic entries, and namespaces that it may read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ...engine.engine import Engine, Transaction
from ...memory.model.access import Caller, Role
from ...memory.model.agent_memory import AgentEntry, AgentFilter, Eyes, Tier
from ...memory.model.search import Filter, Found
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...recall import recall
from ...recall.lists import K
from ...recall.text.features import Features
from ...recall.text.query import Query, understood
from ..sql.entries import AgentTable
from ..sql.namespaces import NamespaceTable
from .accesses import Accesses, own_episodic
from .screening import clean_filter

MOST_PLACES = 8  # namespaces of one search
MOST_FOUND = 1_000  # entries of a place that a filter chooses from


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHit:
    """An entry that was found; a lower rank is better."""

    entry: AgentEntry
    rank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFound:
    """What was found, best first, and where it was looked for."""

    hits: Sequence[AgentHit]
    own: bool
    namespaces: Sequence[str]
    is_degraded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSearch:
    """The search of one service; words are weighed within each place alone."""

    engine: Engine
    features: Features
    timeout: timedelta
    accesses: Accesses
    rules: RulesOf = default_rules

    async def search(
        self, caller: Caller, eyes: Eyes, text: str, filter_: AgentFilter, limit: int
    ) -> AgentFound:
        """Entries by their words; of several places by reciprocal rank."""
        caller.require(Role.READER)
        query = understood(text, self.features, self.timeout)
        clean = clean_filter(Redactor(self.rules(caller)), filter_)
        found, at = await self.engine.read(caller, search, eyes, query, clean, limit)
        self.accesses.note(caller.tenant, own_episodic((it.entry for it in found.hits), eyes, at))
        return found


def search(
    tx: Transaction, eyes: Eyes, query: Query, filter_: AgentFilter, limit: int
) -> tuple[AgentFound, datetime]:
    own = filter_.tier is not Tier.SEMANTIC
    namespaces = [] if filter_.tier is Tier.EPISODIC else list(_readable(tx, eyes, filter_))
    places = [Filter(agent=eyes.agent)] if own else []
    places += [Filter(namespace=name) for name in namespaces]
    is_narrow = replace(filter_, tier=None) != AgentFilter()
    lists = [_found(tx, query, place, MOST_FOUND if is_narrow else limit) for place in places]
    hits = [list(_hits(tx, eyes, filter_, found)) for found in lists]
    best = [hit for each in hits for hit in each]
    if len(hits) > 1:
        placed = (_by_place(hit, at) for each in hits for at, hit in enumerate(each, start=1))
        best = sorted(placed, key=_order)
    return AgentFound(
        hits=best[:limit],
        own=own,
        namespaces=namespaces,
        is_degraded=any(found.is_degraded for found in lists),
    ), tx.now


def _readable(tx: Transaction, eyes: Eyes, filter_: AgentFilter) -> Iterator[str]:
    """The first namespaces, by name, that the filter selects."""
    offset = count = 0
    while page := tx[NamespaceTable].page(eyes, MOST_FOUND, offset):
        for namespace in page:
            if filter_.names(namespace.name):
                yield namespace.name
                count += 1
            if count == MOST_PLACES:
                return
        offset += len(page)


def _found(tx: Transaction, query: Query, place: Filter, limit: int) -> Found:
    return recall.search(tx, query, place, limit) if query else Found()


def _hits(tx: Transaction, eyes: Eyes, filter_: AgentFilter, found: Found) -> Iterator[AgentHit]:
    ranks = {hit.memory.id: hit.rank for hit in found.hits}
    for entry in tx[AgentTable].some(list(ranks), eyes):
        if filter_.fits(entry):
            yield AgentHit(entry=entry, rank=ranks[entry.memory])


def _by_place(hit: AgentHit, place: int) -> AgentHit:
    return replace(hit, rank=-1 / (K + place))


def _order(hit: AgentHit) -> tuple[float, int]:
    return hit.rank, hit.entry.memory
