"""What callers do as agents, through MCP, beside the others who do what they like."""

import re

import httpx

from .parties import NEVER, Party, Place

NOWHERE = "nobodys"  # a project that nobody has


def work_as_an_agent(place: Place, me: Party) -> None:
    """Save, look and delete in a project of one's own."""
    project = place.project(me)
    given = place.body(me, project, "s")
    note = {name: given[name] for name in ("type", "title", "content", "tags", "topic_key")}
    saved = re.search(r"memory (\d+)", _call(me, project, "mem_save", **note).text)
    assert saved is not None
    me.live[int(saved[1])] = project
    for tool in ("mem_search", "mem_context"):
        assert '"isError":false' in _call(me, project, tool, query="the aple pear").text
    assert '"isError":false' in _call(me, project, "mem_stats").text
    session = f"{me.tenant} {me.prefix} agent {project}"
    assert '"isError":false' in _call(me, project, "mem_session_end", session_id=session).text
    if place.chance.random() < 0.3:
        id_ = place.own_id(me)
        told = _call(me, project, "mem_delete", id=id_).text
        if f"Memory {id_} is deleted" in told:
            assert me.live.pop(id_) == project
            me.dead.add(id_)


def reach_as_an_agent(place: Place, me: Party) -> None:
    """Another's project is as nobody's, and another's memory as none, wherever it is asked for."""
    theirs = place.foreign_project(me)
    for tool, more in _LOOKS.items():
        answers = [(_call(me, project, tool, **more), project) for project in (theirs, NOWHERE)]
        assert _anonymous(*answers[0]) == _anonymous(*answers[1])
    note = {"title": me.word, "content": me.word}
    refused = [_anonymous(_call(me, name, "mem_save", **note), name) for name in (theirs, NOWHERE)]
    assert refused[0] == refused[1]
    assert '"isError":true' in refused[0]
    id_ = place.foreign_id(me)
    for tool, more in _TOUCHES.items():
        for project in (place.project(me), theirs):
            ids = [(_call(me, project, tool, id=each, **more), str(each)) for each in (id_, NEVER)]
            assert _anonymous(*ids[0]) == _anonymous(*ids[1])
            assert f"There is no memory {id_} in this project." in ids[0][0].text


_LOOKS: dict[str, dict[str, object]] = {
    "mem_stats": {}, "mem_context": {}, "mem_review": {},
    "mem_session_start": {"session_id": "nobody's"}, "mem_session_end": {"session_id": "nobody's"},
}  # fmt: skip
_TOUCHES: dict[str, dict[str, object]] = {
    "mem_get": {}, "mem_update": {"title": "mine"}, "mem_delete": {}, "mem_history": {},
    "mem_timeline": {}, "mem_confirm": {},
}  # fmt: skip


def _call(me: Party, project: str, tool: str, **arguments: object) -> httpx.Response:
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = me.ask("POST", f"/mcp/{project}", message)
    assert answer.status_code == 200, answer.text
    return answer


def _anonymous(answer: httpx.Response, name: str) -> str:
    """The answer without what names the project or the memory that was asked for."""
    return re.sub(r"mcp-[0-9a-f]{24}", "mcp-", answer.text.replace(f" {name} ", " NAME "))
