"""Maintenance of tenants' schemas: the index is kept exact; the rest is the database's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from ...engine.callbacks import Progress, noop
from ...engine.maintenance import Condition, Repaired, Scrubbed, Sizes, Tidied
from ...engine.shared.known_values import KnownValues, Value
from ...memory.model.access import Caller
from ...memory.model.erasure import ErasureId
from ...memory.model.kinds import ErasureKind
from ...memory.model.memory import MemoryId
from ...memory.model.space import RowCounts
from ...memory.sql.projects import ProjectTable
from ...memory.sql.receipts import ReceiptTable
from ...memory.sql.rows import instant, micros
from ...recall.text.instants import EPOCH
from ..base.values import damaged
from ..words.upkeep import FIRST, Portion
from .transaction import PostgresTransaction, Work, stored

P = ParamSpec("P")
T = TypeVar("T")

COPIES = (
    "pages of the database that were not written over",
    "its write-ahead log",
    "its replicas",
    "its backups",
)


class Database(Protocol):
    """The schema of each caller's tenant."""

    @property
    def copies_kept(self) -> timedelta | None:
        """How long the log, replicas and backups keep what was erased; None if nobody says."""

    def known_of(self, caller: Caller) -> KnownValues:
        """The damaged values of the caller's tenant that are known."""

    async def read(
        self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    async def write(
        self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


@dataclass(frozen=True, slots=True)
class PostgresMaintenance:
    """Looks after schemas; areas of the full-text index one by one."""

    engine: Database

    @property
    def has_files(self) -> bool:
        return False

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:  # noqa: ARG002
        known = self.engine.known_of(caller)
        known.note(caller, await self.engine.read(caller, _damaged))
        return Condition(damaged_values=known.names)

    async def repair(self, caller: Caller) -> Repaired:  # noqa: ARG002
        return Repaired(rebuilt=())

    async def bring_to_rules(self, caller: Caller) -> None:
        if not await self.engine.read(caller, lambda tx: tx.upkeep.is_ours):
            await self.engine.write(caller, lambda tx: tx.upkeep.take_over())
        for area in await self.engine.read(caller, lambda tx: tx.upkeep.unfinished()):
            await self.rebuild(caller, area)

    async def tidy(self, caller: Caller) -> Tidied:
        await self.bring_to_rules(caller)
        drifts = await self.drifts(caller)
        rebuilt = tuple(area for area, drift in drifts.items() if drift)
        for area in rebuilt:
            await self.rebuild(caller, area)
        moved = 0
        while await self.engine.write(caller, lambda tx: tx.upkeep.rebalance()):
            moved += 1
        return Tidied(
            parts=len(drifts),
            drift=sum(drifts.values()),
            rebuilt=rebuilt,
            moved=moved,
            is_damaged=False,
        )

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:  # noqa: ARG002
        """Settle receipts of what neither the tables nor their copies have any more.

        That is told when the tables were written anew since, and copies are kept no longer; of
        what was removed of agents nobody asks. Nothing is held back: no further try is of use.
        """
        kept = self.engine.copies_kept
        if not await self.engine.read(caller, _gone, kept):
            return Scrubbed()
        return Scrubbed(settled=await self.engine.write(caller, _settled, kept))

    async def sizes(self, caller: Caller) -> Sizes:
        return await self.engine.read(caller, _sizes)

    async def count(self, caller: Caller) -> RowCounts:
        return await self.engine.read(caller, lambda tx: tx[ProjectTable].rows())

    def copies(self, caller: Caller) -> Sequence[str]:  # noqa: ARG002
        return COPIES

    async def drifts(self, caller: Caller) -> dict[int, int]:
        areas = await self.engine.read(caller, lambda tx: tx.upkeep.areas())
        return {it: await self.engine.read(caller, partial(_drift, area=it)) for it in areas}

    async def is_exact(self, caller: Caller, number: int) -> bool:
        return await self.engine.read(caller, lambda tx: tx.upkeep.is_exact(number))

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Make the words of an area again, in portions between which others read and write."""
        rebuild = await self.engine.write(caller, lambda tx: tx.upkeep.begin_rebuild(number))
        goes_on, after = True, FIRST
        while goes_on:
            portion = await self.engine.read(caller, _portion, number, after)
            goes_on = await self.engine.write(caller, _rebuild, rebuild, portion)
            after = portion.last


def _damaged(tx: PostgresTransaction) -> list[Value]:
    return damaged(tx._connection)  # noqa: SLF001


def _settled(tx: PostgresTransaction, kept: timedelta | None) -> int:
    """How many erasures are settled now."""
    gone = _gone(tx, kept)
    tx[ReceiptTable].settle(gone)
    return len(gone)


def _gone(tx: PostgresTransaction, kept: timedelta | None) -> list[ErasureId]:
    """The erasures whose bytes are gone now, if copies are kept so long."""
    ((rewritten,),) = tx._connection.execute(  # noqa: SLF001
        "SELECT rewritten_at FROM agentops.tenants WHERE schema = current_schema()"
    )
    until = EPOCH
    if kept is not None and rewritten is not None and instant(rewritten) + kept <= tx.now:
        until = instant(rewritten)
    rows = tx._connection.execute(  # noqa: SLF001
        f"""SELECT id
              FROM erasures
             WHERE bytes_gone_at IS NULL AND NOT goes_on
                   AND (kind = '{ErasureKind.AGENT}' OR erased_at <= :until)
          ORDER BY id""",
        {"until": micros(until)},
    )
    return [ErasureId(id_) for (id_,) in rows]


def _drift(tx: PostgresTransaction, area: int) -> int:
    return tx.upkeep.drift(area)


def _portion(tx: PostgresTransaction, area: int, after: MemoryId) -> Portion:
    return tx.upkeep.portion(area, after)


def _rebuild(tx: PostgresTransaction, number: int, portion: Portion) -> bool:
    return tx.upkeep.rebuild(number, portion)


def _sizes(tx: PostgresTransaction) -> Sizes:
    return Sizes(database=stored(tx._connection), log=None, free=None)  # noqa: SLF001
