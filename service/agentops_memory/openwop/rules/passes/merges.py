"""Merges of hosts: entries that become one, and what it says."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from ....engine.engine import Transaction
from ....errors import BadFields
from ....memory.model.memory import MemoryId
from ....memory.model.space import MemoryRef
from ...commitments import arm
from ...conditions import conditions_of, meet
from ...entries import Method, Origin, RefDraft, RefEntry, RefTable, added
from ...model.passes import Inputs, Link, Merge
from ...model.subjects import subjects
from ...refs import MemoryChanged, Screen
from ...runs import Run
from ...sql.passes import PassTable
from .archives import REPLACEABLE
from .rules import first_end


def screened_merge(screen: Screen, merge: Merge) -> Merge:
    return replace(merge, content=screen.content(merge.content), tags=screen.tags(merge.tags))


def screened_entry(entry: RefEntry, screen: Screen) -> RefEntry:
    """The entry as it would be put now."""
    content, tags = screen.content(entry.content), screen.tags(entry.tags)
    return entry.model_copy(update={"content": content, "tags": tags})


def merged_entries(tx: Transaction, ref: MemoryRef, merges: Sequence[Merge]) -> Sequence[RefEntry]:
    """What a host wants merged, as far as it is there."""
    ids = (id_ for merge in merges for id_ in merge.ids)
    return [found for id_ in ids if (found := tx[RefTable].get(ref, id_))]


def with_secrets(entries: Sequence[RefEntry], screen: Screen) -> Collection[MemoryId]:
    """Those that the screen would change."""
    return {it.memory for it in entries if screened_entry(it, screen) != it}


def merge_sources(tx: Transaction, ref: MemoryRef, place: int, merge: Merge) -> Sequence[RefEntry]:
    """What a host wants merged; MemoryChanged for what is not there, BadFields for what may not."""
    found = [it for id_ in merge.ids if (it := tx[RefTable].get(ref, id_))]
    memories = [it.memory for it in found]
    if len(found) < len(merge.ids) or not tx[PassTable].are_inputs(memories, Inputs(archives=True)):
        raise MemoryChanged
    field_ = f"merges[{place}].ids"
    if not tx[PassTable].are_inputs(memories, REPLACEABLE):
        raise BadFields([(field_, "name an archive, or an entry that is pinned or awaited")])
    if len({frozenset(subjects(it.tags)) for it in found}) > 1:
        raise BadFields([(field_, "name entries of different subjects")])
    return found


def merge_entries(
    tx: Transaction,
    run: Run,
    ref: MemoryRef,
    merge: Merge,
    sources: Sequence[RefEntry],
    screen: Screen,
) -> RefEntry:
    """Put the entry that stands for its sources from now on; it is about whom they are about."""
    tags = tuple(dict.fromkeys((*merge.tags, *screen.tags(subjects(sources[0].tags)))))
    origin = Origin(run=run.id, method=Method.HOST)
    draft = RefDraft(ref=ref, content=merge.content, tags=tags, origin=origin)
    conditions = conditions_of(tags, tx.now)
    entry = added(tx, draft, ends=first_end(sources))
    tx[PassTable].link(run, [Link(entry.memory, it.memory) for it in sources], counts=True)
    meet(tx, ref, entry)
    arm(tx, entry.memory, conditions)
    return entry
