"""JSON in, JSON out for AgentOps REST. Pure: no storage, no clock, no request."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import BinaryIO, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError

from ...domain.errors import Invalid, InvalidFields
from ...domain.instants import parsed, rendered
from ...domain.model import (
    PROJECT_SCOPE,
    Change,
    Draft,
    Hit,
    Imported,
    Memory,
    Revision,
    Saved,
    Session,
    SessionId,
    Space,
    Text,
    Totals,
)
from ...domain.summary import Message
from ...domain.text import clean, cut, project_name
from ..documents import entries
from . import models as m

SHOWN = 300  # code points of a content in a context

Model = TypeVar("Model", bound=BaseModel)


def body(model: type[Model], given: object, place: str = "") -> Model:
    """The body as the model has it; Invalid names every fault. `null` is absent."""
    if not isinstance(given, Mapping):
        raise InvalidFields(f"validation failed: {place or 'the body'} must be an object")
    try:
        return model.model_validate(_cleaned(given))
    except ValidationError as error:
        faults = [_fault(fault, place) for fault in error.errors(include_url=False)]
        raise InvalidFields(f"validation failed: {'; '.join(faults)}") from error


def draft(given: m.ObservationBody) -> Draft:
    return Draft(
        session=SessionId(given.session_id),
        space=Space(project=project_name(given.project), scope=given.scope or PROJECT_SCOPE),
        text=_text(given),
        key=given.topic_key or None,
    )


def change(given: m.ChangeBody) -> Change:
    tags = None if given.tags is None else tuple(given.tags)
    return Change(type=given.type, title=given.title, content=given.content, tags=tags)


def messages(file: BinaryIO) -> Iterator[Message]:
    """The messages of a transcript, one at a time."""
    for _, place, given in entries(file, ("messages",)):
        message = body(m.MessageBody, {} if given is None else given, f"messages[{place}]")
        yield Message(role=message.role or "", content=message.content or "")


class Document:
    """An import in a file, read anew each time it is asked for."""

    def __init__(self, file: BinaryIO, now: datetime) -> None:
        self._file = file
        self._now = now

    def check(self) -> None:
        """Read it whole; Invalid names the first row that is wrong by its place."""
        for name, place, given in entries(self._file, _ROWS):
            _ROWS[name](given, f"{name}[{place}]", self._now)

    def sessions(self) -> Iterator[Session]:
        for _, place, given in entries(self._file, ("sessions",)):
            yield imported_session(given, f"sessions[{place}]", self._now)

    def memories(self) -> Iterator[Memory]:
        for _, place, given in entries(self._file, ("observations",)):
            yield imported_memory(given, f"observations[{place}]", self._now)


def imported_session(given: object, place: str, now: datetime) -> Session:
    row = body(m.ImportedSession, given, place)
    return Session(
        id=SessionId(row.id),
        project=project_name(row.project),
        started_at=_instant(row.started_at, f"{place}.started_at") or now,
        ended_at=_instant(row.ended_at, f"{place}.ended_at"),
        summary=row.summary or "",
        message_count=row.message_count or 0,
    )


def imported_memory(given: object, place: str, now: datetime) -> Memory:
    row = body(m.ImportedObservation, given, place)
    created = _instant(row.created_at, f"{place}.created_at") or now
    updated = _instant(row.updated_at, f"{place}.updated_at") or created
    return Memory(
        uid=_uid(row.uid, place),
        session=SessionId(row.session_id),
        space=Space(project=project_name(row.project), scope=row.scope or PROJECT_SCOPE),
        key=row.topic_key or None,
        text=_text(row),
        revision=row.revision_count or 1,
        duplicates=row.duplicate_count or 1,
        last_seen_at=_instant(row.last_seen_at, f"{place}.last_seen_at") or updated,
        promoted_to=row.promoted_to or None,
        created_at=created,
        updated_at=updated,
    )


_ROWS = {"sessions": imported_session, "observations": imported_memory}


def session_opened(session: Session) -> m.SessionOpened:
    return m.SessionOpened(
        id=session.id,
        project=session.project,
        started_at=rendered(session.started_at),
        message_count=session.message_count,
    )


def session_row(session: Session) -> m.SessionRow:
    return m.SessionRow(
        id=session.id,
        project=session.project,
        started_at=rendered(session.started_at),
        message_count=session.message_count,
        ended_at=None if session.ended_at is None else rendered(session.ended_at),
        summary=session.summary or None,
    )


def session_ended(session: Session) -> m.SessionEnded:
    return m.SessionEnded(
        session_id=session.id, summary=session.summary, message_count=session.message_count
    )


def saved(outcome: Saved) -> m.ObservationSaved:
    return m.ObservationSaved(
        id=outcome.memory.id,
        action=outcome.action.value,
        revision_count=outcome.memory.revision,
        duplicate_count=outcome.memory.duplicates,
    )


def observation(memory: Memory) -> m.Observation:
    return m.Observation.model_validate(_columns(memory))


def exported(memory: Memory) -> m.ExportedObservation:
    return m.ExportedObservation.model_validate(_columns(memory) | {"uid": memory.uid})


def revision(of: Revision) -> m.RevisionRow:
    row = m.RevisionRow(revision=of.number, action=of.deed.value, created_at=rendered(of.at))
    if of.text is None:
        return row
    return row.model_copy(
        update={
            "type": of.text.type,
            "title": of.text.title,
            "content": of.text.content,
            "tags": list(of.text.tags) or None,
        }
    )


def search_hit(hit: Hit) -> m.SearchHit:
    return m.SearchHit(
        id=hit.memory.id,
        type=hit.memory.text.type,
        title=hit.memory.text.title,
        content=hit.memory.text.content,
        rank=hit.rank,
        topic_key=hit.memory.key,
    )


def context_summary(summary: str) -> m.SummaryLine:
    return m.SummaryLine(summary=summary)


def context_line(hit: Hit) -> m.ObservationLine:
    text = hit.memory.text
    return m.ObservationLine(type=text.type, title=text.title, content=cut(text.content, SHOWN))


def timeline_entry(memory: Memory) -> m.TimelineEntry:
    return m.TimelineEntry(
        id=memory.id,
        type=memory.text.type,
        title=memory.text.title,
        content=memory.text.content,
        created_at=rendered(memory.created_at),
    )


def stats(totals: Totals) -> m.Stats:
    return m.Stats(
        total_sessions=totals.sessions,
        total_observations=totals.memories,
        projects=list(totals.projects),
    )


def imported(counts: Imported) -> m.ImportAnswer:
    return m.ImportAnswer(imported_sessions=counts.sessions, imported_observations=counts.memories)


def json_bytes(model: BaseModel) -> bytes:
    """A model as JSON; parts without a value are absent."""
    return model.model_dump_json(exclude_none=True).encode()


def json_array(items: Iterable[bytes]) -> bytes:
    """A JSON array of rendered items."""
    return b"[" + b",".join(items) + b"]"


def _columns(memory: Memory) -> dict[str, object]:
    return {
        "id": memory.id,
        "session_id": memory.session,
        "type": memory.text.type,
        "title": memory.text.title,
        "content": memory.text.content,
        "tags": list(memory.text.tags) or None,
        "project": memory.space.project,
        "scope": memory.space.scope,
        "topic_key": memory.key,
        "normalized_hash": memory.content_hash,
        "revision_count": memory.revision,
        "duplicate_count": memory.duplicates,
        "last_seen_at": rendered(memory.last_seen_at),
        "promoted_to": memory.promoted_to,
        "created_at": rendered(memory.created_at),
        "updated_at": rendered(memory.updated_at),
    }


def _text(given: m.ObservationBody) -> Text:
    tags = tuple(given.tags or ())
    return Text(type=given.type, title=given.title, content=given.content, tags=tags)


def _instant(text: str | None, name: str) -> datetime | None:
    if not text:
        return None
    at = parsed(text)
    if at is None:
        raise InvalidFields(f"validation failed: {name} is no RFC 3339 time")
    return at


def _uid(text: str | None, place: str) -> str:
    try:
        return str(UUID(text)) if text else ""
    except ValueError as error:
        raise Invalid(f"validation failed: {place}.uid is no UUID") from error


def _cleaned(given: Mapping[str, object]) -> dict[str, object]:
    return {name: _value(value) for name, value in given.items() if value is not None}


def _value(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_value(item) for item in value if item is not None]
    return value


_FAULTS = {
    "missing": "{name} is required",
    "string_too_short": "{name} is required",
    "string_pattern_mismatch": "{name} is required",
    "string_too_long": "{name} exceeds {max_length} chars",
    "string_type": "{name} must be a string",
    "too_long": "{name} exceed {max_length} items",
    "list_type": "{name} must be a list",
    "int_type": "{name} must be a whole number",
    "greater_than_equal": "{name} must be {ge} or more",
    "less_than_equal": "{name} must be {le} or less",
}


def _fault(fault: Mapping[str, object], place: str) -> str:
    """One fault of a body as a phrase."""
    location = fault["loc"]
    assert isinstance(location, tuple)
    name = place
    for step in location:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else str(step)
    context = fault.get("ctx")
    details = context if isinstance(context, dict) else {}
    phrase = _FAULTS.get(str(fault["type"]), "{name} is not valid: {msg}")
    return phrase.format(name=name, msg=fault["msg"], **details)
