"""Archives: their ids and tags, how they are listed in the index, and where they do not show."""

from dataclasses import replace
from datetime import timedelta

from ..support.openwop_hosts import REF, Host, Json, faults, ok, refused, wire
from ..support.openwop_passes import (
    LINES,
    archive_id,
    archived,
    corpus,
    digest,
    ids,
    passed,
)
from ..support.openwop_tenants import counted
from ..support.requirements import requirement
from ..support.service import Service

NOW = "2030-01-01T12:00:00.000Z"
EMPTY: Json = {"version": 1, "entryCount": 0, "archives": []}


@requirement("OW-73", "OW-66")
def test_an_id_is_made_of_what_an_archive_says_and_of_what(service: Service, host: Host) -> None:
    sources = ids(corpus(service, host))
    content = "\n".join(LINES)

    assert passed(host.distill())["outputId"] == archive_id(
        REF, "extract-1", 100_000, sources, content
    )
    assert passed(host.distill(tokenBudget=777))["outputId"] == archive_id(
        REF, "extract-1", 777, sources, content
    )
    assert passed(host.distill(content="b\u00e9", tokenBudget=777))["outputId"] == archive_id(
        REF, "host", 777, sources, "b\u00e9"
    )
    assert passed(host.compact(keepSources=True))["outputId"] == archive_id(
        REF, "extract-1", 1024, sources, content
    )
    assert passed(host.compact(content="b\u00e9"))["outputId"] == archive_id(
        REF, "host", 1024, sources, "b\u00e9"
    )


@requirement("OW-66", "OW-93")
def test_the_subjects_of_its_sources_are_on_an_archive(host: Host) -> None:
    host.put("likes tea", tags=["subject:ada", "x", "key:drink"])
    host.put("likes ink", tags=["subject:bob", "source:mail"])
    host.put("likes rain", tags=["subject:ada"])

    for answer in (host.distill(), host.compact()):
        tags = archived(host, answer)["tags"]
        more = ["distilled"] if "archiveChecksum" in ok(answer) else []
        expected = ["archive", f"compacted-from:{ok(answer)['runId']}", *more]
        assert sorted(tags) == sorted([*expected, "subject:ada", "subject:bob"])
        for tag in tags:
            assert passed(answer)["outputId"] in ids(host.entries(tag=tag))


@requirement("OW-67")
def test_an_archive_is_an_entry_like_every_other(service: Service, host: Host) -> None:
    corpus(service, host)
    archive = archived(host, host.distill())

    assert archive in host.search("pricing")
    run = host.in_run("r1")
    assert ok(run.get(archive["id"]))["entry"] == archive
    assert refused(host.post("mine", id=archive["id"])) == (400, "validation_error")
    assert refused(host.post("mine", id="archive_" + "0" * 32)) == (400, "validation_error")
    ok(host.delete(archive["id"]))
    assert refused(host.get(archive["id"])) == (404, "not_found")


@requirement("OW-76")
def test_the_index_lists_archives_newest_first_and_no_content(service: Service, host: Host) -> None:
    corpus(service, host)
    first = archived(host, host.compact())
    service.clock.advance(seconds=90)
    host.put("herons wade")
    second = archived(host, host.distill())

    index = host.index()

    assert index == {
        "version": 1, "archiveChecksum": digest(second["content"]), "entryCount": 2,
        "updatedAt": second["createdAt"],
        "archives": [
            {"memoryRef": REF, "memoryId": second["id"], "entryCount": 1,
             "archiveChecksum": digest(second["content"]), "from": "2030-01-01T12:01:30.000Z",
             "to": "2030-01-01T12:01:30.000Z", "createdAt": "2030-01-01T12:01:30.000Z"},
            {"memoryRef": REF, "memoryId": first["id"], "entryCount": 3,
             "archiveChecksum": digest(first["content"]), "from": "2026-05-01T12:00:00.000Z",
             "to": "2026-05-03T12:00:00.000Z", "createdAt": NOW},
        ],
    }  # fmt: skip
    assert "proxy" not in str(index)


@requirement("OW-76")
def test_the_index_has_live_archives_alone(service: Service, host: Host) -> None:
    host.put("herons wade"), host.put("egrets fly")
    end = wire(service.clock.now + timedelta(seconds=60))
    answers = [
        host.distill(tokenBudget=100), host.distill(tokenBudget=200, expiresAt=end),
        host.distill(tokenBudget=300), host.distill(tokenBudget=400),
    ]  # fmt: skip
    made = [passed(it)["outputId"] for it in answers]
    assert [it["memoryId"] for it in host.index()["archives"]] == made[::-1]

    ok(host.delete(made[0]))
    ok(host.undo(ok(answers[3])["runId"]))
    service.clock.advance(seconds=60)

    index = host.index()
    assert [it["memoryId"] for it in index["archives"]] == made[2:3]
    assert (index["entryCount"], index["updatedAt"]) == (1, NOW)
    ok(host.delete(made[2]))
    assert host.index() == EMPTY


@requirement("OW-76")
def test_the_index_of_what_is_not_there_is_empty(host: Host) -> None:
    held = counted(host)
    for ref in ("never", "x" * 257, "..", "tenants/acme/x"):
        assert replace(host, ref=ref).index() == EMPTY, ref
    host.put()
    assert host.index() == EMPTY
    for params in ({}, {"memoryRef": ""}):
        assert faults(host.ask("GET", "/index", params=params)) == ["memoryRef"]
    assert {*counted(host)} - {*held} == {REF}
