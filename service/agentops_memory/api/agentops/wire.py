"""Bodies in, nouns out for AgentOps REST. Pure: no storage, no clock, no request."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agentops_memory_client.contract import models as c

from ...domain.errors import InvalidFields
from ...domain.lifecycle.receipts import Receipt
from ...domain.model.memory import (
    Change,
    Draft,
    Entered,
    Imported,
    Memory,
    Revision,
    Saved,
    Session,
    SessionId,
    Text,
)
from ...domain.model.space import PROJECT_SCOPE, Project, Space, project_name
from ...domain.model.totals import Extent, Totals
from ...domain.text.instants import rendered
from ...domain.text.normalization import clean
from ...domain.text.summary import Message
from ...domain.transfer.decisions import Fate
from ...domain.transfer.dry_run import CONFLICTS, Conflict, ImportPlan
from . import answers as a
from . import models as m

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedObservation(c.Observation):
    """A memory with the id by which an import knows it again."""

    uid: str


def body(model: type[Model], given: object, place: str = "") -> Model:
    """The body as the model has it; Invalid names every fault. `null` is absent."""
    if not isinstance(given, Mapping):
        raise InvalidFields(f"validation failed: {place or 'the body'} must be an object")
    try:
        return model.model_validate(_cleaned(given))
    except ValidationError as error:
        faults = [_fault(fault, place) for fault in error.errors(include_url=False)]
        raise InvalidFields(f"validation failed: {'; '.join(faults)}") from None


def draft(given: m.ObservationBody) -> Draft:
    return Draft(
        session=SessionId(given.session_id),
        space=Space(project=project_name(given.project), scope=given.scope or PROJECT_SCOPE),
        text=text(given),
        key=given.topic_key or None,
    )


def change(given: m.ChangeBody) -> Change:
    tags = None if given.tags is None else tuple(given.tags)
    return Change(type=given.type, title=given.title, content=given.content, tags=tags)


def text(given: m.ObservationBody) -> Text:
    tags = tuple(given.tags or ())
    return Text(type=given.type, title=given.title, content=given.content, tags=tags)


def messages(given: Mapping[str, object]) -> Iterator[Message]:
    """The messages in a body, which must have some or an empty list of them."""
    body(m.Messages, given)
    every = given["messages"]
    assert isinstance(every, list)  # else it was refused
    for place, each in enumerate(every):
        yield message(each, place)


def message(given: object, place: int) -> Message:
    told = body(m.MessageBody, {} if given is None else given, f"messages[{place}]")
    return Message(role=told.role or "", content=told.content or "")


def session_opened(opened: Entered) -> c.Session:
    """A session as it began, whatever became of it."""
    return c.Session(
        id=opened.session.id,
        project=opened.session.project,
        started_at=_seconds(opened.session.started_at),
        message_count=opened.session.message_count,
        redacted=opened.redacted,
    )


def session(of: Session) -> c.Session:
    return c.Session(
        id=of.id,
        project=of.project,
        started_at=_seconds(of.started_at),
        message_count=of.message_count,
        ended_at=None if of.ended_at is None else _seconds(of.ended_at),
        summary=of.summary or None,
    )


def session_ended(ended: Entered) -> c.SessionEnd:
    return c.SessionEnd(
        session_id=ended.session.id,
        summary=ended.session.summary,
        message_count=ended.session.message_count,
        redacted=ended.redacted,
    )


def saved(outcome: Saved) -> c.Saved:
    return c.Saved(
        id=outcome.memory.id,
        action=outcome.action.value,
        revision_count=outcome.memory.revision,
        duplicate_count=outcome.memory.duplicates,
        redacted=outcome.redacted,
    )


def observation(memory: Memory, *, redacted: int = 0) -> c.Observation:
    return c.Observation(**_columns(memory), redacted=redacted)


def exported(memory: Memory) -> ExportedObservation:
    return ExportedObservation(**_columns(memory), uid=memory.uid)


def erasure(receipt: Receipt) -> a.ErasureReceipt:
    of = receipt.erasure
    return a.ErasureReceipt(
        id=of.id,
        kind=of.kind.value,
        project=of.project,
        observation_ids=list(of.memories),
        observations=of.observations,
        revisions=of.revisions,
        sessions=of.sessions,
        erased_at=rendered(of.erased_at),
        bytes_gone_at=None if of.bytes_gone_at is None else rendered(of.bytes_gone_at),
        goes_on=of.goes_on or None,
        copies_not_reached=list(receipt.copies_not_reached),
    )


def erasure_plan(project: Project, extent: Extent) -> a.ErasurePlan:
    return a.ErasurePlan(
        project=project,
        observations=extent.memories,
        deleted=extent.deleted,
        revisions=extent.revisions,
        sessions=extent.sessions - extent.shared_sessions,
        sessions_kept=extent.shared_sessions,
    )


def revision(of: Revision) -> c.Revision:
    at = _seconds(of.at)
    if of.text is None:
        return c.Revision(revision=of.number, action=of.deed.value, created_at=at)
    return c.Revision(
        revision=of.number,
        action=of.deed.value,
        created_at=at,
        type=of.text.type,
        title=of.text.title,
        content=of.text.content,
        tags=of.text.tags,
    )


def timeline_entry(memory: Memory) -> c.TimelineEntry:
    return c.TimelineEntry(
        id=memory.id,
        type=memory.text.type,
        title=memory.text.title,
        content=memory.text.content,
        created_at=_seconds(memory.created_at),
    )


def stats(totals: Totals) -> c.Stats:
    return c.Stats(
        total_sessions=totals.sessions,
        total_observations=totals.memories,
        projects=totals.projects,
    )


def imported(counts: Imported) -> c.Imported:
    return c.Imported(
        imported_sessions=counts.sessions,
        imported_observations=counts.memories,
        goes_on=counts.goes_on or None,
        redacted=counts.redacted,
    )


def import_plan(plan: ImportPlan) -> c.ImportPlan:
    memories = plan.memories
    return c.ImportPlan(
        new_sessions=plan.sessions[Fate.NEW],
        same_sessions=plan.sessions[Fate.SAME],
        conflicting_sessions=plan.sessions[Fate.CHANGED],
        new_observations=memories[Fate.NEW],
        restored_observations=memories[Fate.RESTORED],
        same_observations=memories[Fate.SAME] + memories[Fate.RECORDED],
        conflicting_observations=sum(memories[fate] for fate in CONFLICTS),
        conflicts=tuple(map(_import_conflict, plan.conflicts)),
    )


def _import_conflict(conflict: Conflict) -> c.ImportConflict:
    return c.ImportConflict(
        place=conflict.place,
        id=conflict.meets,
        reason="changed" if conflict.fate is Fate.CHANGED else "topic_key",
        kept="imported" if conflict.fate is Fate.LATER else "stored",
        project=conflict.project,
        title=conflict.title,
    )


def _columns(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "session_id": memory.session,
        "type": memory.text.type,
        "title": memory.text.title,
        "content": memory.text.content,
        "tags": memory.text.tags,
        "project": memory.space.project,
        "scope": memory.space.scope,
        "topic_key": memory.key,
        "normalized_hash": memory.content_hash,
        "revision_count": memory.revision,
        "duplicate_count": memory.duplicates,
        "last_seen_at": _seconds(memory.last_seen_at),
        "promoted_to": memory.promoted_to,
        "created_at": _seconds(memory.created_at),
        "updated_at": _seconds(memory.updated_at),
    }


def _seconds(at: datetime) -> datetime:
    """The instant as it is shown: in whole seconds."""
    return at.replace(microsecond=0)


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
