"""Forgetting somebody: once it is answered nothing of it surfaces; nothing of others is lost."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from ..support.callers import audit
from ..support.engines import is_postgresql
from ..support.erasing import remains
from ..support.openwop_hosts import REF, Host, Json, ok, refused, together
from ..support.openwop_passes import (
    FORGOTTEN,
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
from ..support.service import Service, serving
from ..telemetry.test_tracing import traced
from .test_openwop_spans import logged

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


@requirement("OW-93")
def test_what_is_put_into_a_forgotten_ref_is_found_there(host: Host) -> None:
    own = replace(host, ref=f"user:{ADA}")
    for text in ("tea", "more tea"):
        own.put(text)

    forgotten(host, own.ref)

    new = own.put("anew")
    assert own.entries() == [new]


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
@requirement("OW-96", "OW-93")
def test_a_dry_run_tells_the_same_and_a_second_one_finds_nothing(host: Host) -> None:
    for text, tags in (("ada: tea", [TAG]), ("storks nest", []), ("herons wade", [])):
        host.put(text, tags=tags)
    ok(host.delete(host.put("ada: old", tags=[TAG, "when:rain"])["id"]))
    host.put("ada wants tea", tags=[TAG, "due:2030-06-01T00:00:00Z"])
    host.put("bob wants tea", tags=["subject:bob", "when:snow"])
    host.compact()
    before: list[Any] = [host.entries(), counted(host), events(host), host.index()]

    dry = forgotten(host, dryRun=True)

    assert [host.entries(), counted(host), events(host), host.index()] == before
    assert dry["dryRun"] is True
    assert "erasureId" not in dry
    told = forgotten(host, dryRun=False)
    assert numbers(told) == numbers(dry) == {
        "entries": 3, "archives": 1, "restored": 2, "commitments": 2
    }  # fmt: skip
    assert not told.get("dryRun")
    (left,) = ok(host.ask("GET", "/commitments"))["commitments"]
    assert left["tag"] == "snow"
    held = len(events(host))
    for subject in (ADA, "never", "x" * 256):
        assert forgotten(host, subject) == {"subject": subject, **NONE}  # and no receipt
    assert len(events(host)) == held


GONE = (422, "replay_memory_snapshot_unavailable")
OWN = f"user:{ADA}"


def is_gone(host: Host, erasure: str) -> Json:
    """The receipt, once the bytes are gone, where that is told."""
    if not is_postgresql():
        until(lambda: "bytesGoneAt" in told_of(host, erasure))
    return told_of(host, erasure)


@pytest.mark.slow
@pytest.mark.sqlite_files
@requirement("OW-95", "OW-93")
def test_a_receipt_tells_how_many_when_and_what_is_not_reached(
    service: Service, host: Host
) -> None:
    host.put("ada: tea", tags=[TAG]), host.put("storks nest")
    host.compact()

    told = forgotten(host)

    receipt = is_gone(host, told["erasureId"])
    assert receipt.keys() == {"erasureId", "entries", "erasedAt", "bytesGoneAt", "notReached"}
    assert (receipt["erasureId"], receipt["entries"]) == (told["erasureId"], 2)
    assert receipt["erasedAt"] == "2030-01-01T12:00:00.000Z"
    assert receipt["bytesGoneAt"] >= receipt["erasedAt"]
    assert all(isinstance(it, str) for it in receipt["notReached"])
    words = " ".join(receipt["notReached"]).lower()
    assert "backup" in words
    assert "host" in words
    assert of_type(host, FORGOTTEN) == [{"erasureId": told["erasureId"], "entries": 2}]
    (run,) = [it["runId"] for it in events(host) if it["type"] == FORGOTTEN]
    assert ok(host.ask("GET", f"/runs/{run}"))["kind"] == "pass"
    assert [it["sequence"] for it in host.told(run)] == [0, 1, 2]
    for unknown in ("7", "x", told["erasureId"] + "0"):
        assert refused(host.ask("GET", f"/erasures/{unknown}")) == (404, "not_found")
    assert service.http.get("/health").status_code == 200


@pytest.mark.slow
@requirement("OW-95", "OW-96")
def test_neither_words_nor_the_subject_are_left_in_any_file(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        host, own = Host(service.http), Host(service.http, OWN)
        run = host.in_run("r1", agentId="ada")
        for at in (run, replace(own, run="r1")):
            at.put("xylotomist one", tags=[TAG, "mood:xylocarp"], nodeId="n1")
            at.put("xylotomist two", tags=[f"subject:{OWN}"])
        host.put("storks nest"), own.put("xylotomist three")
        host.compact(), own.distill(), own.consolidate()
        ok(host.delete(host.put("xylotomist four", tags=[TAG, f"subject:{OWN}"])["id"]))

        keyed_once = [replace(host, headers={"Idempotency-Key": it}) for it in ("k1", "k2")]
        pairs = zip(keyed_once, (ADA, OWN), strict=True)
        receipts = [forgotten(at, it)["erasureId"] for at, it in pairs]

        for it in receipts:
            is_gone(host, it)
        assert host.contents() == ["storks nest"]
        assert ADA not in str(events(host)) + str(host.told("r1")) + str(counted(host))
        until(lambda: not remains(tmp_path, "xylotomist"))
        until(lambda: not remains(tmp_path, ADA))


@requirement("OW-95", "OW-96")
def test_a_run_that_declared_the_ref_of_the_subject_does_not_keep_its_name(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        host = Host(service.http, OWN)
        host.in_run("r1", memoryRefs=[OWN, "mem://x"]).put("tea")

        is_gone(host, forgotten(host, OWN)["erasureId"])

        until(lambda: not remains(tmp_path, ADA))
        assert ok(host.ask("GET", "/runs/r1"))["status"] == "running"


@requirement("OW-53", "OW-93")
def test_it_is_gone_from_open_runs_at_once(host: Host) -> None:
    kept = host.put("storks nest")
    hers = host.put("ada: tea", tags=[TAG])
    run = host.in_run("r1")
    archive = archived(host, host.compact())
    late = host.in_run("r2")
    assert (ids(run.entries()), ids(late.entries())) == (ids([hers, kept]), [archive["id"]])

    forgotten(host)

    assert run.entries() == late.entries() == [kept]
    for memory in (hers["id"], archive["id"]):
        assert refused(run.get(memory)) == refused(late.get(memory)) == (404, "not_found")
    assert run.post("goes on").status_code == 201


@requirement("OW-62", "OW-93")
def test_a_snapshot_that_lost_it_is_refused(host: Host) -> None:
    host.put("ada: tea", tags=[TAG])
    run = host.in_run("r1", memoryRefs=[host.ref])
    run.put("storks nest")
    branch = Host(host.http, host.ref, ok(run.fork("branch", fromSeq=1), 201)["runId"])
    assert len(branch.entries()) == 2
    run.end()
    forgotten(host)

    seen = branch.ask("GET", "/memory", params={"memoryRef": host.ref, "runId": branch.run})
    assert seen.status_code == 422 or "tea" not in seen.text
    for answer in (run.fork(), run.fork("branch", fromSeq=1)):
        assert refused(answer) == GONE
        assert answer.json()["details"].keys() == {"fromSeq", "sourceRunId", "reason"}
        assert answer.json()["details"]["reason"] == "retention_expired"


@requirement("OW-96", "OW-101")
def test_the_subject_is_in_no_line_of_the_audit_and_in_no_span_or_log(tmp_path: Path) -> None:
    with logged() as lines, traced(tmp_path) as (service, received):
        with keyed(service, "admin") as admin, keyed(service, "writer") as writer:
            writer.put("saffron", tags=[TAG])
            assert refused(writer.forget(ADA)) == (403, "forbidden")
            told = [forgotten(admin, ADA, dryRun=True), forgotten(admin), forgotten(admin)]
            refusals = [admin.forget(ADA * 30), admin.forget(ADA, dryRun=ADA)]
            is_gone(admin, told[1]["erasureId"])
            metrics = admin.http.get("/metrics").text
        collector = received()
        noted = [it for it in audit(service.path) if it["action"] != "key.created"]

    assert [it["action"] for it in noted] == ["memory.forgotten"]
    assert told[1]["erasureId"] in map(str, noted[0].values())
    assert 1 in noted[0].values()
    assert collector.all("memory.openwop_forget")
    for text in (str(noted), lines.getvalue(), repr(collector.spans), metrics,
                 *(it.text for it in refusals)):  # fmt: skip
        assert ADA not in text


@pytest.mark.slow
@requirement("OW-93", "OW-82", "OW-81")
def test_what_a_pass_makes_of_a_subject_meanwhile_goes_with_it(host: Host) -> None:
    run = host.in_run("r1")
    for number, work in enumerate((host.compact, host.distill, host.consolidate)):
        value = f"xylotomist-{number}"
        for at in range(60):
            host.put(f"ada {at % 40} opens {value}.", tags=["subject:ada"])
        run.register(f"s{number}", value)  # which the pass rids them of
        passing, forgetting = together(work, partial(host.forget, "ada"))
        ok(forgetting)
        assert passing.status_code in (200, 409)
        assert host.contents() == []


NAMES = ['a"b\\c', "\u00e9\U0001f600", "a\u2028b", "%_", "a'b", "{}", "[x]", "a:b/c", "\u00c5sa"]


@pytest.mark.slow
@requirement("OW-93", "OW-96", "OW-56")
def test_a_name_is_taken_as_it_is_and_leaves_the_log_which_keeps_the_ids(host: Host) -> None:
    for number, name in enumerate(NAMES):
        run = replace(host, ref=f"mem://{number}").in_run(f"r{number}")
        like = {f"{name}s", f" {name}", name.swapcase(), normalize("NFD", name)} - {name}
        others = [f"subject:{it}" for it in sorted(like)]
        made = [
            run.put("tea", tags=[f"subject:{name}", "x"]), replace(run, ref=name).put("tea"),
            run.put("rain", tags=others),
        ]  # fmt: skip
        before = ids_of(run)

        assert forgotten(host, name)["entries"] == 2

        payloads = [it["payload"] for it in run.told() if it["type"] == "memory.written"]
        assert [it["tags"] for it in payloads] == [["x"], [], others]
        assert [it["memoryId"] for it in payloads] == ids(made)
        assert [it["memoryRef"] for it in payloads[::2]] == [run.ref] * 2
        assert payloads[1]["memoryRef"] not in (name, "")
        assert ids_of(run) == before
        assert run.told() == [it for it in events(host) if it["runId"] == run.run]
        assert replace(run, run=None).contents() == ["rain"]


def ids_of(run: Host) -> list[str]:
    """The ids of the events of a run."""
    return [it["eventId"] for it in run.told()]
