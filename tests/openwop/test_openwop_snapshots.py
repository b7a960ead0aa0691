"""What a run sees: memory as it was when the run began, whole, whatever happens meanwhile."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ..support.openwop_hosts import H, Host, ok, refused
from ..support.openwop_play import Play
from ..support.requirements import requirement
from ..support.samples import sampled


@requirement("OW-51", "OW-52", "OW-53", "OW-57", "OW-61", "OW-62")
@pytest.mark.parametrize("seed", sampled(range(2), 2))
def test_what_runs_see_is_as_a_model_says(path: Path, seed: int) -> None:
    counts = Play(path, seed).play(25)

    assert min(counts[it] for it in ("put", "delete", "open", "listed: host")) > 0


@requirement("OW-51", "OW-52", "OW-53", "OW-57", "OW-61", "OW-62")
@pytest.mark.parametrize("seed", sampled(range(100, 103), 1, first=1))
def test_what_runs_see_in_long_histories_is_as_a_model_says(path: Path, seed: int) -> None:
    counts = Play(path, seed).play(140)

    kinds = {f"listed: {it}" for it in ("live", "host", "branch", "replay")}
    assert min(counts[it] for it in kinds | {"sweep", "turn_back"}) > 0


@requirement("OW-51", "OW-52")
def test_a_run_sees_what_was_there_when_it_began_and_its_host_sees_what_it_wrote(
    host: Host,
) -> None:
    kept, dropped = host.put("kept"), host.put("dropped")
    run = host.in_run("r1")

    own, foreign = run.put("its own"), host.put("of another")
    ok(run.delete(dropped["id"]))

    assert run.entries() == [dropped, kept]
    assert ok(run.get(dropped["id"]))["entry"] == dropped
    for later in (own, foreign):
        assert refused(run.get(later["id"])) == (404, "not_found")
    assert host.entries() == [foreign, own, kept]
    assert ok(host.get(own["id"]))["entry"] == own
    assert refused(host.get(dropped["id"])) == (404, "not_found")
    assert host.in_run("r2").entries() == [foreign, own, kept]
    run.end()
    assert run.entries() == [dropped, kept]  # of an ended run, too


@pytest.mark.slow
@requirement("OW-51")
def test_pages_of_a_run_go_on_although_others_put_and_delete(host: Host) -> None:
    made = [host.put(str(it)) for it in range(7)]
    run, found, before = host.in_run("r1"), list[object](), dict[str, object]()
    for turn in range(4):
        params = {"memoryRef": run.ref, "runId": run.run, "limit": 2, **before}
        page = ok(run.ask("GET", "/memory", params=params))
        found += page["entries"]
        assert ("next" in page) == (turn < 3)
        before = {"before": page.get("next")}
        host.put(f"late {turn}")
        for it in {turn, 6 - turn}:
            ok(host.delete(made[it]["id"]))

    assert found == made[::-1]


REQUESTS: dict[str, Callable[[Host], httpx.Response]] = {
    "list": lambda it: it.ask("GET", "/memory", params={"memoryRef": it.ref, "runId": "no"}),
    "get": lambda it: it.get("mem_" + "0" * 32, runId="no"),
    "put": lambda it: it.post(runId="no"),
    "delete": lambda it: it.delete("mem_" + "0" * 32, runId="no"),
    "run": lambda it: it.ask("GET", "/runs/no"),
    "events": lambda it: it.ask("GET", "/runs/no/events"),
    "end": lambda it: it.ask("POST", "/runs/no/end", {"status": "failed"}),
    "fork": lambda it: it.ask("POST", "/runs/no/fork", {"mode": "replay"}),
    "secret": lambda it: it.ask(
        "POST", "/runs/no/secrets", {"secretId": "s", "value": "hunter22"}
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.representative(7)
@requirement("OW-51", "OW-54")
@pytest.mark.parametrize("name", REQUESTS)
def test_a_run_that_there_is_not_is_never_taken_for_none(host: Host, name: str) -> None:
    host.put()
    answer = REQUESTS[name](host)

    assert refused(answer) == (404, "not_found")
    assert host.http.get(f"{H}/refs").json()["refs"][0]["entries"] == 1
