"""What callers do as hosts: each puts what is its own under the refs and ids of all others.

Refs are a tenant's: of its own tenant a caller sees all, so each has a ref that no other names.
What is another tenant's is to it as what never was, under the same ref and the same id.
"""

from urllib.parse import quote

import httpx

from .crossing import Body, Party, Place, same
from .openwop_hosts import DISCOVERY, H

DRIVEN = {
    f"openwop_{name}"
    for name in (
        "discover", "openapi", "list", "put", "get", "delete", "search", "provenance", "refs",
        "open_run", "get_run", "register_secret", "end_run", "run_events", "fork_run", "events",
        "create_commitment", "list_commitments", "get_commitment", "cancel_commitment",
        "compact", "distill", "consolidate", "undo", "index", "forget", "get_erasure",
        "create_proposal", "list_proposals", "get_proposal", "revise_proposal", "apply_proposal",
        "reject_proposal", "archive_proposal", "list_artifacts", "get_artifact",
    )
}  # fmt: skip
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
    place.driven |= DRIVEN


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


def reach_as_a_host(place: Place, me: Party) -> None:
    """What is another tenant's, by its own names, is what there is nowhere."""
    for other in place.others(me):
        if other.tenant == me.tenant:
            continue
        theirs, nowhere = f"mem://of-{other.number}", "mem://nobodys"
        for path in ("/memory/plan?{}", f"/memory/{NOBODYS}?{{}}", "/provenance/plan?{}"):
            answers = [me.work("GET", H + path.format(_in(ref))) for ref in (theirs, nowhere)]
            same(*answers)
            assert answers[0].status_code == 404
            same(*(me.work("DELETE", H + path.format(_in(it))) for it in (theirs, nowhere)))
        for run, never in ((f"run-{other.number}", "run-nobodys"),):
            for path in ("/runs/{}", "/runs/{}/events"):
                same(*(me.work("GET", H + path.format(it)) for it in (run, never)))
            ended = {"status": "completed"}
            same(*(me.work("POST", f"{H}/runs/{it}/end", ended) for it in (run, never)))
            put = {"memoryRef": theirs, "content": "x", "runId": run}
            same(*(me.work("POST", f"{H}/memory", put | {"runId": it}) for it in (run, never)))
        wait = {"memoryId": "plan", "condition": "predicate", "tag": "harvest"}
        same(
            *(
                me.work("POST", f"{H}/commitments", wait | {"memoryRef": it})
                for it in (theirs, nowhere)
            )
        )
        awaited = me.work("GET", f"{H}/commitments?{_in(theirs)}").json()
        assert awaited == {"commitments": []}
        listed = me.work("GET", f"{H}/memory?{_in(theirs)}").json()
        assert listed == {"entries": [], "memoryRef": theirs}
        foreign = {"memoryRef": f"tenants/{other.tenant}/x", "content": "x"}
        assert me.work("POST", f"{H}/memory", foreign).status_code == 403
        told = me.work("GET", f"{H}/events?limit=1000").text
        assert f'"run-{me.number}"' in told
        assert f'"run-{other.number}"' not in told
        for proposal in other.proposals:
            for method, path in (
                ("GET", "/proposals/{}"), ("PATCH", "/proposals/{}"), ("DELETE", "/proposals/{}"),
                ("POST", "/proposals/{}/reject"), ("GET", "/proposals?after={}"),
            ):  # fmt: skip
                said: Body | None = None if method == "GET" else {}
                same(*(me.work(method, H + path.format(it), said)
                       for it in (proposal, NO_PROPOSAL)))  # fmt: skip
        for ref in other.installed:
            never = ref.replace(other.proposals[0], NO_PROPOSAL)
            same(*(me.work("GET", f"{H}/artifacts/{it}") for it in (ref, never)))
            assert ref not in me.work("GET", f"{H}/artifacts?limit=1000").text
    refs = me.work("GET", f"{H}/refs?limit=1000").json()["refs"]
    numbers = {it.number for it in place.parties if it.tenant == me.tenant}
    assert {it["memoryRef"] for it in refs} <= {f"mem://of-{number}" for number in numbers}


def _did(me: Party, method: str, path: str, body: Body | None = None) -> httpx.Response:
    answer = me.work(method, H + path, body)
    assert answer.is_success, answer.text
    return answer


def _in(ref: str) -> str:
    return f"memoryRef={quote(ref, safe='')}"
