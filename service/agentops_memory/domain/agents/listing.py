"""Lists of entries, which are read piece by piece: a thousand long values are never held."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..model.agent_memory import AgentEntry, AgentFilter, Eyes
from ..model.memory import MemoryId
from ..ports.engine import Transaction

AT_ONCE = 1024 * 1024  # bytes of values that one read holds

Left = Sequence[tuple[MemoryId, int]]
"""The entries of a list that were not read yet, with the bytes of their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Entries, newest first, read as they are taken; and how many there are in all."""

    total: int
    count: int  # that were there when it was begun
    is_whole: bool  # whether one portion has them all
    portions: AsyncIterator[Sequence[AgentEntry]]


def begin(
    tx: Transaction, eyes: Eyes, filter_: AgentFilter, limit: int, offset: int
) -> tuple[int, Left, Sequence[AgentEntry], datetime]:
    """How many there are, the first of a list, and which ones follow."""
    ids = tx.agents.listed(filter_, eyes, limit, offset)
    entries, left, now = go_on(tx, eyes, ids)
    return tx.agents.total(filter_, eyes), left, entries, now


def go_on(tx: Transaction, eyes: Eyes, left: Left) -> tuple[Sequence[AgentEntry], Left, datetime]:
    """The next of a list, as many as one read holds; what is gone meanwhile is left out."""
    size = count = 0
    while count < len(left) and (not count or size + left[count][1] <= AT_ONCE):
        size += left[count][1]
        count += 1
    entries = tx.agents.some([id_ for id_, _ in left[:count]], eyes)
    return entries, left[count:], tx.now
