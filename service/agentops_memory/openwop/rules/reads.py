"""What is read of refs, in one transaction."""

from collections.abc import Sequence

from ...engine.engine import Transaction
from ...memory.model.memory import MemoryId
from ...memory.model.search import Filter
from ...memory.model.space import MemoryRef
from ...recall import recall
from ...recall.text.query import Query
from ..model.entries import Provenance, RefEntry, RefEntryId, RefExtent, RefPage, RefQuery, RefRank
from ..model.runs import RunId, Snapshot
from ..sql.entries import RefTable
from .paging import fitting
from .rules import no_entry, unknown_before
from .snapshots import snapshot_of

MOST_FOUND = 1000  # of a search, among which a budget chooses


def list_entries(tx: Transaction, ref: MemoryRef, query: RefQuery, run: RunId | None) -> RefPage:
    listed = tx[RefTable].listed(ref, query, _seen(tx, run, ref))
    if listed is None:
        raise unknown_before()
    chosen, has_more = fitting(
        listed,
        limit=query.limit,
        budget=query.budget,
        size=lambda it: it.size,
        length=lambda it: it.length,
    )
    entries = tx[RefTable].some([it.memory for it in chosen])
    return RefPage(entries=entries, has_more=has_more)


def get_entry(tx: Transaction, ref: MemoryRef, entry: RefEntryId, run: RunId | None) -> RefEntry:
    found = tx[RefTable].get(ref, entry, _seen(tx, run, ref))
    if found is None:
        raise no_entry()
    return found


def provenance_of(tx: Transaction, ref: MemoryRef, entry: RefEntryId) -> Provenance:
    found = tx[RefTable].provenance(ref, entry)
    if found is None:
        raise no_entry()
    return found


def search_entries(
    tx: Transaction,
    ref: MemoryRef,
    query: Query,
    tag: str | None,
    limit: int,
    budget: int | None,
) -> Sequence[RefRank]:
    within = Filter(ref=ref, tag=tag, is_current=True)
    found = recall.search(tx, query, within, limit if budget is None else MOST_FOUND)
    ranks: dict[MemoryId, float] = {hit.memory.id: hit.rank for hit in found.hits}
    hits = [RefRank(entry=it, rank=ranks[it.memory]) for it in tx[RefTable].some(list(ranks))]
    chosen, _ = fitting(
        hits,
        limit=limit,
        budget=budget,
        size=lambda it: len(it.entry.content.encode()),
        length=lambda it: len(it.entry.content),
    )
    return chosen


def list_refs(tx: Transaction, after: MemoryRef, limit: int) -> Sequence[RefExtent]:
    return tx[RefTable].extents(after, limit)


def _seen(tx: Transaction, run: RunId | None, ref: MemoryRef) -> Snapshot | None:
    return None if run is None else snapshot_of(tx, run, ref)
