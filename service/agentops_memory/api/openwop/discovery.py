"""What a host is told that is served: a claim stands here with what serves it."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...domain.hosts.screen import MAX_CONTENT
from ..kit.bodies import JSON, written
from .bodies import LONGEST_BODY

PATH = "/.well-known/openwop"
BASE = "/v1/host/agentops-memory"

MEMORY = {
    "supported": True,
    "writable": True,
    "maxEntrySizeBytes": MAX_CONTENT,
    "ttlSupported": True,
    "search": {"supported": True, "modes": ["filter"]},
    "retention": {"ttl": True},
    "attribution": {"supported": True, "emitsWriteEvents": True},
    "injectionBudget": {"supported": True, "tokenCounter": "chars"},
}
AGENTS = {"memoryBackends": ["long-term"]}

DOCUMENT: dict[str, Any] = {
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
    "agentops-memory": {"scope": "x-host-agentops-memory-query", "base": BASE},
}


@dataclass(frozen=True)
class Discovery:
    """The same document for everybody."""

    async def discover(self, request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        headers = {"ETag": self._tag, "Cache-Control": "public, max-age=300"}
        tags = (it.strip().removeprefix("W/") for it in known.split(","))
        if known.strip() == "*" or self._tag in tags:
            return Response(status_code=304, headers=headers)
        return Response(self._content, headers=headers, media_type=JSON)

    @cached_property
    def _content(self) -> bytes:
        return written(DOCUMENT)

    @cached_property
    def _tag(self) -> str:
        return f'"{sha256(self._content).hexdigest()[:32]}"'
