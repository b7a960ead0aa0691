"""Search and context: memories by full text, by topic key, and the newest ones as backfill."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from itertools import accumulate, compress, islice
from typing import TYPE_CHECKING

from ..engine.engine import Engine, Transaction, noop
from ..errors import INDEX_UNAVAILABLE, NotFound
from ..light import Lazy, dataclass, replace
from ..memory.access import Caller, TenantId
from ..memory.agent_memory import Viewer, reads_namespace
from ..memory.lifecycles import with_links
from ..memory.memories import AT_ONCE, MemoryTable
from ..memory.memory import Memory, MemoryId, Text
from ..memory.redactor import require_store
from ..memory.saves import live
from ..memory.search import (
    Budget,
    Context,
    Filter,
    Hit,
    Include,
    LeftOutEntry,
    Method,
    Packed,
    Scored,
    SearchResult,
    Source,
    Tier,
)
from ..memory.sessions import SessionTable
from ..memory.space import GLOBAL_SCOPE, Project, StoreId
from .query import TIMEOUT, Query, parse_query
from .text import cut

if TYPE_CHECKING:
    from ..memory import projects
    from . import explanation as reasons
else:
    projects = Lazy(__package__, "..memory.projects")
    reasons = Lazy(__package__, ".explanation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    sessions: int
    memories: int
    projects: tuple[Project, ...]


K = 60  # constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009)


def fused(lists: Iterable[Sequence[Hit]], limit: int) -> list[Hit]:
    """Merge by reciprocal rank fusion: a hit scores 1 / (60 + rank) in each list; ties by id."""
    from fractions import Fraction  # noqa: PLC0415 - rarely needed

    hits: dict[int, Hit] = {}
    scores: dict[int, Fraction] = {}
    for ranked in lists:
        for position, hit in enumerate(ranked, start=1):
            id_ = hit.memory.id
            hits.setdefault(id_, replace(hit, place=position))
            scores[id_] = scores.get(id_, Fraction()) + Fraction(1, K + position)
    best = sorted(hits, key=lambda id_: (-scores[id_], id_))
    return [hits[id_] for id_ in best[:limit]]


def with_memories(tx: Transaction, result: SearchResult) -> SearchResult:
    """Load the whole memory of each hit, and leave out damaged ones."""
    ids = [hit.memory.id for hit in result.hits if not isinstance(hit.memory, Memory)]
    loaded: dict[MemoryId, Memory] = {}
    for start in range(0, len(ids), AT_ONCE):  # in batches: a statement sorts its texts
        batch = tx[MemoryTable].loaded(ids[start : start + AT_ONCE])
        loaded.update({memory.id: memory for memory in batch})
    hits = [replace(hit, memory=loaded.get(hit.memory.id, hit.memory)) for hit in result.hits]
    return replace(result, hits=tuple(it for it in hits if isinstance(it.memory, Memory)))


def linked(tx: Transaction, result: SearchResult) -> SearchResult:
    """Load the whole memory and the links of each hit."""
    result = with_memories(tx, result)
    memories = with_links(tx, [whole_memory(hit) for hit in result.hits])
    hits = zip(result.hits, memories, strict=True)
    return replace(result, hits=tuple(replace(hit, memory=memory) for hit, memory in hits))


def whole_memory(hit: Hit) -> Memory:
    assert isinstance(hit.memory, Memory)
    return hit.memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    tokens: int
    chars: int


def packed(context: Context, budget: Budget) -> Context:
    """Reduce a context to the lines that fit: summaries first, then memories in order."""
    hits, first = context.found.hits, len(context.summaries)
    entries = [entry_line(hit.memory.text, budget.content_chars) for hit in hits]
    costs = [*map(cost_of, map(summary_line, context.summaries)), *map(cost_of, entries)]
    fits = fitting(costs, budget)
    kept = [index for index in range(len(hits)) if fits[first + index]]
    return replace(
        context,
        summaries=tuple(compress(context.summaries, fits)),
        found=replace(context.found, hits=tuple(hits[index] for index in kept)),
        packed=Packed(
            tokens=sum(cost.tokens for cost in compress(costs, fits)),
            chars=sum(cost.chars for cost in compress(costs, fits)),
            places=tuple(index + 1 for index in kept),
            left_out=tuple(
                LeftOutEntry(
                    id=hit.memory.id, place=index + 1, tokens=cost.tokens, chars=cost.chars
                )
                for index, (hit, cost) in enumerate(zip(hits, costs[first:], strict=True))
                if not fits[first + index]
            ),
            summaries_left_out=fits[:first].count(False),
        ),
    )


def fitting(costs: Iterable[Cost], budget: Budget) -> list[bool]:
    """Return whether each line fits, in order; a line that does not fit is skipped."""
    fits, tokens, chars = [], 0, 0
    for cost in costs:
        fits.append(budget.fits(tokens + cost.tokens, chars + cost.chars))
        if fits[-1]:
            tokens, chars = tokens + cost.tokens, chars + cost.chars
    return fits


def cost_of(line: str) -> Cost:
    """Return the cost of a line in code points, and in tokens of four bytes, rounded up."""
    return Cost(tokens=(len(line.encode()) + 3) // 4, chars=len(line))


def summary_line(summary: str) -> str:
    """Render a summary as the agent runtime writes it into a prompt."""
    return f"- {summary}\n"


def entry_line(text: Text, content_chars: int) -> str:
    """Render a memory, with truncated content, as the agent runtime writes it into a prompt."""
    return f"- [{text.type}] {text.title}: {cut(text.content, content_chars)}\n"


NO_NAMESPACE = "No such namespace."


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSources:
    """Sources besides the project: stores, and an agent's episodic memory and namespaces."""

    stores: tuple[StoreId, ...] = ()
    viewer: Viewer | None = None  # required for the following
    episodic: bool = False
    namespaces: tuple[str, ...] = ()

    def filters(self, tx: Transaction, filter_: Filter) -> Iterator[Filter]:
        """Yield a filter for each source, with the type and the tag of `filter_`.

        Raises NotFound for a missing store and for a namespace that the viewer may not read.
        """
        base = Filter(type=filter_.type, tag=filter_.tag, is_current=True)
        for store in self.stores:
            require_store(tx, store)
            yield replace(base, store=store)
        if self.viewer is None:
            return
        if self.episodic:
            yield replace(base, agent=self.viewer.agent)
        for name in self.namespaces:
            if not reads_namespace(tx, self.viewer, name):
                raise NotFound(NO_NAMESPACE)
            yield replace(base, namespace=name)


NO_SOURCES = OtherSources()


SUMMARIES = 3  # session summaries in a context
NOTHING = Include()
UNBOUNDED = Budget()

Ranked = dict[MemoryId, tuple[Tier, float]]
"""Memories in order, each with its tier and its score in that tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Search and context of one service. Any text is a query; `timeout` bounds the search."""

    engine: Engine
    timeout: timedelta = TIMEOUT
    accessed: Callable[[TenantId, Mapping[MemoryId, datetime]], None] = noop  # by their agent

    async def search(
        self,
        caller: Caller,
        text: str,
        filter_: Filter,
        limit: int,
        include: Include = NOTHING,
        *,
        superseded: bool = False,
    ) -> SearchResult:
        """Return matches, best first: by topic key, then with every word, then with any word.

        Ranks never improve along the list. With `superseded`, superseded memories are included
        and hits have links.
        """
        query = parse_query(text, self.timeout)
        if not query and not include:
            return SearchResult()
        if filter_.is_current is superseded:
            filter_ = replace(filter_, is_current=not superseded)
        return await self.engine.read(caller, search, query, filter_, limit, include)

    async def search_store(
        self, caller: Caller, store: StoreId, text: str, limit: int
    ) -> SearchResult:
        """Return a store's memories that match by path or words; NotFound, or Denied."""
        query = parse_query(text, self.timeout)
        return await self.engine.read(caller, search_store, query, store, limit)

    async def context(
        self,
        caller: Caller,
        text: str,
        filter_: Filter,
        limit: int,
        *,
        budget: Budget = UNBOUNDED,
        include: Include = NOTHING,
        sources: OtherSources = NO_SOURCES,
    ) -> Context:
        """Return what to inject before a turn: summaries, pins, best matches, newest memories.

        Without a project: global memories, no summaries. Matches of other sources are merged by
        reciprocal rank fusion; NotFound if one is missing. Lines beyond the budget are left out.
        """
        query = parse_query(text, self.timeout)
        current = filter_ if filter_.is_current else replace(filter_, is_current=True)

        @wraps(context)
        def work(tx: Transaction) -> tuple[Context, datetime]:
            return context(tx, query, current, limit, budget, include, sources=sources), tx.now

        answer, at = await self.engine.read(caller, work)
        if sources.episodic:  # showing an agent its memories counts as access
            self.accessed(caller.tenant, {it.memory.id: at for it in answer.found.hits})
        return answer


def search(
    tx: Transaction, query: Query, filter_: Filter, limit: int, request: Include = NOTHING
) -> SearchResult:
    result = _searched(tx, query, filter_, limit)
    if not filter_.is_current:
        result = linked(tx, result)
    if not request:
        return result
    result = with_memories(tx, result)
    answer = reasons.Answer(result=result, filter=filter_, limit=limit, fills_up=False)
    return replace(result, explanation=reasons.explanation(tx, query, result.hits, answer, request))


def search_store(tx: Transaction, query: Query, store: StoreId, limit: int) -> SearchResult:
    require_store(tx, store)
    result = (
        search(tx, query, Filter(store=store, is_current=True), limit) if query else SearchResult()
    )
    return with_memories(tx, result)


def context(
    tx: Transaction,
    query: Query,
    filter_: Filter,
    limit: int,
    budget: Budget = UNBOUNDED,
    request: Include = NOTHING,
    *,
    sources: OtherSources = NO_SOURCES,
) -> Context:
    own, others = filter_.in_context, [*sources.filters(tx, filter_)]
    candidates, ranked = Context(), SearchResult()
    if filter_.project is not None or filter_.scope in (None, GLOBAL_SCOPE):
        summaries = tx[SessionTable].summaries(own.project, SUMMARIES) if own.project else []
        ranked = _matches_and_newest(tx, query, own, limit, others)
        found = _pinned_first(tx, ranked, own, limit)
        candidates = Context(summaries=tuple(summaries), found=found)
    result = packed(candidates, budget) if budget.is_bounded or request else candidates
    if request.links:
        result = replace(result, found=linked(tx, result.found))
    if not request:
        return result
    result = replace(result, found=with_memories(tx, result.found))
    answer = reasons.Answer(
        result=candidates.found, filter=filter_, limit=limit,
        fills_up=True, packed=result.packed, ranked=ranked,
    )  # fmt: skip
    why = reasons.explanation(tx, query, result.found.hits, answer, request)
    return replace(result, found=replace(result.found, explanation=why))


def timeline(tx: Transaction, memory: MemoryId, before: int, after: int) -> list[Memory]:
    """Return a memory and its neighbors in time in its project, oldest first."""
    return tx[MemoryTable].around(live(tx, memory), before, after)


def totals(tx: Transaction, project: Project | None) -> Totals:
    """Count sessions and memories of a project, or of all if None; list all projects."""
    return Totals(
        sessions=tx[SessionTable].count(project),
        memories=tx[MemoryTable].count(project),
        projects=tuple(sorted(projects.names(tx, with_deleted=False))),
    )


def _searched(tx: Transaction, query: Query, filter_: Filter, limit: int) -> SearchResult:
    try:
        with tx.search.within(query.timeout):
            query, hits = _by_words(tx, query, filter_, limit)
    except INDEX_UNAVAILABLE:
        newest = tx.search.backfill(filter_, limit, ())
        return SearchResult(hits=tuple(newest), query=query, is_degraded=True)
    ranks = accumulate((hit.rank for hit in hits), max)  # a later tier never ranks better
    ranked = (replace(hit, rank=rank) for hit, rank in zip(hits, ranks, strict=True))
    return SearchResult(hits=tuple(ranked), query=query)


def _by_words(
    tx: Transaction, query: Query, filter_: Filter, limit: int
) -> tuple[Query, list[Hit]]:
    hits = [] if query.path is None else tx.search.keyed(query.path, filter_, limit)
    if not query.sentences or len(hits) >= limit:
        return query, hits
    query = _corrected(tx, query, filter_)
    keyed = {hit.memory.id for hit in hits}
    ranked = _ranked(Tier.EVERY, tx.search.every(query, filter_, limit), keyed)
    if len(hits) + len(ranked) < limit:
        best = _ranked(Tier.ANY, tx.search.best(query, filter_, limit), keyed)
        ranked |= {id_: it for id_, it in best.items() if id_ not in ranked}
    return query, [*hits, *_loaded(tx, dict(islice(ranked.items(), limit - len(hits))))]


def _ranked(tier: Tier, scored: Iterable[Scored], but: Collection[MemoryId] = ()) -> Ranked:
    return {id_: (tier, score) for score, id_ in scored if id_ not in but}


def _loaded(tx: Transaction, ranked: Ranked) -> list[Hit]:
    return [
        Hit(memory=it, rank=ranked[it.id][1], method=Method.FULL_TEXT, tier=ranked[it.id][0])
        for it in tx[MemoryTable].texts(ranked)
    ]


def _pinned_first(
    tx: Transaction, ranked: SearchResult, filter_: Filter, limit: int
) -> SearchResult:
    """Put pinned memories before the ranked ones, at most half of the limit, rounded up."""
    pinned = tx[MemoryTable].pinned(filter_, (limit + 1) // 2)
    if not pinned:
        return ranked
    first = {it.id: Hit(memory=it, rank=0.0, method=Method.PINNED) for it in pinned}
    others = [hit for hit in ranked.hits if hit.memory.id not in first]
    return replace(ranked, hits=(*first.values(), *others[: limit - len(first)]))


def _matches_and_newest(
    tx: Transaction, query: Query, filter_: Filter, limit: int, others: Sequence[Filter]
) -> SearchResult:
    parts = [filter_, *others]
    sources: list[Source] = []
    is_degraded = False
    if query.sentences:
        try:
            with tx.search.within(query.timeout):
                for part in parts:  # sources found before a timeout count
                    sources.append(_source(tx, query, part, limit))  # noqa: PERF401
        except INDEX_UNAVAILABLE:
            is_degraded = True
    lists = [source.hits for source in sources]
    hits = fused(lists, limit) if others else [hit for hits in lists for hit in hits]
    for part in (replace(filter_, global_too=False), *parts) if len(hits) < limit else ():
        if len(hits) < limit:
            known = {hit.memory.id for hit in hits}
            hits += tx.search.backfill(part, limit - len(hits), known)
    return SearchResult(
        hits=tuple(hits), sources=tuple(sources) if others else (),
        query=sources[0].query if sources else query, is_degraded=is_degraded,
    )  # fmt: skip


def _source(tx: Transaction, query: Query, filter_: Filter, limit: int) -> Source:
    query = _corrected(tx, query, filter_)
    hits = _loaded(tx, _ranked(Tier.ANY, tx.search.best(query, filter_, limit)))
    return Source(filter=filter_, query=query, hits=tuple(hits))


def _corrected(tx: Transaction, query: Query, filter_: Filter) -> Query:
    words = query.doubtful
    return query.corrected(tx.search.corrections(words, filter_)) if words else query
