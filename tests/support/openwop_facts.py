"""What published schemas of OpenWOP, version 1, say of answers, as far as this service gives them.

Entries, events with their payloads, proposals, runs, refusals and the discovery are the protocol's;
what is around them is this service's own.
"""

from typing import Any

from .openwop_hosts import DISCOVERY, H

Json = dict[str, Any]
Route = tuple[str, str]


def closed(required: Json, **optional: Json) -> Json:
    """An object with these members, and perhaps those, and no others."""
    return {
        "type": "object", "required": [*required], "properties": {**required, **optional},
        "additionalProperties": False,
    }  # fmt: skip


def listed(name: str, item: Json, **beside: Json) -> Json:
    """A page of items."""
    return closed({name: of(item), **beside}, next=TEXT)


def of(item: Json) -> Json:
    return {"type": "array", "items": item}


def one_of(*values: object) -> Json:
    return {"enum": [*values]}


TEXT = {"type": "string", "minLength": 1}
NAME = {**TEXT, "maxLength": 128}
COUNT = {"type": "integer", "minimum": 0}
POSITIVE = {"type": "integer", "minimum": 1}
FLAG = {"type": "boolean"}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$"}
SHA256 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
OBJECT = {"type": "object"}
EMPTY = closed({})

PROBLEM = closed({"error": TEXT, "message": TEXT}, details=OBJECT)
FAULT = closed({"code": TEXT, "message": TEXT}, details=OBJECT)

ENTRY = closed(
    {
        "id": {**TEXT, "maxLength": 1500}, "content": {"type": "string"},
        "tags": of({"type": "string", "maxLength": 256}), "createdAt": TIME,
    },
    expiresAt=TIME,
)  # fmt: skip

KINDS = one_of("agent-pack", "workflow-chain-pack", "prompt-template", "automation")
CONDITION = one_of("time", "predicate")
COMPACTED = closed(
    {
        "memoryRef": TEXT, "outputId": TEXT, "sourceCount": POSITIVE, "byteSize": COUNT,
        "trigger": one_of("host-managed", "client-requested", "both"),
    },
    sourceIds=of(TEXT),
    distillation=closed({"tokenBudget": POSITIVE, "tokensUsed": COUNT}, indexUpdated=FLAG),
)  # fmt: skip
CONSOLIDATED = closed(
    {
        "memoryRef": TEXT, "inputCount": COUNT, "outputCount": COUNT,
        "trigger": one_of("host-managed", "scheduled", "on-demand"),
    },
    mergedIds=of(TEXT),
)  # fmt: skip
PAYLOADS: dict[str, Json] = {
    "run.started": closed({"workflowId": TEXT}),
    "run.completed": EMPTY,
    "run.failed": closed({"error": FAULT}),
    "run.cancelled": EMPTY,
    "memory.written": closed(
        {"memoryRef": TEXT, "memoryId": TEXT, "tags": of(TEXT)}, nodeId=TEXT, agentId=TEXT
    ),
    "memory.compacted": COMPACTED,
    "agent.memory.consolidated": CONSOLIDATED,
    "commitment.fired": closed(
        {"commitmentId": TEXT, "memoryRef": TEXT, "condition": CONDITION}, memoryId=TEXT
    ),
    "proposal.created": closed(
        {"proposalId": TEXT, "kind": KINDS, "sourceRunIds": of(TEXT)},
        duplicateOf={"type": ["string", "null"]},
    ),
    "proposal.activated": closed({"proposalId": TEXT, "kind": KINDS, "installedArtifactRef": TEXT}),
    # Ours, by the rule of names for what a host adds.
    "agentops-memory.memory.deleted": closed({"memoryRef": TEXT, "memoryId": TEXT}),
    "agentops-memory.memory.forgotten": closed({"erasureId": TEXT, "entries": COUNT}),
    "agentops-memory.pass.undone": closed({"runId": NAME}),
}
EVENT = {
    **closed(
        {
            "eventId": NAME, "runId": NAME, "type": one_of(*PAYLOADS), "payload": OBJECT,
            "timestamp": TIME, "sequence": COUNT,
        },
        nodeId=NAME,
    ),
    "allOf": [
        {
            "if": {"properties": {"type": {"const": type_}}},
            "then": {"properties": {"payload": payload}},
        }
        for type_, payload in PAYLOADS.items()
    ],
}  # fmt: skip

STATUS = one_of("running", "completed", "failed", "cancelled")
RUN = closed(
    {
        "runId": NAME, "status": STATUS, "startedAt": TIME,
        "kind": one_of("host", "pass", "replay", "branch"),
    },
    endedAt=TIME, agentId=TEXT, workflowId=TEXT, sourceRunId=NAME,
)  # fmt: skip
SNAPSHOT = {  # of a run, which a suite reads; it may have more
    "type": "object",
    "required": ["runId", "workflowId", "status", "eventLogSchemaVersion"],
    "properties": {
        "runId": NAME, "workflowId": TEXT, "status": STATUS, "startedAt": TIME,
        "completedAt": TIME, "endedAt": TIME, "variables": OBJECT, "error": FAULT,
        "eventLogSchemaVersion": {"const": 2},
    },
    "if": {"properties": {"status": {"const": "running"}}},
    "then": {"not": {"required": ["completedAt"]}},
    "else": {"required": ["completedAt", "endedAt"]},
}  # fmt: skip
FORKED = {
    "runId": NAME, "sourceRunId": NAME, "fromSeq": COUNT, "mode": one_of("replay", "branch"),
    "status": STATUS,
}  # fmt: skip
EVENTS = closed({"events": of(EVENT), "isComplete": FLAG})

PROPOSAL = closed(
    {
        "id": TEXT, "kind": KINDS, "artifact": OBJECT, "createdAt": TIME,
        "state": one_of("draft", "revised", "applied", "rejected", "archived"),
        "provenance": closed({"sourceRunIds": of(TEXT)}, synthesizerModel=TEXT),
        "owner": closed({"tenant": TEXT}, workspace=TEXT, principal=TEXT),
    },
    title={"type": "string"},
    rationale={"type": "string"},
    duplicateOf={"type": ["string", "null"]},
    activation=closed({"installedArtifactRef": TEXT}),
    updatedAt=TIME,
)  # fmt: skip
COMMITMENT = closed(
    {
        "id": TEXT, "memoryRef": TEXT, "memoryId": TEXT, "condition": CONDITION,
        "state": one_of("armed", "fired", "cancelled"), "createdAt": TIME,
    },
    dueAt=TIME, tag=TEXT, firedAt=TIME,
)  # fmt: skip

CAPABILITIES: Json = {  # whose members a test of the discovery tells one by one
    "type": "object",
    "required": ["protocolVersion", "supportedEnvelopes", "schemaVersions", "limits"],
}

_ENTRIES = listed("entries", ENTRY, memoryRef=TEXT)
_ONE = closed({"memoryRef": TEXT, "entry": ENTRY})
_DELETED = closed({"memoryRef": TEXT, "memoryId": TEXT, "removed": {"const": True}})
_PASS = {"runId": NAME, "event": {
    "anyOf": [
        closed({"type": {"const": "memory.compacted"}, "payload": COMPACTED}),
        closed({"type": {"const": "agent.memory.consolidated"}, "payload": CONSOLIDATED}),
    ]
}}  # fmt: skip
_INDEXED = closed({
    "memoryRef": TEXT, "memoryId": TEXT, "archiveChecksum": SHA256, "entryCount": COUNT,
    "from": TIME, "to": TIME, "createdAt": TIME,
})  # fmt: skip
_PROPOSALS: dict[Route, Json] = {
    ("POST", "/proposals"): PROPOSAL, ("GET", "/proposals"): listed("proposals", PROPOSAL),
    ("GET", "/proposals/{proposalId}"): PROPOSAL, ("PATCH", "/proposals/{proposalId}"): PROPOSAL,
    ("DELETE", "/proposals/{proposalId}"): PROPOSAL,
    ("POST", "/proposals/{proposalId}/apply"): closed({"installedArtifactRef": TEXT}),
    ("POST", "/proposals/{proposalId}/reject"): PROPOSAL,
}  # fmt: skip
_OURS: dict[Route, Json] = {
    **_PROPOSALS,
    ("GET", "/memory"): _ENTRIES,
    ("POST", "/memory"): _ONE,
    ("GET", "/memory/{memoryId}"): _ONE,
    ("DELETE", "/memory/{memoryId}"): _DELETED,
    ("GET", "/search"): closed(
        {"memoryRef": TEXT, "entries": of(ENTRY), "ranks": of({"type": "number"})}
    ),
    ("GET", "/provenance/{memoryId}"): closed(
        {
            "memoryRef": TEXT, "memoryId": TEXT, "derivedFrom": of(TEXT), "seen": POSITIVE,
            "writtenBy": closed({}, runId=NAME, nodeId=NAME, agentId=TEXT),
            "method": one_of("put", "extract-1", "host"), "lastSeenAt": TIME,
        },
        supersededBy=of(TEXT),
    ),
    ("GET", "/refs"): listed(
        "refs", closed({"memoryRef": TEXT, "entries": COUNT, "bytes": COUNT})
    ),
    ("POST", "/runs"): closed({"runId": NAME, "status": STATUS, "startedAt": TIME}),
    ("GET", "/runs/{runId}"): RUN,
    ("POST", "/runs/{runId}/secrets"): closed({"secretId": TEXT, "registered": FLAG}),
    ("POST", "/runs/{runId}/end"): RUN,
    ("GET", "/runs/{runId}/events"): EVENTS,
    ("POST", "/runs/{runId}/fork"): closed(FORKED),
    ("GET", "/events"): closed({"events": of(EVENT), "next": TEXT}),
    ("POST", "/compact"): closed(_PASS),
    ("POST", "/distill"): closed({**_PASS, "archiveChecksum": SHA256, "created": FLAG}),
    ("POST", "/consolidate"): closed(_PASS),
    ("POST", "/passes/{runId}/undo"): closed({"runId": NAME, "restored": COUNT, "removed": COUNT}),
    ("GET", "/index"): closed(
        {"version": {"const": 1}, "entryCount": COUNT, "archives": of(_INDEXED)},
        archiveChecksum=SHA256, updatedAt=TIME,
    ),
    ("POST", "/forget"): closed(
        {
            "subject": TEXT, "entries": COUNT, "archives": COUNT, "restored": COUNT,
            "commitments": COUNT,
        },
        erasureId=TEXT, dryRun={"const": True},
    ),
    ("GET", "/erasures/{erasureId}"): closed(
        {"erasureId": TEXT, "entries": COUNT, "erasedAt": TIME, "notReached": of(TEXT)},
        bytesGoneAt=TIME,
    ),
    ("POST", "/commitments"): COMMITMENT,
    ("GET", "/commitments"): listed("commitments", COMMITMENT),
    ("GET", "/commitments/{commitmentId}"): COMMITMENT,
    ("DELETE", "/commitments/{commitmentId}"): COMMITMENT,
    ("GET", "/artifacts"): listed(
        "artifacts", closed({"installedArtifactRef": TEXT, "kind": KINDS, "proposalId": TEXT})
    ),
    ("GET", "/artifacts/{artifactRef}"): OBJECT,
}  # fmt: skip
_SEAMS: dict[Route, Json] = {
    ("POST", "/v1/runs"): closed(
        {"runId": NAME, "status": STATUS, "eventsUrl": TEXT}, statusUrl=TEXT, error=FAULT
    ),
    ("GET", "/v1/runs/{runId}"): SNAPSHOT,
    ("GET", "/v1/runs/{runId}/events"): EVENTS,
    ("GET", "/v1/runs/{runId}/events/poll"): EVENTS,
    ("POST", "/v1/runs/{runId}:fork"): closed({**FORKED, "eventsUrl": TEXT}),
    ("POST", "/v1/test/memory/seed"): closed({"seeded": COUNT}),
    ("POST", "/v1/test/memory/compact"): closed(
        {"type": {"const": "memory.compacted"}, "payload": COMPACTED, "outputContent": TEXT}
    ),
    ("GET", "/v1/memory/{memoryRef}"): listed("entries", ENTRY),
    ("POST", "/v1/host/sample/memory/distill"): closed(
        {"event": COMPACTED, "archiveChecksum": SHA256, "indexUpdated": {"const": False}}
    ),
    ("POST", "/v1/host/sample/memory/consolidate"): closed(
        {"event": closed({"inputCount": COUNT, "outputCount": COUNT})},
        secretLeaked={"const": False},
    ),
    ("POST", "/v1/host/sample/commitment/fire"): closed(
        {"fireCount": {"const": 1}, "event": PAYLOADS["commitment.fired"]}, intentionCanary=TEXT
    ),
}
for _host in ("sample", "openwop-app"):
    _SEAMS["GET", f"/v1/host/{_host}/memory"] = _ENTRIES
    _SEAMS["GET", f"/v1/host/{_host}/memory/{{memoryId}}"] = _ONE
    _SEAMS["DELETE", f"/v1/host/{_host}/memory/{{memoryId}}"] = _DELETED

ANSWERS: dict[Route, Json] = {  # to what succeeds
    ("GET", DISCOVERY): CAPABILITIES,
    ("GET", "/v1/openapi.json"): {"type": "object", "required": ["openapi", "info", "paths"]},
    **{(method, f"{H}{path}"): it for (method, path), it in _OURS.items()},
    **{(method, f"/v1/host/sample{path}"): it for (method, path), it in _PROPOSALS.items()},
    **_SEAMS,
}
