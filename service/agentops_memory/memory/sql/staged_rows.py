"""Rows of imports as the JSON that is staged, and back."""

import json
import logging
from collections.abc import Callable
from typing import Any

from ...recall.text.normalization import clean
from ..model.imports import Row
from ..model.memory import (
    NO_LIFECYCLE,
    NO_LINKS,
    Lifecycle,
    Links,
    Memory,
    MemoryId,
    Session,
    Supersession,
    Text,
)
from ..model.space import Project, Space
from .rows import EARLIEST, LAST, instant, micros, optional_instant, optional_micros, parsed

log = logging.getLogger(__name__)

# The first element of a row.
SESSION, MEMORY, SUPERSESSION = "session", "observation", "supersession"
SCOPE_AT = 3  # the element of a memory's row that is its scope


def staged(row: Row) -> tuple[Project, str]:
    """The project of a row, and the row as JSON."""
    elements: tuple[object, ...]
    match row:
        case Session():
            project, elements = row.project, (SESSION, *_session_values(row))
        case Memory():
            project, elements = row.space.project, (MEMORY, *_memory_values(row))
        case Supersession():
            project, elements = row.project, (SUPERSESSION, row.newer, row.older)
    return project, json.dumps(elements, ensure_ascii=False)


def row_of(project: Project, row: str) -> Row | None:
    """The inverse of `staged`; None, and an error in the log, if it is damaged."""
    try:
        elements: list[Any] = parsed(row, list)
        kind, *values = elements
        if _can_be_stored(values):
            read: Callable[..., Row] = _READ.get(kind, _memory)
            return read(project, *values)
    except (ValueError, TypeError):
        pass
    log.error("a row of an import is damaged, and was left out")
    return None


def _can_be_stored(value: object) -> bool:
    """Whether it is as it was staged: whole numbers, and texts that can be stored."""
    if isinstance(value, list):
        return all(map(_can_be_stored, value))
    return value is None or type(value) is int or (isinstance(value, str) and clean(value) == value)


def _session_values(session: Session) -> tuple[object, ...]:
    ended_at = None if session.ended_at is None else micros(session.ended_at)
    started_at = micros(session.started_at)
    return session.id, started_at, ended_at, session.summary, session.message_count


def _session(project: Project, *values: Any) -> Session:
    id_, started_at, ended_at, summary, message_count = values
    return Session(
        id=id_,
        project=project,
        started_at=instant(started_at),
        ended_at=None if ended_at is None else instant(ended_at),
        summary=summary,
        message_count=message_count,
    )


def _memory_values(memory: Memory) -> tuple[object, ...]:
    text, instants = memory.text, (memory.last_seen_at, memory.created_at, memory.updated_at)
    return (
        memory.uid, memory.session, memory.space.scope, memory.key,
        (text.type, text.title, text.content, text.tags),
        memory.revision, memory.duplicates, memory.promoted_to, *map(micros, instants),
        *_life_values(memory),
    )  # fmt: skip


def _life_values(memory: Memory) -> tuple[object, ...]:
    """The lifecycle and what it supersedes; nothing if it has neither."""
    life = memory.lifecycle
    if life == NO_LIFECYCLE and memory.links == NO_LINKS:
        return ()
    ends = (life.expires_at, life.pinned_at, life.review_at, life.confirmed_at)
    return tuple(map(optional_micros, ends)), memory.links.uids


def _memory(project: Project, *values: Any) -> Memory:
    (uid, session, scope, key, (type_, title, content, tags), revision, duplicates, promoted_to,
     last_seen_at, created_at, updated_at, *life) = values  # fmt: skip
    ends, uids = life or ((), ())
    return Memory(
        uid=uid,
        session=session,
        space=Space(project=project, scope=scope),
        key=key,
        text=Text(type=type_, title=title, content=content, tags=tuple(tags)),
        revision=revision,
        duplicates=duplicates,
        promoted_to=promoted_to,
        last_seen_at=instant(last_seen_at),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
        lifecycle=_lifecycle(*ends) if any(ends) else NO_LIFECYCLE,
        links=Links(uids=tuple(uids)),
    )


def _lifecycle(*ends: int | None) -> Lifecycle:
    if not EARLIEST <= (ends[0] or 0) <= LAST:
        raise ValueError  # of a damaged end no other one may be made, later or none
    expires_at, pinned_at, review_at, confirmed_at = map(optional_instant, ends)
    return Lifecycle(
        expires_at=expires_at, pinned_at=pinned_at, review_at=review_at, confirmed_at=confirmed_at
    )


def _supersession(project: Project, newer: int, older: list[str]) -> Supersession:
    return Supersession(newer=MemoryId(newer), project=project, older=tuple(older))


_READ: dict[str, Callable[..., Row]] = {SESSION: _session, SUPERSESSION: _supersession}
