"""Search in agents' memory: an agent's own episodic entries, and namespaces that it may read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import wraps
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from ...engine.engine import Engine, Transaction
from ...memory.model.access import Caller, Role, TenantId
from ...memory.model.agent_memory import AgentEntry, AgentFilter, Eyes, Tier
from ...memory.model.memory import MemoryId
from ...memory.model.search import Filter, Found
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...recall import recall
from ...recall.recall import K
from ...recall.text.features import Features
from ...recall.text.query import Query, understood
from ..sql.entries import AgentTable
from ..sql.namespaces import NamespaceTable
from .values import clean_filter

P = ParamSpec("P")
T = TypeVar("T")

Accessed = Mapping[MemoryId, datetime]


def own_episodic(entries: Iterable[AgentEntry], eyes: Eyes, at: datetime) -> Accessed:
    """Those of the entries whose reading is access: an agent's own episodic ones."""
    spaces = ((it.memory, it.place.space) for it in entries)
    own = [id_ for id_, it in spaces if it.tier is Tier.EPISODIC and it.agent == eyes.agent]
    return dict.fromkeys(own, at)


class Accesses:
    """When owners last read their entries, until it is written with the next change. Thread-safe.

    A crash loses what was not written yet.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._noted: dict[TenantId, dict[MemoryId, datetime]] = {}

    def note(self, tenant: TenantId, accessed: Accessed) -> None:
        if not accessed:
            return
        with self._lock:
            noted = self._noted.setdefault(tenant, {})
            for memory, at in accessed.items():
                noted[memory] = max(at, noted.get(memory, at))

    def given(self, tenant: TenantId, memories: Iterable[MemoryId], at: datetime) -> None:
        """Note that memories were given to their owner; of others nothing is kept."""
        self.note(tenant, dict.fromkeys(memories, at))

    def take(self, tenant: TenantId) -> Accessed:
        """What was noted since it was last taken."""
        with self._lock:
            return self._noted.pop(tenant, {})

    async def write(
        self,
        engine: Engine,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What work answers, in whose transaction the accesses are written that were noted.

        They are taken when it is its turn: what is refused before it leaves them to it.
        """
        tenant, taken = caller.tenant, dict[MemoryId, datetime]()

        @wraps(work)
        def touching(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
            taken.update(self.take(tenant))
            try:
                tx[AgentTable].touch(taken)
                return work(tx, *args, **kwargs)
            except BaseException:
                self.note(tenant, taken)
                raise

        try:
            return await engine.write(caller, touching, *args, **kwargs)
        except BaseException:
            self.note(tenant, taken)
            raise

    def tenants(self) -> list[TenantId]:
        """Those of which something is noted."""
        with self._lock:
            return list(self._noted)


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
