"""What callers do as hosts: each puts what is its own under the refs and ids of all others.

Refs are a tenant's: of its own tenant a caller sees all, so each has a ref that no other names.
What is another tenant's is to it as what never was, under the same ref and the same id.
"""

from urllib.parse import quote

import httpx

from .openwop_hosts import DISCOVERY, H
from .parties import Body, Party, Place, same

DRIVEN = {
    f"openwop_{name}"
    for name in (
        "discover", "openapi", "list", "put", "get", "delete", "search", "provenance", "refs",
        "open_run", "get_run", "register_secret", "end_run", "run_events", "fork_run", "events",
    )
}  # fmt: skip
NOBODYS = "mem_" + "0" * 32
REFUSED = ("/memory?memoryRef=x", "/refs", "/events", "/nothing", "/runs/x", "/memory/x")


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
    for path in (
        f"/memory?{_in(ref)}", f"/memory?{_in(ref)}&runId={run}", f"/memory/plan?{_in(ref)}",
        f"/search?{_in(ref)}&q=apple", f"/provenance/plan?{_in(ref)}", f"/runs/{run}",
        f"/runs/{run}/events", "/events?limit=1000",
    ):  # fmt: skip
        assert me.work("GET", H + path).status_code == 200, path
    _did(me, "DELETE", f"/memory/{quote(first)}?{_in(ref)}&runId={run}")
    _did(me, "POST", f"/runs/{run}/end", {"status": "completed"})
    forks: list[Body] = [{"mode": "replay"}, {"mode": "branch", "fromSeq": 1}]
    for fork in forks:
        _did(me, "POST", f"/runs/{run}/fork", fork)
    place.driven |= DRIVEN


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
        listed = me.work("GET", f"{H}/memory?{_in(theirs)}").json()
        assert listed == {"entries": [], "memoryRef": theirs}
        foreign = {"memoryRef": f"tenants/{other.tenant}/x", "content": "x"}
        assert me.work("POST", f"{H}/memory", foreign).status_code == 403
    refs = me.work("GET", f"{H}/refs?limit=1000").json()["refs"]
    numbers = {it.number for it in place.parties if it.tenant == me.tenant}
    assert {it["memoryRef"] for it in refs} <= {f"mem://of-{number}" for number in numbers}


def _did(me: Party, method: str, path: str, body: Body | None = None) -> httpx.Response:
    answer = me.work(method, H + path, body)
    assert answer.is_success, answer.text
    return answer


def _in(ref: str) -> str:
    return f"memoryRef={quote(ref, safe='')}"
