"""Commitments are armed, listed, read and cancelled by those who may."""

from dataclasses import replace

import pytest

from ..support.openwop_commitments import FIELDS, Intents, firing
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_tenants import NEVER, SECRET, anew
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service

NOBODYS = "cmt_" + "0" * 32
UNKNOWN = (404, "not_found")


@requirement("OW-84", "OW-85")
def test_tags_of_a_put_arm_and_each_condition_is_one_commitment(host: Host) -> None:
    due = "due:2030-01-01T13:00:00Z"
    tags = [due, "due:2030-01-01T14:00:00+01:00", "when:rain", "when:snow", "undue:x"]

    made = host.put("Take the umbrella.", tags=tags)

    armed = Intents(host).listed()
    assert made["tags"] == tags
    assert [(it["condition"], it.get("dueAt"), it.get("tag")) for it in armed] == [
        ("time", "2030-01-01T13:00:00.000Z", None), ("predicate", None, "rain"),
        ("predicate", None, "snow"),
    ]  # fmt: skip
    for each in armed:
        assert (each["memoryId"], each["memoryRef"]) == (made["id"], host.ref)
        assert (each["state"], each["createdAt"]) == ("armed", made["createdAt"])
        assert ok(Intents(host).get(each["id"])) == each


@pytest.mark.usefixtures("quick_looks")
def test_a_put_that_is_repeated_arms_nothing_new(service: Service, host: Host) -> None:
    once = replace(host, headers={"Idempotency-Key": "k1"})
    fields: Json = {"tags": ["due:2030-01-01T13:00:00Z", "when:rain"], "id": "plan"}
    first = once.put("one", **fields)
    service.clock.advance(hours=2)
    until(Intents(host).fired)
    fired = Intents(host).listed()

    assert ok(once.post("one", **fields), 201)["entry"] == first
    assert ok(host.post("one", **fields))["entry"] == first  # its time is over by now

    assert Intents(host).listed() == fired
    assert [it["state"] for it in fired] == ["fired", "armed"]


@requirement("OW-84", "OW-85")
def test_a_condition_is_armed_for_an_entry_that_is_there(service: Service, host: Host) -> None:
    made, intents = host.put("one", id="plan"), Intents(host)
    service.clock.advance(seconds=1)

    time = intents.at("plan", "2030-01-01T15:00:00.123999+02:00")
    tag = intents.on("plan", "rain")

    assert time == {
        "id": time["id"], "memoryRef": host.ref, "memoryId": made["id"], "condition": "time",
        "dueAt": "2030-01-01T13:00:00.123Z", "state": "armed",
        "createdAt": "2030-01-01T12:00:01.000Z",
    }  # fmt: skip
    assert tag.keys() == FIELDS | {"tag"}
    assert time["id"].startswith("cmt_")
    assert len(time["id"]) == len(NOBODYS)
    assert intents.listed() == [time, tag]


@requirement("OW-31", "OW-87", "OW-33")
def test_what_is_not_there_or_not_current_takes_no_commitment(service: Service, host: Host) -> None:
    intents = Intents(host)
    gone, short = host.put("gone")["id"], host.put("short", ttlSeconds=5)["id"]
    old = host.put("old")["id"]
    host.put("new", supersedes=[old])
    ok(host.delete(gone))
    service.clock.advance(seconds=5)
    tag: Json = {"condition": "predicate", "tag": "rain"}

    never = intents.post(memoryId=NEVER, **tag)
    assert refused(never) == UNKNOWN
    assert never.json()["message"] == "memory entry not found"
    for memory in (gone, short, old):
        assert intents.post(memoryId=memory, **tag).content == never.content
    elsewhere = intents.post(memoryId=old, memoryRef="mem://nobodys", **tag)
    assert elsewhere.content == never.content
    foreign = intents.post(memoryId=old, memoryRef="tenants/acme/x", **tag)
    assert refused(foreign) == (403, "forbidden")
    for ref in ("tenants/acme/x", "a/../b", SECRET, "mem://nobodys"):
        assert intents.listed(memoryRef=ref) == []
    assert intents.listed() == []


@requirement("OW-85", "OW-37")
def test_a_tag_that_is_waited_for_is_screened_as_tags_are(host: Host) -> None:
    intents, memory = Intents(host), host.put("one")["id"]
    run = host.in_run("r1")
    run.register("crm", "correct-horse")

    answer = intents.post(memoryId=memory, condition="predicate", tag="has correct-horse")

    armed = ok(answer, 201)
    assert armed["tag"] == "has [REDACTED:crm]"
    assert answer.headers["x-redacted"] == "1"
    host.put("two", tags=["has correct-horse"])
    assert intents.fired() == [firing(armed)]


@pytest.mark.slow
def test_commitments_are_listed_in_pages_by_ref_and_by_state(host: Host) -> None:
    intents, other = Intents(host), Intents(anew(host))
    memory, elsewhere = host.put("one")["id"], other.host.put("two")["id"]
    made = [intents.on(memory, f"tag {number}") for number in range(5)]
    theirs = other.on(elsewhere, "tag 0")
    ok(intents.cancel(made[1]["id"]))
    host.put("rain", tags=["tag 3"])

    ids = [it["id"] for it in made]
    assert [it["id"] for it in intents.listed()] == [*ids, theirs["id"]]
    assert intents.listed(memoryRef=other.host.ref) == [theirs]
    by_state = {
        state: [ids.index(it["id"]) for it in intents.listed(state=state, memoryRef=host.ref)]
        for state in ("armed", "fired", "cancelled")
    }
    assert by_state == {"armed": [0, 2, 4], "fired": [3], "cancelled": [1]}
    found, after = list[Json](), ""
    while True:
        page = intents.page(limit=2, after=after, memoryRef=host.ref)
        found += page["commitments"]
        if "next" not in page:
            break
        assert page["next"] == found[-1]["id"]
        after = page["next"]
    assert [it["id"] for it in found] == ids
    assert intents.listed(limit=0) == intents.listed(limit=1001) == intents.listed()


def test_a_commitment_is_cancelled_again_and_again_and_a_fired_one_stays_so(host: Host) -> None:
    intents, memory = Intents(host), host.put("one")["id"]
    kept, fired = intents.on(memory, "rain"), intents.on(memory, "snow")
    host.put("two", tags=["snow"])

    cancelled = ok(intents.cancel(kept["id"]))

    assert cancelled == kept | {"state": "cancelled"}
    assert ok(intents.cancel(kept["id"])) == cancelled == ok(intents.get(kept["id"]))
    assert ok(intents.cancel(fired["id"]))["state"] == "fired"
    host.put("three", tags=["rain"])
    assert intents.fired() == [firing(fired)]
    for unknown in (NOBODYS, "cmt_x", kept["id"].upper(), memory):
        for answer in (intents.get(unknown), intents.cancel(unknown)):
            assert refused(answer) == UNKNOWN
            assert answer.json()["message"] == "commitment not found"
