"""OpenWOP's JSON for what the domain knows. Pure: no storage, no clock, no request."""

from datetime import datetime
from typing import Any

from ...errors import AnswerLost, BadFields, Conflict, Denied, KeyReused, Refusal, TooMany
from ...http.ids import EVENT, public_id
from ..model.runs import Run, RunDraft, RunEvent, RunId
from ..rules.passes.rules import BudgetExceeded
from ..rules.proposals.rules import ArtifactInvalid
from ..rules.rules import MemoryChanged
from ..rules.run_rules import SnapshotLost
from . import bodies as b

JsonObject = dict[str, Any]

INVALID, UNAVAILABLE, FAILED = "validation_error", "service_unavailable", "internal_error"
CODES = {  # by that of a refusal; those of the protocol's own refusals are theirs
    "invalid_input": INVALID,
    "denied": "forbidden",
    "no_path": "not_found",
    "no_method": "method_not_allowed",
    "too_slow": "request_timeout",
    "too_large": "payload_too_large",
    "constraint_violation": "memory_changed",
    "too_many": "rate_limited",
    "over_quota": "quota_exceeded",
    "db_locked": UNAVAILABLE,
    "storage_full": UNAVAILABLE,
    "timed_out": UNAVAILABLE,
    "unavailable": UNAVAILABLE,
    "failed": FAILED,
}
FIELDS_AT_FAULT = "The request is not valid."


def run_draft(given: b.RunBody) -> RunDraft:
    return RunDraft(
        id=None if given.run_id is None else RunId(given.run_id),
        agent=given.agent_id,
        workflow=given.workflow_id,
        refs=tuple(given.memory_refs),
    )


def opened(of: Run) -> JsonObject:
    return {"runId": of.id, "status": of.status.value, "startedAt": rendered(of.started_at)}


def run(of: Run) -> JsonObject:
    return opened(of) | present({
        "endedAt": None if of.ended_at is None else rendered(of.ended_at),
        "agentId": of.agent,
        "workflowId": of.workflow,
        "kind": of.kind.value,
        "sourceRunId": of.source,
    })  # fmt: skip


def forked(of: Run, mode: str) -> JsonObject:
    return {
        "runId": of.id,
        "sourceRunId": of.source,
        "fromSeq": of.from_sequence,
        "mode": mode,
        "status": of.status.value,
    }


def event(of: RunEvent) -> JsonObject:
    return present({
        "eventId": public_id(EVENT, of.uid),
        "runId": of.run,
        "type": of.type.value,
        "payload": dict(of.payload),
        "timestamp": rendered(of.at),
        "sequence": of.sequence,
        "nodeId": of.node,
    })  # fmt: skip


class KeyMismatch(Conflict):
    """Another request was done under the idempotency key."""

    code = "idempotency_key_mismatch"


def known(refusal: Refusal) -> Refusal:
    """The refusal as this protocol knows it, which has no name for a conflict of any kind."""
    if isinstance(refusal, KeyReused):
        return KeyMismatch(str(refusal))
    return MemoryChanged() if isinstance(refusal, AnswerLost) else refusal


def problem(refusal: Refusal, status: int, request_id: str) -> JsonObject:
    """A refusal: its sentence holds nothing that was sent or stored."""
    is_fields = isinstance(refusal, BadFields)
    shown: JsonObject = {
        "error": CODES.get(refusal.code, refusal.code),
        "message": FIELDS_AT_FAULT if is_fields else str(refusal),
    }
    details = _details(refusal, status, request_id)
    return shown | {"details": details} if details else shown


def rendered(at: datetime) -> str:
    """The instant in RFC 3339, in UTC, in whole milliseconds."""
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _details(refusal: Refusal, status: int, request_id: str) -> JsonObject:
    details: JsonObject = {}
    if isinstance(refusal, BadFields):
        details["fields"] = [{"field": name, "problem": said} for name, said in refusal.faults]
    if isinstance(refusal, ArtifactInvalid):
        lacks = "must be text that is not empty"
        details["fields"] = [
            {"field": f"artifact.{name}", "problem": lacks} for name in refusal.missing
        ]
    if isinstance(refusal, Denied) and refusal.scope is not None:
        details["scopeRequired"] = refusal.scope
    if isinstance(refusal, TooMany):
        details |= {"retryAfterMs": refusal.retry_after * 1000, "scope": refusal.scope}
    if isinstance(refusal, BudgetExceeded):
        details |= {"budget": refusal.budget, "minimumRequired": refusal.required}
    if isinstance(refusal, SnapshotLost):
        details |= {
            "fromSeq": refusal.from_sequence,
            "sourceRunId": refusal.source,
            "reason": refusal.reason,
        }
    if status >= 500:
        details["correlationId"] = request_id
    return details


def present(members: JsonObject) -> JsonObject:
    """The members that have a value: what has none is absent."""
    return {name: value for name, value in members.items() if value is not None}
