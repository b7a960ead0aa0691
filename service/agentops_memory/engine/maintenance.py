"""What those who look after a storage engine ask of it; the audit log, and progress."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from ..light import dataclass
from ..memory.access import Caller
from ..memory.retention import Held

Progress = Callable[[str], None]
"""Called with the name of each step before it is taken."""


Audit = Callable[..., None]
"""Called with caller, action and fields before the action is done; Unavailable if that fails."""


async def audited(audit: Audit, caller: Caller, action: str, **fields: object) -> None:
    """Audit what is about to be done in a caller's tenant, which is not done if that fails."""
    await asyncio.to_thread(audit, caller, action, tenant=caller.tenant, **fields)


class AuditLog(Protocol):
    """The audit log, as those see it who look after it. Unavailable if it cannot be used."""

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        """Record an action before it is done."""

    def trim(self, until: datetime) -> int:
        """Remove what is as old as that, or older, and has no newer before it; how much."""

    def measured(self, until: datetime | None) -> Held:
        """How much there is, and how much of it `trim` would remove."""


def noop(*_: object) -> None:
    """A callback that ignores its arguments."""


class RowCounts(NamedTuple):
    """How many rows a database has; deleted memories count among `memories` alone."""

    memories: int
    revisions: int
    sessions: int
    sessions_open: int  # of the sessions, those that have not ended
    pinned: int  # of the live memories
    reviews_due: int  # live memories whose own date has passed
    working: int  # entries of agents' memory, those included that have expired
    episodic: int
    semantic: int
    refs: int  # entries of refs, deleted ones included
    runs: int
    runs_open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a check found of the storage of a tenant."""

    is_intact: bool = True
    has_newest_format: bool = True
    damaged_rows: Sequence[str] = ()  # of those that are known the first, by table, row, column
    lacks_standby: bool = False  # so that what is acknowledged can be lost with one machine


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
    settled: int = 0  # erasures whose bytes are gone now
    pending: int = 0  # that are held back


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The bytes that the storage of a tenant takes, and those that are left for it."""

    database: int
    log: int | None  # of writes that are not in the database yet; None if it has no files of ours
    free: int | None  # on the disk; None where nobody can tell


class Maintenance(Protocol):
    """What an engine does for the storage of a tenant; others read and write meanwhile.

    Refuses as a read or a write does.
    """

    @property
    def has_files(self) -> bool:
        """Whether storage lies in files of ours, on a disk that can be looked at."""

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        """Check every row for damage, and remember what is found.

        `thorough` checks all of the storage, however long that takes.
        """

    async def repair(self, caller: Caller) -> Sequence[int]:
        """Rebuild damaged parts of the index from the rows, which are never changed; which."""

    async def bring_to_rules(self, caller: Caller) -> None:
        """Rebuild what other rules have made of the index, unless that was done when it opened."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Correct and rebalance the full-text index, and merge its segments."""

    async def drifts(self, caller: Caller) -> Mapping[int, int]:
        """By how many rows each part of the index is out of line."""

    async def is_exact(self, caller: Caller, number: int) -> bool:
        """Whether a part of the index holds just what the memories say, word for word."""

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Fill a part of the index again from the memories."""

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:
        """Try once to remove erased bytes from the storage, and settle their receipts.

        They stay pending while a read or another process holds the bytes back.
        """

    async def sizes(self, caller: Caller) -> Sizes:
        """The size of the storage, and the free space."""

    async def count(self, caller: Caller) -> RowCounts:
        """The row counts; NotFound if the storage is not open, as this does not open it."""

    def copies(self, caller: Caller) -> Sequence[str]:
        """The names of copies beside the storage, which erasures do not reach."""
