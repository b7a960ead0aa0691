"""One request or more to every route of OpenWOP, seams included, each of which succeeds."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from .callers import calling, made_key
from .openwop_hosts import DISCOVERY, REF, Host, Json, ok
from .openwop_proposals import applied, handed_in, moved, proposed, revised
from .openwop_seams import ACROSS, FIXTURES, Suite

DESCRIPTION = "/v1/openapi.json"
SAMPLE = "/v1/host/sample"

Route = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """A suite with an administrator's key, and every answer that it got."""

    suite: Suite
    answers: list[httpx.Response] = field(default_factory=list)

    @property
    def http(self) -> httpx.Client:
        return self.suite.http

    @property
    def routes(self) -> dict[Route, Json]:
        return routes_of(ok(self.http.get(DESCRIPTION)))


def routes_of(document: Json) -> dict[Route, Json]:
    """What is described of each route, in the order in which one is looked for."""
    paths: Mapping[str, Json] = document["paths"]
    found = {(way.upper(), path): it for path in paths for way, it in paths[path].items()}
    return dict(sorted(found.items(), key=lambda it: it[0][1].count("{")))


def route_of(request: httpx.Request, routes: Mapping[Route, object]) -> Route:
    """The route that a request goes; its own path if none is described."""
    path = request.url.raw_path.decode().partition("?")[0]
    found = (
        (method, template)
        for method, template in routes
        if method == request.method
        and re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)), path)
    )
    return next(found, (request.method, path))


@contextmanager
def administered(suite: Suite) -> Iterator[Walk]:
    """The suite with an administrator's key; what it is answered is noted."""
    with calling(suite.service, made_key(suite.service.path, "admin")) as http:
        walk = Walk(suite=Suite(service=suite.service, http=http))

        def note(answer: httpx.Response) -> None:
            answer.read()
            walk.answers.append(answer)

        http.event_hooks["response"] = [note]
        yield walk


def go(walk: Walk) -> None:
    """Go every way once, in one order."""
    host = Host(walk.http)
    for path in (DISCOVERY, DESCRIPTION):
        ok(walk.http.get(path))
    _runs_and_entries(host)
    _passes(host)
    _commitments(host)
    _proposals(host, "/proposals")
    _forgetting(host)
    _seams(walk.suite)


def _runs_and_entries(host: Host) -> None:
    run = host.in_run("r1", agentId="agent-1", workflowId="refund", memoryRefs=[REF])
    ok(host.ask("POST", "/runs", {"runId": "r1", "agentId": "agent-1", "workflowId": "refund",
                                  "memoryRefs": [REF]}))  # fmt: skip
    run.register("crm", "correct-horse")
    first = run.put("The proxy waits.", tags=["net"], nodeId="n1", agentId="agent-1")
    second = host.put("It ends.", id="own", ttlSeconds=60, supersedes=[first["id"]])
    ok(host.post("It ends.", id="own", ttlSeconds=60, supersedes=[first["id"]]))
    run.entries(tag="net", limit=1, tokenBudget=100, rank="recency")
    host.put("More of it.")
    assert "next" in ok(host.ask("GET", "/memory", params={"memoryRef": REF, "limit": 1}))
    ok(host.get(second["id"]))
    assert host.search("ends", tag="", limit=5)
    ok(host.ask("GET", f"/provenance/{first['id']}", params={"memoryRef": REF}))
    ok(host.ask("GET", "/refs", params={"limit": 1, "after": "a"}))
    ok(run.delete(host.put("Not for long.")["id"]))
    run.told(limit=2)
    run.end()
    for status in ("failed", "cancelled"):
        host.in_run(status).end(status)
        ok(Host(host.http, run=status).fork(), 201)
        Host(host.http, run=status).told()
    for mode in ("replay", "branch"):
        forked = ok(run.fork(mode, fromSeq=1), 201)["runId"]
        run.told(forked)
        ok(host.ask("GET", f"/runs/{forked}"))
    for each in ("r1", "failed", "cancelled"):
        ok(host.ask("GET", f"/runs/{each}"))


def _passes(host: Host) -> None:
    at = Host(host.http, "mem://passes")
    for number in range(3):
        at.put(f"The provider needs up to {number} s. Checkout works again!")
    done = ok(at.compact(keepSources=True))
    ok(at.ask("GET", f"/runs/{done['runId']}"))
    at.told(done["runId"])
    ok(at.undo(done["runId"]))
    ok(at.distill(tokenBudget=5000))
    at.index()
    first, second = (at.put(f"Fact {number}.")["id"] for number in range(2))
    ok(at.consolidate({"ids": [first, second], "content": "Both facts."}))
    for type_ in ("memory.compacted", "agent.memory.consolidated", "run.failed", "run.started"):
        assert ok(at.ask("GET", "/events", params={"type": type_}))["events"]


def _commitments(host: Host) -> None:
    at = Host(host.http, "mem://commitments")
    source = at.put("Remind the team.", tags=["when:rain"])["id"]
    at.put("It rains.", tags=["rain"])
    at.put("Later.", tags=["due:2031-01-01T00:00:00Z"])
    asked = {"memoryRef": at.ref, "memoryId": source}
    body = {**asked, "condition": "predicate", "tag": "snow"}
    armed = ok(host.ask("POST", "/commitments", body), 201)
    ok(host.ask("POST", "/commitments",
                {**asked, "condition": "time", "dueAt": "2031-01-01T00:00:00Z"}), 201)  # fmt: skip
    assert "next" in ok(host.ask("GET", "/commitments", params={"limit": 1}))
    ok(host.ask("GET", "/commitments", params={"memoryRef": at.ref, "state": "fired"}))
    ok(host.ask("GET", f"/commitments/{armed['id']}"))
    ok(host.ask("DELETE", f"/commitments/{armed['id']}"))
    assert ok(host.ask("GET", "/events", params={"type": "commitment.fired"}))["events"]


def _proposals(host: Host, path: str) -> None:
    made = proposed(host, title="A pack", rationale="It saves time.")
    ok(handed_in(host), 201)  # which is a duplicate
    assert "next" in ok(host.ask("GET", path, params={"limit": 1}))
    ok(host.ask("GET", f"{path}/{made['id']}"))
    ok(revised(host, made["id"], title="The pack"))
    ref = applied(host, made["id"])
    ok(host.ask("GET", f"{path}/{made['id']}"))
    ok(moved(host, proposed(host)["id"], "reject"))
    ok(moved(host, proposed(host)["id"], "archive"))
    ok(host.ask("GET", "/artifacts", params={"kind": "agent-pack"}))
    ok(host.ask("GET", f"/artifacts/{ref}"))
    for type_ in ("proposal.created", "proposal.activated"):
        assert ok(host.ask("GET", "/events", params={"type": type_}))["events"]


def _forgetting(host: Host) -> None:
    run = host.in_run("r9")
    host.put("About Ada.", tags=["subject:ada"])
    ok(host.forget("ada", dryRun=True))
    erasure = ok(host.forget("ada"))["erasureId"]
    ok(host.ask("GET", f"/erasures/{erasure}"))
    run.end()


def _seams(suite: Suite) -> None:
    for workflow in (*FIXTURES, *ACROSS):
        run = suite.ran(workflow)["runId"]
        suite.events(run)
        ok(suite.get(f"/runs/{run}/events/poll", lastSequence=0))
        for fork in ({"mode": "replay"}, {"mode": "branch", "fromSeq": 0}):
            ok(suite.get(f"/runs/{ok(suite.post(f'/runs/{run}:fork', fork), 201)['runId']}"))
    for run in ("r1", "failed", "cancelled"):  # which no workflow was
        ok(suite.get(f"/runs/{run}"))
    suite.seed(*({"id": f"e{it}", "content": f"It is so, {it}."} for it in range(4)))
    suite.listed(limit=1)
    suite.compacted("mem://suite")
    for name in ("sample", "openwop-app"):
        suite.seed({"id": "seeded", "content": "It is seeded."}, ref="mem://seeds")
        path, query = f"/host/{name}/memory", {"memoryRef": "mem://seeds"}
        ok(suite.get(path, **query))
        ok(suite.get(f"{path}/seeded", **query))
        ok(suite.http.delete(f"/v1{path}/seeded", params=query))
    for more in ({"sources": ["It is so.", {"content": "It waits."}]}, {"tokenBudget": 9000}):
        body: Json = {"memoryRef": "mem://d", **more}
        ok(suite.post("/host/sample/memory/distill", body))
    for is_secret in (False, True):
        body = {"memoryRef": f"mem://c{is_secret}", "includeSecretCanary": is_secret}
        ok(suite.post("/host/sample/memory/consolidate", body))
    ok(suite.post("/host/sample/commitment/fire",
                  {"memoryRef": "mem://f", "condition": "predicate",
                   "includeIntentionCanary": True}))  # fmt: skip
    path = f"{SAMPLE}/proposals"
    (made, *_) = ok(suite.http.get(path, params={"state": "draft"}))["proposals"]
    del made["id"]
    body = {name: made[name] for name in ("kind", "artifact", "provenance")}
    drafts = [ok(suite.http.post(path, json=body), 201)["id"] for _ in range(3)]
    ok(suite.http.get(f"{path}/{drafts[0]}"))
    ok(suite.http.patch(f"{path}/{drafts[0]}", json={"title": "Another"}))
    ok(suite.http.post(f"{path}/{drafts[0]}/apply", json={}))
    ok(suite.http.post(f"{path}/{drafts[1]}/reject"))
    ok(suite.http.delete(f"{path}/{drafts[2]}"))
