"""The retention sweep: removes what is past its retention in short transactions."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ...engine.callbacks import noop
from ...engine.engine import Engine, Transaction
from ..model.access import Caller
from ..model.memory import MemoryId
from ..model.retention import Kind
from ..sql.lifecycles import LifecycleTable
from .retention_steps import STEPS, By, Find, Remove

MAX_SWEPT = 50  # memories of one transaction that leave the index; saves wait for it

Removed = Mapping[Kind, int]
"""How many rows of each kind were removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSweep:
    """Removes what is past the retention of its kind; several sweeps may run on one database.

    Deleted and expired memories are erased, with a receipt for each project and step, so that
    their bytes are scrubbed.
    """

    engine: Engine
    on_erased: Callable[[Caller], None] = noop

    async def sweep(
        self, caller: Caller, kinds: Collection[Kind] = frozenset(Kind), *, by: By = None
    ) -> Removed:
        """Remove what is past its retention, of these kinds, as of now.

        As of `by` if that is earlier, so that a clock that jumps ahead expires nothing.
        """
        removed = Counter[Kind]()
        for kind, find, take in STEPS:
            if kind in kinds:
                removed[kind] += await self._remove_all(caller, by, find, take)
        if removed[Kind.DELETED] or removed[Kind.EXPIRED]:
            self.on_erased(caller)
        return removed

    async def sweep_index(self, caller: Caller) -> int:
        """Take what has expired out of the index, and put in what no longer is; how many expired.

        What is in it is never erased as expired.
        """
        total = 0
        while found := await self.engine.read(caller, _unswept):
            total += await self.engine.write(caller, _sweep, found)
        return total

    async def _remove_all(self, caller: Caller, by: By, find: Find, remove: Remove) -> int:
        total = 0
        while found := await self.engine.read(caller, find, by):
            gone = 0
            while found and (step := await self.engine.write(caller, remove, found, by)):
                found = found[step.done :]
                gone += step.rows
            if not gone:
                break  # another sweep has removed them, or the file is corrupt: no endless loop
            total += gone
        return total


def _unswept(tx: Transaction) -> list[MemoryId]:
    return tx[LifecycleTable].unswept(MAX_SWEPT)


def _sweep(tx: Transaction, found: Sequence[MemoryId]) -> int:
    return tx[LifecycleTable].sweep(found)
