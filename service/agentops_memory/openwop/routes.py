"""The route table of OpenWOP's agent memory, its discovery document, and its error format."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from .. import errors
from ..errors import AnswerErased, AnswerLost, BadFields, Denied, KeyReused, Refusal
from ..http.bodies import JSON, REQUEST_ID, answered, request_id, written
from ..http.openapi import document
from ..http.protocol import REDACTED, Operation, Protocol, Refusals
from ..memory.access import Caller
from ..record import CamelRecord, shape
from ..telemetry import hide_too
from . import adapter, archives, commitments, consolidation, entries, host_runs, passes, proposals
from .api import BASE, LONGEST_BODY, MAX_CONTENT, MemoryChanged, Serving, mark_secrets
from .archives import MOST_COMPACTED, MOST_TOKENS, BudgetExceeded
from .commitments import ConditionKind
from .passes import Trigger
from .proposals import ACTIVATION, ArtifactInvalid, ArtifactKind
from .runs import SnapshotLost

JsonObject = dict[str, Any]

PREFIX = "/v1"
REPLAYED = "openwop-Idempotent-Replay"
REFUSALS = Refusals()

CODES = {  # by the code of a refusal; a code that is not listed is sent as it is
    "invalid_input": "validation_error", "denied": "forbidden", "no_path": "not_found",
    "no_method": "method_not_allowed", "too_slow": "request_timeout",
    "too_large": "payload_too_large", "constraint_violation": "memory_changed",
    "too_many": "rate_limited", "over_quota": "quota_exceeded", "failed": "internal_error",
    **dict.fromkeys(
        ("db_locked", "storage_full", "timed_out", "unavailable"), "service_unavailable"
    ),
}  # fmt: skip
PATH = "/.well-known/openwop"

# The discovery document, without the parts that depend on settings.
MEMORY: JsonObject = {
    "supported": True, "writable": True, "maxEntrySizeBytes": MAX_CONTENT, "ttlSupported": True,
    "search": {"supported": True, "modes": ["filter"]},
    "retention": {"ttl": True, "forget": True},
    "attribution": {"supported": True, "emitsWriteEvents": True},
    "compaction": {
        "supported": True, "trigger": Trigger.HOST_MANAGED.value,
        "maxInputEntries": MOST_COMPACTED, "maxOutputBytes": MAX_CONTENT,
    },
    "distillation": {
        "supported": True, "maxTokenBudget": MOST_TOKENS, "scheduled": False,
        "indexEmitted": False, "tokenizerName": "utf8-bytes-div-4",
    },
    "injectionBudget": {"supported": True, "tokenCounter": "chars"},
}  # fmt: skip
AGENTS: JsonObject = {
    "memoryBackends": ["long-term"],
    "memoryConsolidation": {"supported": True},
    "commitments": {"supported": True, "fireConditions": [*ConditionKind]},
    "proposals": {
        "artifactKinds": [*ArtifactKind], "duplicationDetection": True,
        "activation": "direct-rbac",
    },
}  # fmt: skip
LIMITS = {
    "clarificationRounds": 0, "schemaRounds": 0, "envelopesPerTurn": 0,
    "maxRequestBodyBytes": LONGEST_BODY,
}  # fmt: skip


def discovery(serving: Serving) -> JsonObject:
    """Return the discovery document, which is the same for all callers."""
    memory, schedule = MEMORY, Trigger.ON_DEMAND
    if serving.keep_archives:
        kept = TypeAdapter(timedelta).dump_python(serving.keep_archives, mode="json")
        memory = MEMORY | {"distillation": MEMORY["distillation"] | {"archiveRetention": kept}}
    if serving.is_consolidating:
        schedule = Trigger.HOST_MANAGED
    consolidation = AGENTS["memoryConsolidation"] | {"schedule": schedule}
    families = {"memory": memory, "agents": AGENTS | {"memoryConsolidation": consolidation}}
    return {
        "protocolVersion": "1.0", "supportedEnvelopes": [], "schemaVersions": {}, "limits": LIMITS,
        "implementation": {"name": "agentops-memory"}, "supportedTransports": ["rest"],
        **families, "capabilities": families,
        "agentops-memory": {
            "scope": "x-host-agentops-memory-query", "base": BASE, "activationScope": ACTIVATION,
        },
    }  # fmt: skip


Fault = shape("Fault", "An invalid field, and the problem with it.", field=str, problem=str)
ProblemDetails = shape(
    "ProblemDetails", "Details of an error; which fields it has depends on its code.", CamelRecord,
    {
        "correlation_id": str, "scope_required": str, "retry_after_ms": int, "scope": str,
        "from_seq": int, "source_run_id": str, "reason": str, "budget": int,
        "minimum_required": int,
    },
    fields=([Fault], []),
)  # fmt: skip
OpenWopProblem = shape(
    "OpenWopProblem", "An error response.",
    optional={"details": ProblemDetails}, error=str, message=str,
)  # fmt: skip
HostDiscovery = shape(
    "HostDiscovery", "The parts of OpenWOP that are served.", CamelRecord,
    {"fixtures": list[str]}, protocol_version=str, supported_envelopes=list[str],
    schema_versions=dict[str, int], limits=dict[str, int], implementation=dict[str, str],
    supported_transports=list[str], memory=JsonObject, agents=JsonObject, capabilities=JsonObject,
)  # fmt: skip
ProtocolDescription = shape(
    "ProtocolDescription", "The OpenAPI 3.1 description of this protocol.",
    openapi=str, info=JsonObject, tags=list[dict[str, str]], paths=JsonObject,
    components=JsonObject,
)  # fmt: skip


DETAILS: Mapping[type[Refusal], Callable[[Any], JsonObject]] = {
    BadFields: lambda it: {
        "fields": [{"field": name, "problem": problem} for name, problem in it.faults]
    },
    ArtifactInvalid: lambda it: {
        "fields": [
            {"field": f"artifact.{name}", "problem": "must be a non-empty string"}
            for name in it.missing
        ]
    },
    Denied: lambda it: {} if it.scope is None else {"scopeRequired": it.scope},
    errors.TooMany: lambda it: {"retryAfterMs": it.retry_after * 1000, "scope": it.scope},
    BudgetExceeded: lambda it: {"budget": it.budget, "minimumRequired": it.required},
    SnapshotLost: lambda it: {
        "fromSeq": it.from_sequence, "sourceRunId": it.source, "reason": it.reason
    },
}  # fmt: skip


def refused(refusal: Refusal, scope: Scope) -> Response:
    """Return the response to a refused request; its message has no sent or stored text."""
    # The protocol has no code for an answer that is lost or erased.
    known = MemoryChanged() if isinstance(refusal, AnswerLost | AnswerErased) else refusal
    is_reused, id_ = isinstance(refusal, KeyReused), request_id(scope)
    problem: JsonObject = {
        "error": "idempotency_key_mismatch" if is_reused else CODES.get(known.code, known.code),
        "message": "The request is not valid." if isinstance(known, BadFields) else str(known),
    }
    details = next((of(known) for kind, of in DETAILS.items() if isinstance(known, kind)), {})
    if REFUSALS.status(known.code) >= 500:
        details["correlationId"] = id_
    content = written(problem | {"details": details} if details else problem)
    return REFUSALS.response(known, content, {REQUEST_ID: id_})


NOUNS = (
    adapter, host_runs, archives, consolidation, passes, entries, commitments, proposals,
)  # fmt: skip
OpenWopOperations = Callable[[Serving], Sequence[Operation]]


def operations(
    serving: Serving,
    more: Sequence[Operation] = (),
    served: Callable[[Serving], JsonObject] = discovery,
) -> Sequence[Operation]:
    """Return all operations of the protocol, and `more`, which are described with them."""
    described = list[Operation]()

    @cache
    def description() -> JsonObject:
        return document([(PROTOCOL, described)], title=PROTOCOL.title, version="1.0")

    async def discover(request: Request) -> Response:
        content, known = written(served(serving)), request.headers.get("if-none-match", "")
        tag = f'"{sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "public, max-age=300"}
        tags = (it.strip().removeprefix("W/") for it in known.split(","))
        if known.strip() == "*" or tag in tags:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=JSON)

    async def describe(_: Request) -> Response:
        return answered(await asyncio.to_thread(description))

    described += [
        Operation(
            method="GET", path=PATH, name="openwop_discover",
            summary="The parts of OpenWOP that are served.",
            handler=discover, answer=HostDiscovery,
            headers={"ETag": "The document's version."},
        ),
        *(operation for noun in NOUNS for operation in noun.operations(serving)),
        *more,
        Operation(
            method="GET", path=f"{PREFIX}/openapi.json", name="openwop_openapi",
            summary="The OpenAPI 3.1 description of this protocol.",
            handler=describe, answer=ProtocolDescription,
        ),
    ]  # fmt: skip
    return described


def require(_: Request, caller: Caller) -> None:
    """Require access to refs; from then on, telemetry of the request hides OpenWOP's secrets."""
    hide_too(lambda text: mark_secrets(text)[0])
    caller.require_refs()


PROTOCOL = Protocol(
    title="OpenWOP agent memory",
    summary="Memory of hosts that run workflows of agents: refs, runs, events.", prefix=PREFIX,
    refusals=REFUSALS, refused=refused, problem=OpenWopProblem, replayed=REPLAYED,
    sent=("If-None-Match", "OpenWOP-Version"), read=(REDACTED, "ETag", REPLAYED),
    require=require, is_closed=True,
)  # fmt: skip
