"""Rows of memories, and the values that columns hold, as the domain has them and back.

In a damaged file a column may hold what nobody has stored. It is read as the nearest value that
can be shown, for what else is in its row is worth more than an error. A column that restricts,
permits or expires something is read by a StrictRow, whose error is what fails closed.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from ...errors import DamagedRow
from ...recall.text.instants import EPOCH, LATEST, MICROSECOND
from ...recall.text.json_words import stored_object
from ...recall.text.normalization import clean, fingerprint
from ..model.memory import NO_LIFECYCLE, Lifecycle, Memory, MemoryId, SessionId, Shown, Text
from ..model.space import NO_PROJECT, Project, Space
from .kinds import kind_of

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
J = TypeVar("J", list[object], dict[str, object])

FIRST = datetime(1, 1, 1, tzinfo=UTC)
CACHED, LONGEST_CACHED = 1024, 128  # tags of memories that are remembered, and their characters
EARLIEST = -62_135_596_800_000_000  # FIRST in microseconds; SQL compares with it
LAST = 253_402_300_799_999_999  # and with the last microsecond of the year 9999
MOST = 2**53 - 1  # that every reader of JSON can tell from its neighbours: RFC 8259 §6

# The columns that `memory_of` reads: of `memories m`, and of what LIFECYCLE joins to `spaces s`.
MEMORY = """m.id, m.uid, m.session_id, s.kind, s.project, s.scope, coalesce(m.key, l.held_key),
            m.type, m.title, m.content, m.tags, m.content_hash, m.revision, m.duplicates,
            m.last_seen_at, m.promoted_to, m.created_at, m.updated_at, m.deleted_at, m.extras,
            l.memory_id, l.expires_at, l.pinned_at, l.review_at, l.confirmed_at"""
SHOWN = """m.id, coalesce(m.key, l.held_key), m.type, m.title, m.content, m.tags,
           l.expires_at"""  # of `shown_of`
LIFECYCLE = "LEFT JOIN lifecycles l ON l.memory_id = m.id"


@dataclass(frozen=True, slots=True)
class StrictRow:
    """Reads those values of one row that restrict something: DamagedRow instead of a default."""

    table: str
    row: object

    def damaged(self, column: str) -> DamagedRow:
        return DamagedRow(self.table, self.row, column)

    def member(self, column: str, of: type[E], value: object) -> E:
        """The member of a closed set with this value."""
        try:
            return of(value)
        except ValueError:
            raise self.damaged(column) from None

    def optional_instant(self, column: str, at: object) -> datetime | None:
        """An instant, or none where there is no limit in time."""
        if at is None:
            return None
        if type(at) is not int or not EARLIEST <= at <= LAST:
            raise self.damaged(column)
        return instant(at)

    def flag(self, column: str, value: object) -> bool:
        if value in (0, 1):
            return bool(value)
        raise self.damaged(column)

    def texts(self, column: str, array: object) -> tuple[str, ...]:
        """The texts of a JSON array."""
        if not is_texts(array):
            raise self.damaged(column)
        return tag_tuple(str(array))


def memory_of(row: Any) -> Memory:
    """The memory in a row of MEMORY. DamagedRow if nobody can tell whether it has expired."""
    (id_, uid, session, kind, project, scope, key, type_, title, content, tags, hash_, revision,
     duplicates, last_seen_at, promoted_to, created_at, updated_at, deleted_at,
     extras, has_lifecycle, *ends) = row  # fmt: skip
    created = instant(created_at)
    return Memory(
        id=MemoryId(id_),
        uid=uid,
        session=None if session is None else SessionId(session),
        space=_space(kind, project, scope),
        key=key,
        text=Text(type=type_, title=title, content=content, tags=tag_tuple(tags)),
        content_hash=hash_,
        revision=count(revision),
        duplicates=count(duplicates),
        # Most memories are as they were made.
        last_seen_at=created if last_seen_at == created_at else instant(last_seen_at),
        promoted_to=promoted_to,
        created_at=created,
        updated_at=created if updated_at == created_at else instant(updated_at),
        deleted_at=optional_instant(deleted_at),
        extras=map_of(extras),
        lifecycle=_lifecycle(id_, *ends) if has_lifecycle else NO_LIFECYCLE,
    )


def shown_of(row: Any) -> Shown:
    """What is shown of the memory in a row of SHOWN. DamagedRow as for a whole one."""
    id_, key, type_, title, content, tags, expires_at = row
    if expires_at is not None:
        end_of(id_, expires_at)
    text = Text(type=type_, title=title, content=content, tags=tag_tuple(tags))
    return Shown(id=id_, key=key, text=text)


def lifecycle_row(lifecycle: Lifecycle) -> dict[str, object]:
    """The columns of a lifecycle that a caller sets."""
    return {
        "expires_at": optional_micros(lifecycle.expires_at),
        "pinned_at": optional_micros(lifecycle.pinned_at),
        "review_at": optional_micros(lifecycle.review_at),
        "confirmed_at": optional_micros(lifecycle.confirmed_at),
    }


def memory_row(memory: Memory) -> dict[str, object]:
    """The columns of a memory, but for its id and its space."""
    return {
        "uid": memory.uid,
        "session_id": memory.session,
        "key": memory.key,
        **text_row(memory.text),
        "content_hash": memory.content_hash,
        "fingerprint": fingerprint(
            memory.key, memory.text.type, memory.text.title, memory.content_hash
        ),
        "revision": memory.revision,
        "duplicates": memory.duplicates,
        "last_seen_at": micros(memory.last_seen_at),
        "promoted_to": memory.promoted_to,
        "created_at": micros(memory.created_at),
        "updated_at": micros(memory.updated_at),
        "deleted_at": optional_micros(memory.deleted_at),
        "extras": json_of(memory.extras),
    }


def text_row(text: Text) -> dict[str, object]:
    """The columns of a text, of a memory or of a revision."""
    return {
        "type": text.type,
        "title": text.title,
        "content": text.content,
        "tags": tag_array(text.tags),
    }


def micros(at: datetime) -> int:
    """An aware instant as whole microseconds since 1970."""
    return (at - EPOCH) // MICROSECOND


def instant(at: int) -> datetime:
    """The inverse of `micros`; the nearest that can be shown."""
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return FIRST if at < 0 else LATEST


def optional_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def optional_instant(at: int | None) -> datetime | None:
    return None if at is None else instant(at)


@lru_cache
def _space(kind: str, project: str | None, scope: str) -> Space:
    return Space(project=Project(project or NO_PROJECT), scope=scope, kind=kind_of(kind, project))


def end_of(memory: int, expires_at: int | None) -> datetime | None:
    """When a memory expires, in its row of `lifecycles`."""
    return StrictRow("lifecycles", memory).optional_instant("expires_at", expires_at)


def _lifecycle(
    memory: int,
    expires_at: int | None,
    pinned_at: int | None,
    review_at: int | None,
    confirmed_at: int | None,
) -> Lifecycle:
    return Lifecycle(
        expires_at=end_of(memory, expires_at),
        pinned_at=optional_instant(pinned_at),
        review_at=optional_instant(review_at),
        confirmed_at=optional_instant(confirmed_at),
    )


def count(number: int) -> int:
    """A number of things, the nearest that there can be."""
    return number if 0 <= number <= MOST else min(max(number, 0), MOST)


def member(of: type[E], value: str | int, otherwise: E) -> E:
    """The member of a closed set with that value, if it has one."""
    try:
        return of(value)
    except ValueError:
        return otherwise


def tag_array(tags: Iterable[str]) -> str:
    """Tags as the JSON array that a row holds."""
    return json.dumps(list(tags), ensure_ascii=False)


def tag_tuple(array: str) -> tuple[str, ...]:
    """The inverse of `tag_array`; what is no tag is left out."""
    if array == "[]":
        return ()
    return (_tags if len(array) <= LONGEST_CACHED else _parsed_tags)(array)


def _parsed_tags(array: str) -> tuple[str, ...]:
    tags = [tag for tag in parsed(array, list) if isinstance(tag, str)]
    # Only what is escaped can be what no text may hold.
    return tuple(map(clean, tags) if "\\" in array else tags)


def is_texts(array: object) -> bool:
    """Whether this is a JSON array of texts, as `tag_array` writes it."""
    try:
        found = json.loads(array) if isinstance(array, str) else None
    except (ValueError, RecursionError):
        return False
    return isinstance(found, list) and all(isinstance(it, str) and clean(it) == it for it in found)


def counts_of(text: str) -> Mapping[str, int] | None:
    """The positive counts in a JSON object; None if it is damaged."""
    found = stored_object(text)
    if found is None or not all(type(it) is int and it > 0 for it in found.values()):
        return None
    return found


_tags = lru_cache(CACHED)(_parsed_tags)  # memories of a project share them


def json_of(pairs: Mapping[str, str]) -> str:
    """Pairs of texts as the JSON object that a row holds."""
    return json.dumps(dict(pairs), ensure_ascii=False) if pairs else "{}"


def map_of(text: str) -> dict[str, str]:
    """The inverse of `json_of`; what is no pair of texts is left out."""
    if text == "{}":
        return {}
    pairs = parsed(text, dict).items()
    return {clean(name): clean(value) for name, value in pairs if isinstance(value, str)}


def parsed(text: str, kind: type[J]) -> J:
    """The array or the object that a text is as JSON; an empty one if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    return found if isinstance(found, kind) else kind()


def portion(items: Iterable[T], room: int, size: Callable[[T], int]) -> list[T]:
    """The first of the items, until their sizes pass the room; always one, if there is one."""
    some: list[T] = []
    for item in items:
        some.append(item)
        room -= size(item)
        if room < 0:
            break
    return some
