"""Messages to /mcp: those of an agent, and those that only look like one."""

import json
from typing import Any

from hypothesis import strategies as st

from ..differential.agentops import PROJECTS, SESSIONS
from ..differential.words import JOINED, SECRETS, STRANGE
from ..http.test_any_input import mangled, value
from .asker import Asker

METHODS = (
    "initialize", "ping", "tools/list", "tools/call", "resources/list", "server/discover",
    "notifications/initialized", "prompts/list", "logging/setLevel", "nowhere",
)  # fmt: skip
VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28", "1999-01-01")


class Agents:
    """A program that speaks MCP over HTTP, more or less."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        listed = self._asker.ask("POST", "/mcp/one", _message("tools/list", {}))
        assert listed is not None
        self._tools: list[dict[str, Any]] = listed.json()["result"]["tools"]
        for path, headers in PLACES:  # each route once, so that a short run leaves out none
            self._asker.ask("POST", path, _message("ping", {}), headers)
            self._asker.ask("DELETE", path, headers=headers)

    def step(self, data: st.DataObject) -> None:
        """Send one message."""
        path, headers = data.draw(st.sampled_from(PLACES))
        if data.draw(st.integers(0, 19)) == 0:
            self._asker.ask("DELETE", path, headers=headers)
            return
        self._asker.ask("POST", path, self._body(data), headers)

    def _body(self, data: st.DataObject) -> bytes:
        kind = data.draw(st.integers(0, 9))
        if kind == 0:
            return bytes(data.draw(mangled))
        if kind < 3:
            return _message(data.draw(st.sampled_from(METHODS)), data.draw(value | params))
        tool = data.draw(st.sampled_from(self._tools))
        arguments = data.draw(_arguments(tool["inputSchema"]))
        return _message("tools/call", {"name": tool["name"], "arguments": arguments})


PLACES: list[tuple[str, dict[str, str]]] = [
    ("/mcp/one", {}), ("/mcp/two", {"Mcp-Session-Id": "0123456789abcdef"}),
    ("/mcp", {"X-Memory-Project": "one"}), ("/mcp", {}), ("/mcp/one", {"X-Memory-Project": "two"}),
    ("/mcp/%ff%00", {"Mcp-Protocol-Version": "2026-07-28"}),
]  # fmt: skip
params = st.fixed_dictionaries(
    {
        "protocolVersion": st.sampled_from(VERSIONS),
        "capabilities": st.just({}),
        "clientInfo": st.just({"name": "fuzz", "version": "1"}),
    }
)
words = st.lists(st.sampled_from([*JOINED, *SECRETS, *STRANGE]), min_size=1).map(" ".join)
_NAMED: dict[str, st.SearchStrategy[object]] = {
    "project": st.sampled_from(PROJECTS), "session_id": st.sampled_from(SESSIONS),
    "limit": st.integers(-1, 300), "id": st.integers(-1, 200), "memory_id": st.integers(-1, 200),
}  # fmt: skip


def _arguments(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, object]]:
    """Those that a tool takes, each as it should be or as anything."""
    names = schema.get("properties", {})
    given = {name: _NAMED.get(name, words) | value for name in names}
    return st.fixed_dictionaries({}, optional=given)


def _message(method: str, told: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": told}
    return json.dumps(message).encode()
