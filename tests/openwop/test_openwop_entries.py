"""Entries as hosts put, get and delete them: members, limits, ids, ends, what they supersede."""

import re
from pathlib import Path

import httpx
import pytest

from ..support.engines import rows
from ..support.erasing import remains
from ..support.files import assert_index_is_whole
from ..support.openwop_hosts import Host, Json, faults, ok, refused
from ..support.openwop_tenants import NEVER, anew, counted, named, of_one, provenance
from ..support.process import until
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving

MISSING = (404, "not_found")
CONFLICT = (409, "memory_id_conflict")


@requirement("OW-15", "OW-16")
def test_an_entry_has_the_five_members_and_no_others(service: Service, host: Host) -> None:
    service.clock.advance(microseconds=1_999)
    answer = host.post("Two spaces  stay.\n", tags=["b", "a"], ttlSeconds=90, unknown=[1])
    made = ok(answer, 201)

    assert made.keys() == {"memoryRef", "entry"}
    assert made["memoryRef"] == host.ref
    entry = made["entry"]
    assert re.fullmatch("mem_[0-9a-f]{12}7[0-9a-f]{19}", entry.pop("id"))
    assert entry == {
        "content": "Two spaces  stay.\n", "tags": ["b", "a"],
        "createdAt": "2030-01-01T12:00:00.001Z", "expiresAt": "2030-01-01T12:01:30.001Z",
    }  # fmt: skip
    assert host.put().keys() == {"id", "content", "tags", "createdAt"}


@requirement("OW-16", "OW-15")
def test_what_a_put_answers_is_what_get_and_list_and_search_give(host: Host) -> None:
    made = host.put('The heron. 🍎\u0301 "\\ \x01', tags=["x/y", "Ä"])

    assert ok(host.get(made["id"])) == {"memoryRef": host.ref, "entry": made}
    assert host.entries() == [made]
    assert host.search("heron") == [made]
    assert made["tags"] == ["x/y", "Ä"]
    again = host.put(made["content"], tags=made["tags"])  # each put is an entry
    assert again["id"] != made["id"]
    assert [it["id"] for it in host.entries()] == [again["id"], made["id"]]


@requirement("OW-16")
def test_provenance_tells_who_wrote_an_entry_and_how(host: Host) -> None:
    made = host.put()
    run = host.in_run("r1")
    bound = run.put(nodeId="n1", agentId="ada")

    told = ok(provenance(host, made["id"]))
    assert told == {
        "memoryRef": host.ref, "memoryId": made["id"], "writtenBy": {}, "method": "put",
        "derivedFrom": [], "seen": 1, "lastSeenAt": made["createdAt"],
    }  # fmt: skip
    by = ok(provenance(host, bound["id"]))["writtenBy"]
    assert by == {"runId": "r1", "nodeId": "n1", "agentId": "ada"}


@requirement("OW-22", "OW-23", "OW-33")
def test_what_is_deleted_is_gone_and_the_second_deletion_finds_nothing(
    service: Service, host: Host
) -> None:
    kept, made = host.put("a heron"), host.put("a heron", tags=["t"])

    assert ok(host.delete(made["id"])) == {
        "memoryRef": host.ref, "memoryId": made["id"], "removed": True,
    }  # fmt: skip

    anew(host).put(id="elsewhere")
    for memory in (made["id"], "elsewhere", "x" * 300, "a%0Ab"):
        for answer, never in zip(of_one(host, memory), of_one(host, NEVER), strict=True):
            assert refused(answer) == MISSING
            assert answer.content == never.content
    assert host.get(made["id"]).json()["message"].rstrip(".") == "memory entry not found"
    assert host.entries() == host.search("heron") == [kept]
    assert host.entries(tag="t") == []
    assert_index_is_whole(service.path)


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize("sign", ["x", "\u00e9", "\u4f1a", "\U0001f332"])
@requirement("OW-24")
def test_content_has_65536_bytes(host: Host, sign: str) -> None:
    width = len(sign.encode())
    most = sign * (65_536 // width) + "x" * (65_536 % width)

    assert ok(host.get(host.put(most)["id"]))["entry"]["content"] == most
    assert faults(host.post(most + "x")) == ["content"]
    assert len(host.entries()) == 1


@requirement("OW-24")
def test_what_is_just_within_the_limits_is_taken(host: Host) -> None:
    tags = [f"{number:02}" + "\U0001f332" * 254 for number in range(50)]
    made = host.put(tags=tags, id="\U0001f332" * 256)
    assert (made["tags"], made["id"]) == (tags, "\U0001f332" * 256)
    run = host.in_run("r1")
    assert run.put(nodeId="n" * 128, agentId="a" * 256)
    assert run.put(nodeId="n", agentId="ada")
    for wrong in ({"nodeId": "n" * 129}, {"agentId": "ad"}, {"agentId": "a" * 257}, {"nodeId": ""}):
        assert faults(run.post(**wrong)) == [*wrong]


@requirement("OW-12")
def test_null_is_absent_and_unknown_fields_are_ignored(host: Host) -> None:
    names = "tags expiresAt ttlSeconds supersedes id runId nodeId agentId".split()
    absent: Json = dict.fromkeys(names)
    made = host.put(**absent, tenantId="acme", createdAt="2020-01-01T00:00:00Z")

    assert (made["tags"], made["createdAt"]) == ([], "2030-01-01T12:00:00.000Z")
    assert "expiresAt" not in made


@requirement("OW-25")
def test_tags_are_kept_in_order_but_for_empty_repeated_and_reserved_ones(host: Host) -> None:
    like = ["archives", "Archive", "a:archive", "compacted", "subject:u1", "key:k", "pinned"]
    assert host.put(tags=like)["tags"] == like

    made = host.put(tags=["b", "", "a", "b", "B", "a"])

    assert made["tags"] == ["b", "a", "B"]
    assert ok(host.get(made["id"]))["entry"]["tags"] == ["b", "a", "B"]
    assert host.put(tags=["", ""])["tags"] == []


@requirement("OW-26", "OW-27")
def test_a_hosts_id_is_kept_and_the_same_put_again_makes_nothing(
    service: Service, host: Host
) -> None:
    end = "2030-01-02T00:00:00Z"
    made = host.put("one", id="plan", tags=["a", "b"], expiresAt=end)
    assert made["id"] == "plan"
    service.clock.advance(seconds=5)

    again = ok(host.post("one", id="plan", tags=["a", "", "b", "a"], expiresAt=end))

    assert again == {"memoryRef": host.ref, "entry": made}
    for other in (
        {"content": "two"}, {"tags": ["b", "a"]}, {"tags": ["a"]}, {"expiresAt": None},
        {"expiresAt": "2030-01-02T00:00:01Z"},
    ):  # fmt: skip
        fields: Json = {"content": "one", "tags": ["a", "b"], "expiresAt": end, **other}
        assert refused(host.post(**fields, id="plan")) == CONFLICT, other
    assert host.entries() == [made]
    assert counted(host) == {host.ref: (1, 3)}


@requirement("OW-26")
def test_a_hosts_id_is_free_after_deletion_and_expiry_and_in_another_ref(
    service: Service, host: Host
) -> None:
    first = host.put("one", id="plan")
    assert anew(host).put("other", id="plan")["content"] == "other"
    ok(host.delete("plan"))
    second = host.put("two", id="plan", ttlSeconds=10)
    assert ok(host.get("plan"))["entry"] == second
    service.clock.advance(seconds=10)
    assert refused(host.get("plan")) == MISSING

    third = host.put("three", id="plan")

    assert ok(host.get("plan"))["entry"] == third
    assert host.entries() == [third]
    assert first["id"] == second["id"] == third["id"] == "plan"


@requirement("OW-26", "OW-16")
def test_an_id_may_have_any_sign_but_a_control_character(host: Host) -> None:
    ids = ["a/b", "ä ö", "x?y#z%2F", "mem_x", "archive_", f"mem_{'0A' * 16}z", "..a", "\U0001f332"]
    for name in ids:
        made = host.put(name, id=name)
        assert ok(host.get(named(name)))["entry"] == made
        assert ok(provenance(host, name))["memoryId"] == name
    assert [it["id"] for it in host.entries()] == ids[::-1]
    for name in ids:
        assert ok(host.delete(named(name)))["memoryId"] == name
    assert host.entries() == []


@requirement("OW-17", "OW-16")
def test_what_a_newer_entry_supersedes_is_not_listed_and_still_resolves(
    service: Service, host: Host
) -> None:
    old, other = host.put("a heron", id="old"), host.put("a stork")
    newer = host.put("a heron, again", supersedes=["old", other["id"]], ttlSeconds=60)
    assert host.entries() == host.search("heron stork") == [newer]
    assert ok(host.get("old"))["entry"] == old
    assert ok(provenance(host, "old"))["supersededBy"] == [newer["id"]]
    newest = host.put("a crane", supersedes=[newer["id"]])
    assert host.entries() == [newest]  # one that is superseded itself still supersedes

    ok(host.delete(newest["id"]))
    assert host.entries() == [newer]
    service.clock.advance(seconds=60)

    assert [it["id"] for it in host.entries()] == [other["id"], "old"]
    assert "supersededBy" not in ok(provenance(host, "old"))


@requirement("OW-12", "OW-33")
def test_only_live_entries_of_the_ref_can_be_superseded(service: Service, host: Host) -> None:
    gone, ended = host.put()["id"], host.put(ttlSeconds=1)["id"]
    ok(host.delete(gone))
    foreign = anew(host).put()["id"]
    service.clock.advance(seconds=1)
    kept = host.put()

    answers: list[httpx.Response] = [
        host.post("next", supersedes=[kept["id"], memory])
        for memory in (NEVER, "nothing", gone, ended, foreign)
    ]

    assert {refused(it) for it in answers} == {(409, "memory_changed")}
    assert len({it.content for it in answers}) == 1
    assert host.entries() == [kept]


WORD = "xylographer"


@requirement("OW-45", "OW-23", "OW-15")
def test_from_its_millisecond_on_an_entry_surfaces_nowhere(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        host = Host(service.http)
        kept = host.put("a heron", tags=["t"])
        service.clock.advance(microseconds=700)
        made = host.put("a heron", tags=["t"], id="brief", ttlSeconds=10)
        run = host.in_run("r1")
        assert made["expiresAt"] == "2030-01-01T12:00:10.000Z"  # which is when it ends
        service.clock.advance(seconds=10, microseconds=-701)
        assert host.entries() == run.entries() == [made, kept]
        assert {it["id"] for it in host.search("heron")} == {made["id"], kept["id"]}

        service.clock.advance(microseconds=1)

        assert host.entries() == run.entries() == host.search("heron") == [kept]
        assert host.entries(tag="t") == host.entries(tokenBudget=7) == [kept]
        assert host.contents(tokenBudget=13) == ["a heron"]
        assert run.get("brief").content == run.get(NEVER).content
        for answer, never in zip(of_one(host, "brief"), of_one(host, NEVER), strict=True):
            assert refused(answer) == (404, "not_found")
            assert answer.content == never.content
        assert "expiresAt" not in kept


@for_each(
    "end, shown",
    [
        ("2030-01-01T12:00:00.001Z", "2030-01-01T12:00:00.001Z"),
        ("2030-01-01T13:00:00.0199+01:00", "2030-01-01T12:00:00.019Z"),
        ("2030-01-01T07:00:01-05:00", "2030-01-01T12:00:01.000Z"),
        ("2039-12-31T23:59:59.123456789Z", "2039-12-31T23:59:59.123Z"),
    ],
)
@requirement("OW-15", "OW-46")
def test_an_end_is_an_instant_to_come(host: Host, end: str, shown: str) -> None:
    assert host.put(expiresAt=end)["expiresAt"] == host.entries()[0]["expiresAt"] == shown


@requirement("OW-46")
def test_a_lifetime_is_a_number_of_seconds_and_only_one_kind_of_end_is_given(host: Host) -> None:
    assert host.put(ttlSeconds=1)["expiresAt"] == "2030-01-01T12:00:01.000Z"
    assert host.put(ttlSeconds=315_360_000)["expiresAt"] == "2039-12-30T12:00:00.000Z"
    both = host.post(ttlSeconds=60, expiresAt="2031-01-01T00:00:00Z")
    assert {*faults(both)} <= {"ttlSeconds", "expiresAt"}


@requirement("OW-46", "OW-26")
def test_no_later_put_moves_an_end(service: Service, host: Host) -> None:
    made = host.put("one", id="plan", ttlSeconds=60)
    service.clock.advance(seconds=30)

    for more in ({"ttlSeconds": 30}, {}, {"expiresAt": "2031-01-01T00:00:00Z"}):
        assert refused(host.post("one", id="plan", **more)) == (409, "memory_id_conflict")
    same: Json = ok(host.post("one", id="plan", ttlSeconds=60))["entry"]
    assert same == made
    service.clock.advance(seconds=30)
    assert host.entries() == []


@pytest.mark.slow
@requirement("OW-47", "OW-29", "OW-103", "OW-23")
def test_what_has_ended_or_is_deleted_is_erased_when_its_time_is_over(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(
        path, MEMORY_SWEEP_EVERY="5ms", MEMORY_KEEP_EXPIRED="1d", MEMORY_KEEP_DELETED="1d"
    ) as service:
        host = Host(service.http)
        kept = host.put("a heron")
        host.put(f"a {WORD}", tags=["xylotomist"], ttlSeconds=60)
        ok(host.delete(host.put(f"the {WORD}", tags=["xylocarp"], id="xylophagan")["id"]))
        ends = "SELECT count(*) FROM lifecycles WHERE expires_at IS NOT NULL"
        assert rows(path, ends) == [(1,)]
        assert rows(path, "SELECT count(*) FROM memories") == [(3,)]

        service.clock.advance(hours=25)

        until(lambda: rows(path, "SELECT count(*) FROM memories") == [(1,)])
        until(lambda: not remains(tmp_path, WORD, "xylotomist", "xylocarp", "xylophagan"))
        assert host.entries() == [kept]
        assert counted(host) == {host.ref: (1, len("a heron"))}
        assert rows(path, "SELECT count(*) FROM ref_tags WHERE tag LIKE 'xylo%'") == [(0,)]
        assert_index_is_whole(path)
