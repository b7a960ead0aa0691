"""Retention: how long each kind of data is kept, and how many entries of an agent."""

from datetime import datetime, timedelta
from enum import StrEnum

from ..light import dataclass

FOR_EVER = timedelta()
LARGEST_CAPACITY = 100_000  # episodic entries of an agent


class Kind(StrEnum):
    DELETED = "deleted"
    EXPIRED = "expired"
    REVISIONS = "revisions"
    IDEMPOTENCY = "idempotency"
    AUDIT = "audit"
    RECEIPTS = "receipts"
    EVENTS = "events"
    LOG = "log"


WHAT = {
    Kind.DELETED: "soft-deleted observations and deleted entries of stores, with their revisions",
    Kind.EXPIRED: "expired observations, with their revisions, and entries of agents",
    Kind.REVISIONS: "revisions of an observation",
    Kind.IDEMPOTENCY: "idempotency records",
    Kind.AUDIT: "audit lines",
    Kind.RECEIPTS: "erasure receipts whose bytes are gone",
    Kind.EVENTS: "events of agents' memory, and of runs that have ended",
    Kind.LOG: "logs of intents, with their archives, and finished tasks",
}
BY_CLOCK = frozenset(Kind) - {Kind.REVISIONS}  # by age; revisions are kept by number


@dataclass(frozen=True, slots=True, kw_only=True)
class Retentions:
    """How long each kind is kept, and how many of the newest revisions; 0 is without limit."""

    deleted: timedelta = FOR_EVER
    expired: timedelta = timedelta(days=30)
    revisions: int = 100  # an audit hook upserts one key on every tool call
    idempotency: timedelta = timedelta(hours=24)
    audit: timedelta = timedelta(days=400)
    receipts: timedelta = FOR_EVER
    events: timedelta = timedelta(days=30)
    log: timedelta = FOR_EVER

    def time(self, kind: Kind) -> timedelta:
        """The retention of a kind that is kept by age.

        A receipt is kept at least as long as an idempotency record that may name it.
        """
        time: timedelta = getattr(self, kind.value)
        if kind is Kind.RECEIPTS:
            return max(time, self.idempotency) if time and self.idempotency else FOR_EVER
        return time

    def until(self, kind: Kind, now: datetime) -> datetime | None:
        """The instant up to which data is past its retention; None if nothing expires."""
        return now - self.time(kind) if self.time(kind) else None

    def oldest(self, newest: int) -> int:
        return newest - self.revisions + 1 if self.revisions else 1


USUAL = Retentions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How much of a kind is stored, and how many rows the next sweep would remove.

    The size is an estimate in bytes; that of the audit is exact.
    """

    kind: Kind
    rows: int
    size: int
    oldest: datetime | None
    past_retention: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """How many entries an agent has at most (RFC-0015 §9.4): working ones outside of tasks,
    and episodic.
    """

    working: int = 1_000
    episodic: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How much a tenant's storage holds; its counts are unknown if it cannot be read."""

    size: int  # bytes on the disk
    memories: int | None = None  # live ones, of projects
    sessions: int | None = None
    stores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats:
    """What it is made of, in bytes, and what it keeps for a time."""

    database: int  # with what is free, and the index
    free: int  # pages that hold nothing, for what comes
    index: int  # the words of the memories
    log: int
    copies: int  # beside it
    held: tuple[Held, ...]
