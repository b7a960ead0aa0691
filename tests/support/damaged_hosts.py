"""Refs, their entries and runs of hosts in a database whose values are damaged: what there is, and
what is asked of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx

from agentops_memory.memory.rows import micros

from .openwop_hosts import DISCOVERY, REF, H, Host, ok
from .service import START

ERASED = f"""
    INSERT INTO ref_losses (memory_id, space_id, ends_at, deleted_after)
    SELECT 1 << 40, space_id, {micros(START)}, 0 FROM refs LIMIT 1;
"""
"""What is kept of an entry that was erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHosts:
    """How entries are addressed; the runs are `open` and `ended`."""

    entry: str
    older: str
    deleted: str
    armed: str  # commitments
    fired: str
    compaction: str  # a run
    erasure: str
    proposals: tuple[str, str, str]  # a draft, one that repeats it, one that is applied
    installed: str


PROPOSAL = {
    "kind": "agent-pack", "artifact": {"name": "picker", "version": "1"}, "title": "Pick apples",
    "rationale": "The red ones are picked each day.",
    "provenance": {"sourceRunIds": ["ended"], "synthesizerModel": "a model"},
}  # fmt: skip


def fill_hosts(http: httpx.Client) -> KnownHosts:
    """Put entries of every kind, in runs and without."""
    host = Host(http)
    deleted = host.put("a blue apple", tags=["fruit"])["id"]
    older = host.put("an old apple", tags=["fruit", "old"])["id"]
    run = host.in_run("ended", agentId="ada", workflowId="harvest", memoryRefs=[REF, "mem://b"])
    run.register("token", "zanzibar-hunter2-quokka")
    entry = run.put(
        "a red apple", id="apples/red", tags=["fruit"], supersedes=[older], ttlSeconds=86_400,
        nodeId="pick", agentId="ada",
    )["id"]  # fmt: skip
    run.put("a pear", memoryRef="mem://b")
    going_on = host.in_run("open", agentId="ada", workflowId="harvest", memoryRefs=[REF])
    ok(going_on.delete(deleted))
    waits = {"memoryRef": REF, "memoryId": entry, "condition": "predicate", "tag": "harvest"}
    fired = ok(host.ask("POST", "/commitments", waits), 201)["id"]
    host.put("a ripe apple", tags=["harvest"])
    end = (START + timedelta(hours=1)).isoformat()
    due = {"memoryRef": REF, "memoryId": entry, "condition": "time", "dueAt": end}
    armed = ok(host.ask("POST", "/commitments", due), 201)["id"]
    run.end()
    ok(run.fork("replay"), 201)
    ok(run.fork("branch", fromSeq=1), 201)
    draft, repeated, applied = (
        ok(host.ask("POST", "/proposals", PROPOSAL), 201)["id"] for _ in range(3)
    )
    ok(host.ask("PATCH", f"/proposals/{repeated}", {"title": "Pick all apples"}))
    installed = ok(host.ask("POST", f"/proposals/{applied}/apply", {}))["installedArtifactRef"]
    return KnownHosts(
        entry=entry, older=older, deleted=deleted, armed=armed, fired=fired,
        compaction=_passes(host), erasure=_forget(host),
        proposals=(draft, repeated, applied), installed=installed,
    )  # fmt: skip


def _passes(host: Host) -> str:
    """Let passes of every kind run over a ref of their own; the run of the first."""
    for text in ("a plum. It is blue.", "a plum", "a cherry", "a cherry"):
        host.put(text, memoryRef="mem://passes", tags=["fruit"])
    of = {"memoryRef": "mem://passes"}
    first: str = ok(host.ask("POST", "/consolidate", of))["runId"]
    ok(host.ask("POST", "/distill", of))
    undone = ok(host.ask("POST", "/compact", of))["runId"]
    ok(host.ask("POST", f"/passes/{undone}/undo"))
    ok(host.ask("POST", "/compact", of))
    return first


def _forget(host: Host) -> str:
    host.put("somebody likes apples", memoryRef="mem://people", tags=["subject:somebody"])
    erasure: str = ok(host.ask("POST", "/forget", {"subject": "somebody"}))["erasureId"]
    return erasure


def host_questions(known: KnownHosts) -> dict[str, tuple[str, ...]]:
    """What is asked of each route that reads, by its path as it is described."""
    ref, red = f"memoryRef={quote(REF, safe='')}", quote(known.entry, safe="")
    return {
        DISCOVERY: ("",),
        "/v1/openapi.json": ("",),
        f"{H}/memory": (
            f"?{ref}", f"?{ref}&tag=fruit&limit=1", f"?{ref}&tokenBudget=20", f"?{ref}&runId=open",
            f"?{ref}&runId=ended&tag=fruit", f"?{ref}&before={known.deleted}",
        ),
        f"{H}/memory/{{memoryId}}": tuple(
            f"{H}/memory/{id_}?{ref}{run}"
            for id_, runs in (
                (red, ("", "&runId=open")), (known.older, ("", "&runId=open", "&runId=ended")),
                (known.deleted, ("&runId=open", "&runId=ended")),
            )
            for run in runs
        ),
        f"{H}/search": (f"?{ref}&q=apple", f"?{ref}&q=aple&tag=fruit&tokenBudget=20"),
        f"{H}/provenance/{{memoryId}}": (
            f"{H}/provenance/{red}?{ref}", f"{H}/provenance/{known.older}?{ref}",
        ),
        f"{H}/refs": ("", "?limit=1", "?after=mem://b"),
        f"{H}/runs/{{runId}}": (f"{H}/runs/open", f"{H}/runs/ended"),
        f"{H}/runs/{{runId}}/events": (f"{H}/runs/open/events", f"{H}/runs/ended/events?after=1"),
        f"{H}/index": ("?memoryRef=mem%3A%2F%2Fpasses", f"?{ref}"),
        f"{H}/erasures/{{erasureId}}": (f"{H}/erasures/{known.erasure}",),
        f"{H}/proposals": (
            "", "?state=draft&limit=1", f"?kind=agent-pack&after={known.proposals[0]}",
        ),
        f"{H}/proposals/{{proposalId}}": tuple(f"{H}/proposals/{it}" for it in known.proposals),
        f"{H}/artifacts": ("", f"?kind=agent-pack&after={known.installed}"),
        f"{H}/artifacts/{{artifactRef}}": (f"{H}/artifacts/{known.installed}",),
        f"{H}/events": ("", "?after=2&limit=3", "?type=memory.written"),
        f"{H}/commitments": ("", f"?{ref}&state=armed", f"?after={known.fired}&limit=1"),
        f"{H}/commitments/{{commitmentId}}": (
            f"{H}/commitments/{known.armed}", f"{H}/commitments/{known.fired}",
        ),
    }  # fmt: skip


def host_changes(known: KnownHosts) -> Iterator[tuple[str, str, dict[str, Any] | None, str | None]]:
    """Requests that change them."""
    put = {"memoryRef": REF, "content": "a green apple", "tags": ["fruit"]}
    yield "POST", f"{H}/memory", put, "put"
    yield "POST", f"{H}/memory", put, "put"
    yield "POST", f"{H}/memory", put | {"supersedes": [known.older], "id": "apples/new"}, None
    yield "POST", f"{H}/memory", put | {"runId": "open", "nodeId": "pick"}, None
    yield "POST", f"{H}/memory", put | {"tags": ["harvest", "when:snow"]}, None
    waits = {"memoryRef": REF, "memoryId": known.entry, "condition": "predicate", "tag": "snow"}
    yield "POST", f"{H}/commitments", waits, "commitment"
    yield "POST", f"{H}/commitments", waits, "commitment"
    yield "DELETE", f"{H}/commitments/{known.armed}", None, None
    yield "POST", f"{H}/runs", {"runId": "next", "memoryRefs": [REF]}, "run"
    yield "POST", f"{H}/runs", {"runId": "open", "agentId": "ada"}, None
    yield "POST", f"{H}/runs/open/secrets", {"secretId": "a", "value": "wombat-wombat"}, None
    yield "POST", f"{H}/runs/ended/fork", {"mode": "replay"}, None
    yield "POST", f"{H}/runs/ended/fork", {"mode": "branch", "fromSeq": 2}, None
    draft, repeated, applied = known.proposals
    yield "POST", f"{H}/proposals", PROPOSAL, "propose"
    yield "POST", f"{H}/proposals", PROPOSAL, "propose"
    yield "PATCH", f"{H}/proposals/{repeated}", {"artifact": PROPOSAL["artifact"]}, None
    yield "POST", f"{H}/proposals/{draft}/apply", {}, "apply"
    yield "POST", f"{H}/proposals/{draft}/apply", {}, "apply"
    yield "POST", f"{H}/proposals/{repeated}/reject", {}, None
    yield "DELETE", f"{H}/proposals/{applied}", None, None
    where = f"memoryRef={quote(REF, safe='')}&runId=open"
    yield "DELETE", f"{H}/memory/{quote(known.entry, safe='')}?{where}", None, None
    yield "POST", f"{H}/runs/open/end", {"status": "failed"}, None
    passes = {"memoryRef": "mem://passes"}
    yield "POST", f"{H}/distill", passes | {"recursive": True}, "distill"
    yield "POST", f"{H}/distill", passes | {"recursive": True}, "distill"
    yield "POST", f"{H}/consolidate", {"memoryRef": REF}, None
    yield "POST", f"{H}/compact", {"memoryRef": REF}, None
    yield "POST", f"{H}/passes/{known.compaction}/undo", None, None
    yield "POST", f"{H}/forget", {"subject": "mem://passes"}, None
