"""Forgetting somebody: once it is answered nothing of it surfaces; nothing of others is lost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ..support.engines import is_postgresql
from ..support.erasing import remains
from ..support.openwop_hosts import REF, Host, Json, faults, ok, refused
from ..support.openwop_passes import (
    FORGOTTEN,
    NOT_UNDOABLE,
    about,
    archived,
    events,
    ids,
    of_type,
    passed,
)
from ..support.openwop_tenants import NEVER, counted, keyed, of_one
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import serving

ADA = "xylophagan"  # of whom nothing may be left
TAG = f"subject:{ADA}"
NONE = {"entries": 0, "archives": 0, "restored": 0, "commitments": 0}


def forgotten(host: Host, subject: str = ADA, **fields: object) -> Json:
    """What a forgetting tells, whose shape is checked."""
    told: Json = ok(host.forget(subject, **fields))
    assert told.keys() - {"erasureId", "dryRun"} == {"subject", *NONE}
    assert told["subject"] == subject
    return told


def numbers(told: Json) -> dict[str, int]:
    return {it: told[it] for it in NONE}


def told_of(host: Host, erasure: str) -> Json:
    told: Json = ok(host.ask("GET", f"/erasures/{erasure}"))
    return told


def surfaces(host: Host, entries: list[str]) -> list[str]:
    """Which of the ids is still in any answer."""
    told = [str(host.entries(limit=500)), str(host.search("tea")), str(host.index())]
    found = [it for it in entries if any(it in one for one in told)]
    for it in entries:
        answers = of_one(host, it)[:2]
        found += [it for answer in answers if answer.status_code != 404]
    return found


@pytest.mark.heavy
@requirement("OW-93", "OW-29")
def test_what_is_tagged_live_and_deleted_goes_from_every_ref(host: Host) -> None:
    other = replace(host, ref="other")
    kept = [host.put("tea for all"), host.put("tea", tags=["subject:bob", f"{TAG}x"])]
    made = [host.put("ada drinks tea", tags=[TAG, "x"]), host.put("tea again", tags=["y", TAG])]
    far = other.put("far tea", tags=[TAG])
    ok(host.delete(made[1]["id"]))

    told = forgotten(host)

    assert numbers(told) == {**NONE, "entries": 3}
    assert host.entries() == kept[::-1]
    assert other.entries() == []
    assert surfaces(host, ids(made)) == surfaces(other, [far["id"]]) == []
    never = [it.content for it in of_one(host, NEVER)]
    assert [it.content for it in of_one(host, made[0]["id"])] == never
    assert counted(host) == {REF: (2, len("tea for all" + "tea"))}
    assert told["erasureId"]


@pytest.mark.heavy
@requirement("OW-93")
def test_all_of_the_ref_that_is_the_subjects_goes(host: Host) -> None:
    own, near = replace(host, ref=f"user:{ADA}"), replace(host, ref=f"user:{ADA}/x")
    made = [own.put("tea"), own.put("more tea", tags=["subject:bob"])]
    kept = near.put("tea of another")
    archive = passed(own.compact())["outputId"]
    tagged = host.put("tea", tags=[f"subject:user:{ADA}"])

    told = forgotten(host, f"user:{ADA}")

    assert numbers(told) == {**NONE, "entries": 3, "archives": 1}
    assert own.entries() == host.entries() == []
    assert surfaces(own, [*ids(made), archive]) == surfaces(host, [tagged["id"]]) == []
    assert near.entries() == [kept]
    assert own.put("anew") in own.entries()


@requirement("OW-93")
def test_what_is_put_into_a_forgotten_ref_is_found_there(host: Host) -> None:
    own = replace(host, ref=f"user:{ADA}")
    for text in ("tea", "more tea"):
        own.put(text)

    forgotten(host, own.ref)

    new = own.put("anew")
    assert own.entries() == [new]


@pytest.mark.heavy
@requirement("OW-93", "OW-94")
def test_what_is_derived_goes_too_and_what_it_took_of_others_is_back(host: Host) -> None:
    hers = host.put("ada drinks tea", tags=[TAG])
    others = [host.put("storks nest"), host.put("tea grows here", tags=["subject:bob"])]
    archive = archived(host, host.compact())
    summary = archived(host, host.distill(recursive=True))
    assert host.entries() == [summary, archive]

    told = forgotten(host)

    assert numbers(told) == {"entries": 1, "archives": 2, "restored": 2, "commitments": 0}
    assert host.entries() == others[::-1]
    assert surfaces(host, [hers["id"], archive["id"], summary["id"]]) == []
    assert [about(host, it["id"]).get("supersededBy") for it in others] == [None, None]
    assert host.index()["entryCount"] == 0
    assert passed(host.compact())["sourceIds"] == ids(others)


@pytest.mark.heavy
@requirement("OW-93", "OW-94")
def test_merges_go_upward_and_count_as_entries(host: Host) -> None:
    made = [host.put(f"{it} tea", tags=[TAG]) for it in ("black", "green", "white")]
    for count in (2, 1):
        first, second = ids(host.entries()[:2])
        host.consolidate({"ids": [first, second], "content": f"tea {count}"})
    (merged,) = host.entries()
    ok(host.undo(about(host, merged["id"])["writtenBy"]["runId"]))
    assert len(host.entries()) == 2

    told = forgotten(host)

    assert numbers(told) == {**NONE, "entries": 5}
    assert host.entries() == []
    assert surfaces(host, [*ids(made), merged["id"]]) == []


@requirement("OW-94")
def test_what_a_host_had_superseded_by_it_is_back(host: Host) -> None:
    plain = host.put("tea at four")
    hers = host.put("ada: tea at five", tags=[TAG], supersedes=[plain["id"]])
    later = host.put("tea at six", supersedes=[hers["id"]])
    assert host.entries() == [later]

    assert numbers(forgotten(host)) == {**NONE, "entries": 1, "restored": 1}

    assert host.entries() == [later, plain]
    assert "supersededBy" not in about(host, plain["id"])


@pytest.mark.slow
@requirement("OW-93")
def test_its_commitments_go_with_it(host: Host) -> None:
    host.put("ada wants tea", tags=[TAG, "due:2030-06-01T00:00:00Z"])
    host.put("bob wants tea", tags=["subject:bob", "when:rain"])
    assert len(ok(host.ask("GET", "/commitments"))["commitments"]) == 2

    assert numbers(forgotten(host)) == {**NONE, "entries": 1, "commitments": 1}

    (left,) = ok(host.ask("GET", "/commitments"))["commitments"]
    assert left["condition"] == "predicate"


@pytest.mark.slow
@requirement("OW-93")
def test_a_subject_is_taken_as_it_is(host: Host) -> None:
    composed, apart = "\u00e9", "e\u0301"
    for name in ("ada", "Ada", composed, apart, "a%", "a_", " ada"):
        host.put("tea", tags=[f"subject:{name}"])
    for count, name in enumerate(("Ada", composed, "a%", " ada"), 1):
        assert forgotten(host, name)["entries"] == 1
        assert len(host.entries()) == 7 - count


@pytest.mark.slow
@requirement("OW-93", "OW-96")
def test_again_there_is_nothing_and_no_receipt(host: Host) -> None:
    host.put("tea", tags=[TAG])
    forgotten(host)
    held = len(events(host))

    for subject in (ADA, "never", "x" * 256):
        told = forgotten(host, subject)
        assert told == {"subject": subject, **NONE}
    assert len(events(host)) == held


@pytest.mark.slow
@requirement("OW-96", "OW-93")
def test_a_dry_run_tells_the_same_and_changes_nothing(host: Host) -> None:
    for text, tags in (("ada: tea", [TAG]), ("storks nest", []), ("herons wade", [])):
        host.put(text, tags=tags)
    ok(host.delete(host.put("ada: old", tags=[TAG, "when:rain"])["id"]))
    host.compact()
    before: list[Any] = [host.entries(), counted(host), events(host), host.index()]

    dry = forgotten(host, dryRun=True)

    assert [host.entries(), counted(host), events(host), host.index()] == before
    assert dry["dryRun"] is True
    assert "erasureId" not in dry
    told = forgotten(host, dryRun=False)
    assert numbers(told) == numbers(dry) == {**NONE, "entries": 2, "archives": 1, "restored": 2,
                                            "commitments": numbers(dry)["commitments"]}  # fmt: skip
    assert not told.get("dryRun")


@requirement("OW-12", "OW-14")
def test_what_is_no_subject_is_named(host: Host) -> None:
    host.put("tea", tags=[TAG])
    for body in ({}, {"subject": ""}, {"subject": "x" * 257}, {"subject": 7}, {"subject": None}):
        assert faults(host.ask("POST", "/forget", body)) == ["subject"], body
    assert {*faults(host.forget("", dryRun="yes"))} == {"subject", "dryRun"}
    assert len(host.entries()) == 1


@requirement("OW-97", "OW-32", "OW-33", "OW-95")
def test_the_equal_subject_of_another_tenant_stays(path: Path) -> None:
    with (
        serving(path) as service,
        keyed(service, "admin") as ours,
        keyed(service, "admin", "acme") as theirs,
    ):
        for host in (ours, theirs):
            host.put("tea", tags=[TAG], id="a")
            replace(host, ref=ADA).put("tea", id="a")
        held = counted(theirs)

        told = forgotten(ours)

        assert told["entries"] == 2
        assert counted(theirs) == held
        assert ids(theirs.entries()) == ["a"]
        assert counted(ours) == {}
        receipt = theirs.ask("GET", f"/erasures/{told['erasureId']}")
        assert receipt.content == theirs.ask("GET", "/erasures/7").content
        assert refused(receipt) == (404, "not_found")


@pytest.mark.slow
@requirement("OW-71", "OW-94")
def test_a_pass_whose_source_is_forgotten_is_not_undone(host: Host) -> None:
    host.put("ada: tea", tags=[TAG]), host.put("storks nest"), host.put("herons wade")
    run = ok(host.compact())["runId"]
    forgotten(host)
    before = host.entries()

    assert refused(host.undo(run)) == NOT_UNDOABLE

    assert host.entries() == before
    assert len(before) == 2


@pytest.mark.heavy
@requirement("OW-95", "OW-93", "OW-29")
def test_many_entries_go_with_their_bytes(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        host = Host(service.http)
        for number in range(450):
            host.put(f"{ADA} {number}", tags=[TAG if number % 9 else "stays"])
        kept = host.entries(tag="stays", limit=500)

        told = forgotten(host)

        assert (told["entries"], told["archives"]) == (400, 0)
        assert host.entries(limit=500) == kept
        assert counted(host)[REF][0] == 50
        receipt = told_of(host, told["erasureId"])
        assert receipt["entries"] == 400
        if not is_postgresql():
            until(lambda: "bytesGoneAt" in told_of(host, told["erasureId"]))
        until(lambda: not remains(tmp_path, TAG))
        assert of_type(host, FORGOTTEN) == [{"erasureId": told["erasureId"], "entries": 400}]
