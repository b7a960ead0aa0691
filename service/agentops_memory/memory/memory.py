"""Memories with their lifecycles and revisions, and sessions: frozen; and the rows of memories.

Each is a condition on a memory under an alias, or under the name of its table; `expired` and
`superseded` ask for its id alone, which may be all that is known of a row.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, NewType

from ..errors import DamagedRow, Unreadable
from ..light import dataclass, field, fields
from ..recall.text import Prepared, content_hash, fingerprint, sha256_of
from .rows import (
    EARLIEST,
    LAST,
    UNREADABLE,
    Column,
    count,
    damaged_row,
    instant,
    json_of,
    micros,
    optional_instant,
    optional_micros,
    pairs_of,
    tag_array,
    texts_of,
)
from .space import NO_PROJECT, Project, Space, SpaceKind

# Of a lifecycle: at or past its end; and that the index still holds it, or not yet again. Only an
# end that can be one counts: reading a memory with another one refuses it, and nothing
# removes it.
ENDED = f"expires_at BETWEEN {EARLIEST} AND :now"
UNSWEPT = f"expires_at IS NOT NULL AND NOT is_swept AND {ENDED}"
RETURNED = f"is_swept AND NOT {ENDED}"

# Of a permission on an intent: before its end, if it has one. An end out of range permits nothing.
IN_FORCE = f"(expires_at IS NULL OR (expires_at > :now AND expires_at <= {LAST}))"


def undeleted(alias: str) -> str:
    """Live or expired; first in a condition, as in those of the partial indexes of memories."""
    return f"{alias}.deleted_at IS NULL"


def deleted(alias: str) -> str:
    """Deleted, and kept for as long as its retention says."""
    return f"{alias}.deleted_at IS NOT NULL"


def live(alias: str) -> str:
    """Neither deleted nor expired."""
    return f"{undeleted(alias)} AND NOT {expired(alias + '.id')}"


def expired(id_: str) -> str:
    """At or past its end."""
    return f"""EXISTS (SELECT 1
                         FROM lifecycles
                        WHERE lifecycles.memory_id = {id_}
                              AND lifecycles.{ENDED})"""


def indexed(alias: str) -> str:
    """In the full-text index: not deleted, and not taken out by the sweep of expired ones."""
    return f"""{undeleted(alias)}
               AND NOT EXISTS (SELECT 1
                                 FROM lifecycles
                                WHERE lifecycles.memory_id = {alias}.id
                                      AND lifecycles.is_swept)"""


def superseded(id_: str) -> str:
    """Listed by a live memory that supersedes it."""
    return _superseded("supersessions", id_)


def superseded_in_ref(id_: str) -> str:
    """The same, of entries of refs."""
    return _superseded("ref_supersessions", id_, "AND link.ended_after IS NULL")


def _superseded(links: str, id_: str, which: str = "") -> str:
    return f"""EXISTS (SELECT 1
                         FROM {links} link
                         JOIN memories newer ON newer.id = link.newer_id
                        WHERE link.older_id = {id_} {which} AND {live("newer")})"""


def seen_by_a_run(memories: str) -> str:
    """That an open run has memories in its snapshot, though they were deleted since."""
    return f"""EXISTS (SELECT 1
                         FROM ref_entries e
                         JOIN runs r ON r.log_offset <= e.deleted_after AND r.high >= e.memory_id
                        WHERE e.memory_id = {memories}.id AND r.ended_at IS NULL
                              AND e.deleted_after >= (SELECT min(log_offset)
                                                        FROM runs
                                                       WHERE ended_at IS NULL))"""


class Facts(NamedTuple):
    """Whether there are any: what there is none of, a reader need not ask for."""

    pins: bool
    unswept: bool  # that have expired, and that the index still holds
    superseded: bool


class Moment:
    """The instant of a transaction, and what a reader has to ask for then."""

    def __init__(self, connection: Any, now: datetime) -> None:
        self.now = now
        self.values: dict[str, object] = {"now": micros(now)}
        self._connection = connection

    @cached_property
    def has(self) -> Facts:
        return Facts(*map(bool, self._connection.execute(_FACTS, self.values).fetchone()))


_FACTS = f"""
    SELECT EXISTS (SELECT 1 FROM lifecycles WHERE pinned_at IS NOT NULL),
           EXISTS (SELECT 1 FROM lifecycles WHERE {UNSWEPT}),
           EXISTS (SELECT 1 FROM supersessions)"""


MemoryId = NewType("MemoryId", int)
SessionId = NewType("SessionId", str)
UNSAVED = MemoryId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The text of a memory: what changes, and what revisions keep."""

    type: str
    title: str
    content: str
    tags: tuple[str, ...] = ()


Reference = MemoryId | str
"""A memory as a caller names it: by its id, or by its stable id."""

MAX_PINNED = 20  # live memories of a project, and as many global ones
MAX_TTL = 315_360_000  # seconds: ten years
MAX_SUPERSEDED = 20  # memories that one request names


class Unset(Enum):
    """The value of a field that a request does not name; None takes the field's value away."""

    UNSET = "unset"


UNSET = Unset.UNSET
InstantOrUnset = datetime | Literal[Unset.UNSET] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """What a memory has beside its text. At `expires_at`, and after it, it is expired."""

    expires_at: datetime | None = None
    pinned_at: datetime | None = None
    review_at: datetime | None = None
    confirmed_at: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleChange:
    """What a save or a change sets; an absent field stays. `ttl` counts from the transaction."""

    expires_at: InstantOrUnset = UNSET
    ttl: timedelta | None = None
    pinned: bool | None = None
    supersedes: tuple[Reference, ...] | None = None
    review_at: InstantOrUnset = UNSET

    def end(self, now: datetime) -> InstantOrUnset:
        return self.expires_at if self.ttl is None else now + self.ttl


LIFECYCLE_FIELDS = tuple(it.name for it in fields(Lifecycle))  # each has a column of its name
NO_LIFECYCLE = Lifecycle()
NO_CHANGE = LifecycleChange()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What a memory supersedes, and the live ones that supersede it; each in the order of ids.

    `uids` name what it supersedes in an export and an import, which know no ids.
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
    """What an answer shows of a found memory; `links` are read only where it shows them."""

    id: MemoryId = UNSAVED
    key: str | None
    text: Text
    links: Links = NO_LINKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Shown):
    """One memory in its space. Instants are aware, in UTC.

    An entry of a store has no session. `extras` belong to an API: no rule reads them.
    The instant `as_of` which `links` hold is known where they are.
    """

    uid: str
    session: SessionId | None
    space: Space
    content_hash: str = ""
    revision: int = 1
    duplicates: int = 1
    last_seen_at: datetime
    promoted_to: str | None = None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    extras: Mapping[str, str] = field(default_factory=dict)
    lifecycle: Lifecycle = NO_LIFECYCLE
    as_of: datetime | None = None

    @property
    def is_expired(self) -> bool:
        """Whether it was expired when it was read."""
        return self.as_of is not None and self.lifecycle.is_expired(self.as_of)

    @property
    def age(self) -> timedelta:
        """How long ago it was changed, seen or confirmed when it was read; not negative."""
        known = self.updated_at, self.last_seen_at, self.lifecycle.confirmed_at
        latest = max(filter(None, known))
        return max((self.as_of or latest) - latest, timedelta())

    @property
    def is_deleted(self) -> bool:
        return self.deleted_at is not None

    def is_live(self, now: datetime) -> bool:
        return not self.is_deleted and not self.lifecycle.is_expired(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMemory(Memory):
    """One whose words were prepared before its transaction."""

    prepared: Prepared


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


# How many revisions a memory has: one that was never changed has no row here, and one revision.
# Formatted with the SQL function for the greatest of two numbers, and the memory's id.
REVISIONS_OF = "{}((SELECT count(*) FROM revisions WHERE memory_id = {}), 1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of a memory. A deletion has no text."""

    number: int
    deed: ChangeKind
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


# The columns that `memory_of` reads: of `memories m`, and of what LIFECYCLE joins to `spaces s`.
MEMORY = f"""m.id, m.uid, m.session_id, s.kind, s.project, s.scope, coalesce(m.key, l.held_key),
            m.type, m.title, m.content, m.tags, m.content_hash, m.revision, m.duplicates,
            m.last_seen_at, m.promoted_to, m.created_at, m.updated_at, m.deleted_at, m.extras,
            l.memory_id, {", ".join(f"l.{it}" for it in LIFECYCLE_FIELDS)}"""
TEXT_COLUMNS = """m.id, coalesce(m.key, l.held_key), m.type, m.title, m.content, m.tags,
           l.expires_at"""  # of `memory_text`
LIFECYCLE = "LEFT JOIN lifecycles l ON l.memory_id = m.id"


# The two that lists are made of check by hand what `reads` checks, which takes half a microsecond.


def memory_of(row: Any) -> Memory:
    try:
        (id_, uid, session, kind, project, scope, key, type_, title, content, tags, hash_, revision,
         duplicates, last_seen_at, promoted_to, created_at, updated_at, deleted_at,
         extras, has_lifecycle, *ends) = row  # fmt: skip
        if not type(uid) is type(hash_) is type(type_) is type(title) is type(content) is str:
            raise Unreadable
        created = instant(created_at)
        return Memory(
            id=MemoryId(count(id_)),
            uid=uid,
            session=None if session is None else SessionId(_text(session)),
            space=_space(kind, project, scope),
            key=None if key is None else _text(key),
            text=Text(type=type_, title=title, content=content, tags=texts_of(tags)),
            content_hash=hash_,
            revision=count(revision),
            duplicates=count(duplicates),
            # Most memories are as they were made.
            last_seen_at=created if last_seen_at == created_at else instant(last_seen_at),
            promoted_to=None if promoted_to is None else _text(promoted_to),
            created_at=created,
            updated_at=created if updated_at == created_at else instant(updated_at),
            deleted_at=optional_instant(deleted_at),
            extras=pairs_of(extras),
            lifecycle=_lifecycle(id_, *ends) if has_lifecycle else NO_LIFECYCLE,
        )
    except UNREADABLE as error:
        raise damaged_row("memories", row, error) from error


def memory_text(row: Any) -> Shown:
    try:
        id_, key, type_, title, content, tags, expires_at = row
        if not type(type_) is type(title) is type(content) is type(key or "") is str:
            raise Unreadable
        if expires_at is not None:
            end_of(id_, expires_at)
        text = Text(type=type_, title=title, content=content, tags=texts_of(tags))
        return Shown(id=MemoryId(count(id_)), key=key, text=text)
    except UNREADABLE as error:
        raise damaged_row("memories", row, error) from error


def _text(text: str) -> str:
    if type(text) is not str:
        raise Unreadable
    return text


def memory_row(memory: Memory) -> dict[str, object]:
    """The columns of a memory, but for its id and its space."""
    hash_ = memory.content_hash or content_hash(memory.text.content)
    return {
        "uid": memory.uid, "session_id": memory.session, "key": memory.key,
        **text_row(memory.text), "content_hash": hash_,
        "fingerprint": fingerprint(memory.key, memory.text.type, memory.text.title, hash_),
        "revision": memory.revision, "duplicates": memory.duplicates,
        "last_seen_at": micros(memory.last_seen_at), "promoted_to": memory.promoted_to,
        "created_at": micros(memory.created_at), "updated_at": micros(memory.updated_at),
        "deleted_at": optional_micros(memory.deleted_at), "extras": json_of(memory.extras),
    }  # fmt: skip


def text_row(text: Text) -> dict[str, object]:
    tags = tag_array(text.tags)
    return {"type": text.type, "title": text.title, "content": text.content, "tags": tags}


@lru_cache
def _space(kind: str, project: str | None, scope: str) -> Space:
    named = Project(NO_PROJECT if project is None else _text(project))
    return Space(project=named, scope=_text(scope), kind=SpaceKind(kind))


EXPIRES_AT = Column("l.expires_at", beside=("lifecycles", "m.id"))


def end_of(memory: int, expires_at: int | None) -> datetime | None:
    """When a memory expires, in its row of `lifecycles`."""
    try:
        return optional_instant(expires_at)
    except Unreadable as error:
        raise DamagedRow("lifecycles", memory, "expires_at") from error


def _lifecycle(memory: int, *instants: int | None) -> Lifecycle:
    try:
        fields = zip(LIFECYCLE_FIELDS, map(optional_instant, instants), strict=True)
        return Lifecycle(**dict(fields))
    except UNREADABLE as error:
        raise DamagedRow("lifecycles", memory) from error
