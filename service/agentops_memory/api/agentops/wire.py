"""JSON in, JSON out for AgentOps REST. Pure: no storage, no clock, no request."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ...domain.errors import InvalidFields
from ...domain.lifecycle.receipts import Receipt
from ...domain.model.memory import (
    Change,
    Draft,
    Imported,
    Memory,
    Revision,
    Saved,
    Session,
    SessionId,
    Text,
)
from ...domain.model.search import Hit
from ...domain.model.space import PROJECT_SCOPE, Project, Space, project_name
from ...domain.model.totals import Extent, Totals
from ...domain.text.instants import rendered
from ...domain.text.normalization import clean, cut
from ...domain.transfer.decisions import Fate
from ...domain.transfer.dry_run import CONFLICTS, Conflict, ImportPlan
from . import models as m
from . import transfer_models as t
from .explain_models import ItemExplanation

Model = TypeVar("Model", bound=BaseModel)


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


def exported(memory: Memory) -> t.ExportedObservation:
    return t.ExportedObservation.model_validate(_columns(memory) | {"uid": memory.uid})


def erasure(receipt: Receipt) -> m.ErasureReceipt:
    of = receipt.erasure
    return m.ErasureReceipt(
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


def erasure_plan(project: Project, extent: Extent) -> m.ErasurePlan:
    return m.ErasurePlan(
        project=project,
        observations=extent.memories,
        deleted=extent.deleted,
        revisions=extent.revisions,
        sessions=extent.sessions - extent.shared_sessions,
        sessions_kept=extent.shared_sessions,
    )


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


def search_hit(hit: Hit, explain: ItemExplanation | None = None) -> m.SearchHit:
    return m.SearchHit(
        id=hit.memory.id,
        type=hit.memory.text.type,
        title=hit.memory.text.title,
        content=hit.memory.text.content,
        rank=hit.rank,
        topic_key=hit.memory.key,
        explain=explain,
    )


def context_summary(summary: str) -> m.SummaryLine:
    return m.SummaryLine(summary=summary)


def context_line(
    hit: Hit, content_chars: int, explain: ItemExplanation | None = None
) -> m.ObservationLine:
    text = hit.memory.text
    content = cut(text.content, content_chars)
    return m.ObservationLine(type=text.type, title=text.title, content=content, explain=explain)


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


def imported(counts: Imported) -> t.ImportAnswer:
    return t.ImportAnswer(
        imported_sessions=counts.sessions,
        imported_observations=counts.memories,
        goes_on=counts.goes_on or None,
    )


def import_plan(plan: ImportPlan) -> t.ImportPlan:
    memories = plan.memories
    return t.ImportPlan(
        new_sessions=plan.sessions[Fate.NEW],
        same_sessions=plan.sessions[Fate.SAME],
        conflicting_sessions=plan.sessions[Fate.CHANGED],
        new_observations=memories[Fate.NEW],
        restored_observations=memories[Fate.RESTORED],
        same_observations=memories[Fate.SAME] + memories[Fate.RECORDED],
        conflicting_observations=sum(memories[fate] for fate in CONFLICTS),
        conflicts=list(map(_import_conflict, plan.conflicts)),
    )


def _import_conflict(conflict: Conflict) -> t.ImportConflict:
    return t.ImportConflict(
        place=conflict.place,
        id=conflict.meets,
        reason="changed" if conflict.fate is Fate.CHANGED else "topic_key",
        kept="imported" if conflict.fate is Fate.LATER else "stored",
        project=conflict.project,
        title=conflict.title,
    )


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
