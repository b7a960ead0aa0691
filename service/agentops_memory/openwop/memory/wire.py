"""OpenWOP's JSON for what the domain knows. Pure: no storage, no clock, no request."""

from datetime import datetime, timedelta
from typing import Any

from ...errors import AnswerLost, BadFields, Conflict, Denied, KeyReused, Refusal, TooMany
from ...http.paging import instant
from ...memory.model.memory import NO_CHANGE, LifecycleChange
from ...memory.model.space import MemoryRef
from ..model.entries import Origin, Provenance, RefDraft, RefEntry, RefEntryId, RefExtent
from ..model.runs import RunId
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


def draft(given: b.RefEntryBody) -> RefDraft:
    lifecycle = NO_CHANGE
    if given.ttl_seconds is not None:
        lifecycle = LifecycleChange(ttl=timedelta(seconds=given.ttl_seconds))
    elif given.expires_at is not None:
        lifecycle = LifecycleChange(expires_at=instant(given.expires_at))
    run = None if given.run_id is None else RunId(given.run_id)
    return RefDraft(
        ref=MemoryRef(given.memory_ref),
        content=given.content,
        tags=tuple(given.tags),
        id=None if given.id is None else RefEntryId(given.id),
        lifecycle=lifecycle,
        supersedes=tuple(map(RefEntryId, given.supersedes)),
        origin=Origin(run=run, node=given.node_id, agent=given.agent_id),
    )


def entry(of: RefEntry) -> JsonObject:
    shown: JsonObject = {
        "id": of.id,
        "content": of.content,
        "tags": list(of.tags),
        "createdAt": rendered(of.created_at),
    }
    return shown if of.expires_at is None else shown | {"expiresAt": rendered(of.expires_at)}


def provenance(of: Provenance, ref: MemoryRef) -> JsonObject:
    origin = {"runId": of.origin.run, "nodeId": of.origin.node, "agentId": of.origin.agent}
    return present({
        "memoryRef": ref,
        "memoryId": of.id,
        "writtenBy": present(origin),
        "method": of.origin.method.value,
        "derivedFrom": list(of.derived_from),
        "supersededBy": list(of.superseded_by) or None,
        "seen": of.seen,
        "lastSeenAt": rendered(of.last_seen_at),
    })  # fmt: skip


def extent(of: RefExtent) -> JsonObject:
    return {"memoryRef": of.ref, "entries": of.entries, "bytes": of.size}


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
