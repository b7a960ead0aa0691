"""What a host is told that is served: a claim stands here with what serves it."""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import JSON, written
from ..commitments import ConditionKind
from ..model.passes import Trigger
from ..model.proposals import ArtifactKind
from ..rules.passes.rules import MOST_COMPACTED, MOST_TOKENS
from ..rules.proposals.rules import ACTIVATION
from ..rules.screen import MAX_CONTENT
from .bodies import LONGEST_BODY

PATH = "/.well-known/openwop"
BASE = "/v1/host/agentops-memory"

MEMORY: dict[str, Any] = {
    "supported": True,
    "writable": True,
    "maxEntrySizeBytes": MAX_CONTENT,
    "ttlSupported": True,
    "search": {"supported": True, "modes": ["filter"]},
    "retention": {"ttl": True, "forget": True},
    "attribution": {"supported": True, "emitsWriteEvents": True},
    "compaction": {
        "supported": True,
        "trigger": Trigger.HOST_MANAGED.value,
        "maxInputEntries": MOST_COMPACTED,
        "maxOutputBytes": MAX_CONTENT,
    },
    "distillation": {
        "supported": True,
        "maxTokenBudget": MOST_TOKENS,
        "scheduled": False,
        "indexEmitted": False,
        "tokenizerName": "utf8-bytes-div-4",
    },
    "injectionBudget": {"supported": True, "tokenCounter": "chars"},
}
AGENTS = {
    "memoryBackends": ["long-term"],
    "commitments": {"supported": True, "fireConditions": [it.value for it in ConditionKind]},
    "proposals": {
        "artifactKinds": [it.value for it in ArtifactKind],
        "duplicationDetection": True,
        "activation": "direct-rbac",
    },
}

DOCUMENT: dict[str, Any] = {  # but for what settings decide
    "protocolVersion": "1.0",
    "supportedEnvelopes": [],
    "schemaVersions": {},
    "limits": {
        "clarificationRounds": 0,
        "schemaRounds": 0,
        "envelopesPerTurn": 0,
        "maxRequestBodyBytes": LONGEST_BODY,
    },
    "implementation": {"name": "agentops-memory"},
    "supportedTransports": ["rest"],
    "memory": MEMORY,
    "agents": AGENTS,
    "capabilities": {"memory": MEMORY, "agents": AGENTS},
    "agentops-memory": {
        "scope": "x-host-agentops-memory-query",
        "base": BASE,
        "activationScope": ACTIVATION,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The same document for everybody."""

    is_consolidating: bool  # whether refs are consolidated by themselves
    keep_archives: timedelta  # 0: for ever

    async def discover(self, request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        content = self.content()
        tag = f'"{sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "public, max-age=300"}
        tags = (it.strip().removeprefix("W/") for it in known.split(","))
        if known.strip() == "*" or tag in tags:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=JSON)

    def content(self) -> bytes:
        families = {"memory": self._memory, "agents": self._agents}
        return written(DOCUMENT | families | {"capabilities": families})

    @property
    def _memory(self) -> dict[str, Any]:
        if not self.keep_archives:
            return MEMORY
        kept = TypeAdapter(timedelta).dump_python(self.keep_archives, mode="json")
        return MEMORY | {"distillation": MEMORY["distillation"] | {"archiveRetention": kept}}

    @property
    def _agents(self) -> dict[str, Any]:
        schedule = Trigger.HOST_MANAGED if self.is_consolidating else Trigger.ON_DEMAND
        consolidation = {"supported": True, "schedule": schedule.value}
        backends, *others = AGENTS.items()
        return dict([backends, ("memoryConsolidation", consolidation), *others])
