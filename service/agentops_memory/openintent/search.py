"""Search in agents' memory: an agent's own episodic entries, and namespaces that it may read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ..engine.engine import Engine, Transaction
from ..errors import BadFields
from ..http.bodies import JSON, written
from ..http.paging import ENTRY, public_id
from ..http.protocol import Operation, Parameter
from ..http.requests import parameter, query_of
from ..memory.model.access import Caller, Role
from ..memory.model.agent_memory import Eyes, Tier
from ..memory.model.search import Filter, Found, Method
from ..memory.redactor import Redactor, RulesOf, default_rules
from ..recall import recall
from ..recall.recall import K
from ..recall.text.features import Features
from ..recall.text.query import Query, understood
from ..telemetry import Cut, annotate
from ..telemetry import events as span_events
from .api import Shown, limited, op, whose
from .entries import CONDITIONS, MEMORY, AgentEntry, AgentFilter, some
from .memory import Accesses
from .namespaces import readable

SEARCH = f"{MEMORY}/search"
SEARCHED = ("namespace", "memory_type", "tags", "tags_any")
SHOWN, MOST_SHOWN = 10, 100  # entries of a search
SHOWN_QUERY = 200  # code points of a search
MOST_PLACES = 8  # namespaces of one search
MOST_FOUND = 1_000  # entries of a place that a filter chooses from


class FoundAgentEntry(AgentEntry):
    """An entry that was found; a lower rank is better."""

    rank: float


class SearchedPlaces(BaseModel):
    """Where was looked: the agent's own episodic memory, and namespaces."""

    own: bool
    namespaces: list[str]


class FoundAgentEntries(Shown):
    """Entries by their words, best first."""

    entries: list[FoundAgentEntry]
    searched: SearchedPlaces


Hit = tuple[float, AgentEntry]
"""The rank of an entry that was found, and the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFound:
    """What was found, best first, and where it was looked for."""

    hits: Sequence[Hit]
    own: bool
    namespaces: Sequence[str]
    is_degraded: bool

    def json_bytes(self) -> bytes:
        shown = [it.json_bytes()[:-1] + b',"rank":%b}' % written(rank) for rank, it in self.hits]
        places = written({"own": self.own, "namespaces": self.namespaces})
        return b'{"entries":[%b],"searched":%b}' % (b",".join(shown), places)


def operations(search: "AgentSearch") -> Sequence[Operation]:
    async def handle(request: Request) -> Response:
        text = parameter(query_of(request), "q")
        if text is None:
            raise BadFields([("q", "is required")])
        asked = AgentFilter.of(request)
        if asked.tier is Tier.WORKING:
            said = "must be episodic or semantic: working is not searched"
            raise BadFields([("memory_type", said)])
        filter_ = AgentFilter(
            namespace=asked.namespace, is_prefix=asked.is_prefix, tier=asked.tier,
            every_tag=asked.every_tag, any_tag=asked.any_tag,
        )  # fmt: skip
        limit = limited(request, SHOWN, MOST_SHOWN)
        found = await search.search(*whose(request), text, filter_, limit)
        annotate(
            {
                "memory.search.query": Cut(text, SHOWN_QUERY),
                "memory.search.result_count": len(found.hits),
                "memory.search.degraded": found.is_degraded or None,
            }
        )
        told: Iterator[dict[str, Any]] = (
            {
                "memory.entry.id": public_id(ENTRY, entry.id),
                "memory.injected.rank": rank,
                "memory.injected.method": Method.FULL_TEXT.value,
            }
            for rank, entry in found.hits
        )
        span_events("search.result", told)
        return Response(found.json_bytes(), media_type=JSON)

    most = Parameter(
        name="limit", kind="count", is_row_count=True, help="How many, 10 unless told; at most 100."
    )
    words = Parameter(name="q", help="Any text.", kind="words", required=True)
    return (
        op("GET", SEARCH, "search_entries",
           "Own episodic and shared semantic entries by their words, best first.",
           handle, FoundAgentEntries,
           query=(words, *(it for it in CONDITIONS if it.name in SEARCHED), most)),
    )  # fmt: skip


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
        clean = filter_.clean(Redactor(self.rules(caller)))
        found, at = await self.engine.read(caller, _search, eyes, query, clean, limit)
        self.accesses.note(caller, eyes, at, (it for _, it in found.hits))
        return found


def _search(
    tx: Transaction, eyes: Eyes, query: Query, filter_: AgentFilter, limit: int
) -> tuple[AgentFound, datetime]:
    own = filter_.tier is not Tier.SEMANTIC
    namespaces = [] if filter_.tier is Tier.EPISODIC else list(_readable(tx, eyes, filter_))
    places = [Filter(agent=eyes.agent)] if own else []
    places += [Filter(namespace=name) for name in namespaces]
    is_narrow = replace(filter_, tier=None) != AgentFilter()
    most = MOST_FOUND if is_narrow else limit
    lists = [recall.search(tx, query, place, most) if query else Found() for place in places]
    hits = [list(_hits(tx, eyes, filter_, found)) for found in lists]
    best = [hit for each in hits for hit in each]
    if len(hits) > 1:
        placed = ((-1 / (K + at), it) for each in hits for at, (_, it) in enumerate(each, start=1))
        best = sorted(placed, key=lambda hit: (hit[0], hit[1].memory))
    is_degraded = any(found.is_degraded for found in lists)
    return AgentFound(
        hits=best[:limit], own=own, namespaces=namespaces, is_degraded=is_degraded
    ), tx.now


def _readable(tx: Transaction, eyes: Eyes, filter_: AgentFilter) -> Iterator[str]:
    """The first namespaces, by name, that the filter selects."""
    offset = number = 0
    while page := readable(tx, eyes, MOST_FOUND, offset):
        for each in page:
            if filter_.names(each.namespace):
                yield each.namespace
                number += 1
            if number == MOST_PLACES:
                return
        offset += len(page)


def _hits(tx: Transaction, eyes: Eyes, filter_: AgentFilter, found: Found) -> Iterator[Hit]:
    ranks = {hit.memory.id: hit.rank for hit in found.hits}
    for entry in some(tx, eyes, list(ranks)):
        if filter_.fits(entry):
            yield ranks[entry.memory], entry
