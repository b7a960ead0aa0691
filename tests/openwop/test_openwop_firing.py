"""Commitments fire once, in time, whatever restarts, is put back, races, or goes."""

import asyncio
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest

from agentops_memory.errors import NotFound
from agentops_memory.memory.access import Caller, TenantId
from agentops_memory.openwop.commitments import Firing

from ..operations.test_tenants import count, opened, until as eventually
from ..support.openwop_commitments import Intents, firing, soon, stored
from ..support.openwop_hosts import Host, ok, refused, together
from ..support.openwop_seams import Suite
from ..support.openwop_sweeps import deleted_long_ago, sweeping
from ..support.openwop_tenants import anew, keyed
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Clock, Service, serving

INTENTION = "xylographer"

pytestmark = pytest.mark.usefixtures("quick_looks")


@requirement("OW-84", "OW-86")
def test_a_time_fires_at_the_first_look_at_its_millisecond_and_not_before(
    service: Service, host: Host, intents: Intents
) -> None:
    memory = host.put(INTENTION, id="plan")["id"]
    armed = intents.at(memory, soon(service, hours=1, microseconds=999))
    service.clock.advance(hours=1, microseconds=-1)
    time.sleep(0.05)
    assert stored(service.path) == ["armed"]

    service.clock.advance(microseconds=1)

    until(lambda: intents.fired() == [firing(armed)])
    assert stored(service.path) == ["fired"]
    fired = ok(intents.get(armed["id"]))
    assert fired == armed | {"state": "fired", "firedAt": armed["dueAt"]}


@requirement("OW-86", "OW-56", "OW-57")
def test_what_is_told_of_a_firing_is_not_what_is_intended(
    service: Service, host: Host, intents: Intents
) -> None:
    due = soon(service, minutes=1).isoformat()
    run = host.in_run("r1")
    made = run.put(INTENTION, tags=[f"due:{due}", "when:rain", INTENTION], nodeId="n1")
    at, tag = intents.listed()
    rain = run.put("one", tags=["rain"], nodeId="n2")
    service.clock.advance(minutes=1)

    until(lambda: intents.fired() == [firing(tag), firing(at)])

    told = host.ask("GET", "/events", params={"limit": 1000})
    for event in ok(told)["events"]:
        if event["type"] != "memory.written":
            assert INTENTION not in repr(event)
    assert firing(at)["memoryId"] == made["id"]
    log = [(it["type"], it["payload"].get("memoryId")) for it in run.told()]
    assert log == [
        ("run.started", None), ("memory.written", made["id"]), ("memory.written", rain["id"]),
    ]  # fmt: skip


@requirement("OW-84")
def test_instants_that_were_missed_are_one_firing_each(
    service: Service, host: Host, intents: Intents
) -> None:
    memory = host.put("one")["id"]
    later, sooner = (intents.at(memory, soon(service, days=days)) for days in (2, 1))
    service.clock.advance(days=365)
    until(lambda: intents.fired() == [firing(sooner), firing(later)])

    for _ in range(3):
        service.clock.advance(days=365)
        assert len(intents.fired()) == 2
    assert intents.states() == ["fired", "fired"]


@requirement("OW-84", "OW-87")
def test_a_clock_that_is_put_back_unfires_nothing_and_fires_nothing_twice(path: Path) -> None:
    clock = Clock()
    with serving(path, clock=clock) as service:
        host = Host(service.http)
        intents, begun = Intents(host), clock.now
        armed = intents.at(host.put("one")["id"], soon(service, hours=1))
        short = intents.on(host.put("two", ttlSeconds=60)["id"], "rain")
        clock.now += timedelta(hours=2)
        until(intents.fired)
        fired = ok(intents.get(armed["id"]))
    with serving(path, clock=clock) as service:  # it is looked at for what has expired
        host = Host(service.http)
        intents = Intents(host)
        clock.now = begun
        host.put("three", tags=["rain"])

        assert ok(intents.get(armed["id"])) == fired
        assert ok(intents.get(short["id"])) == short | {"state": "cancelled"}
        clock.now = begun + timedelta(hours=3)
        assert intents.fired() == [firing(armed)]
        assert intents.listed() == [fired, short | {"state": "cancelled"}]


@pytest.mark.slow
@requirement("OW-84")
def test_what_was_due_while_the_service_was_down_has_fired_before_anybody_asks(path: Path) -> None:
    clock = Clock()
    with (
        serving(path, clock=clock) as service,
        keyed(service) as ada,
        keyed(service, "writer", "acme") as bob,
    ):
        armed = [Intents(it).at(it.put("one")["id"], soon(service, hours=1)) for it in (ada, bob)]
    clock.advance(hours=2)
    theirs = path.with_name("memory.db.tenants") / "acme.db"

    for counted in (2, 0):
        with (
            serving(path, clock=clock) as service,
            keyed(service) as ada,
            keyed(service, "writer", "acme") as bob,
        ):
            assert stored(path) == ["fired"]
            ok(bob.ask("GET", "/refs"))
            assert stored(theirs) == ["fired"]
            figures = ada.http.get("/metrics").text
            assert f'memory_commitments_fired_total{{condition="time"}} {counted}.0' in figures
            told = [Intents(it).fired() for it in (ada, bob)]
            assert told == [[firing(each)] for each in armed]


@requirement("OW-84", "OW-87", "OW-101")
def test_the_service_looks_by_itself_and_counts_what_fires(path: Path) -> None:
    with serving(path) as service:
        host = Host(service.http)
        intents = Intents(host)
        for number in range(3):
            intents.at(host.put(f"{number}")["id"], soon(service, minutes=1))
        intents.on(host.put("short", ttlSeconds=60)["id"], "rain")
        intents.on(host.put("long")["id"], "rain")
        assert stored(service.path) == ["armed"] * 5
        service.clock.advance(minutes=1)

        until(lambda: stored(service.path) == [*["fired"] * 3, "cancelled", "armed"])
        host.put("wet", tags=["rain"])

        assert len(intents.fired()) == 4
        figures = service.http.get("/metrics").text
        assert 'memory_commitments_fired_total{condition="time"} 3.0' in figures
        assert 'memory_commitments_fired_total{condition="predicate"} 1.0' in figures


@requirement("OW-85")
def test_a_predicate_fires_with_the_first_live_entry_of_its_tag_and_not_for_what_was_there(
    service: Service, host: Host, intents: Intents
) -> None:
    there = host.put("there", tags=["rain"])["id"]
    armed = intents.on(host.put("plan", tags=["rain"])["id"], "rain")
    host.put("also there", tags=["rain"], ttlSeconds=60)
    ok(host.delete(there))
    second = host.put("still another", tags=["rain"])["id"]
    ok(host.delete(second))
    anew(host).put("elsewhere", tags=["rain"])
    assert intents.states() == ["armed"]
    service.clock.advance(seconds=60)  # there is none any more
    for tags in ([], ["Rain"], ["rain "], ["when:rain"], ["umbrella"]):
        host.put("dry", tags=tags)
    assert intents.states() == ["armed", "armed"]

    host.put("wet", tags=["sun", "rain"])

    assert intents.fired() == [firing(armed)]
    assert intents.states() == ["fired", "armed"]  # for the other one the plan itself is there
    host.put("wet", tags=["rain"])
    assert intents.fired() == [firing(armed)]


@requirement("OW-87")
def test_with_its_source_a_commitment_is_cancelled(
    service: Service, host: Host, intents: Intents
) -> None:
    tags = ["when:rain", f"due:{soon(service, hours=1).isoformat()}"]
    deleted = host.put("deleted", tags=tags)["id"]
    old = host.put("old", tags=tags)["id"]
    host.put("short", tags=tags, ttlSeconds=60)
    kept = host.put("kept", tags=["when:snow"])
    ok(host.delete(deleted))
    new = host.put("new", supersedes=[old])["id"]
    assert intents.states() == [*["cancelled"] * 4, "armed", "armed", "armed"]
    service.clock.advance(seconds=60)
    assert intents.states() == [*["cancelled"] * 6, "armed"]
    assert intents.listed(state="cancelled") == intents.listed()[:6]
    assert [it["memoryId"] for it in intents.listed(state="armed")] == [kept["id"]]

    ok(host.delete(new))  # which brings the old one back, and no more
    host.put("wet", tags=["rain"])
    service.clock.advance(hours=1)

    until(lambda: stored(service.path) == [*["cancelled"] * 6, "armed"])
    assert intents.fired() == []


@requirement("OW-87", "OW-68", "OW-71")
def test_a_pass_leaves_alone_what_waits_and_its_undo_cancels_what_waits_with_its_archive(
    host: Host, intents: Intents
) -> None:
    armed = intents.on(host.put("a plum is blue")["id"], "rain")
    fired = intents.on(host.put("a pear is green")["id"], "snow")
    host.put("a cherry is red", tags=["snow"])
    done = ok(host.ask("POST", "/compact", {"memoryRef": host.ref}))
    archive = intents.on(done["event"]["payload"]["outputId"], "sun")
    assert host.contents()[1:] == ["a plum is blue"]

    ok(host.ask("POST", f"/passes/{done['runId']}/undo"))

    assert intents.listed(state="cancelled") == [archive | {"state": "cancelled"}]
    host.put("wet", tags=["rain", "sun"])
    assert intents.fired() == [firing(fired), firing(armed)]


@pytest.mark.slow
@requirement("OW-87", "OW-103")
def test_with_what_is_erased_its_commitments_go(tmp_path: Path) -> None:
    with sweeping(tmp_path) as service:
        host = Host(service.http)
        intents = Intents(host)
        memory = host.put("one", tags=["when:rain", "when:snow"])["id"]
        host.put("wet", tags=["rain"])
        ok(host.delete(memory))
        assert intents.states() == ["fired", "cancelled"]
        (fired,) = intents.fired()

        deleted_long_ago(service)

        assert intents.listed() == []
        assert stored(service.path) == []
        assert refused(intents.get(fired["commitmentId"])) == (404, "not_found")
        assert intents.fired() == [fired]


GONE = "2020-01-01T00:00:00Z"


@requirement("OW-85")
def test_each_that_waits_fires_with_the_first_live_entry_that_is_not_itself(
    suite: Suite,
) -> None:
    host = anew(suite.host)
    gone = [
        {"id": f"e{it}", "content": "x", "tags": ["come"], "expiresAt": GONE} for it in range(9)
    ]
    assert suite.seed(*gone, ref=host.ref) == len(gone)
    waits = {
        name: host.put(name, id=name, tags=tags)["id"]
        for name, tags in {
            "only": ["when:come"],
            "both": ["when:come", "come", "when:other"],  # which fires what waited before it
            "late": ["when:come", "when:come too"],
        }.items()
    }

    assert _states(host, "come") == ["fired", "armed", "armed"]
    host.put("it is there", tags=["come too", "come"])
    assert _states(host, "come") == ["fired", "fired", "armed"]  # the last had one before it
    assert (_states(host, "come too"), _states(host, "other")) == (["fired"], ["armed"])
    ok(host.delete(waits["both"]))
    host.put("it is there again", tags=["come", "other"])
    assert _states(host, "come") == ["fired", "fired", "armed"]
    assert _states(host, "other") == ["cancelled"]


def _states(host: Host, tag: str) -> list[str]:
    """What has become of all that waited for a tag, in the order in which it was armed."""
    listed = Intents(host).listed(memoryRef=host.ref)
    return [it["state"] for it in listed if it.get("tag") == tag]


@pytest.mark.slow
async def test_a_look_in_passing_opens_no_database_and_keeps_none_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = Caller(tenant=TenantId("acme"))

    loop, passed = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + passed)
    async with opened(path, idle=timedelta(hours=3)) as engine:
        firing = Firing(engine=engine.background)
        with pytest.raises(NotFound):
            await firing.look(acme)
        assert engine.callers() == [Caller()]
        assert await count(engine, acme) == 0
        for _ in range(2):
            for caller in engine.callers():
                await firing.look(caller)
            passed += 2 * 3600
        await eventually(lambda: acme not in engine.callers())


@pytest.mark.slow
@requirement("OW-84", "OW-87")
def test_of_a_firing_and_a_deletion_that_race_one_has_happened(
    service: Service, host: Host, intents: Intents
) -> None:
    due = soon(service, minutes=1).isoformat()
    memories = [host.put(f"{n}", tags=[f"due:{due}", "when:rain"])["id"] for n in range(20)]
    cancelled = [it["id"] for it in intents.listed()[30:]]
    service.clock.advance(minutes=1)

    answers: list[httpx.Response] = together(
        *(partial(host.delete, memory) for memory in memories),
        *(partial(intents.cancel, it) for it in cancelled),
        *[partial(host.ask, "GET", "/events")] * 5,
        *[partial(host.post, "wet", tags=["rain"])] * 5,
    )
    assert all(it.is_success for it in answers)

    by_state: dict[str, set[str]] = {"fired": set(), "cancelled": set()}
    for each in intents.listed():
        by_state[each["state"]].add(each["id"])
    told = [it["commitmentId"] for it in intents.fired()]
    assert len(told) == len({*told})
    assert {*told} == by_state["fired"]
