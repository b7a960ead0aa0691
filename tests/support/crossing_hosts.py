"""What callers do as hosts: each puts what is its own under the refs and ids of all others.

Refs are a tenant's: of its own tenant a caller sees all, so each has a ref that no other names.
What is another tenant's is to it as what never was, under the same ref and the same id.
"""

from types import SimpleNamespace
from urllib.parse import quote

import httpx

from .crossing import Body, Party, Place
from .openwop_hosts import DISCOVERY, H

NOBODYS = "mem_" + "0" * 32
NO_PROPOSAL = "prop_" + "0" * 32
REFUSED = (
    "/memory?memoryRef=x", "/refs", "/events", "/nothing", "/runs/x", "/memory/x", "/proposals",
    "/proposals/x", "/artifacts", "/artifacts/x",
)  # fmt: skip


def work_as_a_host(place: Place, me: Party) -> None:
    """Every route, over what is the caller's own, with names that others have, too."""
    ref, run = f"mem://of-{me.number}", f"run-{me.number}"
    for path in REFUSED:  # with a key for some projects
        answers = [me.ask("GET", f"{H}{path}"), me.ask("GET", f"{H}{path}&more")]
        assert [answer.status_code for answer in answers] == [403, 403]
    for path in (DISCOVERY, "/v1/openapi.json"):
        assert me.work("GET", path).status_code == 200
    opened = _did(me, "POST", "/runs", {"runId": run, "memoryRefs": [ref]})
    assert opened.json()["runId"] == run
    _did(me, "POST", f"/runs/{run}/secrets", {"secretId": "own", "value": f"{me.word}-secret"})
    put: dict[str, object] = {
        "memoryRef": ref, "content": f"the apple is {me.word}", "tags": ["fruit"], "id": "plan",
        "runId": run, "nodeId": "pick",
    }  # fmt: skip
    first = _did(me, "POST", "/memory", put | {"id": "old"}).json()["entry"]["id"]
    _did(me, "POST", "/memory", put | {"supersedes": [first]})
    waits = {"memoryRef": ref, "memoryId": "plan", "condition": "predicate", "tag": "harvest"}
    commitment = _did(me, "POST", "/commitments", waits).json()["id"]
    for path in (
        f"/commitments?{_in(ref)}", f"/commitments/{commitment}",
        f"/memory?{_in(ref)}", f"/memory?{_in(ref)}&runId={run}", f"/memory/plan?{_in(ref)}",
        f"/search?{_in(ref)}&q=apple", f"/provenance/plan?{_in(ref)}", f"/runs/{run}",
        f"/runs/{run}/events", "/events?limit=1000",
    ):  # fmt: skip
        assert me.work("GET", H + path).status_code == 200, path
    _did(me, "DELETE", f"/commitments/{commitment}")
    _did(me, "DELETE", f"/memory/{quote(first)}?{_in(ref)}&runId={run}")
    _did(me, "POST", f"/runs/{run}/end", {"status": "completed"})
    forks: list[Body] = [{"mode": "replay"}, {"mode": "branch", "fromSeq": 1}]
    for fork in forks:
        _did(me, "POST", f"/runs/{run}/fork", fork)
    keeper = next(it for it in place.keepers if it.tenant == me.tenant)  # an administrator
    _work_over(me, keeper, f"{ref}/passes")
    _propose(me, keeper)


def _work_over(me: Party, keeper: Party, ref: str) -> None:
    """Every pass over a ref of the caller's own, and what it forgets."""
    for text in ("a plum", "a plum, too", "a plum"):
        _did(me, "POST", "/memory", {"memoryRef": ref, "content": f"{text} of {me.word}"})
    of: Body = {"memoryRef": ref}
    for name in ("consolidate", "distill", "compact"):
        run = _did(me, "POST", f"/{name}", of).json()["runId"]
    _did(me, "GET", f"/index?{_in(ref)}")
    _did(me, "POST", f"/passes/{run}/undo")
    erasure = keeper.ask("POST", f"{H}/forget", {"subject": ref}).json()["erasureId"]
    _did(me, "GET", f"/erasures/{erasure}")


def _propose(me: Party, keeper: Party) -> None:
    """Every route of proposals; what is listed after one's own is one's own, as none came since."""
    body: dict[str, object] = {
        "kind": "agent-pack", "title": f"of {me.word}", "provenance": {"sourceRunIds": []},
        "artifact": {"name": me.word, "version": "1"},
    }  # fmt: skip
    first, second, third = (_did(me, "POST", "/proposals", body).json()["id"] for _ in range(3))
    listed = _did(me, "GET", f"/proposals?after={first}").json()["proposals"]
    assert [it["id"] for it in listed] == [second, third]
    _did(me, "PATCH", f"/proposals/{first}", {"rationale": me.word})
    _did(me, "GET", f"/proposals/{first}")
    assert me.work("POST", f"{H}/proposals/{first}/apply", {}).status_code == 403
    applied = keeper.ask("POST", f"{H}/proposals/{first}/apply", {}).json()["installedArtifactRef"]
    _did(me, "GET", f"/artifacts/{applied}")
    assert applied in _did(me, "GET", "/artifacts?limit=1000").text
    _did(me, "POST", f"/proposals/{second}/reject", {})
    _did(me, "DELETE", f"/proposals/{third}")
    me.proposals.append(first)
    me.installed.append(applied)


REACHES: list[tuple[str, str, Body | None]] = [
    *(
        (method, path, None)
        for method in ("GET", "DELETE")
        for path in ("/memory/plan?{it.where}", f"/memory/{NOBODYS}?{{it.where}}")
    ),
    ("GET", "/provenance/plan?{it.where}", None), ("GET", "/runs/{it.run}", None),
    ("GET", "/runs/{it.run}/events", None),
    ("POST", "/runs/{it.run}/end", {"status": "completed"}),
    ("POST", "/commitments", {
        "memoryRef": "{it.ref}", "memoryId": "plan", "condition": "predicate", "tag": "harvest",
    }),
    ("GET", "/proposals/{it.proposal}", None), ("PATCH", "/proposals/{it.proposal}", {}),
    ("DELETE", "/proposals/{it.proposal}", {}), ("POST", "/proposals/{it.proposal}/reject", {}),
    ("GET", "/proposals?after={it.proposal}", None), ("GET", "/artifacts/{it.artifact}", None),
]  # fmt: skip


def reach_as_a_host(place: Place, me: Party) -> None:
    """What is another tenant's, by its own names, is what there is nowhere."""
    for other in place.others(me):
        if other.tenant == me.tenant:
            continue
        ref, (proposal,), (artifact,) = f"mem://of-{other.number}", other.proposals, other.installed
        theirs = SimpleNamespace(
            ref=ref, where=_in(ref), run=f"run-{other.number}", proposal=proposal, artifact=artifact
        )
        nobodys = SimpleNamespace(
            ref="mem://nobodys", where=_in("mem://nobodys"), run="run-nobodys",
            proposal=NO_PROPOSAL, artifact=artifact.replace(proposal, NO_PROPOSAL),
        )  # fmt: skip
        put = {"memoryRef": ref, "content": "x", "runId": "{it.run}"}
        for method, path, body in [*REACHES, ("POST", "/memory", put)]:
            status = me.alike(method, H + path, theirs, nobodys, body)
            assert status == (400 if "after=" in path else 404), path
        awaited = me.work("GET", f"{H}/commitments?{_in(ref)}").json()
        assert awaited == {"commitments": []}
        listed = me.work("GET", f"{H}/memory?{_in(ref)}").json()
        assert listed == {"entries": [], "memoryRef": ref}
        foreign = {"memoryRef": f"tenants/{other.tenant}/x", "content": "x"}
        assert me.work("POST", f"{H}/memory", foreign).status_code == 403
        told = me.work("GET", f"{H}/events?limit=1000").text
        assert f'"run-{me.number}"' in told
        assert f'"run-{other.number}"' not in told
        assert artifact not in me.work("GET", f"{H}/artifacts?limit=1000").text
    refs = me.work("GET", f"{H}/refs?limit=1000").json()["refs"]
    numbers = {it.number for it in place.parties if it.tenant == me.tenant}
    assert {it["memoryRef"] for it in refs} <= {f"mem://of-{number}" for number in numbers}


def _did(me: Party, method: str, path: str, body: Body | None = None) -> httpx.Response:
    answer = me.work(method, H + path, body)
    assert answer.is_success, answer.text
    return answer


def _in(ref: str) -> str:
    return f"memoryRef={quote(ref, safe='')}"
