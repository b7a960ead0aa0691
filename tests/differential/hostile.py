"""Requests that nobody should send, to every part."""

import json

from ..support.openwop_hosts import H
from .agents import MEMORY
from .place import Place
from .stores import ANTHROPIC, CLOUD

WRITES = [
    "/observations", "/sessions", "/sessions/s1/messages", "/sessions/s1/end", "/import", CLOUD,
    ANTHROPIC,
    MEMORY, f"{MEMORY}/batch", "/api/v1/intents", "/api/v1/tasks", f"{H}/memory", f"{H}/runs",
    f"{H}/forget",
    f"{H}/compact", f"{H}/commitments", f"{H}/proposals", "/mcp/shop", "/observations/1/restore",
]  # fmt: skip
READS = [
    "/search", "/context", "/observations/recent", "/review", "/stats", "/timeline", "/export",
    CLOUD,
    ANTHROPIC, MEMORY, f"{MEMORY}/search", f"{H}/memory", f"{H}/search", f"{H}/events", f"{H}/refs",
    "/observations/9223372036854775807", "/observations/0", "/observations/x", f"{H}/runs/%00",
]  # fmt: skip
BODIES = [
    "", "{", "[]", "null", '"x"', "{}", '{"title": "\udcff\udcfe"}', "[" * 200, "1e999",
    '{"title": "\\ud800"}', '{"content": "\\u0000"}', '{"a": 1, "a": 2}', "{'a': 1}",
    '{"id": 1' + "0" * 40 + "}",
]  # fmt: skip
VALUES: list[object] = [
    None, "", 0, -1, 1.5, True, [], {}, "\x00", "x" * 70_000, 2**63, 2**70, "\ud800", [None],
    {"a": {}},
]  # fmt: skip
NAMES = [
    "id", "project", "session_id", "title", "content", "type", "tags", "scope", "topic_key",
    "supersedes",
    "expires_at", "ttl", "messages", "name", "path", "metadata", "agent_id", "namespace", "key",
    "value",
    "memory_type", "entries", "intent_id", "memoryRef", "memoryId", "runId", "subject", "kind",
    "artifact",
]  # fmt: skip
QUERIES = [
    "q=%ff%fe", "q=%00", "query=%F0%9F", "limit=-1", "limit=9223372036854775808", "limit=1e3",
    "limit=%D9%A3",
    "project=%00", "before_id=-5", "before_id=99999999999999999999", "after=x", "after=-1",
    "page=abc",
    "created_at[gte]=2030-01-01", "q=a&q=b", "offset=-1", "memoryRef=", "memoryRef=%00",
    "observation_id=x",
    "tag=%27%3B--", "q=" + "x" * 3_000, "namespace=***", "memory_type=none", "before=run_x",
    "reason=",
]  # fmt: skip


class Hostile:
    """What is sent comes from a list, or is made of its pieces."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def write(self) -> None:
        place = self._place
        fields = {name: place.choice(VALUES) for name in place.some(NAMES, 6)}
        body = place.choice(BODIES) if place.is_rare(0.4) else json.dumps(fields)
        headers = {"X-Agent-ID": place.choice(["ada", "", "a/b", "x" * 200])}
        if place.is_rare():
            headers["Idempotency-Key"] = place.choice(["", "é", "x" * 300])
        method = place.choice(["POST"] * 6 + ["PUT", "PATCH", "DELETE"])
        place.ask(method, place.choice(WRITES), body, headers)

    def read(self) -> None:
        place = self._place
        query = "&".join(place.some(QUERIES, 3))
        place.ask("GET", f"{place.choice(READS)}?{query}", None, {"X-Agent-ID": "ada"})
