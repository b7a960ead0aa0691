"""What an engine tells of its own storage, and of what it has done for it."""

from dataclasses import dataclass


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
