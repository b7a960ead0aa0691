"""One filling: each write of each protocol, under a key of its own, with a word of the test in each
field that takes a text. It can be sent again, planted, or damaged."""

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any
from urllib.parse import quote

import httpx

from agentops_memory.memory.agent_memory import Tier

from .service import START, observation

REST, STORES = "/observations", "/api/v1/cloud/memory_stores"
ANTHROPIC = "/anthropic/v1/memory_stores"
AGENTS, HOSTS = "/api/v1", "/v1/host/agentops-memory"
INTENTS, TASKS, COORDINATORS = (f"{AGENTS}/{it}" for it in ("intents", "tasks", "coordinators"))
MEMORY, PROPOSALS = f"{HOSTS}/memory", f"{HOSTS}/proposals"
FAR = "2040-01-01T00:00:00Z"
POLICY = {
    "archive_on_completion": True, "inherit_from_parent": True, "max_entries": 10,
    "max_total_size_kb": 64,
}  # fmt: skip
GUARDRAILS = {
    "max_working_memory_per_task": 9, "max_episodic_memory_per_agent": 99,
    "allowed_semantic_namespaces": ["shared"], "denied_semantic_namespaces": ["secret"],
    "memory_archive_required": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """How what was written is addressed; its agent, project and ref have the name `mark`."""

    mark: str
    memories: list[int]  # one that is kept, one that is deleted, one saved under the key `once`
    erasure: str
    store: str
    entry: str
    version: str
    note: str  # of an agent
    intent_id: str
    task_id: str
    coordinator_id: str
    grant_id: str
    put: str  # entries of a host; its runs are `open` and the one that has ended, named `mark`
    older: str
    deleted: str
    armed: str  # commitments
    fired: str
    merge: str  # a pass
    forgotten: str  # an erasure
    proposals: tuple[str, str, str]  # a draft, one that repeats it, one that is applied
    installed: str


@dataclass
class Writer:
    """Sends writes under keys of their own, and can send all of them again."""

    http: httpx.Client
    mark: str = "ada"
    sent: dict[str, tuple[httpx.Request, httpx.Response]] = field(default_factory=dict)
    numbers: Any = field(default_factory=count)

    def __call__(
        self, name: str, method: str, path: str, body: object = None, **headers: str
    ) -> Any:
        """The JSON of the answer to a write; `name` is the operation it is of."""
        key = {"Idempotency-Key": f"{self.mark}-{next(self.numbers)}", "X-Agent-ID": self.mark}
        request = self.http.build_request(method, path, json=body, headers=key | headers)
        answer = self.http.send(request)
        assert answer.is_success, (name, answer.text)
        assert "idempotent-replayed" not in answer.headers
        self.sent[name] = request, answer
        return answer.json() if answer.content else None

    def plain(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        own = {"X-Agent-ID": self.mark} | headers
        return self.http.request(method, path, json=body, headers=own)

    def made(self, path: str, body: object, **headers: str) -> Any:
        """What is made without a key."""
        answer = self.plain("POST", path, body, **headers)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def again(self, http: httpx.Client) -> dict[str, httpx.Response]:
        """The answers of a service to the same requests."""
        return {
            name: http.request(
                it.method, it.url.raw_path.decode(), content=it.content,
                headers={key: it.headers[key] for key in it.headers if key != "host"},
            )
            for name, (it, _) in self.sent.items()
        }  # fmt: skip

    def assert_same(self, http: httpx.Client) -> None:
        for name, answer in self.again(http).items():
            first = self.sent[name][1]
            assert told(answer) == told(first), name
            assert answer.headers.get("idempotent-replayed") == "true", name


def told(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    """What must be the same again; a request has an id of its own each time."""
    names = ("etag", "content-type", "x-erasure-id", "x-redacted", "x-memory-warning")
    return (
        answer.status_code,
        answer.content,
        {name: answer.headers[name] for name in names if name in answer.headers},
    )


def described(http: httpx.Client) -> set[str]:
    """The operations that take a key."""
    return {
        operation["operationId"]
        for path in http.get("/openapi.json").json()["paths"].values()
        for operation in path.values()
        if "Idempotency-Key" in {it["name"] for it in operation["parameters"]}
    }


def memory(mark: str, content: str, number: int | None = 0, **fields: object) -> dict[str, object]:
    """The body of a save, at a topic key of this number."""
    key = {} if number is None else {"topic_key": f"{mark}/{number}"}
    return observation(
        f"{mark} {content}", project=mark, session_id=f"{mark}-{(number or 0) % 2}", type=mark,
        tags=[mark], scope=mark,
    ) | key | fields  # fmt: skip


def note(mark: str, tier: Tier, key: str = "key", **fields: object) -> dict[str, object]:
    return {
        "agent_id": mark, "namespace": mark, "key": f"{mark} {key}", "memory_type": tier,
        "value": {f"{mark} name": f"{mark} noted"}, "tags": [mark], "sensitivity": "internal",
        "curated_by": f"{mark} curator", "ttl": "duration:P9Y",
        "scope": {"task_id": mark, "intent_id": mark},
    } | fields  # fmt: skip


def proposal(mark: str, **fields: object) -> dict[str, object]:
    artifact = {"name": f"{mark} name", "version": "1", f"{mark} member": [f"{mark} item"]}
    return {
        "kind": "agent-pack", "title": f"{mark} title", "rationale": f"{mark} rationale",
        "artifact": artifact,
        "provenance": {"sourceRunIds": [mark], "synthesizerModel": f"{mark} model"},
    } | fields  # fmt: skip


def every_write(write: Writer) -> Known:
    """Send all of them, and change what they have written; erasures of whole things come first."""
    mark = write.mark
    one, two = (write.made(STORES, {"name": f"{mark} gone"})["id"] for _ in range(2))
    write("delete_store", "DELETE", f"{STORES}/{one}")
    write("anthropic_delete_store", "DELETE", f"{ANTHROPIC}/{two}")
    somebody = {"memoryRef": "mem://people", "tags": ["subject:somebody"]}
    write.made(MEMORY, somebody | {"content": f"{mark} somebody"})
    write.made(REST, memory("all", "for all", 3, scope="global"))  # every caller may see it
    forgotten = write("openwop_forget", "POST", f"{HOSTS}/forget", {"subject": "somebody"})
    known = {
        "mark": mark, "forgotten": forgotten["erasureId"], **write_memories(write),
        **_stores(write), **_work(write), **_notes(write), **_hosts(write), **_proposals(write),
    }  # fmt: skip
    _anthropic(write)
    return Known(**known)


def save_once(mark: str) -> dict[str, object]:
    return memory(mark, "kiwi", None, title=f"{mark} by key", tags=[mark, "fruit"])


def write_memories(write: Writer) -> dict[str, Any]:
    mark = write.mark
    said = {"messages": [{"role": "user", "content": f"{mark} said"},
                         {"role": "assistant", "content": "yes"}]}  # fmt: skip
    sessions, fruit = f"/sessions/{mark}", [mark, "fruit"]
    write("create_session", "POST", "/sessions", {"id": f"{mark}-9", "project": mark})
    write("append_messages", "POST", f"{sessions}-9/messages", said)
    write("end_session", "POST", f"{sessions}-9/end", said)
    kept = write("add_observation", "POST", REST, memory(mark, "content 0", tags=fruit))["id"]
    one = f"{REST}/{kept}"
    write("update_observation", "PATCH", one, {"content": f"{mark} newer", "tags": [mark]})
    write("restore_observation", "POST", f"{one}/restore", {"revision": 1})
    write("confirm_observation", "POST", f"{one}/confirm")
    deleted, erased = (write.made(REST, memory(mark, f"content {it}", it))["id"] for it in (1, 2))
    write("delete_observation", "DELETE", f"{REST}/{deleted}")
    write("delete_observation, hard", "DELETE", f"{REST}/{erased}?hard=true")
    receipt = write.sent["delete_observation, hard"][1].headers["x-erasure-id"]
    again = write.made(REST, save_once(mark), **{"Idempotency-Key": "once"})["id"]
    old = write.made(REST, memory(mark, "an old fig", None, tags=[f"{mark} old"]))["id"]
    lively = {"pinned": True, "ttl": 86_400, "review_at": "2030-01-01T12:00:30Z"}
    like = write.made(REST, memory(mark, "a fig", None, supersedes=[old], **lively))["id"]
    write.plain("POST", f"{REST}/{like}/confirm")
    for past in ({"expires_at": "2000-01-01T00:00:00Z"}, {}):  # the second takes the first's key
        write.made(REST, memory(mark, f"held {len(past)}", 9, **past))
    alike = memory(mark, "kiwi of May", None, title=f"{mark} like it")
    assert write.made(f"{REST}?similar=3", alike)["similar"]
    write.made(f"{sessions}-1/end", said)
    write.made("/sessions", {"id": f"{mark}-2", "project": mark})
    for session in ("0", "2"):
        write.made(f"{sessions}-{session}/messages", said)
    write.plain("PATCH", one, {"title": f"{mark} changed since"})
    write.plain("POST", f"{sessions}-9/end", {"messages": [{"role": "user", "content": "Wait"}]})
    return {"memories": [int(it) for it in (kept, deleted, again)], "erasure": receipt}


def _stores(write: Writer) -> dict[str, Any]:
    mark = write.mark
    body = {"name": f"{mark} store", "description": f"{mark} about"}
    metadata = {"metadata": {f"{mark} key": f"{mark} v"}}
    store = write("create_store", "POST", STORES, body | metadata)["id"]
    at = f"{STORES}/{store}"
    body = {"path": f"{mark}/a", "content": f"{mark} é"}
    entry = write("create_entry", "POST", f"{at}/memories", body | metadata)["id"]
    write("update_entry", "PUT", f"{at}/memories/{entry}", {"content": f"{mark} next"})
    write.plain("PUT", f"{at}/memories/{entry}", {"content": f"{mark} changed since"})
    other, third = (
        write.made(f"{at}/memories", {"path": f"{mark}/{it}", "content": f"{mark} {it}"})["id"]
        for it in "bc"
    )
    write("delete_entry", "DELETE", f"{at}/memories/{other}")
    write.plain("PUT", f"{at}/memories/{third}", {"content": f"{mark} d"})

    def version(of: str, place: int) -> str:
        listed = write.plain("GET", f"{at}/versions?entry_id={of}").json()["data"]
        return str(listed[place]["id"])

    write("redact_version", "POST", f"{at}/versions/{version(third, -1)}/redact")
    archived = write.made(STORES, {"name": f"{mark} archived"})["id"]
    write("archive_store", "POST", f"{STORES}/{archived}/archive")
    return {"store": store, "entry": entry, "version": version(entry, 0)}


def _anthropic(write: Writer) -> None:
    mark = write.mark
    made = write("anthropic_create_store", "POST", ANTHROPIC, {"name": f"{mark} n"})["id"]
    at = f"{ANTHROPIC}/{made}"
    write("anthropic_update_store", "POST", at, {"name": f"{mark} m"})
    body = {"path": f"/{mark}/a", "content": f"{mark} é"}
    held = write("anthropic_create_memory", "POST", f"{at}/memories?view=full", body)
    path, body = f"{at}/memories/{held['id']}", {"content": f"{mark} next"}
    write("anthropic_update_memory", "POST", f"{path}?view=full", body)
    write.plain("POST", path, {"content": f"{mark} changed since"})
    other = write.made(f"{at}/memories", {"path": f"/{mark}/b", "content": f"{mark} b"})
    write("anthropic_delete_memory", "DELETE", f"{at}/memories/{other['id']}")
    version = f"{at}/memory_versions/{other['memory_version_id']}"
    write("anthropic_redact_version", "POST", f"{version}/redact")
    write("anthropic_archive_store", "POST", f"{at}/archive")


def _notes(write: Writer) -> dict[str, Any]:
    """What an agent has in each tier."""
    mark, notes = write.mark, f"{AGENTS}/memory"

    def entry(key: str, tier: Tier = Tier.EPISODIC, **fields: object) -> dict[str, object]:
        return note(mark, tier, key, **fields)

    levels = ("confidential", "internal", "public")
    tiers = [
        write.made(notes, entry("of a tier", tier, sensitivity=level))["id"]
        for tier, level in zip(Tier, levels, strict=True)
    ]
    one = f"{notes}/{write('openintent_create_entry', 'POST', notes, entry('a'))['id']}"
    pinned = {"value": {"v": f"{mark} 2"}, "pinned": True}
    write("openintent_update_entry", "PATCH", one, pinned, **{"If-Match": "1"})
    write.plain("PATCH", one, {"value": {"v": 3}}, **{"If-Match": "2"})
    own = f"{AGENTS}/agents/{mark}/memory/{mark}/b"
    write("openintent_put_entry", "PUT", own, {"value": f"{mark} 1"})
    write.plain("PUT", own, {"value": 2})
    entries = {"entries": [entry("c"), entry("d", Tier.SEMANTIC)]}
    write("openintent_write_batch", "POST", f"{notes}/batch", entries)
    gone = write.made(notes, entry("e"))["id"]
    write("openintent_delete_entry", "DELETE", f"{notes}/{gone}")
    write.made(notes, entry("f"))
    write("openintent_delete_batch", "DELETE", f"{notes}/batch?key={mark}+f")
    allow = {"allow": [{"agent": mark, "access": "write"}]}
    read, changed = ({"permissions": {**allow, "default": it}} for it in ("read", "write"))
    write("openintent_update_namespace", "PATCH", f"{notes}/namespaces/{mark}", read)
    write.plain("PATCH", f"{notes}/namespaces/{mark}", changed)
    return {"note": tiers[-1]}


def _work(write: Writer) -> dict[str, Any]:
    """An intent with everything that there can be of one."""
    mark = write.mark
    body = {
        "id": f"{mark}.intent", "title": f"{mark} title", "description": f"{mark} of it",
        "state": {f"{mark} ripe": True}, "constraints": {"until": mark}, "depends_on": [mark],
        "governance_policy": {mark: 1},
    }  # fmt: skip
    intent = write("openintent_create_intent", "POST", INTENTS, body)["id"]
    of = {"intent_id": intent, "assigned_agent": mark, "name": f"{mark} name"}
    metadata = {"metadata": {f"{mark} key": f"{mark} v"}}
    tools = {"requires_tools": [{"service": mark, "scopes": [mark]}], "memory_policy": POLICY}
    body = of | metadata | tools | {
        "id": f"{mark}.task", "artifacts": [f"{mark} a basket"], "input": {mark: 7},
    }  # fmt: skip
    task = write("openintent_create_task", "POST", TASKS, body)["id"]
    part = write.made(TASKS, of | tools | {"parent_task_id": task})["id"]
    write.made(TASKS, of | {"id": "ended"})
    over = write.made(TASKS, of)["id"]
    body = {"intent_id": intent, "agent_id": mark, "guardrails": GUARDRAILS, "expires_at": FAR}
    coordinator = write.made(COORDINATORS, body | metadata)["id"]
    other = {"intent_id": intent, "agent_id": "bob"}
    made = write("openintent_create_coordinator", "POST", COORDINATORS, other)["id"]
    write("openintent_delete_coordinator", "DELETE", f"{COORDINATORS}/{made}")
    grants = f"{INTENTS}/{intent}/acl/entries"
    granted = {"principal_id": mark, "permission": "write", "reason": f"{mark} asked"}
    grant = write.made(grants, granted | {"expires_at": FAR})["id"]
    made = write("openintent_create_grant", "POST", grants, {"principal_id": "eve"})["id"]
    write("openintent_delete_grant", "DELETE", f"{grants}/{made}")
    event = {"event_type": "comment", "payload": {mark: f"{mark} said"}}
    write("openintent_log_event", "POST", f"{INTENTS}/{intent}/events", event)
    tiers = [(it, Tier.WORKING) for it in (task, part, "ended", over)] + [(task, Tier.EPISODIC)]
    for number, (name, tier) in enumerate(tiers):
        level = "confidential" if name == task else "internal"
        bound = {"scope": {"task_id": name}, "sensitivity": level}
        write.made(f"{AGENTS}/memory", note(mark, tier, f"bound {number}", **bound))
    path = f"{TASKS}/{over}"
    write("openintent_update_task", "PATCH", path, {"status": "running"}, **{"If-Match": "1"})
    write.plain("PATCH", path, {"status": "completed"}, **{"If-Match": "2"})
    return {
        "intent_id": intent, "task_id": task, "coordinator_id": coordinator, "grant_id": grant
    }  # fmt: skip


def _hosts(write: Writer) -> dict[str, Any]:
    """Entries of every kind, in runs and without; commitments and passes."""
    mark, runs, commitments = write.mark, f"{HOSTS}/runs", f"{HOSTS}/commitments"
    ref = {"memoryRef": mark, "tags": [mark]}

    def put(content: str, **fields: object) -> str:
        body = ref | {"content": f"{mark} {content}"} | fields
        return str(write.made(MEMORY, body)["entry"]["id"])

    deleted, older = put("deleted"), put("older", tags=[mark, "old"])
    of_run = {"agentId": mark, "workflowId": f"{mark} workflow", "memoryRefs": [mark, "mem://b"]}
    write("openwop_open_run", "POST", runs, {"runId": mark, **of_run})
    secret = {"secretId": f"{mark} secret", "value": "a value of nothing else"}
    write.made(runs, {"runId": "secretive", **of_run})  # a run writes no more once they are lost
    write.made(f"{runs}/secretive/secrets", secret)
    body = ref | {
        "content": f"{mark} put", "id": f"{mark}/put", "tags": [mark, f"subject:{mark}"],
        "supersedes": [older], "ttlSeconds": 86_400, "runId": mark, "nodeId": mark,
        "agentId": mark,
    }  # fmt: skip
    entry = str(write("openwop_put", "POST", MEMORY, body)["entry"]["id"])
    put("a pear", memoryRef="mem://b", runId=mark)
    write.made(runs, {"runId": "open", **of_run})
    where = f"memoryRef={mark}&runId=open"
    write("openwop_delete", "DELETE", f"{MEMORY}/{quote(deleted, safe='')}?{where}")
    waits = {"memoryRef": mark, "memoryId": entry, "condition": "predicate"}
    fired = write.made(commitments, waits | {"tag": "harvest"})["id"]
    put("ripe", tags=["harvest"])
    end = (START + timedelta(hours=1)).isoformat()
    armed = write.made(commitments, waits | {"condition": "time", "dueAt": end})["id"]
    awaited = waits | {"tag": f"{mark} awaited"}
    one = write("openwop_create_commitment", "POST", commitments, awaited)["id"]
    other = write.made(commitments, waits | {"tag": "frost"})["id"]
    write("openwop_cancel_commitment", "DELETE", f"{commitments}/{other}")
    write.plain("DELETE", f"{commitments}/{one}")
    passes = {"memoryRef": f"{mark}/passes"}
    for text in (*(f"The proxy waits for {it} s." for it in range(8)), "two", "two"):
        put(text, **passes)
    merge = write("openwop_consolidate", "POST", f"{HOSTS}/consolidate", passes)["runId"]
    write("openwop_distill", "POST", f"{HOSTS}/distill", passes)
    undone = write("openwop_compact", "POST", f"{HOSTS}/compact", passes)["runId"]
    write("openwop_undo", "POST", f"{HOSTS}/passes/{undone}/undo")
    write.made(f"{HOSTS}/compact", passes)
    write("openwop_end_run", "POST", f"{runs}/{mark}/end", {"status": "completed"})
    write("openwop_fork_run", "POST", f"{runs}/{mark}/fork", {"mode": "replay"})
    write.made(f"{runs}/{mark}/fork", {"mode": "branch", "fromSeq": 1})
    return {
        "put": entry, "older": older, "deleted": deleted, "armed": armed, "fired": fired,
        "merge": merge,
    }  # fmt: skip


def _proposals(write: Writer) -> dict[str, Any]:
    mark = write.mark
    first = write("openwop_create_proposal", "POST", PROPOSALS, proposal(mark))["id"]
    because = {"rationale": f"{mark} because"}
    write("openwop_revise_proposal", "PATCH", f"{PROPOSALS}/{first}", because)
    write.plain("PATCH", f"{PROPOSALS}/{first}", {"title": f"{mark} changed since"})
    done = write("openwop_apply_proposal", "POST", f"{PROPOSALS}/{first}/apply", {})
    draft, repeated, rejected, archived = (
        write.made(PROPOSALS, proposal(mark))["id"] for _ in range(4)
    )
    write.plain("PATCH", f"{PROPOSALS}/{repeated}", {"title": f"{mark} again"})
    write("openwop_reject_proposal", "POST", f"{PROPOSALS}/{rejected}/reject", {})
    write("openwop_archive_proposal", "DELETE", f"{PROPOSALS}/{archived}")
    installed = done["installedArtifactRef"]
    return {"proposals": (draft, repeated, first), "installed": installed}
