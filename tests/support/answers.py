"""Every write of every protocol, each under an idempotency key of its own, and then sent again."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from .service import observation

REST, STORES = "/observations", "/api/v1/cloud/memory_stores"
ANTHROPIC = "/anthropic/v1/memory_stores"
AGENTS, HOSTS = "/api/v1", "/v1/host/agentops-memory"


@dataclass
class Writer:
    """Sends writes under keys of their own, and can send all of them again."""

    http: httpx.Client
    sent: dict[str, tuple[httpx.Request, httpx.Response]] = field(default_factory=dict)
    numbers: Any = field(default_factory=count)

    def __call__(
        self, name: str, method: str, path: str, body: object = None, **headers: str
    ) -> Any:
        """The JSON of the answer to a write; `name` is the operation it is of."""
        key = {"Idempotency-Key": f"key-{next(self.numbers)}", "X-Agent-ID": "ada"} | headers
        request = self.http.build_request(method, path, json=body, headers=key)
        answer = self.http.send(request)
        assert answer.is_success, (name, answer.text)
        assert "idempotent-replayed" not in answer.headers
        self.sent[name] = request, answer
        return answer.json() if answer.content else None

    def plain(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        return self.http.request(method, path, json=body, headers={"X-Agent-ID": "ada"} | headers)

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


def every_write(write: Writer) -> None:
    """Send all of them, and change what they have written; erasures of whole things come first."""
    erase(write)
    write_observations(write)
    write_stores(write)
    write_anthropic(write)
    write_agents(write)
    write_work(write)
    write_hosts(write)


def described(http: httpx.Client) -> set[str]:
    """The operations that take a key."""
    return {
        operation["operationId"]
        for path in http.get("/openapi.json").json()["paths"].values()
        for operation in path.values()
        if "Idempotency-Key" in {it["name"] for it in operation["parameters"]}
    }


def erase(write: Writer) -> None:
    one, two = (write.plain("POST", STORES, {"name": "gone"}).json()["id"] for _ in range(2))
    write("delete_store", "DELETE", f"{STORES}/{one}")
    write("anthropic_delete_store", "DELETE", f"{ANTHROPIC}/{two}")
    write("openwop_forget", "POST", f"{HOSTS}/forget", {"subject": "nobody"})


def write_observations(write: Writer) -> None:
    write("create_session", "POST", "/sessions", {"id": "s9", "project": "demo"})
    said = {"messages": [{"role": "user", "content": "Ship it"}]}
    write("append_messages", "POST", "/sessions/s9/messages", said)
    write("end_session", "POST", "/sessions/s9/end", said)
    one = write("add_observation", "POST", REST, observation("pear trees", session_id="s9"))["id"]
    two = write.plain("POST", REST, observation("walnut trees")).json()["id"]
    write("update_observation", "PATCH", f"{REST}/{one}", {"content": "newer", "tags": ["t"]})
    write("restore_observation", "POST", f"{REST}/{one}/restore", {"revision": 1})
    write("confirm_observation", "POST", f"{REST}/{one}/confirm")
    write("delete_observation", "DELETE", f"{REST}/{two}")
    write("delete_observation, hard", "DELETE", f"{REST}/{two}?hard=true")
    write.plain("PATCH", f"{REST}/{one}", {"title": "changed since"})
    write.plain("POST", "/sessions/s9/end", {"messages": [{"role": "user", "content": "Wait"}]})


def write_stores(write: Writer) -> None:
    made = write("create_store", "POST", STORES, {"name": "n", "metadata": {"a": "b"}})["id"]
    at = f"{STORES}/{made}"
    held = write("create_entry", "POST", f"{at}/memories", {"path": "a.md", "content": "é"})
    path = f"{at}/memories/{held['id']}"
    write("update_entry", "PUT", path, {"content": "next"})
    write.plain("PUT", path, {"content": "changed since"})
    first = write.plain("GET", f"{at}/versions").json()["data"][-2]["id"]
    other = write.plain("POST", f"{at}/memories", {"path": "b.md", "content": "b"}).json()["id"]
    write("delete_entry", "DELETE", f"{at}/memories/{other}")
    third = write.plain("POST", f"{at}/memories", {"path": "c.md", "content": "c"}).json()["id"]
    write.plain("PUT", f"{at}/memories/{third}", {"content": "d"})
    old = write.plain("GET", f"{at}/versions").json()["data"][1]["id"]
    assert old != first
    write("redact_version", "POST", f"{at}/versions/{old}/redact")
    write("archive_store", "POST", f"{at}/archive")


def write_anthropic(write: Writer) -> None:
    made = write("anthropic_create_store", "POST", ANTHROPIC, {"name": "n"})["id"]
    at = f"{ANTHROPIC}/{made}"
    write("anthropic_update_store", "POST", at, {"name": "m"})
    body = {"path": "/a", "content": "é"}
    held = write("anthropic_create_memory", "POST", f"{at}/memories?view=full", body)
    path = f"{at}/memories/{held['id']}"
    write("anthropic_update_memory", "POST", f"{path}?view=full", {"content": "next"})
    write.plain("POST", path, {"content": "changed since"})
    body = {"path": "/b", "content": "b"}
    other = write.plain("POST", f"{at}/memories", body).json()
    write("anthropic_delete_memory", "DELETE", f"{at}/memories/{other['id']}")
    version = f"{at}/memory_versions/{other['memory_version_id']}"
    write("anthropic_redact_version", "POST", f"{version}/redact")
    write("anthropic_archive_store", "POST", f"{at}/archive")


def write_agents(write: Writer) -> None:
    memory = f"{AGENTS}/memory"

    def entry(key: str, **more: object) -> dict[str, object]:
        return {"agent_id": "ada", "namespace": "notes", "key": key, "value": {"v": key},
                "memory_type": "episodic"} | more  # fmt: skip

    made = write("openintent_create_entry", "POST", memory, entry("a"))
    one = f"{memory}/{made['id']}"
    match = {"If-Match": "1"}
    write("openintent_update_entry", "PATCH", one, {"value": {"v": 2}, "pinned": True}, **match)
    write.plain("PATCH", one, {"value": {"v": 3}}, **{"If-Match": "2"})
    own = f"{AGENTS}/agents/ada/memory/notes/b"
    write("openintent_put_entry", "PUT", own, {"value": 1})
    write.plain("PUT", own, {"value": 2})
    entries = {"entries": [entry("c"), entry("d", memory_type="semantic")]}
    write("openintent_write_batch", "POST", f"{memory}/batch", entries)
    gone = write.plain("POST", memory, entry("e")).json()["id"]
    write("openintent_delete_entry", "DELETE", f"{memory}/{gone}")
    write.plain("POST", memory, entry("f"))
    write("openintent_delete_batch", "DELETE", f"{memory}/batch?key=f")
    permissions = {"permissions": {"default": "read", "allow": []}}
    notes = f"{memory}/namespaces/notes"
    write("openintent_update_namespace", "PATCH", notes, permissions)
    write.plain("PATCH", notes, {"permissions": {"default": "write", "allow": []}})


def write_work(write: Writer) -> None:
    body = {"title": "t", "description": "d"}
    intent = write("openintent_create_intent", "POST", f"{AGENTS}/intents", body)["id"]
    at = f"{AGENTS}/intents/{intent}"
    body = {"name": "t", "intent_id": intent}
    task = write("openintent_create_task", "POST", f"{AGENTS}/tasks", body)["id"]
    changed = {"status": "ready"}
    path = f"{AGENTS}/tasks/{task}"
    write("openintent_update_task", "PATCH", path, changed, **{"If-Match": "1"})
    write.plain("PATCH", path, {"status": "cancelled"}, **{"If-Match": "2"})
    body = {"intent_id": intent, "agent_id": "bob"}
    made = write("openintent_create_coordinator", "POST", f"{AGENTS}/coordinators", body)
    write("openintent_delete_coordinator", "DELETE", f"{AGENTS}/coordinators/{made['id']}")
    acl = f"{at}/acl/entries"
    kept = write("openintent_create_grant", "POST", acl, {"principal_id": "eve"})
    write("openintent_delete_grant", "DELETE", f"{acl}/{kept['id']}")
    event = {"event_type": "comment", "payload": {"a": 1}}
    write("openintent_log_event", "POST", f"{at}/events", event)


def write_hosts(write: Writer) -> None:
    ref = {"memoryRef": "mem://notes"}
    memory, runs = f"{HOSTS}/memory", f"{HOSTS}/runs"
    write("openwop_open_run", "POST", runs, {"runId": "r1"})
    put = write("openwop_put", "POST", memory, {**ref, "content": "one", "tags": ["a"]})
    gone = write.plain("POST", memory, {**ref, "content": "three"}).json()["entry"]["id"]
    write("openwop_delete", "DELETE", f"{memory}/{gone}?memoryRef=mem%3A%2F%2Fnotes")
    armed = {**ref, "memoryId": put["entry"]["id"], "condition": "predicate", "tag": "rain"}
    commitments = f"{HOSTS}/commitments"
    one = write("openwop_create_commitment", "POST", commitments, armed)
    other = write.plain("POST", commitments, {**armed, "tag": "snow"}).json()
    write("openwop_cancel_commitment", "DELETE", f"{commitments}/{other['id']}")
    write.plain("DELETE", f"{commitments}/{one['id']}")
    write_proposals(write)
    other_ref = {"memoryRef": "mem://passes"}
    for number in range(8):
        content = f"The proxy waits for {number} s."
        write.plain("POST", memory, {**other_ref, "content": content})
    write("openwop_distill", "POST", f"{HOSTS}/distill", other_ref)
    write("openwop_compact", "POST", f"{HOSTS}/compact", other_ref)
    merged = write("openwop_consolidate", "POST", f"{HOSTS}/consolidate", other_ref)
    write("openwop_undo", "POST", f"{HOSTS}/passes/{merged['runId']}/undo")
    write("openwop_end_run", "POST", f"{runs}/r1/end", {"status": "completed"})
    write("openwop_fork_run", "POST", f"{runs}/r1/fork", {"mode": "branch", "fromSeq": 0})


def write_proposals(write: Writer) -> None:
    proposals = f"{HOSTS}/proposals"

    def made(number: int) -> dict[str, object]:
        artifact = {"name": f"pack {number}", "version": "1"}
        return {"kind": "agent-pack", "artifact": artifact, "provenance": {"sourceRunIds": []}}

    first = write("openwop_create_proposal", "POST", proposals, made(1))["id"]
    write("openwop_revise_proposal", "PATCH", f"{proposals}/{first}", {"title": "x"})
    write.plain("PATCH", f"{proposals}/{first}", {"title": "changed since"})
    write("openwop_apply_proposal", "POST", f"{proposals}/{first}/apply", {})
    ids = [write.plain("POST", proposals, made(it)).json()["id"] for it in (2, 3)]
    write("openwop_reject_proposal", "POST", f"{proposals}/{ids[0]}/reject", {})
    write("openwop_archive_proposal", "DELETE", f"{proposals}/{ids[1]}")
