"""An agent that uses its memory through MCP, over HTTP."""

from .agentops import NOBODY, PROJECTS, SESSIONS, AgentOps
from .place import Place, part
from .words import TAGS, TYPES


class Tools:
    """Each tool, over what REST has saved as well."""

    def __init__(self, place: Place, memory: AgentOps) -> None:
        self._place = place
        self._memory = memory

    def use(self) -> None:
        place, words = self._place, self._place.words
        id_ = place.late(self._memory.ids, NOBODY)
        asked = {"query": words.question(), **place.maybe(0.3, limit=place.choice([1, 50]))}
        saved = {"title": words.title(), "content": words.text()} | place.maybe(
            0.2, type=place.choice(TYPES), tags=place.some(TAGS), topic_key="deploy", pinned=True,
            ttl=place.choice([60, 90_000]), supersedes=[id_],
        )  # fmt: skip
        tool, arguments = place.choice([
            ("mem_save", saved), ("mem_save", saved), ("mem_search", asked), ("mem_context", asked),
            ("mem_get", {"id": id_}), ("mem_update", {"id": id_, "content": words.text()}),
            ("mem_update", {"id": id_, "tags": place.some(TAGS)}), ("mem_delete", {"id": id_}),
            ("mem_history", {"id": id_}), ("mem_timeline", {"id": id_, "before": 1}),
            ("mem_stats", {}), ("mem_confirm", {"id": id_}), ("mem_review", {"limit": 2}),
            ("mem_session_start", {"session_id": place.choice(SESSIONS)}), ("mem_session_end", {}),
            ("mem_context", {"ages": True}), ("mem_none", {"id": "x"}),
        ])  # fmt: skip
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": "m", "method": "tools/call", "params": params}
        session = {"Mcp-Session-Id": "0123456789abcdef"} if place.is_rare(0.7) else {}
        place.ask("POST", f"/mcp/{part(place.choice(PROJECTS[:6]))}", message, session)
