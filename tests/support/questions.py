"""Requests to every route, about what `every_write` has written: reads, and then changes."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from agentops_memory.memory.agent_memory import Tier

from .answers import (
    AGENTS,
    ANTHROPIC,
    COORDINATORS,
    HOSTS,
    INTENTS,
    MEMORY,
    PROPOSALS,
    REST,
    STORES,
    TASKS,
    Known,
    memory,
    note,
    proposal,
    save_once,
)

Request = tuple[str, str, dict[str, Any] | None, str | None]
"""Method, path and query, body, and the key of what is done once."""


def questions(known: Known) -> Iterator[str]:
    """What is asked of every route that reads."""
    mark, store = known.mark, f"{STORES}/{known.store}"
    claude, agent = f"{ANTHROPIC}/{known.store}", f"{AGENTS}/agents/{known.mark}"
    intent, ref = f"{INTENTS}/{known.intent_id}", f"memoryRef={known.mark}"
    put, older, deleted = (quote(it, safe="") for it in (known.put, known.older, known.deleted))
    draft = known.proposals[0]
    yield from (
        "/health", "/health/live", "/health/startup", "/health/ready", "/metrics", "/openapi.json",
        "/docs", "/.well-known/openintent.json", "/.well-known/openwop", "/v1/openapi.json",
        *(f"{REST}/{it}{below}" for it in known.memories for below in ("", "/history")),
        *(f"/timeline?observation_id={it}" for it in known.memories),
        "/sessions/recent", f"/sessions/recent?project={mark}&limit=1",
        f"/sessions/recent?before_id={mark}-2", f"{REST}/recent",
        f"{REST}/recent?before_id={known.memories[0]}",
        f"{REST}/recent?project={mark}&tag=fruit", f"{REST}/recent?type={mark}",
        f"/erasures/{known.erasure}", "/search?q=content", f"/search?q=content&project={mark}",
        f"/search?q=content&project={mark}&explain=true&tag=fruit", "/search?q=contentt&type=note",
        "/search?q=content&why_not=1", "/search?q=content&why_not=99", f"/context?project={mark}",
        f"/context?project={mark}&query=content", "/review", "/review?limit=1",
        f"/context?project={mark}&query=next&stores={known.store}",
        f"/context?project={mark}&query=content&explain=true&why_not=1&tag=fruit",
        f"/review?project={mark}&reason=review_due", "/stats", f"/stats?project={mark}", "/export",
        f"/export?project={mark}",
        STORES, f"{STORES}?include_archived=true&name={mark}&limit=1", store,
        f"{store}/memories/{known.entry}", f"{store}/versions/{known.version}",
        f"{store}/search?q={mark}", f"{store}/memories", f"{store}/memories?path_prefix={mark}",
        f"{store}/versions", f"{store}/versions?entry_id={known.entry}",
        ANTHROPIC, f"{ANTHROPIC}?include_archived=true&limit=1", claude,
        f"{claude}/memories/{known.entry}", f"{claude}/memory_versions/{known.version}",
        f"{claude}/memories", f"{claude}/memories?depth=1&view=full",
        f"{claude}/memory_versions?view=full", f"{claude}/memory_versions?operation=modified",
        f"{AGENTS}/memory", f"{AGENTS}/memory?namespace={mark}*&tags={mark}&limit=1",
        f"{AGENTS}/memory/{known.note}", f"{AGENTS}/memory/search?q={mark}+noted",
        f"{AGENTS}/memory/search?q={mark}x&namespace={mark}*&tags={mark}",
        f"{AGENTS}/memory/namespaces", f"{AGENTS}/memory/namespaces/{mark}", f"{agent}/memory",
        f"{agent}/memory/summary", f"{agent}/memory/a%2Fb", f"{agent}/memory/{mark}/b",
        f"{agent}/events", f"{agent}/events?after=0&event_type=x",
        intent, f"{intent}/coordinators", f"{intent}/acl", f"{intent}/tasks",
        f"{intent}/tasks?status=pending&limit=1", f"{intent}/events",
        f"{intent}/events?after=0&limit=2", f"{intent}/events?event_type=comment",
        f"{TASKS}/{known.task_id}", f"{TASKS}/ended", f"{COORDINATORS}/{known.coordinator_id}",
        *(f"{MEMORY}?{ref}{more}" for more in (
            "", f"&tag={mark}&limit=1", "&tokenBudget=20", "&runId=open", f"&before={deleted}",
            f"&runId={mark}&tag={mark}",
        )),
        *(f"{MEMORY}/{it}?{ref}{run}" for it in (put, older, deleted)
          for run in ("", "&runId=open", f"&runId={mark}")),
        f"{HOSTS}/search?{ref}&q={mark}",
        f"{HOSTS}/search?{ref}&q={mark}x&tag={mark}&tokenBudget=20",
        f"{HOSTS}/provenance/{put}?{ref}", f"{HOSTS}/provenance/{older}?{ref}", f"{HOSTS}/refs",
        f"{HOSTS}/refs?limit=1", f"{HOSTS}/refs?after={mark}", f"{HOSTS}/index?{ref}",
        f"{HOSTS}/index?{ref}/passes", f"{HOSTS}/erasures/{known.forgotten}", f"{HOSTS}/events",
        f"{HOSTS}/events?after=2&limit=3", f"{HOSTS}/events?type=memory.written",
        *(f"{HOSTS}/runs/{it}{below}" for it in ("open", mark)
          for below in ("", "/events?after=1")),
        *(f"{PROPOSALS}/{it}" for it in known.proposals), PROPOSALS,
        f"{PROPOSALS}?state=draft&limit=1", f"{PROPOSALS}?kind=agent-pack&after={draft}",
        f"{HOSTS}/artifacts", f"{HOSTS}/artifacts?kind=agent-pack&after={known.installed}",
        f"{HOSTS}/artifacts/{known.installed}", f"{HOSTS}/commitments",
        f"{HOSTS}/commitments?{ref}&state=armed",
        f"{HOSTS}/commitments?after={known.fired}&limit=1",
        f"{HOSTS}/commitments/{known.armed}", f"{HOSTS}/commitments/{known.fired}",
    )  # fmt: skip


def changes(known: Known) -> Iterator[Request]:
    """Requests that change what is stored."""
    mark = known.mark
    kept, deleted, again = known.memories
    store, sessions = f"{STORES}/{known.store}", f"/sessions/{mark}"
    entry = f"{store}/memories/{known.entry}"
    yield "POST", REST, save_once(mark), "once"
    yield "POST", REST, memory(mark, "new", None), None
    yield "POST", REST, memory(mark, "changed"), None
    yield "PATCH", f"{REST}/{kept}", {"title": "another title"}, None
    yield "POST", f"{REST}/{deleted}/restore", {"revision": 1}, None
    said = {"messages": [{"role": "user", "content": "x"}]}
    yield "POST", f"{sessions}-2/messages", said, None
    yield "POST", f"{sessions}-2/end", {}, None
    yield "POST", f"{sessions}-1/end", {}, None
    yield "DELETE", f"{REST}/{again}", None, None
    yield "DELETE", f"{REST}/{kept}?hard=true", None, None
    yield "POST", f"{store}/memories", {"path": "new", "content": "new"}, None
    yield "PUT", entry, {"content": f"{mark} yellow"}, None
    yield "POST", f"{store}/versions/{known.version}/redact", None, None
    yield "DELETE", entry, None, None
    yield from _changes_of_work(known)
    yield from _changes_of_hosts(known)
    closed = {"permissions": {"default": "none"}}
    yield "PATCH", f"{AGENTS}/memory/namespaces/{mark}", closed, None
    yield "DELETE", f"{AGENTS}/memory/{known.note}", None, None
    yield "DELETE", f"{AGENTS}/memory/batch?tags={mark}", None, None
    yield "DELETE", store, None, None
    yield "DELETE", f"/projects/{mark}?hard=true&dry_run=true", None, None
    yield "DELETE", f"/projects/{mark}?hard=true", None, None


def _changes_of_work(known: Known) -> Iterator[Request]:
    """The last ones end a task, which the first has brought there."""
    mark, intent, task = known.mark, known.intent_id, f"{TASKS}/{known.task_id}"
    one, scope = f"{INTENTS}/{intent}", {"task_id": known.task_id}
    bound = note(mark, Tier.WORKING, "new", scope=scope, ttl="task_lifetime")
    yield "PATCH", task, {"status": "running", "metadata": {"a": "c"}}, None
    yield "POST", f"{AGENTS}/memory", bound, None
    shared = {"namespace": "shared", "memory_type": "semantic"}
    yield "POST", f"{AGENTS}/memory", bound | shared, None
    yield "POST", INTENTS, {"title": "Pears", "id": "pears"}, None
    for _ in range(2):
        yield "POST", TASKS, {"intent_id": intent, "name": "Sell", "id": "sell"}, "sold"
    yield "POST", f"{one}/events", {"event_type": "comment"}, None
    yield "POST", COORDINATORS, {"intent_id": intent, "agent_id": "bob"}, None
    yield "DELETE", f"{COORDINATORS}/{known.coordinator_id}", None, None
    yield "POST", f"{one}/acl/entries", {"principal_id": "eve"}, None
    yield "DELETE", f"{one}/acl/entries/{known.grant_id}", None, None
    yield "PATCH", task, {"status": "completed"}, None
    yield "PATCH", f"{TASKS}/ended", {"status": "ready"}, None


def _changes_of_hosts(known: Known) -> Iterator[Request]:
    mark, runs, passes = known.mark, f"{HOSTS}/runs", {"memoryRef": f"{known.mark}/passes"}
    put: dict[str, Any] = {"memoryRef": mark, "content": f"{mark} green", "tags": [mark]}
    for _ in range(2):
        yield "POST", MEMORY, put, "put"
    yield "POST", MEMORY, put | {"supersedes": [known.older], "id": f"{mark}/new"}, None
    yield "POST", MEMORY, put | {"runId": "open", "nodeId": "pick"}, None
    yield "POST", MEMORY, put | {"tags": ["harvest", "when:snow"]}, None
    waits = {"memoryRef": mark, "memoryId": known.put, "condition": "predicate", "tag": "snow"}
    for _ in range(2):
        yield "POST", f"{HOSTS}/commitments", waits, "commitment"
    yield "DELETE", f"{HOSTS}/commitments/{known.armed}", None, None
    yield "POST", runs, {"runId": f"{mark}-next", "memoryRefs": [mark]}, "run"
    yield "POST", runs, {"runId": "open", "agentId": mark}, None
    yield "POST", f"{runs}/open/secrets", {"secretId": "a", "value": "wombat-wombat"}, None
    yield "POST", f"{runs}/{mark}/fork", {"mode": "replay"}, None
    yield "POST", f"{runs}/{mark}/fork", {"mode": "branch", "fromSeq": 2}, None
    draft, repeated, applied = (f"{PROPOSALS}/{it}" for it in known.proposals)
    for _ in range(2):
        yield "POST", PROPOSALS, proposal(mark), "propose"
    yield "PATCH", repeated, {"artifact": proposal(mark)["artifact"]}, None
    for _ in range(2):
        yield "POST", f"{draft}/apply", {}, "apply"
    yield "POST", f"{repeated}/reject", {}, None
    yield "DELETE", applied, None, None
    where = f"memoryRef={mark}&runId=open"
    yield "DELETE", f"{MEMORY}/{quote(known.put, safe='')}?{where}", None, None
    yield "POST", f"{runs}/open/end", {"status": "failed"}, None
    for _ in range(2):
        yield "POST", f"{HOSTS}/distill", passes | {"recursive": True}, "distill"
    for done in ("consolidate", "compact"):
        yield "POST", f"{HOSTS}/{done}", {"memoryRef": mark}, None
    yield "POST", f"{HOSTS}/passes/{known.merge}/undo", None, None
    yield "POST", f"{HOSTS}/forget", {"subject": mark}, None
