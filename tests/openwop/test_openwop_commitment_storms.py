"""However many commitments fire together, a transaction fires some, and steps the others."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from agentops_memory.jobs import schedule
from agentops_memory.memory.rows import micros

from ..support.archives import at
from ..support.engines import broken, rows
from ..support.erasing import remains
from ..support.openwop_commitments import Intents, soon
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_seams import driven
from ..support.openwop_tenants import anew
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service, serving

STEP = 200  # of what one transaction fires
PADDED = "substr('00000000000' || n.number, length('00000000000' || n.number) - 11)"
OF = "(SELECT id FROM memories WHERE uid = :uid)"


def arm_rows(
    path: Path, memory: str, count: int, *, tag: str | None = None, due: datetime | None = None
) -> None:
    """Arm so many conditions of an entry, beside the service."""
    rows(
        path,
        f"""WITH RECURSIVE n (number) AS (
                SELECT (SELECT coalesce(max(id), 0) FROM commitments) + 1
                 UNION ALL
                SELECT number + 1
                  FROM n
                 WHERE number < (SELECT coalesce(max(id), 0) FROM commitments) + :count)
            INSERT INTO commitments (uid, memory_id, space_id, due_at, tag, state, created_at)
            SELECT '00000000-0000-7000-8000-' || {PADDED}, e.memory_id, e.space_id, :due, :tag,
                   'armed', e.created_at
              FROM n
              JOIN ref_entries e ON e.memory_id = {OF}
          ORDER BY n.number""",
        uid=_uid(memory),
        count=count,
        tag=tag,
        due=None if due is None else micros(due),
    )


def states(path: Path) -> dict[str, int]:
    """How many commitments are in each state that is stored."""
    return dict(rows(path, "SELECT state, count(*) FROM commitments GROUP BY state"))


def _uid(memory: str) -> str:
    digits = memory.removeprefix("mem_")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


STORM = STEP + 50
GITHUB = "ghp" + "_" + "xylotomistA1b2C3d4E5f6G7h8I9j0K1l2M3"
FULL = (409, "too_many_commitments")


@pytest.fixture(autouse=True)
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "LOOK_EVERY", timedelta(hours=1))


@requirement("OW-85")
def test_what_a_put_has_left_fires_at_once_though_nobody_reads(
    service: Service, host: Host
) -> None:
    source = host.put("plan")["id"]
    arm_rows(service.path, source, STORM, tag="rain")

    host.put("wet", tags=["rain"])

    until(lambda: states(service.path) == {"fired": STORM})


@pytest.mark.slow
@requirement("OW-85", "OW-14")
def test_a_ref_arms_a_thousand_of_a_tag_and_ten_thousand_in_all(
    service: Service, host: Host, intents: Intents
) -> None:
    source = host.put("plan")["id"]
    other, elsewhere = host.put("other")["id"], Intents(anew(host))
    rain: Json = {"memoryId": other, "condition": "predicate", "tag": "rain"}
    arm_rows(service.path, source, 999, tag="rain")
    armed = intents.on(other, "rain")

    for refusal in (
        intents.post(**rain | {"memoryId": host.put("third")["id"]}),
        host.post("x", tags=["when:rain"]),
        host.post("x", tags=["when:dry", "when:rain"]),
    ):
        assert refused(refusal) == FULL
        assert "rain" not in refusal.text
    assert host.contents() == ["third", "other", "plan"]
    assert states(service.path) == {"armed": 1000}
    elsewhere.host.put("theirs", tags=["when:rain"])
    ok(intents.cancel(armed["id"]))
    intents.on(other, "rain")

    arm_rows(service.path, source, 8_999, due=soon(service, days=1))
    host.put("the last", tags=["when:snow"])
    due = f"due:{soon(service, days=2).isoformat()}"
    for refusal in (
        intents.post(**rain | {"tag": "sun"}),
        intents.post(memoryId=source, condition="time", dueAt=due.removeprefix("due:")),
        host.post("x", tags=[due]),
    ):
        assert refused(refusal) == FULL
    host.put("it has come", tags=["snow"])
    assert refused(host.post("x", tags=[due, "when:snow"])) == FULL  # one of them has room
    host.put("as many as there may be", tags=[due])
    elsewhere.host.put("theirs", tags=[due])


@requirement("OW-85")
def test_no_seed_and_no_merge_arms_more_than_a_ref_may_have(tmp_path: Path) -> None:
    with driven(tmp_path / "memory.db") as suite:
        host, path = suite.host, suite.service.path
        source, *merged = (host.put(it)["id"] for it in ("plan", "one", "two"))
        arm_rows(path, source, 1000, tag="rain")
        seeds = [{"id": "x", "content": "x"}, {"id": "y", "content": "y", "tags": ["when:rain"]}]

        seeded = suite.post("/test/memory/seed", {"memoryRef": host.ref, "entries": seeds})
        done = host.consolidate({"ids": merged, "content": "both", "tags": ["when:rain"]})

        assert (refused(seeded), refused(done)) == (FULL, FULL)
        assert host.contents() == ["two", "one", "plan"]
        assert states(path) == {"armed": 1000}


@pytest.mark.slow
@requirement("OW-37", "OW-103", "OW-85")
def test_what_was_met_fires_although_its_tag_is_redacted_meanwhile(tmp_path: Path) -> None:
    path, exceptions = tmp_path / "memory.db", tmp_path / "memory.db.redaction"
    exceptions.write_text(json.dumps({"default": {"allow_kinds": ["github-token"]}}))
    with serving(path) as service:
        host = Host(service.http)
        source, kept = host.put("plan")["id"], host.put("kept")["id"]
        for each in (source, kept):
            arm_rows(path, each, STORM // 2, tag=f"a {GITHUB}")
        # No transaction that fires what is beyond one step is committed.
        ((first,),) = rows(path, "SELECT min(id) FROM commitments WHERE state = 'armed'")
        when = f"NEW.state = 'fired' AND OLD.id >= {first + STEP}"
        with broken(path, "UPDATE", "commitments", when=when):
            host.put("wet", tags=[f"a {GITHUB}"])
    exceptions.unlink()

    assert at(path).run("scan", "--redact").exit_code == 0

    with serving(path) as service:
        until(lambda: states(path) == {"fired": STORM})
        until(lambda: not remains(tmp_path, GITHUB))
