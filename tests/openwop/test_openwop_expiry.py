"""The end of an entry: exact to its millisecond, without a sweep; and its bytes, when they go."""

from datetime import timedelta
from pathlib import Path

import pytest

from ..support.database import assert_index_is_whole
from ..support.engines import rows
from ..support.erasing import remains
from ..support.openwop_hosts import Host, Json, faults, ok, refused
from ..support.openwop_tenants import NEVER, anew, counted, of_one, page
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service, serving

WORD = "xylographer"
SWEPT = "SELECT count(*) FROM lifecycles WHERE is_swept"


@requirement("OW-45", "OW-23")
def test_from_its_millisecond_on_an_entry_surfaces_nowhere(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        host = Host(service.http)
        kept = host.put("a heron", tags=["t"])
        made = host.put("a heron", tags=["t"], id="brief", ttlSeconds=10)
        run = host.in_run("r1")
        service.clock.advance(seconds=10, microseconds=-1)
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


@requirement("OW-45", "OW-15")
def test_it_is_the_millisecond_that_is_shown(service: Service, host: Host) -> None:
    service.clock.advance(microseconds=700)
    made = host.put(ttlSeconds=1)
    assert made["expiresAt"] == "2030-01-01T12:00:01.000Z"
    service.clock.advance(seconds=1, microseconds=-701)
    assert host.entries() == [made]

    service.clock.advance(microseconds=1)

    assert host.entries() == []


@pytest.mark.representative(4)
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2030-01-01T12:00:00.001Z", "2030-01-01T12:00:00.001Z"),
        ("2030-01-01T13:00:00.0199+01:00", "2030-01-01T12:00:00.019Z"),
        ("2030-01-01T07:00:01-05:00", "2030-01-01T12:00:01.000Z"),
        ("2039-12-31T23:59:59.123456789Z", "2039-12-31T23:59:59.123Z"),
        ("2030-01-01T12:00:00Z", None), ("2030-01-01T12:00:00.0009Z", None),
        ("2029-12-31T23:59:59Z", None), ("2031-01-01T12:00:00", None), ("2031-01-01", None),
        ("2031-02-30T12:00:00Z", None), ("10000-01-01T00:00:00Z", None), ("tomorrow", None),
        ("", None), (1_900_000_000, None), (True, None),
    ],
)  # fmt: skip
@requirement("OW-15", "OW-46")
def test_an_end_is_an_instant_to_come(host: Host, given: object, shown: str | None) -> None:
    answer = host.post(expiresAt=given)

    if shown is None:
        assert faults(answer) == ["expiresAt"]
        assert counted(host) == {}
    else:
        assert ok(answer, 201)["entry"]["expiresAt"] == shown
        (entry,) = host.entries()
        assert entry["expiresAt"] == shown


@requirement("OW-46")
def test_a_lifetime_is_a_number_of_seconds_and_only_one_kind_of_end_is_given(host: Host) -> None:
    assert host.put(ttlSeconds=1)["expiresAt"] == "2030-01-01T12:00:01.000Z"
    assert host.put(ttlSeconds=315_360_000)["expiresAt"] == "2039-12-30T12:00:00.000Z"
    held = len(host.entries())
    for wrong in (0, -1, 315_360_001, 1.5, "60", True, [60]):
        assert faults(host.post(ttlSeconds=wrong)) == ["ttlSeconds"], wrong
    both = host.post(ttlSeconds=60, expiresAt="2031-01-01T00:00:00Z")
    assert {*faults(both)} <= {"ttlSeconds", "expiresAt"}
    assert len(host.entries()) == held


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
@requirement("OW-47", "OW-29")
def test_the_end_is_the_records_own_and_the_retention_of_expired_ones_erases_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    with serving(path, MEMORY_SWEEP_EVERY="5ms", MEMORY_KEEP_EXPIRED="1d") as service:
        host = Host(service.http)
        kept = host.put("a heron")
        host.put(f"a {WORD}", tags=["xylotomist"], ttlSeconds=60)
        ends = "SELECT count(*) FROM lifecycles WHERE expires_at IS NOT NULL"
        assert rows(path, ends) == [(1,)]
        assert rows(path, "SELECT count(*) FROM memories") == [(2,)]

        service.clock.advance(hours=25)

        until(lambda: rows(path, "SELECT count(*) FROM memories") == [(1,)])
        until(lambda: not remains(tmp_path, WORD, "xylotomist"))
        assert host.entries() == [kept]
        assert counted(host) == {host.ref: (1, len("a heron"))}
        assert_index_is_whole(path)


@requirement("OW-47", "OW-45")
def test_a_clock_that_jumps_erases_nothing(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="5ms", MEMORY_KEEP_EXPIRED="1d") as service:
        host = Host(service.http)
        made = host.put(f"a {WORD}", ttlSeconds=60)

        service.clock.now += timedelta(days=400)  # no time has passed

        assert host.entries() == []
        until(lambda: rows(path, SWEPT) == [(1,)])
        host.put("brief", ttlSeconds=1)
        service.clock.advance(seconds=1)
        until(lambda: rows(path, SWEPT) == [(2,)])  # so the sweep before it is over
        assert rows(path, "SELECT count(*) FROM memories") == [(2,)]
        service.clock.now -= timedelta(days=400)
        assert host.get(made["id"]).json()["entry"] == made
        until(lambda: made in host.search(WORD))


@requirement("OW-45", "OW-29")
def test_what_has_expired_counts_until_it_is_swept_and_hides_nothing(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        host = Host(service.http)
        old = host.put("older", id="old")
        host.put("newer", supersedes=["old"], ttlSeconds=1)
        service.clock.advance(seconds=1)

        assert host.entries() == [old]
        assert counted(host) == {host.ref: (2, 10)}
        assert page(anew(host))["entries"] == []
