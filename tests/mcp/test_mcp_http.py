"""MCP over HTTP: the address of a project, keys, origins, and requests that no client sends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.shared.exceptions import MCPError

from agentops_memory.http.app import FOREIGN
from agentops_memory.http.bodies import SHORT
from agentops_memory.mcp.tools import MOST_NAMED, SessionNames
from agentops_memory.telemetry import Telemetry

from ..support.agents import BARE, MODES, agent
from ..support.callers import calling, made_key
from ..support.engines import rows
from ..support.otlp import TRACE, TRACEPARENT, grpc_collector
from ..support.samples import for_each
from ..support.service import Service, lasting as shared, serving

__all__ = ["shared"]

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}  # fmt: skip
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}


def saved(http: httpx.Client, project: str, content: str = "C", **headers: str) -> str:
    """The session that a save of a program is in."""
    note = {"name": "mem_save", "arguments": {"title": "T", "content": content}}
    message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": note}
    answer = http.post(f"/mcp/{project}", json=message, headers=headers)
    text: str = answer.json()["result"]["content"][0]["text"]
    return text.splitlines()[1].partition("in session ")[2]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Service]:
    """A service that needs keys."""
    made_key(tmp_path / "memory.db")
    with serving(tmp_path / "memory.db", MEMORY_TOOLS="all") as running:
        yield running


def test_the_project_is_in_the_path_or_in_the_header(shared: Service) -> None:
    named = {"X-Memory-Project": "Wide  Load"}
    with (
        agent(f"{shared.url}/mcp/one%2Ftwo/") as one,
        agent(f"{shared.url}/mcp", BARE, named) as two,
    ):
        one.said("mem_save", title="A", content="A.")
        two.said("mem_save", title="B", content="B.")
    note = {"name": "mem_save", "arguments": {"title": "C", "content": "C."}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": note}
    shared.http.post("/mcp", json=message, headers={b"X-Memory-Project": "Größe".encode()})

    projects = set(shared.http.get("/stats").json()["projects"])
    assert {"größe", "one/two", "wide  load"} <= projects


def test_a_request_names_one_project(shared: Service) -> None:
    both = {"X-Memory-Project": "two"}
    for path, headers, status in (
        ("/mcp", {}, 400), ("/mcp/", {}, 400), ("/mcp/%20", {}, 400), ("/mcp/one", both, 400),
        ("/mcp/two", both, 200), ("/mcp/TWO", both, 200), (f"/mcp/{'x' * 201}", {}, 400),
    ):  # fmt: skip
        answer = shared.http.post(path, json=PING, headers=headers)
        assert answer.status_code == status, (path, answer.text)
        assert status == 200 or answer.json()["error"]["message"]


OF = "io.modelcontextprotocol/"
ENVELOPE = {f"{OF}protocolVersion": BARE, f"{OF}clientCapabilities": {}}
CALL: dict[str, Any] = {"name": "mem_context", "arguments": {}}
DEEP = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b'{"a":' * 200 + b"1" + b"}" * 201
HEADERS = {"MCP-Protocol-Version": BARE, "Mcp-Method": "tools/call", "Mcp-Name": "mem_context"}


def enveloped(method: str = "tools/call", **params: object) -> dict[str, object]:
    """A request without a handshake."""
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"_meta": ENVELOPE, **params}}


def called(params: object, id_: object = 7) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}


@for_each(
    "headers, message, status, code",
    [
        (HEADERS, enveloped(**CALL), 200, None),
        ({**HEADERS, "Mcp-Name": "=?base64?bWVtX2NvbnRleHQ=?="}, enveloped(**CALL), 200, None),
        ({**HEADERS, "Mcp-Name": "mem_save"}, enveloped(**CALL), 400, -32020),
        ({**HEADERS, "Mcp-Name": "=?base64?!?="}, enveloped(**CALL), 400, -32020),
        ([*HEADERS.items(), ("Mcp-Name", "mem_save")], enveloped(**CALL), 400, -32020),
        ({**HEADERS, "Mcp-Method": "ping"}, enveloped(**CALL), 400, -32020),
        ({**HEADERS, "MCP-Protocol-Version": "2031-01-01"}, enveloped(**CALL), 400, -32020),
        (HEADERS, enveloped(name="mem_nothing"), 400, -32020),
        (HEADERS, called(CALL), 400, -32602),
        ({**HEADERS, "Mcp-Method": "ping"}, enveloped("ping"), 404, -32601),
        ({}, {"jsonrpc": "2.0", "id": 7, "method": "no/such"}, 200, -32601),
        ({}, {"jsonrpc": "2.0", "id": 7, "method": ""}, 200, -32601),
        ({}, called({"name": 7}), 200, -32602),
        ({}, called({**CALL, "_meta": 7}), 200, -32602),
        ({}, {"jsonrpc": "2.0", "id": [7], "method": 7}, 400, -32600),
        ({}, called(CALL, True), 400, -32600), ({}, called(CALL, 1.5), 400, -32600),
        ({}, called(CALL, []), 400, -32600),
        ({}, b'{"jsonrpc": "2.0",', 400, -32700), ({}, b"", 400, -32700), ({}, b"[]", 400, -32600),
        ({}, b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', 400, -32600),
        ({}, {"id": 7, "method": "ping"}, 400, -32600), ({}, {}, 400, -32600),
        ({}, {"jsonrpc": "1.0", "id": 7, "method": "ping"}, 400, -32600),
        ({}, {"jsonrpc": "2.0", "id": 7}, 400, -32600), ({}, b"\xff", 400, -32700),
        ({}, {"jsonrpc": "2.0", "id": 7, "method": 7}, 400, -32600),
        ({}, called([]), 400, -32600), ({}, DEEP, 400, -32700),
        ({"MCP-Protocol-Version": "1999-01-01"}, called(CALL), 400, -32602),
        ({"Mcp-Session-Id": "of another service"}, called(CALL), 200, None),
        ({"Accept": "text/html"}, called(CALL), 200, None),
    ],
)  # fmt: skip
def test_what_a_request_says_of_itself_must_agree(
    shared: Service, headers: Any, message: Any, status: int, code: int | None
) -> None:
    sent: Any = {"content": message} if isinstance(message, bytes) else {"json": message}
    answer = shared.http.post("/mcp/any", headers=headers, **sent)

    assert answer.status_code == status, answer.text
    told = answer.json()
    assert told.get("error", {}).get("code") == code
    is_known = not isinstance(message, bytes) and message.get("id") == 7
    assert told["id"] == (7 if is_known else None)


def test_a_notification_has_no_answer(shared: Service) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    for headers in (HEADERS, {}):
        for message in (note, called(CALL, None), {"jsonrpc": "2.0", "id": 7, "result": {}}):
            answer = shared.http.post("/mcp/any", json=message, headers=headers)
            assert (answer.status_code, answer.content) == (202, b"")


def test_a_version_that_is_not_known_is_told_which_are(shared: Service) -> None:
    version = {f"{OF}protocolVersion": "2031-01-01", f"{OF}clientCapabilities": {}}
    headers = HEADERS | {"MCP-Protocol-Version": "2031-01-01"}
    answer = shared.http.post("/mcp/any", json=called({**CALL, "_meta": version}), headers=headers)

    assert answer.status_code == 400
    assert answer.json()["error"]["data"] == {"supported": [BARE], "requested": "2031-01-01"}


def test_text_that_was_cut_inside_a_character_is_saved(shared: Service) -> None:
    head = b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"mem_save","arguments":'
    for title in (b"cut \\ud83d", b"cut \xf0\x9f"):
        for more in (b"", b" " * SHORT):
            body = head + b'{"title":"' + title + b'","content":"Cut."}}}' + more
            answer = shared.http.post("/mcp/cut", content=body)
            assert "cut \ufffd" in answer.json()["result"]["content"][0]["text"]


def test_other_methods_are_told_which_there_are(shared: Service) -> None:
    refused = shared.http.get("/mcp/any", headers={"Accept": "text/event-stream"})

    assert refused.status_code == 405
    assert refused.headers["Allow"] == "DELETE, POST"
    assert shared.http.delete("/mcp/any").status_code == 204


def test_a_connection_is_known_by_the_id_that_it_was_given(shared: Service) -> None:
    first, second = (shared.http.post("/mcp/ids", json=INITIALIZE) for _ in range(2))

    assert first.json()["result"]["protocolVersion"] == "2025-06-18"
    assert first.headers["Mcp-Session-Id"] != second.headers["Mcp-Session-Id"]
    known = {"Mcp-Session-Id": first.headers["Mcp-Session-Id"]}
    again = shared.http.post("/mcp/ids", json=INITIALIZE, headers=known)
    wrong = shared.http.post("/mcp/ids", json={**INITIALIZE, "id": {}})
    for answer in (again, wrong, shared.http.post("/mcp/ids", json=PING)):
        assert "Mcp-Session-Id" not in answer.headers


def test_a_program_without_an_id_has_a_session_for_each_day(path: Path) -> None:
    with serving(path, MEMORY_DEDUPE_WINDOW="0") as service:
        sessions = []
        for hours in (6, 6, 1, 0):  # from noon to the evening, to the next day, and into it
            sessions.append(saved(service.http, "days"))
            service.clock.advance(hours=hours)

    assert sessions[0] == sessions[1] != sessions[2] == sessions[3]


@pytest.mark.slow
@for_each("headers", [{"Mcp-Session-Id": "given by the first"}, {}])
def test_a_connection_outlives_the_service(path: Path, headers: dict[str, str]) -> None:
    told = []
    for _ in range(2):
        with serving(path, MEMORY_DEDUPE_WINDOW="0") as service:
            told.append(saved(service.http, "long", **headers))

    assert told[0].startswith("mcp-")
    assert told[0] == told[1]


def test_an_id_of_another_project_or_key_is_another_connection(guarded: Service) -> None:
    sessions: set[str] = set()
    for _ in range(2):
        with calling(guarded, made_key(guarded.path, "writer")) as caller:
            for project in ("one", "two"):
                note = f"{len(sessions)}"
                sessions.add(saved(caller, project, note, **{"Mcp-Session-Id": "same"}))

    assert len(sessions) == 4


def test_a_key_opens_what_its_role_and_its_projects_allow(guarded: Service) -> None:
    path, reader = guarded.path, {}
    writer = {"Authorization": f"Bearer {made_key(path, 'writer', projects=('shop-*',))}"}
    reader = {"X-API-Key": made_key(path, "reader")}
    with agent(f"{guarded.url}/mcp/shop-a", headers=writer) as allowed:
        allowed.said("mem_save", title="Ours", content="Ours.")
    with agent(f"{guarded.url}/mcp/elsewhere", headers=writer) as outside:
        denied = outside.refusal("mem_save", title="Theirs", content="Theirs.")
    with agent(f"{guarded.url}/mcp/shop-a", headers=reader) as looking:
        assert "Ours." in looking.said("mem_search", query="ours")
        refused = looking.refusal("mem_save", title="Mine", content="Mine.")
        assert looking.refusal("mem_delete", id=1) == refused

    assert denied.endswith("API key does not allow this; ask the user to configure another.")
    assert refused.endswith("API key does not allow this; ask the user to configure another.")
    assert guarded.http.post("/mcp/shop-a", json=PING).status_code == 401


@pytest.mark.parametrize("mode", MODES)
def test_a_refusal_at_the_door_reaches_the_agent(shared: Service, mode: str) -> None:
    with (
        agent(f"{shared.url}/mcp/any", mode) as told,
        pytest.raises(MCPError, match="larger than 1,048,576 bytes"),
    ):
        told.call("mem_search", query="x" * (1 << 20))


def test_a_page_of_another_origin_is_kept_out(shared: Service) -> None:
    answer = shared.http.post("/mcp/any", json=PING, headers={"Origin": "https://evil.example"})

    assert answer.status_code == 403
    assert answer.json()["error"] == {"code": -32000, "message": FOREIGN}


@pytest.mark.slow
def test_a_key_has_room_of_its_own_for_what_its_connections_name(
    guarded: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentops_memory.mcp.tools.MOST_NAMED", 2)
    one, other = ({"Authorization": f"Bearer {made_key(guarded.path, 'writer')}"} for _ in range(2))
    with agent(f"{guarded.url}/mcp/any", headers=one) as quiet:
        quiet.said("mem_session_start", session_id="monday")
        for number in range(3):
            with agent(f"{guarded.url}/mcp/any", headers=other) as busy:
                busy.said("mem_session_start", session_id=f"of others {number}")
        said = quiet.said("mem_save", title="Mine", content="Of Monday.")

    assert said.endswith("in session monday.")


def test_an_error_inside_is_told_without_its_inside(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(path) as service, agent(f"{service.url}/mcp/any") as unlucky:
        service.save("Whatever.")
        rows(service.path, "ALTER TABLE sessions RENAME COLUMN summary TO elsewhere")
        told = unlucky.refusal("mem_context")
        with pytest.raises(Exception, match="The memory service failed") as failure:
            unlucky.resource()

    for text in (told, str(failure.value)):
        assert text.startswith("The memory service failed; its log has the reason.")
        assert not any(word in text for word in ("sessions", "SELECT", "Traceback", "no such"))
    assert any("summary" in str(record.exc_info) for record in caplog.records)


def test_what_a_tool_does_is_a_span_in_the_trace_of_its_request(path: Path) -> None:
    with grpc_collector() as collector:
        telemetry = Telemetry.started(collector.endpoint)
        with serving(path, telemetry=telemetry) as service:
            for mode in MODES:
                headers = {"traceparent": TRACEPARENT}
                with agent(f"{service.url}/mcp/traced", mode, headers) as traced:
                    traced.said("mem_search", query="anything")
        telemetry.stop()
    spans = {span.id: span for span in collector.spans}
    searches = [span for span in spans.values() if span.name == "memory.search"]

    assert [span.trace for span in searches] == [TRACE, TRACE]
    assert [spans[span.parent].name for span in searches] == ["memory.mcp", "memory.mcp"]
    assert searches[0].attributes["memory.project"] == "traced"


def test_the_names_of_sessions_are_bounded() -> None:
    names = SessionNames()
    for number in range(MOST_NAMED + 1):
        names.name(f"own-{number}", "named")
        names.of("own-0")

    assert names.of("own-0") == "named"  # which was in use all the time
    assert names.of("own-1") == "own-1"
    assert names.of("own-2") == "named"
