"""Lists that are read piece by piece: a thousand long values are never held."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from ...engine.engine import Transaction
from ...memory.model.access import Caller
from ...memory.model.agent_memory import AgentEntry, AgentFilter, Eyes
from ...memory.model.memory import MemoryId
from ..sql.entries import AgentTable

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741 - of an id

AT_ONCE = 1024 * 1024  # bytes of values that one read holds

Left = Sequence[tuple[MemoryId, int]]
"""The entries of a list that were not read yet, with the bytes of their values."""


Asking = Callable[[], tuple[Caller, Eyes]]
"""Who asks, and by whose eyes, by what the keys say now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """What is listed, read as it is taken; and how many there are in all."""

    total: int
    count: int  # that were there when it was begun
    is_whole: bool  # whether one portion has them all
    portions: AsyncIterator[Sequence[T]]


def listed(
    first: Sequence[T],
    left: Sequence[I],
    more: Callable[[Sequence[I]], Awaitable[tuple[Sequence[T], Sequence[I]]]],
    total: int | None = None,
) -> Listing[T]:
    """A list of which the first are read; `more` reads the next of what is left, when wanted."""

    async def portions() -> AsyncIterator[Sequence[T]]:
        some, rest = first, left
        yield some
        while rest:
            some, rest = await more(rest)
            yield some

    count = len(first) + len(left)
    whole = count if total is None else total
    return Listing(total=whole, count=count, is_whole=not left, portions=portions())


def begin(
    tx: Transaction, eyes: Eyes, filter_: AgentFilter, limit: int, offset: int
) -> tuple[int, Left, Sequence[AgentEntry], datetime]:
    """How many there are, the first of a list, and which ones follow."""
    ids = tx[AgentTable].listed(filter_, eyes, limit, offset)
    entries, left, now = go_on(tx, eyes, ids)
    return tx[AgentTable].total(filter_, eyes), left, entries, now


def go_on(tx: Transaction, eyes: Eyes, left: Left) -> tuple[Sequence[AgentEntry], Left, datetime]:
    """The next of a list, as many as one read holds; what is gone meanwhile is left out."""
    ids, left = portion(left)
    return tx[AgentTable].some(ids, eyes), left, tx.now


def portion(left: Sequence[tuple[I, int]]) -> tuple[list[I], Sequence[tuple[I, int]]]:
    """As many of what is left, with its bytes, as one read holds; always one, if there is one."""
    size = count = 0
    while count < len(left) and (not count or size + left[count][1] <= AT_ONCE):
        size += left[count][1]
        count += 1
    return [id_ for id_, _ in left[:count]], left[count:]
