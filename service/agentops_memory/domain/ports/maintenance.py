"""The maintenance port: what jobs, probes and gauges ask of a storage engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..model.access import Caller
from ..model.space import RowCounts
from .callbacks import Progress, noop


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a check found of the storage of a tenant."""

    is_intact: bool = True
    has_newest_format: bool = True
    damaged_values: int = 0  # that are known; not all of many are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What a repair made again: numbers of parts of the full-text index."""

    rebuilt: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """How the full-text index was found, and what was done for it."""

    parts: int
    drift: int  # rows that the index had too many or too few
    rebuilt: tuple[int, ...]  # parts that were filled afresh
    moved: int  # projects that went to another part
    is_damaged: bool  # whether some storage could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    """What one try to let erased bytes leave came to."""

    settled: int = 0  # erasures whose bytes are gone now
    pending: int = 0  # that are held back


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The bytes that the storage of a tenant takes, and those that are left for it."""

    database: int
    log: int  # of writes that are not in the database yet
    free: int | None  # on the disk; None where nobody can tell


class Maintenance(Protocol):
    """What an engine does for the storage of a tenant; others read and write meanwhile.

    Refuses as a read or a write does.
    """

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        """Look at every value; when thorough at all of the storage, however long that takes.

        What is found is known from then on.
        """

    async def repair(self, caller: Caller) -> Repaired:
        """Make again what is damaged and can be made of the rows. RowCounts are never touched."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Bring the full-text index in line with the memories, and into balance."""

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:
        """Let the bytes of what was erased so far leave the storage; a single try.

        Receipts are settled once nothing is left. While a read or another process holds it back
        they stay pending, and nothing is promised.
        """

    async def sizes(self, caller: Caller) -> Sizes:
        """How much room the storage takes."""

    async def count(self, caller: Caller) -> RowCounts:
        """How many rows there are. NotFound where the storage is not open: this opens none."""

    def copies(self, caller: Caller) -> Sequence[str]:
        """The names of copies beside the storage, which no erasure reaches."""
