"""Finding memories: by their words, by their topic key, by their time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from .memories import live
from .model import GLOBAL_SCOPE, Caller, Context, Filter, Hit, Memory, MemoryId, Totals
from .ports import Engine, Transaction
from .query import Query, understood
from .text import Project

SUMMARIES = 3  # sessions that an agent is reminded of


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Recall of one service. No text is refused as a query."""

    engine: Engine

    async def search(self, caller: Caller, text: str, seen: Filter, limit: int) -> list[Hit]:
        """Memories by their words, best first: keys with the text in them, then those
        with every word, then those with any. Ranks never fall along the list."""
        query = understood(text)
        if not query:
            return []
        return await self.engine.read(caller.tenant, search, query, seen, limit)

    async def context(self, caller: Caller, text: str, seen: Filter, limit: int) -> Context:
        """What to remind an agent of: summaries, the best memories, then the newest.

        Without a project only global memories are seen, and no summaries.
        """
        return await self.engine.read(caller.tenant, context, understood(text), seen, limit)

    async def timeline(
        self, caller: Caller, memory: MemoryId, before: int, after: int
    ) -> list[Memory]:
        """A memory among those saved before and after it in its project, oldest first."""
        return await self.engine.read(caller.tenant, timeline, memory, before, after)

    async def totals(self, caller: Caller, project: Project | None) -> Totals:
        """How much is stored, in the project or in all; the projects are always all."""
        return await self.engine.read(caller.tenant, totals, project)


def search(tx: Transaction, query: Query, seen: Filter, limit: int) -> list[Hit]:
    hits: list[Hit] = []
    if query.path is not None:
        hits += tx.search.keyed(query.path, seen, limit)
    if query.sentences and len(hits) < limit:
        hits = _distinct([*hits, *tx.search.every(query, seen, limit)])
    if query.sentences and len(hits) < limit:
        hits = _distinct([*hits, *tx.search.best(query, seen, limit)])
    return list(_never_falling(hits[:limit]))


def context(tx: Transaction, query: Query, seen: Filter, limit: int) -> Context:
    if seen.project is None and seen.scope not in (None, GLOBAL_SCOPE):
        return Context(summaries=(), hits=())
    if seen.project is None:
        seen = replace(seen, scope=GLOBAL_SCOPE)
    summaries = tx.sessions.summaries(seen.project, SUMMARIES) if seen.project else []
    hits = tx.search.best(query, seen, limit) if query.sentences else []
    for part in (replace(seen, global_too=False), seen):
        if len(hits) < limit:
            found = {hit.memory.id for hit in hits}
            hits += tx.search.backfill(part, limit - len(hits), found)
    return Context(summaries=tuple(summaries), hits=tuple(hits))


def timeline(tx: Transaction, memory: MemoryId, before: int, after: int) -> list[Memory]:
    return tx.memories.around(live(tx, memory), before, after)


def totals(tx: Transaction, project: Project | None) -> Totals:
    return Totals(
        sessions=tx.sessions.count(project),
        memories=tx.memories.count(project),
        projects=tuple(sorted(tx.memories.projects() | tx.sessions.projects())),
    )


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
