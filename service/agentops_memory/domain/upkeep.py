"""Seeing to the full-text index: is it in line with the memories, and is it laid out well."""

from dataclasses import dataclass

from .model import Caller
from .ports import Engine, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep found and did."""

    partitions: int
    drift: int  # rows that the index had too many or too few
    rebuilt: tuple[int, ...]  # partitions that were filled afresh
    moved: int  # projects that went to another partition


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
            partitions=len(drifts), drift=sum(drifts.values()), rebuilt=drifted, moved=moved
        )

    async def drifts(self, caller: Caller) -> dict[int, int]:
        """By how many rows each partition is out of line."""
        numbers = await self.engine.read(caller, partitions)
        return {number: await self.engine.read(caller, drift, number) for number in numbers}

    async def is_exact(self, caller: Caller, partition: int) -> bool:
        """Whether a partition holds just what the memories say, word for word."""
        return await self.engine.write(caller, is_exact, partition)

    async def rebuild(self, caller: Caller, partition: int) -> None:
        """Fill a partition afresh from the memories."""
        await self.engine.write(caller, rebuild, partition)


def partitions(tx: Transaction) -> list[int]:
    return tx.index.partitions()


def drift(tx: Transaction, partition: int) -> int:
    return tx.index.drift(partition)


def is_exact(tx: Transaction, partition: int) -> bool:
    return tx.index.is_exact(partition)


def rebuild(tx: Transaction, partition: int) -> None:
    tx.index.rebuild(partition)


def is_crowded(tx: Transaction) -> bool:
    return tx.index.is_crowded()


def relieve(tx: Transaction) -> bool:
    return tx.index.relieve()
