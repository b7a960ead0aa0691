"""What fails in part leaves nothing: neither rows nor events of what was not done."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agentops_memory.openwop import consolidation, entries

from ..support.engines import broken, rows
from ..support.files import assert_index_is_whole
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import REF, Host, ok
from ..support.openwop_passes import CONSOLIDATED, about, events, ids, passed
from ..support.openwop_proposals import handed_in, moved, proposed, revised
from ..support.openwop_tenants import counted
from ..support.requirements import requirement
from ..support.service import serving

Deed = Callable[[], httpx.Response]


def everything(host: Host) -> list[object]:
    """What a tenant is told of all that hosts have."""
    paths = ("/memory", "/refs", "/events", "/commitments", "/proposals", "/artifacts", "/runs/r1")
    params = {"memoryRef": host.ref, "limit": 1000}
    return [ok(host.ask("GET", path, params=params)) for path in paths]


def deeds(host: Host) -> dict[str, tuple[Deed, list[str]]]:
    """What hosts do, and the statements and tables of which one fails."""
    run, intents = host.in_run("r1"), Intents(host)
    made = [host.put(text) for text in ("herons wade", "egrets fly", "storks nest")]
    draft, other = proposed(host)["id"], proposed(host)["id"]
    undone = ok(host.compact())["runId"]
    hers = host.put("ada: tea", tags=["subject:ada"])["id"]
    intents.on(hers, "rain")
    armed = intents.on(hers, "sun")["id"]
    condition = {"memoryId": hers, "condition": "predicate", "tag": "snow"}
    return {
        "undo": (lambda: host.undo(undone), ["INSERT runs", "INSERT run_events"]),
        "put": (
            lambda: run.post("more", tags=["a"], nodeId="n1", supersedes=[made[0]["id"]]),
            ["INSERT run_events", "INSERT memories", "INSERT ref_tags", "INSERT ref_entries"],
        ),
        "delete": (lambda: run.delete(made[0]["id"]), ["INSERT run_events", "UPDATE memories"]),
        "firing": (
            lambda: run.post("wet", tags=["rain"]), ["UPDATE commitments", "INSERT run_events"]
        ),
        "arm": (lambda: intents.post(**condition), ["INSERT commitments"]),
        "cancel": (lambda: intents.cancel(armed), ["UPDATE commitments"]),
        "compact": (host.compact, ["INSERT run_events", "INSERT ref_supersessions"]),
        "distill": (host.distill, ["INSERT run_events", "INSERT ref_entries"]),
        "propose": (
            lambda: handed_in(host), ["INSERT proposals", "INSERT runs", "INSERT run_events"]
        ),
        "revise": (lambda: revised(host, draft, title="x"), ["UPDATE proposals"]),
        "apply": (
            lambda: moved(host, draft, "apply"), ["UPDATE proposals", "INSERT run_events"]
        ),
        "reject": (lambda: moved(host, other, "reject"), ["UPDATE proposals"]),
        "fork": (lambda: run.fork("branch", fromSeq=1), ["INSERT runs", "INSERT run_events"]),
        "end": (
            lambda: host.ask("POST", "/runs/r1/end", {"status": "failed"}),
            ["UPDATE runs", "INSERT run_events"],
        ),
    }  # fmt: skip


@pytest.mark.slow
@requirement("OW-55", "OW-6", "OW-88", "OW-66", "OW-71", "OW-29")
def test_a_deed_of_which_one_part_fails_leaves_nothing_of_the_others(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        host = Host(service.http)
        for name, (deed, parts) in deeds(host).items():
            before = everything(host)
            for part in parts:
                with broken(path, *part.split()):
                    assert deed().is_error, (name, part)
                    assert everything(host) == before, (name, part)
            assert deed().is_success, name
            assert everything(host) != before, name


@pytest.mark.slow
@requirement("OW-77", "OW-78", "OW-80", "OW-82", "OW-93", "OW-94", "OW-29")
def test_what_a_long_pass_has_left_when_it_failed_is_done_by_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (consolidation, entries):
        monkeypatch.setattr(module, "STEP", 5)
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        host = Host(service.http)
        kept = host.put("storks nest")
        made = [
            host.put(f"heron number {number % 4}", tags=["subject:ada"]) for number in range(16)
        ]
        with broken(path, "INSERT", "ref_supersessions",
                    when="(SELECT count(*) FROM ref_supersessions) >= 5"):  # fmt: skip
            assert host.consolidate().is_error
        assert len(host.entries()) == 12  # the first step is done, and the second not at all
        assert counted(host)[REF][0] == 17
        rows(path, "DELETE FROM run_events WHERE type = 'run.failed'")  # as who is killed leaves it
        rows(path, "UPDATE runs SET status = 'running', ended_at = NULL WHERE status = 'failed'")

        payload = passed(host.consolidate(), CONSOLIDATED)

        assert (payload["inputCount"], payload["outputCount"]) == (12, 5)
        assert ids(host.entries()) == [*ids(made[:-5:-1]), kept["id"]]
        assert sum(about(host, it)["seen"] for it in ids(host.entries())) == 17
        runs = {it["runId"] for it in events(host)}
        assert {ok(host.ask("GET", f"/runs/{it}"))["status"] for it in runs} == {
            "completed", "failed"
        }  # fmt: skip
        with broken(path, "DELETE", "memories", when="(SELECT count(*) FROM memories) < 10"):
            assert host.forget("ada").is_error
        assert counted(host)[REF][0] == 12

        ok(host.forget("ada"))

        assert host.entries() == [kept]
        assert counted(host)[REF] == (1, len("storks nest"))
        assert host.forget("ada").json()["entries"] == 0
        assert_index_is_whole(path)
