"""Rows of memories, and the values that columns hold, as the domain has them and back.

In a damaged file a column may hold what nobody has stored. Such a row is never read as something
weaker: the conversions here raise, and `reads` makes a DamagedRow of that.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache, wraps
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from ...errors import DamagedRow, Unreadable
from ...recall.text.instants import EPOCH, MICROSECOND
from ...recall.text.json_words import object_of
from ...recall.text.normalization import clean, fingerprint
from ..model.kinds import SpaceKind
from ..model.memory import NO_LIFECYCLE, Lifecycle, Memory, MemoryId, SessionId, Shown, Text
from ..model.space import NO_PROJECT, Project, Space

T = TypeVar("T")

CACHED, LONGEST_CACHED = 1024, 128  # tags of memories that are remembered, and their characters
EARLIEST = -62_135_596_800_000_000  # the year 1 in microseconds; SQL compares with it
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


UNREADABLE = ValueError, TypeError, ArithmeticError, RecursionError, Unreadable
"""What a conversion raises of a value that its column cannot hold."""


def reads(table: str) -> Callable[[Callable[..., T]], Callable[[Any], T]]:
    """Make a record of the columns of a row, whose first one names it in this table.

    The types of the arguments are what SQLite may have lost; of values, the function itself
    raises what is wrong. DamagedRow in either case.
    """

    def decorated(made: Callable[..., T]) -> Callable[[Any], T]:
        sound: set[tuple[type, ...]] = set()

        @wraps(made)
        def read(row: Any) -> T:
            try:
                if (types := tuple(map(type, row))) not in sound:
                    _require_types(made, types)
                    sound.add(types)
                return made(*row)
            except UNREADABLE as error:
                raise damaged_row(table, row, error) from error

        return read

    return decorated


def damaged_row(table: str, row: Any, error: Exception) -> DamagedRow:
    """What is wrong with a row, unless a conversion has said it of one that belongs to it."""
    if isinstance(error, DamagedRow):
        return error
    key = tuple.__getitem__(row, 0)
    return DamagedRow(table, key.hex() if isinstance(key, bytes) else key)


def _require_types(made: Callable[..., object], types: tuple[type, ...]) -> None:
    hints = [hint for name, hint in get_type_hints(made).items() if name != "return"]
    for hint, found in zip(hints, types, strict=True):
        if hint is not Any and found not in _TYPES.get(hint, ()):
            known = (it for of in get_args(hint) for it in _TYPES[of])
            if found not in known:
                raise TypeError


# SQLite has no type of its own for yes and no.
_TYPES: Mapping[Any, tuple[type, ...]] = {
    **{of: (of,) for of in (int, str, float, bytes, NoneType)},
    bool: (bool, int),
}


# The two that lists are made of check by hand what `reads` checks, which takes half a microsecond.


def memory_of(row: Any) -> Memory:
    """The memory in a row of MEMORY."""
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


def shown_of(row: Any) -> Shown:
    """What is shown of the memory in a row of SHOWN."""
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
    """The inverse of `micros`; Unreadable if there is none."""
    if type(at) is not int:
        raise Unreadable
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError as error:
        raise Unreadable from error


def optional_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def optional_instant(at: int | None) -> datetime | None:
    return None if at is None else instant(at)


@lru_cache
def _space(kind: str, project: str | None, scope: str) -> Space:
    named = Project(NO_PROJECT if project is None else _text(project))
    return Space(project=named, scope=_text(scope), kind=SpaceKind(kind))


def end_of(memory: int, expires_at: int | None) -> datetime | None:
    """When a memory expires, in its row of `lifecycles`."""
    try:
        return optional_instant(expires_at)
    except Unreadable as error:
        raise DamagedRow("lifecycles", memory, "expires_at") from error


def _lifecycle(memory: int, *instants: int | None) -> Lifecycle:
    try:
        expires_at, pinned_at, review_at, confirmed_at = map(optional_instant, instants)
    except UNREADABLE as error:
        raise DamagedRow("lifecycles", memory) from error
    return Lifecycle(
        expires_at=expires_at, pinned_at=pinned_at, review_at=review_at, confirmed_at=confirmed_at
    )


def count(number: int) -> int:
    """A number of things; Unreadable for one that nothing counts to."""
    if type(number) is not int or not 0 <= number <= 2 * MOST:
        raise Unreadable
    return min(number, MOST)  # one at the limit may be counted further


def flag(value: int) -> bool:
    if value not in (0, 1):
        raise Unreadable
    return bool(value)


def tag_array(tags: Iterable[str]) -> str:
    """Tags as the JSON array that a row holds."""
    return json.dumps(list(tags), ensure_ascii=False)


def texts_of(array: str) -> tuple[str, ...]:
    """The texts of a JSON array, as `tag_array` writes it; ValueError if it is none."""
    if array == "[]":
        return ()
    return (_texts if len(array) <= LONGEST_CACHED else _parsed_texts)(array)


def _parsed_texts(array: str) -> tuple[str, ...]:
    found = json.loads(array)
    # Only what is escaped can be what no text may hold.
    are_texts = isinstance(found, list) and all(isinstance(it, str) for it in found)
    if not are_texts or ("\\" in array and any(clean(it) != it for it in found)):
        raise Unreadable
    return tuple(found)


_texts = lru_cache(CACHED)(_parsed_texts)  # memories of a project share them


def tag_tuple(array: str) -> tuple[str, ...]:
    """The tags that words are looked for in; of a damaged row none."""
    try:
        return texts_of(array)
    except UNREADABLE:
        return ()


def counts_of(text: str) -> Mapping[str, int]:
    """The positive counts in a JSON object; Unreadable if it is none."""
    found = object_of(text)
    if not all(type(it) is int and it > 0 for it in found.values()):
        raise Unreadable
    return found


def json_of(pairs: Mapping[str, str]) -> str:
    """Pairs of texts as the JSON object that a row holds."""
    return json.dumps(dict(pairs), ensure_ascii=False) if pairs else "{}"


def pairs_of(text: str) -> dict[str, str]:
    """The inverse of `json_of`; ValueError if it is none."""
    if text == "{}":
        return {}
    pairs = json.loads(text)
    if not isinstance(pairs, dict):
        raise Unreadable
    if any(not isinstance(it, str) or clean(it) != it for pair in pairs.items() for it in pair):
        raise Unreadable
    return pairs


def portion(items: Iterable[T], room: int, size: Callable[[T], int]) -> list[T]:
    """The first of the items, until their sizes pass the room; always one, if there is one."""
    some: list[T] = []
    for item in items:
        some.append(item)
        room -= size(item)
        if room < 0:
            break
    return some
