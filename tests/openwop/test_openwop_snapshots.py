"""What a run sees: memory as it was when the run began, whole, whatever happens meanwhile."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from ..support.openwop_hosts import H, Host, ok, refused
from ..support.openwop_looks import wire
from ..support.openwop_play import Play
from ..support.requirements import requirement
from ..support.samples import sampled
from ..support.service import Service, serving


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
def test_what_is_superseded_meanwhile_stays_in_a_run_and_what_was_before_does_not(
    host: Host,
) -> None:
    first, second = host.put("first"), host.put("second")
    third = host.put("third", supersedes=[first["id"]])
    run = host.in_run("r1")
    fourth = run.put("fourth", supersedes=[second["id"], third["id"]])

    assert run.entries() == [third, second]
    assert host.entries() == [fourth]
    assert ok(run.get(first["id"]))["entry"] == ok(host.get(first["id"]))["entry"] == first
    ok(host.delete(fourth["id"]))
    assert host.entries() == [third, second]
    ok(host.delete(third["id"]))
    assert host.entries() == [second, first]
    assert run.entries() == [third, second]
    assert host.in_run("r2").entries() == [second, first]


@requirement("OW-53")
def test_what_expires_in_a_run_is_gone_from_it_and_supersedes_no_more(
    service: Service, host: Host
) -> None:
    older = host.put("older")
    end = service.clock.now + timedelta(minutes=1)
    newer = host.put("newer", supersedes=[older["id"]], expiresAt=wire(end))
    run = host.in_run("r1")
    service.clock.now = end - timedelta(milliseconds=1)
    assert run.entries() == host.entries() == [newer]

    service.clock.now = end

    assert run.entries() == host.entries() == [older]
    assert refused(run.get(newer["id"])) == (404, "not_found")


@pytest.mark.heavy
@requirement("OW-51")
@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_the_order_of_commits_counts_and_not_the_clock(
    service: Service, host: Host, hours: int
) -> None:
    before, dropped = host.put("before"), host.put("dropped")
    run = host.in_run("r1")
    service.clock.now += timedelta(hours=hours)

    after = host.put("after")
    ok(host.delete(dropped["id"]))

    assert run.entries() == [dropped, before]
    assert host.entries() == ([before, after] if hours < 0 else [after, before])
    assert refused(run.get(after["id"])) == (404, "not_found")


@pytest.mark.slow
@requirement("OW-51", "OW-61")
def test_an_id_that_is_used_again_is_in_each_snapshot_what_it_was_then(host: Host) -> None:
    runs = []
    for number in range(3):
        host.put(f"number {number}", id="fact")
        runs.append(host.in_run(f"r{number}"))
        ok(host.delete("fact"))

    said = [ok(it.get("fact"))["entry"]["content"] for it in runs]
    assert said == [f"number {number}" for number in range(3)]
    assert [it.contents() for it in runs] == [[it] for it in said]
    assert refused(host.get("fact")) == (404, "not_found")


LOOKS: dict[str, tuple[dict[str, object], list[str]]] = {
    "a tag": ({"tag": "b"}, ["4", "2", "0"]),
    "a limit": ({"limit": 2}, ["5", "4"]),
    "a budget": ({"tokenBudget": 3}, ["5", "4", "3"]),
}


@pytest.mark.heavy
@requirement("OW-51")
@pytest.mark.parametrize("look", LOOKS)
def test_a_run_may_ask_for_less_of_what_it_sees(host: Host, look: str) -> None:
    made = [host.put(str(it), tags=["a", "b"] if it % 2 == 0 else ["a"]) for it in range(6)]
    run = host.in_run("r1")
    host.put("late", tags=["b"])
    for it in made[4:]:
        ok(host.delete(it["id"]))
    query, expected = LOOKS[look]

    assert run.contents(**query) == expected


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


@pytest.mark.heavy
@requirement("OW-51")
def test_a_snapshot_outlives_the_service(path: Path) -> None:
    with serving(path) as service:
        host = Host(service.http)
        made = host.put()
        host.in_run("r1")
        ok(host.delete(made["id"]))
    with serving(path) as service:
        run = Host(service.http, run="r1")
        assert run.entries() == [made]
        assert run.put("after")["content"] == "after"
        assert run.entries() == [made]


@pytest.mark.slow
@requirement("OW-51")
@pytest.mark.parametrize("ref", ["mem://never", "mem://late"])
def test_a_ref_that_was_not_there_yet_is_empty_in_a_run(host: Host, ref: str) -> None:
    run = host.in_run("r1")
    Host(host.http, "mem://late").put()

    assert Host(host.http, ref, "r1").entries() == []
    assert run.contents() == []


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
