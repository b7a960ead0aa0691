"""Memories with lifecycles and revisions, and sessions, as frozen records; the rows of memories.

The SQL functions return a condition on a memory, by table alias or name. `expired` and
`superseded` need only the SQL of its id, as a statement may have no other column.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, Literal, NewType

from ..light import dataclass, field, fields, replace
from ..recall.text import content_hash, fingerprint, sha256_of
from .rows import EARLIEST, LAST, UNSTORED, Column, RowMapper, tag_array
from .space import Project, Space

# Conditions on a lifecycle: expired; expired but still indexed; not expired but not indexed again.
# An expiry out of range does not count: reads refuse the memory as damaged, and nothing removes
# it.
ENDED = f"expires_at BETWEEN {EARLIEST} AND :now"
UNSWEPT = f"expires_at IS NOT NULL AND NOT is_swept AND {ENDED}"
UNRESTORED = f"is_swept AND NOT {ENDED}"

# Condition on a permission for an intent: not expired. An expiry out of range permits nothing.
IN_FORCE = f"(expires_at IS NULL OR (expires_at > :now AND expires_at <= {LAST}))"


def undeleted(alias: str) -> str:
    """Live or expired; goes first in a condition, as in the partial indexes of memories."""
    return f"{alias}.deleted_at IS NULL"


def deleted(alias: str) -> str:
    """Deleted, and kept until its retention ends."""
    return f"{alias}.deleted_at IS NOT NULL"


def live(alias: str) -> str:
    """Neither deleted nor expired."""
    return f"{undeleted(alias)} AND NOT {expired(alias + '.id')}"


def expired(id_: str) -> str:
    """At or past its expiry."""
    return f"""EXISTS (SELECT 1
                         FROM lifecycles
                        WHERE lifecycles.memory_id = {id_}
                              AND lifecycles.{ENDED})"""


def indexed(alias: str) -> str:
    """In the full-text index: not deleted, and not removed by the sweep of expired memories."""
    return f"""{undeleted(alias)}
               AND NOT EXISTS (SELECT 1
                                 FROM lifecycles
                                WHERE lifecycles.memory_id = {alias}.id
                                      AND lifecycles.is_swept)"""


def superseded_in_ref(id_: str) -> str:
    """Superseded by a live memory, as an entry of a ref."""
    return superseded(id_, "ref_supersessions", "AND link.ended_after IS NULL")


def superseded(id_: str, links: str = "supersessions", which: str = "") -> str:
    """Superseded by a live memory."""
    return f"""EXISTS (SELECT 1
                         FROM {links} link
                         JOIN memories newer ON newer.id = link.newer_id
                        WHERE link.older_id = {id_} {which} AND {live("newer")})"""


def seen_by_a_run(memories: str) -> str:
    """Deleted, but still in the snapshot of an open run."""
    return f"""EXISTS (SELECT 1
                         FROM ref_entries e
                         JOIN runs r ON r.log_offset <= e.deleted_after AND r.high >= e.memory_id
                        WHERE e.memory_id = {memories}.id AND r.ended_at IS NULL
                              AND e.deleted_after >= (SELECT min(log_offset)
                                                        FROM runs
                                                       WHERE ended_at IS NULL))"""


MemoryId = NewType("MemoryId", int)
SessionId = NewType("SessionId", str)
UNSAVED = MemoryId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The text of a memory: the part that changes and that revisions store."""

    type: str
    title: str
    content: str
    tags: tuple[str, ...] = ()


TOPIC_KEY: Final = "topic_key"  # the name of a memory's key in AgentOps REST, MCP and spans
# The row of `lifecycles` holds the key of an expired memory.
KEY = "coalesce(m.key, l.held_key)"

Reference = MemoryId | str
"""A memory as a caller names it: by its id or its stable id."""

MAX_PINNED = 20  # most pinned memories of a project, and most global ones
MAX_TTL = 315_360_000  # seconds; ten years
MAX_SUPERSEDED = 20  # most superseded memories that one request names


class Unset(Enum):
    """The value of a field that a request omits; None removes the field's stored value."""

    UNSET = "unset"


UNSET = Unset.UNSET
InstantOrUnset = datetime | Literal[Unset.UNSET] | None


EXPIRES_AT = Column("l.expires_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """The state of a memory in addition to its text; it is expired from `expires_at` on."""

    expires_at: datetime | None = None
    pinned_at: datetime | None = None
    review_at: datetime | None = None
    confirmed_at: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def reviewed(self, now: datetime) -> "Lifecycle":
        """Return the lifecycle without its review, if that is due."""
        is_due = self.review_at is not None and self.review_at <= now
        return replace(self, review_at=None) if is_due else self


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleChange:
    """The fields that a save or change sets; absent ones stay. `ttl` counts from `tx.now`."""

    expires_at: InstantOrUnset = UNSET
    ttl: timedelta | None = None
    pinned: bool | None = None
    supersedes: tuple[Reference, ...] | None = None
    review_at: InstantOrUnset = UNSET

    def applied(self, before: Lifecycle, now: datetime) -> Lifecycle:
        """Apply the set fields; a review that was due is done unless it is set again."""
        expiry, pinned_at, review_at = self._expiry(now), before.pinned_at, self.review_at
        if self.pinned is not None:
            pinned_at = (pinned_at or now) if self.pinned else None
        return Lifecycle(
            expires_at=before.expires_at if expiry is UNSET else expiry, pinned_at=pinned_at,
            review_at=before.reviewed(now).review_at if review_at is UNSET else review_at,
            confirmed_at=before.confirmed_at,
        )  # fmt: skip

    def applied_to_duplicate(self, before: Lifecycle, now: datetime) -> Lifecycle:
        """Apply the set fields of a duplicate: the later expiry applies, and none is the latest."""
        expiry, expires_at = self._expiry(now), None
        if isinstance(expiry, datetime) and before.expires_at is not None:
            expires_at = max(before.expires_at, expiry)
        return replace(self.applied(before, now), expires_at=expires_at)

    def _expiry(self, now: datetime) -> InstantOrUnset:
        return self.expires_at if self.ttl is None else now + self.ttl


LIFECYCLE_FIELDS = tuple(it.name for it in fields(Lifecycle))  # also the names of the columns
NO_LIFECYCLE = Lifecycle()
NO_CHANGE = LifecycleChange()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The memories that a memory supersedes, and the live ones that supersede it, ordered by id.

    `uids` are the stable ids of superseded memories, for exports and imports, which have no ids.
    """

    supersedes: tuple[MemoryId, ...] = ()
    superseded_by: tuple[MemoryId, ...] = ()
    uids: tuple[str, ...] = ()


NO_LINKS = Links()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    session: SessionId
    space: Space
    text: Text
    key: str | None = None
    lifecycle: LifecycleChange = NO_CHANGE

    @property
    def fingerprint(self) -> int:
        text = self.text
        return fingerprint(self.key, text.type, text.title, content_hash(text.content))

    @property
    def only_adds(self) -> bool:
        return self.key is None and self.lifecycle == NO_CHANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    type: str | None = None
    title: str | None = None
    content: str | None = None
    tags: tuple[str, ...] | None = None
    lifecycle: LifecycleChange = NO_CHANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The fields of a memory that a result shows; `links` are read only if they are shown."""

    id: MemoryId = UNSAVED
    key: Annotated[str | None, Column(KEY)]
    text: Text
    links: Annotated[Links, UNSTORED] = NO_LINKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Shown):
    """One memory in its space. Instants are aware, in UTC.

    An entry of a store has no session. `extras` belong to an API: no rule reads them. `as_of` is
    the instant at which `links` were read, or None without links.
    """

    uid: str
    session: Annotated[SessionId | None, Column("m.session_id")]
    space: Annotated[Space, Column("s.")]
    content_hash: str = ""
    revision: int = 1
    duplicates: int = 1
    last_seen_at: datetime
    promoted_to: str | None = None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    extras: Mapping[str, str] = field(default_factory=dict)
    lifecycle: Annotated[Lifecycle, Column("l.")] = NO_LIFECYCLE
    as_of: Annotated[datetime | None, UNSTORED] = None

    @property
    def is_expired(self) -> bool:
        """Whether it was expired when it was read."""
        return self.as_of is not None and self.lifecycle.is_expired(self.as_of)

    @property
    def age(self) -> timedelta:
        """The time from its last change, sighting or confirmation to its read; not negative."""
        known = self.updated_at, self.last_seen_at, self.lifecycle.confirmed_at
        latest = max(filter(None, known))
        return max((self.as_of or latest) - latest, timedelta())

    def is_live(self, now: datetime) -> bool:
        return self.deleted_at is None and not self.lifecycle.is_expired(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMemory(Memory):
    """A memory whose words were prepared before its transaction."""

    prepared: tuple[Any, ...]  # a `Prepared` as a plain tuple, which is pickled faster


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A precondition on a memory: its revision, the SHA-256 of its content, or both."""

    revision: int | None = None
    sha256: str | None = None

    def met_by(self, memory: Memory) -> bool:
        is_revision = self.revision in (None, memory.revision)
        return is_revision and self.sha256 in (None, sha256_of(memory.text.content))


ANY_STATE = Expected()


class ChangeKind(StrEnum):
    """What kind of change a revision records."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


# The number of revisions of a memory; an unchanged memory has no row there, and one revision. To be
# formatted with the SQL function for the greatest of two numbers, and the memory's id.
REVISIONS_OF = "{}((SELECT count(*) FROM revisions WHERE memory_id = {}), 1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of a memory. A deletion has no text."""

    number: int
    kind: ChangeKind
    at: datetime
    text: Text | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A conversation of an agent; `summary` is empty until one is written."""

    id: SessionId
    project: Project
    started_at: datetime
    ended_at: datetime | None = None
    summary: str = ""
    message_count: int = 0


LIFECYCLE = "LEFT JOIN lifecycles l ON l.memory_id = m.id"
MEMORY = RowMapper(
    Memory, "memories", "m.id", alias="m.", joins=f"JOIN spaces s ON s.id = m.space_id {LIFECYCLE}"
)
SHOWN_MEMORY = RowMapper(
    Shown, "memories", "m.id", alias="m.", joins=LIFECYCLE, also={EXPIRES_AT: datetime | None}
)


def text_row(text: Text) -> dict[str, object]:
    tags = tag_array(text.tags)
    return {"type": text.type, "title": text.title, "content": text.content, "tags": tags}
