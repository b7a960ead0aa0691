"""What is told of runs: every event once, in order, in the transaction of what it tells."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator

from agentops_memory.http import query as http

from ..support.openwop_facts import PAYLOADS
from ..support.openwop_hosts import Host, Json, ok, refused, wire
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import PLAIN, START, Service, serving

EVENT = re.compile(r"evt_[0-9a-f]{32}")
FIELDS = {"eventId", "runId", "type", "payload", "timestamp", "sequence"}


def stream(host: Host, **query: object) -> Json:
    """A part of the tenant's events."""
    found: Json = ok(host.ask("GET", "/events", params=query))
    return found


@requirement("OW-55", "OW-56", "OW-57")
def test_a_run_tells_what_was_written_and_deleted_in_it_and_nothing_it_says(
    service: Service, host: Host
) -> None:
    run = host.in_run("r1", agentId="root")
    service.clock.advance(seconds=1)
    fields: Json = {"nodeId": "n1", "agentId": "ada", "tags": ["b", "a", "b"]}
    one = run.put("hippopotamus", **fields)
    two = run.put("rhinoceros", tags=None)
    ok(run.delete(one["id"]))
    ok(host.delete(host.put("of no run, which is told of by no event")["id"]))
    run.end()

    told = run.told()

    later = wire(service.clock.now)
    assert [(it["sequence"], it["type"], it["timestamp"], it.get("nodeId")) for it in told] == [
        (0, "run.started", wire(START), None), (1, "memory.written", later, "n1"),
        (2, "memory.written", later, None), (3, "agentops-memory.memory.deleted", later, None),
        (4, "run.completed", later, None),
    ]  # fmt: skip
    about = {"memoryRef": host.ref, "memoryId": one["id"]}
    assert told[1]["payload"] == about | {"nodeId": "n1", "agentId": "ada", "tags": ["b", "a"]}
    assert told[2]["payload"].items() >= {"memoryId": two["id"], "tags": []}.items()
    assert told[3]["payload"] == about
    assert not re.search("hippopotamus|rhinoceros", repr(told))
    for it in told:
        assert it.keys() - {"nodeId"} == FIELDS
        assert EVENT.fullmatch(it["eventId"])
        Draft202012Validator(PAYLOADS[it["type"]]).validate(it["payload"])
    assert len({it["eventId"] for it in told}) == len(told)
    assert stream(host)["events"] == told


@requirement("OW-57")
def test_the_events_of_a_run_are_read_in_parts(host: Host) -> None:
    run = host.in_run("r1")
    for number in range(4):
        run.put(str(number))

    def part(**query: object) -> tuple[list[int], bool]:
        answer = ok(run.ask("GET", "/runs/r1/events", params=query))
        assert answer.keys() == {"events", "isComplete"}
        return [it["sequence"] for it in answer["events"]], answer["isComplete"]

    assert part() == ([0, 1, 2, 3, 4], False)
    assert part(after=4) == ([], False)
    run.end()
    assert part() == ([0, 1, 2, 3, 4, 5], True)
    assert part(limit=2) == ([0, 1], False)
    assert part(after=1, limit=2) == ([2, 3], False)
    assert part(after=3, limit=2) == ([4, 5], True)
    assert part(after=0) == ([1, 2, 3, 4, 5], True)
    assert part(after=99) == ([], True)


@requirement("OW-58")
def test_the_events_of_all_runs_are_followed_and_chosen_by_type(host: Host) -> None:
    first, second = host.in_run("r1"), host.in_run("r2")
    first.put("a")
    at = stream(host)["next"]
    second.put("b")
    first.end()

    every = stream(host)["events"]
    assert [(it["runId"], it["sequence"]) for it in every] == [
        ("r1", 0), ("r2", 0), ("r1", 1), ("r2", 1), ("r1", 2)
    ]  # fmt: skip
    later = stream(host, after=at)
    assert later["events"] == every[3:]
    end = stream(host, after=later["next"])
    assert end["events"] == []
    assert stream(host, after=end["next"])["events"] == []
    written = stream(host, type="memory.written")
    assert written["events"] == [every[2], every[3]]
    assert stream(host, type="memory.written", after=written["next"])["events"] == []
    second.put("c")
    for before in (end, written):
        assert [it["sequence"] for it in stream(host, after=before["next"])["events"]][-1:] == [2]
    walked, cursor = list[Json](), dict[str, object]()
    while (page := stream(host, limit=2, **cursor))["events"]:
        assert len(page["events"]) <= 2
        walked, cursor = walked + page["events"], {"after": page["next"]}
    assert walked == stream(host)["events"]


@requirement("OW-21", "OW-57", "OW-58")
def test_events_that_do_not_fit_into_an_answer_are_in_the_next_one(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = host.in_run("r1")
    for number in range(9):
        run.put(f"{number}", tags=["t" * 256, "u" * 256])
    run.end()
    every = stream(host)["events"]
    monkeypatch.setattr(http, "MAX_ANSWER", 4096)

    parts, after = list[Json](), dict[str, object]()
    while not parts or not parts[-1]["isComplete"]:
        parts.append(ok(host.ask("GET", "/runs/r1/events", params=after)))
        after = {"after": parts[-1]["events"][-1]["sequence"]}
    assert [event for part in parts for event in part["events"]] == every
    assert len(parts) > 2

    walked, cursor = list[Json](), dict[str, object]()
    while (page := stream(host, **cursor))["events"]:
        walked, cursor = walked + page["events"], {"after": page["next"]}
    assert walked == every


@requirement("OW-58")
def test_a_cursor_goes_on_after_a_restart_and_none_is_needed_for_the_first(path: Path) -> None:
    with serving(path) as service:
        host = Host(service.http)
        empty = stream(host)
        assert empty["events"] == []
        host.in_run("r1").put()
        begun = stream(host, after=empty["next"])
        assert len(begun["events"]) == 2
    with serving(path) as service:
        host = Host(service.http)
        assert stream(host)["events"] == begun["events"]
        Host(service.http, run="r1").end()
        (ended,) = stream(host, after=begun["next"])["events"]
        assert (ended["type"], ended["sequence"]) == ("run.completed", 2)


@pytest.mark.slow
@requirement("OW-57", "OW-58")
def test_of_racing_ends_and_puts_the_end_comes_last(service: Service, host: Host) -> None:
    run = host.in_run("r1")

    def put(number: int) -> list[httpx.Response]:
        with httpx.Client(base_url=service.url, timeout=60, verify=PLAIN) as http:
            writer = Host(http, f"mem://{number % 2}", "r1")
            return [writer.post(f"writer {number}, put {put}") for put in range(10)]

    with ThreadPoolExecutor(8) as pool:
        writing = pool.map(put, range(8))
        until(lambda: len(run.told(limit=1000)) >= 10)
        run.end("cancelled")
        answers = [answer for of_one in writing for answer in of_one]

    made = [it.json()["entry"]["id"] for it in answers if it.status_code == 201]
    told = run.told(limit=1000)
    assert [it["type"] for it in told] == [
        "run.started", *["memory.written"] * len(made), "run.cancelled"
    ]  # fmt: skip
    assert [it["sequence"] for it in told] == list(range(len(told)))
    assert {it["payload"]["memoryId"] for it in told[1:-1]} == {*made}
    assert {refused(it) for it in answers if it.is_error} <= {(409, "run_terminal")}
    refs = ok(host.ask("GET", "/refs"))["refs"]
    assert sum(it["entries"] for it in refs) == len(made)
