"""Hits of which more is told than their text: their memories are loaded whole."""

from dataclasses import replace

from ..engine.engine import Transaction
from ..memory.lifecycles import with_links
from ..memory.model.memory import Memory
from ..memory.model.search import Found, Hit
from ..memory.sql.memories import MemoryTable


def whole(tx: Transaction, found: Found) -> Found:
    """The same, each hit with all of its memory."""
    return replace(found, hits=tuple(_whole(tx, hit) for hit in found.hits))


def linked(tx: Transaction, found: Found) -> Found:
    """The same, each hit with all of its memory and its links."""
    memories = with_links(tx, [whole_memory(hit) for hit in whole(tx, found).hits])
    hits = zip(found.hits, memories, strict=True)
    return replace(found, hits=tuple(replace(hit, memory=memory) for hit, memory in hits))


def whole_memory(hit: Hit) -> Memory:
    """The memory of a hit that is whole."""
    assert isinstance(hit.memory, Memory)
    return hit.memory


def _whole(tx: Transaction, hit: Hit) -> Hit:
    if isinstance(hit.memory, Memory):
        return hit
    (memory,) = tx[MemoryTable].loaded([hit.memory.id])
    return replace(hit, memory=memory)
