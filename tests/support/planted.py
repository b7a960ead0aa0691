"""A text that can be recognised wherever it comes out, in all that is stored and is sent."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import httpx

from agentops_memory.memory.agent_memory import Tier

from . import answers
from .answers import STORES, Writer, every_write
from .otlp import Collector, ReceivedSpan
from .raw import wire

MARK = "qzxplanted"
AGENTS_MEMORY, HOSTS = "/api/v1/memory", answers.HOSTS
OWN = f"/api/v1/agents/{MARK}"

Stock = answers.Known
memory, note, proposal = (
    partial(it, MARK) for it in (answers.memory, answers.note, answers.proposal)
)

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


def stock(http: httpx.Client) -> Stock:
    """A row of every kind, through the API, with the text in each field that takes one.

    From now on whoever asks is an agent of this name.
    """
    http.headers["X-Agent-ID"] = MARK
    return every_write(Writer(http, MARK))


def requests(of: Stock) -> list[Request]:
    """Reads and writes of each kind, by each protocol."""
    store, entry = f"{STORES}/{of.store}", f"{STORES}/{of.store}/memories/{of.entry}"
    kept, deleted, _ = of.memories
    said = {"messages": [{"role": "user", "content": text("more")}]}
    one = f"/observations/{kept}"
    reads = [
        one, f"{one}/history", "/observations/recent", "/sessions/recent",
        "/stats", "/export", f"/timeline?observation_id={kept}&project={MARK}", f"/search?q={MARK}",
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
        *(("GET", path, None) for path in reads), ("POST", "/observations", memory("content 0")),
        ("POST", "/observations", memory("new")),
        ("PATCH", one, {"title": text("title")}),
        ("POST", f"/observations/{deleted}/restore", {"revision": 1}),
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


def quoted_in_lines(lines: list[str], mark: str = MARK) -> list[dict[str, Any]]:
    """The log lines that hold the text, but for the path of a request, which is documented."""
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    for line in found:
        if line["message"] == "request":
            del line["path"]
    return [line for line in found if mark in json.dumps(line)]


def quoted_in_spans(collector: Collector) -> list[ReceivedSpan]:
    """The spans that hold the text elsewhere than the documents say."""
    return [span for span in collector.spans if any(MARK in told for told in _words(span))]


def _words(span: ReceivedSpan) -> Iterator[str]:
    yield from (span.name, span.status)
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for name, value in attributes.items():
            yield name if name in IN_SPANS else f"{name} {value}"
