"""Seeing to the full-text index: is it in line with the memories, and is it laid out well."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from ..errors import Damaged, Unavailable
from ..model.access import Caller
from ..ports.engine import Engine, Transaction

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep found and did."""

    partitions: int
    drift: int  # rows that the index had too many or too few
    rebuilt: tuple[int, ...]  # partitions that were filled afresh
    moved: int  # projects that went to another partition
    is_damaged: bool  # whether some storage could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The index of one service. Each partition is seen to on its own, while others are used."""

    engine: Engine

    async def sweep(self, caller: Caller) -> Swept:
        """Count each partition's rows, rebuild those that are out of line, relieve crowded ones."""
        drifts = await self.drifts(caller)
        drifted = tuple(partition for partition, drift in drifts.items() if drift)
        for partition in drifted:
            await self.rebuild(caller, partition)
        moved = 0
        while await self.engine.read(caller, is_crowded):
            if not await self.engine.write(caller, relieve):
                break
            moved += 1
        return Swept(
            partitions=len(drifts),
            drift=sum(drifts.values()),
            rebuilt=drifted,
            moved=moved,
            is_damaged=not await self._is_readable(caller, is_next_readable),
        )

    async def mend(self, caller: Caller) -> tuple[int, ...]:
        """Check each partition, and make those anew that are damaged; which these were."""
        numbers = await self.engine.read(caller, partitions)
        damaged = [number for number in numbers if await self._is_damaged(caller, number)]
        for number in damaged:
            await self.engine.write(caller, recreate, number)
        return tuple(damaged)

    async def drifts(self, caller: Caller) -> dict[int, int]:
        """By how many rows each partition is out of line."""
        numbers = await self.engine.read(caller, partitions)
        return {number: await self.engine.read(caller, drift, number) for number in numbers}

    async def is_exact(self, caller: Caller, partition: int) -> bool:
        """Whether a partition holds just what the memories say, word for word."""
        try:
            return await self.engine.write(caller, is_exact, partition)
        except Damaged:
            return False

    async def rebuild(self, caller: Caller, partition: int) -> None:
        """Fill a partition afresh from the memories, and make it anew if it is damaged."""
        try:
            await self.engine.write(caller, rebuild, partition)
        except Damaged:
            await self.engine.write(caller, recreate, partition)

    async def _is_readable(self, caller: Caller, work: Callable[[Transaction], bool]) -> bool:
        """What work finds; one that is too large for a read counts as readable."""
        try:
            return await self.engine.read(caller, work)
        except Damaged:
            return False
        except Unavailable:
            return True

    async def _is_damaged(self, caller: Caller, partition: int) -> bool:
        """Of what was read before, a page tells nothing; so both are asked."""
        if not await self._is_readable(caller, partial(is_readable, partition=partition)):
            return True
        try:
            return await self.engine.write(caller, is_damaged, partition)
        except Damaged:
            return True


def partitions(tx: Transaction) -> list[int]:
    return tx.index.partitions()


def drift(tx: Transaction, partition: int) -> int:
    return tx.index.drift(partition)


def is_exact(tx: Transaction, partition: int) -> bool:
    return tx.index.is_exact(partition)


def rebuild(tx: Transaction, partition: int) -> None:
    tx.index.rebuild(partition)


def is_next_readable(tx: Transaction) -> bool:
    """Whether one partition can be read: another with each minute."""
    numbers = tx.index.partitions()
    turn = int(tx.now.timestamp() // MINUTE.total_seconds())
    return not numbers or tx.index.is_readable(numbers[turn % len(numbers)])


def is_readable(tx: Transaction, partition: int) -> bool:
    return tx.index.is_readable(partition)


def is_damaged(tx: Transaction, partition: int) -> bool:
    return tx.index.is_damaged(partition)


def recreate(tx: Transaction, partition: int) -> None:
    tx.index.recreate(partition)


def is_crowded(tx: Transaction) -> bool:
    return tx.index.is_crowded()


def relieve(tx: Transaction) -> bool:
    return tx.index.relieve()
