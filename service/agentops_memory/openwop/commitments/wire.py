"""JSON of commitments. Pure."""

from ...http.paging import instant
from ...memory.model.space import MemoryRef
from ..memory.wire import JsonObject, rendered
from ..model.commitments import Commitment, CommitmentDraft, Condition
from ..model.entries import RefEntryId
from .bodies import CommitmentBody


def draft(given: CommitmentBody) -> CommitmentDraft:
    due_at = None if given.due_at is None else instant(given.due_at)
    return CommitmentDraft(
        ref=MemoryRef(given.memory_ref),
        entry=RefEntryId(given.memory_id),
        condition=Condition(due_at=due_at, tag=given.tag),
    )


def commitment(of: Commitment) -> JsonObject:
    due_at, fired_at = of.condition.due_at, of.fired_at
    shown = {
        "id": of.id,
        "memoryRef": of.ref,
        "memoryId": of.entry,
        "condition": of.condition.kind.value,
        "dueAt": None if due_at is None else rendered(due_at),
        "tag": of.condition.tag,
        "state": of.state.value,
        "createdAt": rendered(of.created_at),
        "firedAt": None if fired_at is None else rendered(fired_at),
    }
    return {name: value for name, value in shown.items() if value is not None}
