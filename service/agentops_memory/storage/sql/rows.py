"""Rows as the nouns of the domain, and back.

In a damaged file a column may hold what nobody has stored. It is read as the nearest value that
can be shown, for what else is in its row is worth more than an error.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from ...domain.model.access import KeyId
from ...domain.model.erasure import Erasure, ErasureId, ErasureKind
from ...domain.model.idempotency import Ids
from ...domain.model.memory import (
    ChangeKind,
    Memory,
    MemoryId,
    Revision,
    Session,
    SessionId,
    Text,
)
from ...domain.model.space import NO_PROJECT, Space, StoreId
from ...domain.model.stores import Entry, EntryId, Store, Version, VersionId
from ...domain.text.instants import LATEST
from ...domain.text.normalization import clean, fingerprint

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
J = TypeVar("J", list[object], dict[str, object])

FIRST = datetime(1, 1, 1, tzinfo=UTC)
MOST = 2**53 - 1  # that every reader of JSON can tell from its neighbours: RFC 8259 §6
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# The columns that each reader below takes, of tables with these aliases.
MEMORY = """m.id, m.uid, m.session_id, s.project, s.scope, m.key, m.type, m.title, m.content,
            m.tags, m.content_hash, m.revision, m.duplicates, m.last_seen_at, m.promoted_to,
            m.created_at, m.updated_at, m.deleted_at, m.extras"""
SESSION = "id, project, started_at, ended_at, summary, message_count"
REVISION = "number, deed, at, type, title, content, tags"
RECEIPT = """e.id, e.kind, e.project, e.observations, e.revisions, e.sessions, e.erased_at,
             e.bytes_gone_at, e.goes_on"""
STORE = "uid, name, description, metadata, entries, size, created_at, updated_at, archived_at"
ENTRY = """m.uid, m.id, t.uid, m.key, v.size, v.sha256, m.revision, v.uid, m.extras,
           m.created_at, m.updated_at"""
VERSION = """v.uid, t.uid, m.uid, v.memory_id, v.number, r.deed, v.path, v.size, v.sha256, r.at,
             v.author, v.redacted_at, v.redacted_by"""


def memory_of(row: Any) -> Memory:
    """The memory in a row of MEMORY."""
    (id_, uid, session, project, scope, key, type_, title, content, tags, hash_, revision,
     duplicates, last_seen_at, promoted_to, created_at, updated_at, deleted_at,
     extras) = row  # fmt: skip
    return Memory(
        id=MemoryId(id_),
        uid=uid,
        session=None if session is None else SessionId(session),
        space=Space(project=project or NO_PROJECT, scope=scope),
        key=key,
        text=Text(type=type_, title=title, content=content, tags=tag_tuple(tags)),
        content_hash=hash_,
        revision=count(revision),
        duplicates=count(duplicates),
        last_seen_at=instant(last_seen_at),
        promoted_to=promoted_to,
        created_at=instant(created_at),
        updated_at=instant(updated_at),
        deleted_at=None if deleted_at is None else instant(deleted_at),
        extras=map_of(extras),
    )


def memory_row(memory: Memory) -> dict[str, object]:
    """The columns of a memory, but for its space."""
    return {
        "id": memory.id,
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
        "deleted_at": None if memory.deleted_at is None else micros(memory.deleted_at),
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


def session_of(row: Any) -> Session:
    """The session in a row of SESSION."""
    id_, project, started_at, ended_at, summary, message_count = row
    return Session(
        id=SessionId(id_),
        project=project,
        started_at=instant(started_at),
        ended_at=None if ended_at is None else instant(ended_at),
        summary=summary,
        message_count=count(message_count),
    )


def revision_of(row: Any, memory: Memory) -> Revision:
    """The revision of a memory in a row of REVISION; without a text of its own it has the last."""
    number, deed, at, type_, title, content, tags = row
    if deed == ChangeKind.DELETED:
        text = None
    elif type_ is None:
        text = memory.text
    else:
        text = Text(type=type_, title=title, content=content, tags=tag_tuple(tags))
    return Revision(
        number=count(number),
        deed=member(ChangeKind, deed, ChangeKind.UPDATED),
        at=instant(at),
        text=text,
    )


def receipt_of(row: Any, memories: tuple[MemoryId, ...]) -> Erasure:
    """The receipt in a row of RECEIPT, which names these memories."""
    id_, kind, project, observations, revisions, sessions, erased_at, bytes_gone_at, goes_on = row
    return Erasure(
        id=ErasureId(id_),
        kind=member(ErasureKind, kind, ErasureKind.OBSERVATION),
        project=project or NO_PROJECT,
        memories=memories,
        observations=count(observations),
        revisions=count(revisions),
        sessions=count(sessions),
        erased_at=instant(erased_at),
        bytes_gone_at=None if bytes_gone_at is None else instant(bytes_gone_at),
        goes_on=bool(goes_on),
    )


def store_of(row: Any) -> Store:
    """The store in a row of STORE."""
    uid, name, description, metadata, entries, size, created_at, updated_at, archived_at = row
    return Store(
        id=StoreId(uid),
        name=name,
        description=description,
        metadata=map_of(metadata),
        entries=count(entries),
        size=count(size),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
        archived_at=None if archived_at is None else instant(archived_at),
    )


def entry_of(row: Any) -> Entry:
    """The entry in a row of ENTRY and of its content, or of NULL in its place."""
    (uid, id_, store, path, size, sha256, number, version, metadata, created_at, updated_at,
     content) = row  # fmt: skip
    return Entry(
        id=EntryId(uid),
        memory=MemoryId(id_),
        store=StoreId(store),
        path=path,
        content=content,
        size=count(size),
        sha256=sha256,
        number=count(number),
        version=VersionId(version),
        metadata=map_of(metadata),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
    )


def version_of(row: Any) -> Version:
    """The version in a row of VERSION and of its content, or of NULL in its place."""
    (uid, store, entry, memory, number, deed, path, size, sha256, at, author, redacted_at,
     redacted_by, content) = row  # fmt: skip
    return Version(
        id=VersionId(uid),
        store=StoreId(store),
        entry=EntryId(entry),
        memory=MemoryId(memory),
        number=count(number),
        deed=member(ChangeKind, deed, ChangeKind.UPDATED),
        path=path,
        size=None if size is None else count(size),
        sha256=sha256,
        content=content,
        at=instant(at),
        author=None if author is None else KeyId(author),
        redacted_at=None if redacted_at is None else instant(redacted_at),
        redacted_by=None if redacted_by is None else KeyId(redacted_by),
    )


def ids_of(text: str) -> Ids:
    """What an idempotency record keeps of an outcome."""
    return {name: id_ for name, id_ in parsed(text, dict).items() if isinstance(id_, int | str)}


def micros(at: datetime) -> int:
    """An aware instant as whole microseconds since 1970."""
    return (at - EPOCH) // _MICROSECOND


def instant(at: int) -> datetime:
    """The inverse of `micros`; the nearest that can be shown."""
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return FIRST if at < 0 else LATEST


def count(number: int) -> int:
    """A number of things, the nearest that there can be."""
    return number if 0 <= number <= MOST else min(max(number, 0), MOST)


def member(of: type[E], value: str, otherwise: E) -> E:
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
    tags = [tag for tag in parsed(array, list) if isinstance(tag, str)]
    # Only what is escaped can be what no text may hold.
    return tuple(map(clean, tags) if "\\" in array else tags)


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
