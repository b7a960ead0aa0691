"""A text that can be recognised wherever it comes out, in all that is stored and is sent."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from agentops_memory.memory.agents import Tier

from .otlp import Collector, ReceivedSpan
from .raw import wire
from .service import observation
from .stores import STORES, ok

MARK = "qzxplanted"
AGENTS_MEMORY = "/api/v1/memory"
HOSTS = "/v1/host/agentops-memory"
OWN = f"/api/v1/agents/{MARK}"

# What docs/telemetry.md says that a span tells in words.
IN_SPANS = {
    "memory.project", "memory.session.id", "memory.query", "memory.search.query",
    "memory.context.query_used", "gen_ai.retrieval.query.text", "memory.injected.title",
    "memory.injected.type", "memory.observation.type", "memory.entry.path", "memory.agent.id",
    "memory.namespace", "memory.ref", "memory.entry.id", "openwop.run_id", "openwop.node_id",
}  # fmt: skip

Request = tuple[str, str, object]


def text(words: str) -> str:
    return f"{MARK} {words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """The ids of what was planted."""

    store: str
    entry: str
    note: str  # what an agent has noted


def stock(http: httpx.Client) -> Stock:
    """A row of every kind, through the API, with the text in each field that takes one.

    From now on whoever asks is an agent of this name.
    """
    http.headers["X-Agent-ID"] = MARK
    store = ok(http.post(STORES, json={
        "name": text("store"), "description": text("about"), "metadata": {text("key"): text("v")},
    }), 201)["id"]  # fmt: skip
    entries = f"{STORES}/{store}/memories"
    entry = ok(http.post(entries, json={"path": f"{MARK}/a", "content": text("one")}), 201)["id"]
    ok(http.put(f"{entries}/{entry}", json={"content": text("two")}))
    for number in range(4):
        key = {"Idempotency-Key": f"{MARK}{number}"}
        ok(http.post("/observations", json=memory(f"content {number}", number), headers=key), 201)
    ok(http.patch("/observations/3", json={"content": text("changed")}))
    assert http.delete("/observations/4").status_code == 204
    assert http.delete("/observations/5?hard=true").status_code == 204
    for past in ({"expires_at": "2000-01-01T00:00:00Z"}, {}):  # the second takes the first's key
        ok(http.post("/observations", json=memory("held", 9, **past)), 201)
    said = {"messages": [{"role": "user", "content": text("said")}]}
    assert http.post(f"/sessions/{MARK}-0/messages", json=said).is_success
    ok(http.post(f"/sessions/{MARK}-1/end", json=said))
    _work(http)
    _run(http)
    notes = [ok(http.post(AGENTS_MEMORY, json=note(tier)), 201)["id"] for tier in Tier]
    allowed = {"permissions": {"allow": [{"agent": MARK, "access": "write"}]}}
    ok(http.patch(f"{AGENTS_MEMORY}/namespaces/{MARK}", json=allowed))
    return Stock(store=store, entry=entry, note=notes[0])


def _work(http: httpx.Client) -> None:
    """An intent with a task, who takes part in it, and a confidential entry of the task."""
    intent, task = f"{MARK}.intent", f"{MARK}.task"
    ok(http.post("/api/v1/intents", json={"id": intent, "title": text("title")}), 201)
    made = {"intent_id": intent, "name": text("name"), "assigned_agent": MARK,
            "memory_policy": {"max_entries": 9}}  # fmt: skip
    ok(http.post("/api/v1/tasks", json=made | {"id": task}), 201)
    ok(http.post("/api/v1/tasks", json=made | {"parent_task_id": task}), 201)
    part = {"intent_id": intent, "agent_id": MARK, "metadata": {text("key"): text("v")}}
    ok(http.post("/api/v1/coordinators", json=part), 201)
    grant = {"principal_id": MARK, "reason": text("reason")}
    ok(http.post(f"/api/v1/intents/{intent}/acl/entries", json=grant), 201)
    bound = {"key": text("bound"), "scope": {"task_id": task}, "sensitivity": "confidential"}
    ok(http.post(AGENTS_MEMORY, json=note(Tier.WORKING) | bound), 201)


def _run(http: httpx.Client) -> None:
    """A run of a host that has put entries in a ref, with a secret, and a branch of it."""
    of_run = {"runId": MARK, "agentId": MARK, "workflowId": text("workflow"), "memoryRefs": [MARK]}
    ok(http.post(f"{HOSTS}/runs", json=of_run), 201)
    secret = {"secretId": text("secret"), "value": "a value of nothing else"}
    ok(http.post(f"{HOSTS}/runs/{MARK}/secrets", json=secret))
    put = {
        "memoryRef": MARK, "content": text("put"), "tags": [MARK, f"subject:{MARK}"],
        "id": f"{MARK}/put",
    }  # fmt: skip
    bound = {"runId": MARK, "nodeId": MARK, "agentId": MARK}
    ok(http.post(f"{HOSTS}/memory", json=put | bound), 201)
    passes = {"memoryRef": f"{MARK}/passes"}
    for said in ("one", "two", "two"):
        ok(
            http.post(f"{HOSTS}/memory", json=put | passes | {"content": text(said), "id": None}),
            201,
        )
    for done in ("consolidate", "distill", "compact"):
        ok(http.post(f"{HOSTS}/{done}", json=passes))
    ok(http.post(f"{HOSTS}/runs/{MARK}/fork", json={"mode": "branch", "fromSeq": 1}), 201)
    waits = {"memoryRef": MARK, "memoryId": f"{MARK}/put", "condition": "predicate"}
    ok(http.post(f"{HOSTS}/commitments", json=waits | {"tag": text("awaited")}), 201)
    id_ = ok(http.post(f"{HOSTS}/proposals", json=proposal()), 201)["id"]
    ok(http.patch(f"{HOSTS}/proposals/{id_}", json={"rationale": text("because")}))
    ok(http.post(f"{HOSTS}/proposals/{id_}/apply"))
    ok(http.post(f"{HOSTS}/proposals", json=proposal(title=text("again"))), 201)


def proposal(**fields: object) -> dict[str, object]:
    return {
        "kind": "agent-pack", "title": text("title"), "rationale": text("rationale"),
        "artifact": {"name": text("name"), "version": "1", text("member"): [text("item")]},
        "provenance": {"sourceRunIds": [MARK], "synthesizerModel": text("model")},
    } | fields  # fmt: skip


def note(tier: Tier, key: str = "key", **fields: object) -> dict[str, object]:
    return {
        "agent_id": MARK, "namespace": MARK, "key": text(key), "memory_type": tier,
        "value": {text("name"): text("noted")}, "tags": [MARK], "sensitivity": "internal",
        "curated_by": text("curator"), "ttl": "duration:P9Y",
        "scope": {"task_id": MARK, "intent_id": MARK},
    } | fields  # fmt: skip


def memory(content: str, number: int = 0, **fields: object) -> dict[str, object]:
    return observation(
        text(content), project=MARK, session_id=f"{MARK}-{number % 2}", type=MARK, tags=[MARK],
        topic_key=f"{MARK}/{number}", scope=MARK,
    ) | fields  # fmt: skip


def requests(of: Stock) -> list[Request]:
    """Reads and writes of each kind, by each protocol."""
    store, entry = f"{STORES}/{of.store}", f"{STORES}/{of.store}/memories/{of.entry}"
    said = {"messages": [{"role": "user", "content": text("more")}]}
    reads = [
        "/observations/2", "/observations/2/history", "/observations/recent", "/sessions/recent",
        "/stats", "/export", f"/timeline?observation_id=2&project={MARK}", f"/search?q={MARK}",
        f"/search?q={MARK}x&explain=true", f"/context?query={MARK}&explain=true&stores={of.store}",
        f"/context?query={MARK}x&project={MARK}", "/health/ready", STORES, store,
        f"{store}/memories", entry, f"{store}/versions", f"{store}/search?q={MARK}",
        f"{AGENTS_MEMORY}/{of.note}", f"{AGENTS_MEMORY}?agent_id={MARK}&tags={MARK}",
        f"{AGENTS_MEMORY}/search?q={MARK}", f"{AGENTS_MEMORY}/namespaces",
        f"{AGENTS_MEMORY}/namespaces/{MARK}", f"{OWN}/memory", f"{OWN}/memory/summary",
        f"{OWN}/events", f"/context?query={MARK}&episodic=true&agent={MARK}&namespaces={MARK}",
        f"{HOSTS}/memory?memoryRef={MARK}", f"{HOSTS}/memory?memoryRef={MARK}&runId={MARK}",
        f"{HOSTS}/search?memoryRef={MARK}&q={MARK}", f"{HOSTS}/refs", f"{HOSTS}/events",
        f"{HOSTS}/memory/{MARK}%2Fput?memoryRef={MARK}", f"{HOSTS}/runs/{MARK}",
        f"{HOSTS}/provenance/{MARK}%2Fput?memoryRef={MARK}", f"{HOSTS}/runs/{MARK}/events",
        f"{HOSTS}/commitments?memoryRef={MARK}",
        f"{HOSTS}/index?memoryRef={MARK}",
        f"{HOSTS}/proposals", f"{HOSTS}/artifacts",
    ]  # fmt: skip
    return [
        *(("GET", path, None) for path in reads), ("POST", "/observations", memory("content 1")),
        ("POST", "/observations", memory("new")),
        ("PATCH", "/observations/2", {"title": text("title")}),
        ("POST", "/observations/4/restore", {"revision": 1}),
        ("POST", f"/sessions/{MARK}-0/messages", said),
        ("POST", "/import", {"observations": [memory("imported")]}),
        ("DELETE", f"/projects/{MARK}?hard=true&dry_run=true", None),
        ("POST", f"{store}/memories", {"path": f"{MARK}/a", "content": text("taken")}),
        ("PUT", entry, {"content": text("two")}), ("POST", f"{HOSTS}/proposals", proposal()),
        ("POST", AGENTS_MEMORY, note(Tier.EPISODIC)),
        ("POST", f"{AGENTS_MEMORY}/batch", {"entries": [note(Tier.SEMANTIC, "other")]}),
        ("POST", f"{HOSTS}/consolidate", {"memoryRef": MARK}),
        ("POST", f"{HOSTS}/distill", {"memoryRef": MARK, "recursive": True}),
        ("POST", f"{HOSTS}/forget", {"subject": MARK, "dryRun": True}),
        ("POST", f"{HOSTS}/forget", {"subject": f"{MARK}/nobody"}), tool("mem_search", query=MARK),
        tool("mem_context"), message("resources/read", uri="memory://context"),
    ]  # fmt: skip


def refusable(of: Stock) -> list[Request]:
    """Requests that are refused, each with the text in another place."""
    return [
        ("GET", f"/observations/{MARK}", None),
        ("GET", f"/{MARK}", None),
        ("PUT", f"/observations/{MARK}", None),
        ("GET", f"/context?max_tokens={MARK}", None),
        ("GET", f"/timeline?observation_id={MARK}", None),
        ("GET", f"/search?q={MARK}%00%22%20OR%20*%20AND%20(&scope={MARK}", None),
        ("GET", f"/context?stores={MARK}", None),
        ("GET", f"{STORES}?after_id={MARK}&limit={MARK}", None),
        ("GET", f"{STORES}/{MARK}", None),
        ("DELETE", f"/projects/{MARK}?hard={MARK}", None),
        ("POST", "/observations", f"{MARK} is no JSON".encode()),
        ("POST", "/observations", b'{"content": "' + MARK.encode() + b' \xff"'),
        ("POST", "/observations", [MARK]),
        ("POST", "/observations", {MARK: MARK, "tags": {MARK: 1}, "title": [MARK], "type": 1}),
        ("POST", "/observations", memory("\ud800", topic_key=5)),
        ("POST", "/observations", memory("long", type=MARK * 100, topic_key=MARK * 1000)),
        ("PATCH", "/observations/2", {"content": {MARK: MARK}}),
        ("POST", "/sessions", {"id": [MARK], "project": {MARK: MARK}}),
        ("POST", f"/sessions/{MARK}-0/end", {"messages": [{"role": MARK, "content": [MARK]}]}),
        ("POST", "/import", {"observations": [memory("x", uid=MARK), {MARK: MARK}]}),
        ("POST", "/import", {"observations": [memory("x", created_at=MARK)]}),
        ("POST", "/import", {"sessions": [{"id": MARK, "started_at": MARK}]}),
        ("POST", STORES, {"name": [MARK], "metadata": {MARK: [MARK], MARK * 9: MARK * 99}}),
        ("POST", f"{STORES}/{of.store}/memories", {"path": f"{MARK}/../{MARK}", "content": MARK}),
        ("PUT", f"{STORES}/{of.store}/memories/{of.entry}",
         {"content": MARK, "expected_content_sha256": MARK}),
        ("GET", f"{AGENTS_MEMORY}/{MARK}", None),
        ("GET", f"{AGENTS_MEMORY}?memory_type={MARK}&limit={MARK}", None),
        ("GET", f"{OWN}{MARK}/memory", None),
        ("POST", AGENTS_MEMORY, note(Tier.WORKING, ttl=MARK, tags=[{MARK: 1}], value=[MARK])),
        ("POST", AGENTS_MEMORY, note(Tier.WORKING, agent_id=MARK * 2)),
        ("PATCH", f"{AGENTS_MEMORY}/{of.note}", {MARK: MARK}),
        ("PATCH", f"{AGENTS_MEMORY}/namespaces/{MARK}", {"permissions": {"default": MARK}}),
        ("GET", f"{HOSTS}/proposals/{MARK}", None),
        ("GET", f"{HOSTS}/proposals?state={MARK}&after={MARK}", None),
        ("GET", f"{HOSTS}/artifacts/installed:{MARK}:{MARK}", None),
        ("POST", f"{HOSTS}/proposals", proposal(kind=MARK, artifact=[MARK], title={MARK: 1})),
        ("POST", f"{HOSTS}/proposals", proposal(artifact={MARK: "\x00"})),
        ("POST", f"{HOSTS}/proposals", proposal(provenance={"sourceRunIds": [MARK * 99]})),
        ("POST", f"{HOSTS}/proposals/{MARK}/apply", {}),
        tool(MARK, **{MARK: MARK}),
        tool("mem_save", title=[MARK], content={MARK: MARK}, **{MARK: MARK}),
        tool("mem_history", id=MARK),
        message(MARK, **{MARK: MARK}),
        message("resources/read", uri=f"memory://{MARK}"),
        message("prompts/get", name=MARK, arguments={MARK: [MARK]}),
        message("initialize", protocolVersion=MARK, capabilities=MARK),
        ("POST", f"/mcp/{MARK}", {"jsonrpc": "2.0", "method": f"notifications/{MARK}"}),
        ("POST", f"/mcp/{MARK}", {"jsonrpc": "2.0", "id": {MARK: 1}, "method": [MARK]}),
        ("POST", "/mcp", {"jsonrpc": MARK}),
    ]  # fmt: skip


HEADERS = (
    "Host", "Origin", "Authorization", "X-API-Key", "traceparent", "tracestate", "baggage",
    "Content-Type", "Content-Length", "Accept", "Expect", "Idempotency-Key", "X-Request-Id",
    "X-Memory-Project", "Mcp-Session-Id", "MCP-Protocol-Version", "Last-Event-ID", "Upgrade",
    "anthropic-beta", MARK,
)  # fmt: skip


def tool(name: str, **arguments: object) -> Request:
    return message("tools/call", name=name, arguments=arguments)


def message(method: str, **params: object) -> Request:
    return (
        "POST", f"/mcp/{MARK}", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    )  # fmt: skip


def send(http: httpx.Client, sent: Request) -> int:
    """The status of the answer; 0 if there was none."""
    method, path, body = sent
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
    with suppress(httpx.TransportError):
        return http.request(method, path, content=content).status_code
    return 0


def send_badly(url: str) -> None:
    """The text in every header, in what is no HTTP, and in requests whose client leaves."""
    mark, head = MARK.encode(), b"POST /observations HTTP/1.1\r\nHost: localhost\r\n"
    by_hand = [
        *(head + name.encode() + b": " + mark + b"\r\n\r\n" for name in HEADERS),
        mark * 3 + b"\r\n\r\n",
        b"GET /" + mark + b" HTTP/9.9\r\n" + mark + b"\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\n" + mark + b"\r\n",
        head + b"Content-Length: 99\r\n\r\n" + mark,
    ]
    for data in by_hand:
        with wire(url) as connection:
            connection.send(data)
            connection.is_quiet(0.02)
            connection.reset()


def quoted_in_lines(lines: list[str]) -> list[dict[str, Any]]:
    """The log lines that hold the text, but for the path of a request, which is documented."""
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for line in found:
        if line["message"] == "request":
            del line["path"]
    return [line for line in found if MARK in json.dumps(line)]


def quoted_in_spans(collector: Collector) -> list[ReceivedSpan]:
    """The spans that hold the text elsewhere than the documents say."""
    return [span for span in collector.spans if any(MARK in told for told in _words(span))]


def _words(span: ReceivedSpan) -> Iterator[str]:
    yield from (span.name, span.status)
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for name, value in attributes.items():
            yield name if name in IN_SPANS else f"{name} {value}"
