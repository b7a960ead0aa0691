"""An agent that uses its memory through MCP, over HTTP."""

from typing import Any
from urllib.parse import quote

from .agentops import KEYS, PROJECTS, SESSIONS, AgentOps
from .place import Place
from .words import TAGS, TYPES

NAMED = {"Mcp-Session-Id": "0123456789abcdef"}


class Tools:
    """Each tool, over what REST has saved as well."""

    def __init__(self, place: Place, memory: AgentOps) -> None:
        self._place = place
        self._memory = memory

    def save(self) -> None:
        place, words = self._place, self._place.words
        self._call("mem_save", title=words.title(), content=words.text(), **place.maybe(
            0.2, type=place.choice(TYPES), tags=place.some(TAGS), topic_key=place.choice(KEYS),
            scope="global", ttl=place.choice([60, 90_000]), pinned=True, supersedes=[self._id()],
        ))  # fmt: skip

    def find(self) -> None:
        place = self._place
        tool = place.choice(["mem_search", "mem_context"])
        self._call(
            tool, query=place.words.question(), **place.maybe(0.3, limit=place.choice([1, 50]))
        )

    def use(self) -> None:
        """Any other tool."""
        place, words, id_ = self._place, self._place.words, self._id()
        uses: list[tuple[str, dict[str, object]]] = [
            ("mem_get", {"id": id_}), ("mem_update", {"id": id_, "content": words.text()}),
            ("mem_update", {"id": id_, "tags": place.some(TAGS)}), ("mem_delete", {"id": id_}),
            ("mem_history", {"id": id_}), ("mem_timeline", {"id": id_, "before": 1}),
            ("mem_stats", {}), ("mem_confirm", {"id": id_}), ("mem_review", {}), ("mem_review",
            {"limit": 2}),
            ("mem_session_start", {"session_id": place.choice(SESSIONS)}), ("mem_session_end", {}),
            ("mem_session_end", {"messages": [{"role": "user", "content": words.text()}]}),
            ("mem_suggest_topic_key", {"title": words.title(), "type": place.choice(TYPES)}),
            ("mem_context", {"ages": True}), ("mem_get", {}), ("mem_none", {"id": "x"}),
        ]  # fmt: skip
        tool, arguments = place.choice(uses)
        self._call(tool, **arguments)

    def speak(self) -> None:
        """What is no call of a tool."""
        method, params = self._place.choice([
            ("resources/read", {"uri": "memory://context"}), ("ping", {}), ("resources/list", {}),
            ("prompts/get", {"name": "use-memory"}), ("initialize", {}), ("nowhere", {"x": 1}),
        ])  # fmt: skip
        self._send(method, params)

    def _call(self, name: str, **arguments: object) -> None:
        self._send("tools/call", {"name": name, "arguments": arguments})

    def _send(self, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": "m", "method": method, "params": params}
        project = quote(self._place.choice(PROJECTS[:6]), safe="")
        headers = NAMED if self._place.is_rare(0.7) else {}
        self._place.ask("POST", f"/mcp/{project}", message, headers)

    def _id(self) -> int:
        ids = self._memory.ids[-20:]
        return self._place.choice([*ids * 5, *self._memory.ids, 999_999])
