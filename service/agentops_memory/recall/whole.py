"""Hits of which more is told than their text: their memories are loaded whole."""

from dataclasses import replace

from ..engine.engine import Transaction
from ..memory.lifecycles import with_links
from ..memory.model.memory import Memory, MemoryId
from ..memory.model.search import Found, Hit
from ..memory.sql.memories import MemoryTable
from ..memory.sql.memory_lists import AT_ONCE


def whole(tx: Transaction, found: Found) -> Found:
    """The same, each hit with all of its memory; without one that is damaged."""
    ids = [hit.memory.id for hit in found.hits if not isinstance(hit.memory, Memory)]
    loaded: dict[MemoryId, Memory] = {}
    for start in range(0, len(ids), AT_ONCE):  # so few that no answer is too short for their texts
        some = tx[MemoryTable].loaded(ids[start : start + AT_ONCE])
        loaded.update({memory.id: memory for memory in some})
    hits = [replace(hit, memory=loaded.get(hit.memory.id, hit.memory)) for hit in found.hits]
    return replace(found, hits=tuple(it for it in hits if isinstance(it.memory, Memory)))


def linked(tx: Transaction, found: Found) -> Found:
    """The same, each hit with all of its memory and its links."""
    found = whole(tx, found)
    memories = with_links(tx, [whole_memory(hit) for hit in found.hits])
    hits = zip(found.hits, memories, strict=True)
    return replace(found, hits=tuple(replace(hit, memory=memory) for hit, memory in hits))


def whole_memory(hit: Hit) -> Memory:
    """The memory of a hit that is whole."""
    assert isinstance(hit.memory, Memory)
    return hit.memory
