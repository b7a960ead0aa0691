"""What is told of a forgetting: a receipt, an event, a line; the subject in none of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from ..support.callers import audit
from ..support.engines import is_postgresql
from ..support.erasing import remains
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_passes import FORGOTTEN, about, archived, events, ids, of_type
from ..support.openwop_tenants import counted, keyed
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service, serving
from ..telemetry.test_tracing import traced
from .test_openwop_forgetting import ADA, TAG, forgotten, told_of
from .test_openwop_spans import logged

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

        receipts = [forgotten(host, it)["erasureId"] for it in (ADA, OWN)]

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


@requirement("OW-93", "OW-56")
def test_events_keep_the_ids_and_not_the_subject(host: Host) -> None:
    run = host.in_run("r1")
    made = [
        run.put("tea", tags=["x", TAG]), replace(run, ref=OWN).put("tea", tags=["x"]),
        run.put("rain", tags=["y"]),
    ]  # fmt: skip
    before = [it for it in events(host) if it["runId"] == "r1"]

    forgotten(host), forgotten(host, OWN)

    after = [it for it in events(host) if it["runId"] == "r1"]
    assert [it["eventId"] for it in after] == [it["eventId"] for it in before]
    payloads = [it["payload"] for it in after if it["type"] == "memory.written"]
    assert [it["memoryId"] for it in payloads] == ids(made)
    assert [it["memoryRef"] == host.ref for it in payloads] == [True, False, True]
    assert payloads[1]["memoryRef"]
    assert TAG not in payloads[0]["tags"]
    assert payloads[2]["tags"] == ["y"]
    assert ADA not in str(after)
    assert host.told("r1") == after


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


@requirement("OW-93", "OW-13")
def test_under_a_key_it_is_done_once(host: Host) -> None:
    host.put("tea", tags=[TAG])
    once = replace(host, headers={"Idempotency-Key": "k1"})
    first = once.forget(ADA)
    late = host.put("late tea", tags=[TAG])

    again = once.forget(ADA)

    assert again.content == first.content
    assert again.headers["openwop-idempotent-replay"] == "true"
    assert ok(first)["entries"] == 1
    assert host.entries() == [late]
    assert len(of_type(host, FORGOTTEN)) == 1
    assert refused(once.forget("bob")) == (409, "idempotency_key_mismatch")
    assert about(host, late["id"])["seen"] == 1
