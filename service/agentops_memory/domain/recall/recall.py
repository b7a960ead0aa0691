"""Finding memories: by their words, by their topic key, by their time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction

from ..errors import WITHOUT_WORDS
from ..memories.writes import live
from ..model.access import Caller, Role
from ..model.memory import Memory, MemoryId
from ..model.search import Context, Filter, Found, Hit, Source, Tier, Wanted
from ..model.space import GLOBAL_SCOPE, Project, StoreId
from ..model.totals import Totals
from ..ports.engine import Engine, Transaction
from ..stores.rules import known_store
from ..text.features import ALL, Feature, Features
from ..text.query import MAX_PROMPT, TIMEOUT, Query, understood, words
from .budget import Budget, packed
from .explain_found import explanation
from .why_not import Answer, reached

SUMMARIES = 3  # sessions that an agent is reminded of
NOTHING = Wanted()
UNBOUNDED = Budget()
K = 60  # of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): how little the first lead


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Recall of one service. No text is refused as a query."""

    engine: Engine
    features: Features = ALL
    patience: timedelta = TIMEOUT

    async def search(
        self, caller: Caller, text: str, seen: Filter, limit: int, wanted: Wanted = NOTHING
    ) -> Found:
        """Memories by their words, best first: keys with the text in them, then those
        with every word, then those with any. Ranks never fall along the list."""
        caller.require(Role.READER)
        query = self._understood(text)
        if not query and not wanted:
            return Found()
        found = await self.engine.read(caller, search, query, seen, limit, wanted)
        return self._with_dropped(found, text)

    async def search_store(self, caller: Caller, store: StoreId, text: str, limit: int) -> Found:
        """The memories of a store by their words and paths, as `search` finds them.

        NotFound for an unknown store, Denied for a caller who may know of none.
        """
        caller.require(Role.READER)
        return await self.engine.read(caller, search_store, self._understood(text), store, limit)

    async def context(
        self,
        caller: Caller,
        text: str,
        seen: Filter,
        limit: int,
        *,
        budget: Budget = UNBOUNDED,
        wanted: Wanted = NOTHING,
        stores: Sequence[StoreId] = (),
    ) -> Context:
        """What to remind an agent of: summaries, the best memories, then the newest.

        Without a project only global memories are seen, and no summaries. What is
        found in stores is merged with that by reciprocal rank; unknown ones are
        refused with NotFound. Of all that, what the budget has no room for is left out.
        """
        caller.require(Role.READER)
        query = self._understood(text)
        told = await self.engine.read(
            caller, context, query, seen, limit, budget, wanted, stores=tuple(stores)
        )
        return replace(told, found=self._with_dropped(told.found, text))

    async def timeline(
        self, caller: Caller, memory: MemoryId, before: int, after: int
    ) -> list[Memory]:
        """A memory among those saved before and after it in its project, oldest first."""
        caller.require(Role.READER)
        return await self.engine.read(caller, timeline, memory, before, after)

    async def totals(self, caller: Caller, project: Project | None) -> Totals:
        """How much is stored, in the project or in all; the projects are always all."""
        caller.require(Role.READER)
        return await self.engine.read(caller, totals, project)

    def _understood(self, text: str) -> Query:
        return replace(understood(text, self.features), patience=self.patience)

    def _with_dropped(self, found: Found, text: str) -> Found:
        """The same, with the words that were not looked for, if it is to be explained."""
        if found.explanation is None:
            return found
        used = {term.text for term in found.query.terms}
        dropped = [word for word in words(text[:MAX_PROMPT], self.features) if word not in used]
        return replace(found, explanation=replace(found.explanation, dropped=tuple(dropped)))


def search(
    tx: Transaction, query: Query, seen: Filter, limit: int, wanted: Wanted = NOTHING
) -> Found:
    found = _searched(tx, query, seen, limit)
    if not wanted:
        return found
    answer = Answer(found=found, seen=seen, limit=limit, tiers=_tiers(query), fills_up=False)
    return replace(found, explanation=explanation(tx, query, found.hits, answer, wanted))


def search_store(tx: Transaction, query: Query, store: StoreId, limit: int) -> Found:
    known_store(tx, store)
    return search(tx, query, Filter(store=store), limit) if query else Found()


def context(
    tx: Transaction,
    query: Query,
    seen: Filter,
    limit: int,
    budget: Budget = UNBOUNDED,
    wanted: Wanted = NOTHING,
    *,
    stores: tuple[StoreId, ...] = (),
) -> Context:
    for store in stores:
        known_store(tx, store)
    whole = _reminders(tx, query, seen, limit, stores)
    told = packed(whole, budget) if budget.is_bounded or wanted else whole
    if not wanted:
        return told
    answer = Answer(
        found=whole.found, seen=seen, limit=limit, tiers=_reminding(query), fills_up=True,
        packed=told.packed,
    )  # fmt: skip
    why = explanation(tx, query, told.found.hits, answer, wanted)
    return replace(told, found=replace(told.found, explanation=why))


def timeline(tx: Transaction, memory: MemoryId, before: int, after: int) -> list[Memory]:
    return tx.memories.around(live(tx, memory), before, after)


def totals(tx: Transaction, project: Project | None) -> Totals:
    return Totals(
        sessions=tx.sessions.count(project),
        memories=tx.memories.count(project),
        projects=tuple(sorted(tx.memories.projects() | tx.sessions.projects())),
    )


def _searched(tx: Transaction, query: Query, seen: Filter, limit: int) -> Found:
    try:
        with tx.search.within(query.patience):
            query, hits = _by_words(tx, query, seen, limit)
    except WITHOUT_WORDS:
        newest = tx.search.backfill(seen, limit, ())
        return Found(hits=tuple(newest), query=query, is_degraded=True)
    return Found(hits=tuple(_never_falling(hits[:limit])), query=query)


def _by_words(tx: Transaction, query: Query, seen: Filter, limit: int) -> tuple[Query, list[Hit]]:
    """The query as it was asked in the end, and the hits of each tier of a search."""
    hits = [] if query.path is None else tx.search.keyed(query.path, seen, limit)
    if not query.sentences or len(hits) >= limit:
        return query, hits
    query = _corrected(tx, query, seen)
    tiers = _tiers(query)
    if Tier.EVERY in tiers:
        hits = _distinct([*hits, *tx.search.every(query, seen, limit)])
    if Tier.ANY in tiers and len(hits) < limit:
        hits = _distinct([*hits, *tx.search.best(query, seen, limit)])
    return query, hits


def _tiers(query: Query) -> tuple[Tier, ...]:
    """What a search looks for, in its order."""
    is_any = Feature.ANY_WORD in query.features
    is_every = Feature.ALL_WORDS_FIRST in query.features or not is_any
    tiers = {Tier.KEY: query.path is not None, Tier.EVERY: is_every, Tier.ANY: is_any}
    return tuple(tier for tier, is_asked in tiers.items() if is_asked)


def _reminding(query: Query) -> tuple[Tier, ...]:
    """What a context looks for."""
    return (Tier.ANY if Feature.ANY_WORD in query.features else Tier.EVERY,)


def _reminders(
    tx: Transaction, query: Query, seen: Filter, limit: int, stores: tuple[StoreId, ...]
) -> Context:
    """All candidates of a context."""
    if seen.project is None and seen.scope not in (None, GLOBAL_SCOPE):
        return Context()
    seen = reached(seen)
    summaries = tx.sessions.summaries(seen.project, SUMMARIES) if seen.project else []
    found = _reminded(tx, query, seen, limit, stores)
    return Context(summaries=tuple(summaries), found=found)


def _reminded(
    tx: Transaction, query: Query, seen: Filter, limit: int, stores: tuple[StoreId, ...]
) -> Found:
    in_stores = [Filter(store=store, type=seen.type, tag=seen.tag) for store in stores]
    sources: list[Source] = []
    is_degraded = False
    if query.sentences:
        try:
            with tx.search.within(query.patience):
                for sight in (seen, *in_stores):  # what is found in time is kept
                    sources.append(_source(tx, query, sight, limit))  # noqa: PERF401
        except WITHOUT_WORDS:
            is_degraded = True
    lists = [source.hits for source in sources]
    hits = fused(lists, limit) if stores else [hit for hits in lists for hit in hits]
    for part in (replace(seen, global_too=False), seen, *in_stores):
        if len(hits) < limit:
            found = {hit.memory.id for hit in hits}
            hits += tx.search.backfill(part, limit - len(hits), found)
    return Found(
        hits=tuple(hits),
        sources=tuple(sources) if stores else (),
        query=sources[0].query if sources else query,
        is_degraded=is_degraded,
    )


def _source(tx: Transaction, query: Query, seen: Filter, limit: int) -> Source:
    """The best that the words find in one place."""
    query = _corrected(tx, query, seen)
    is_any = Tier.ANY in _reminding(query)
    hits = (tx.search.best if is_any else tx.search.every)(query, seen, limit)
    return Source(seen=seen, query=query, hits=tuple(hits))


def _corrected(tx: Transaction, query: Query, seen: Filter) -> Query:
    if Feature.TYPOS not in query.features or not query.doubtful:
        return query
    return query.corrected(tx.search.lookalikes(query.doubtful, seen))


def _distinct(hits: Iterable[Hit]) -> list[Hit]:
    first: dict[MemoryId, Hit] = {}
    for hit in hits:
        first.setdefault(hit.memory.id, hit)
    return list(first.values())


def _never_falling(hits: Iterable[Hit]) -> Iterator[Hit]:
    """The hits with ranks in the order of the list: a later tier is never ranked better."""
    floor = float("-inf")
    for hit in hits:
        floor = max(floor, hit.rank)
        yield replace(hit, rank=floor)


def fused(lists: Iterable[Sequence[Hit]], limit: int) -> list[Hit]:
    """Reciprocal rank fusion: a hit counts 1 / (60 + its place) in each list; ties by id."""
    hits: dict[int, Hit] = {}
    scores: dict[int, Fraction] = {}
    for found in lists:
        for place, hit in enumerate(found, start=1):
            id_ = hit.memory.id
            hits.setdefault(id_, replace(hit, place=place))
            scores[id_] = scores.get(id_, Fraction()) + Fraction(1, K + place)
    best = sorted(hits, key=lambda id_: (-scores[id_], id_))
    return [hits[id_] for id_ in best[:limit]]
