"""Passes where it is tight: one after another over the same, long after, with odd names."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from ..support.database import assert_index_is_whole
from ..support.erasing import remains
from ..support.openwop_hosts import REF, Host, ok, refused
from ..support.openwop_passes import (
    CONSOLIDATED,
    NOT_UNDOABLE,
    about,
    archived,
    corpus,
    events,
    ids,
    passed,
    state,
)
from ..support.openwop_sweeps import deleted_long_ago, steadily, sweeping, swept_index
from ..support.openwop_tenants import counted
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service
from .test_openwop_forgetting import forgotten

VALUE = "Xylo grapher. Quokka!  Wombat 77"  # of several sentences


@requirement("OW-42", "OW-40")
def test_a_secret_is_not_said_in_pieces(service: Service, host: Host) -> None:
    host.put(f"the lock opens with {VALUE} today"), host.put("herons wade")
    run = host.in_run("r1")
    run.register("lock", VALUE)

    for answer in (host.distill(), host.compact()):
        content = archived(host, answer)["content"].lower()
        for part in ("xylo", "quokka", "wombat"):
            assert part not in content
    assert service.http.get("/health").status_code == 200


@pytest.mark.slow
@requirement("OW-81", "OW-42")
def test_a_secret_in_a_tag_does_not_survive_a_pass_that_merges_it(
    service: Service, host: Host
) -> None:
    for _ in range(3):
        host.put("it is here", tags=[f"at {VALUE}"])
    host.in_run("r1").register("s", VALUE)

    host.consolidate()

    assert [it["tags"] for it in host.entries()] == [["at [REDACTED:s]"]]
    until(lambda: not remains(service.path.parent, VALUE))
    assert_index_is_whole(service.path)


@pytest.mark.slow
@requirement("OW-81")
def test_a_secret_does_not_survive_what_a_host_merges(service: Service, host: Host) -> None:
    made = ids([host.put(f"the lock: {VALUE} {number}") for number in range(2)])
    host.in_run("r1").register("s", VALUE)

    ok(host.consolidate({"ids": made, "content": "the lock has a code"}))

    assert host.contents() == ["the lock has a code"]
    assert not [it for it in made if VALUE in host.get(it).text]
    until(lambda: not remains(service.path.parent, VALUE))


@pytest.mark.heavy
@requirement("OW-71", "OW-66")
@pytest.mark.parametrize("is_reversed", [False, True])
def test_an_archive_that_first_stood_beside_its_sources_takes_their_place(
    service: Service, host: Host, is_reversed: bool
) -> None:
    sources = corpus(service, host)[::-1]
    first = host.compact(keepSources=True)
    second = host.compact()
    archive = archived(host, first)
    assert archived(host, second) == archive
    assert host.entries() == [archive]
    assert counted(host)[REF][0] == 4

    runs = [ok(second)["runId"], ok(first)["runId"]]
    if is_reversed:
        ok(host.undo(runs[1]))
        again = host.undo(runs[0])  # of a pass that has written nothing
        assert again.status_code == 200 or refused(again) == NOT_UNDOABLE
    else:
        undone = ok(host.undo(runs[0]))
        assert (undone["restored"], undone["removed"]) == (3, 0)
        assert host.entries() == [archive, *sources]
        ok(host.undo(runs[1]))
    assert host.entries() == sources
    assert counted(host)[REF][0] == 3


@pytest.mark.slow
@requirement("OW-71", "OW-80")
def test_the_order_of_undos_does_not_matter_where_nothing_is_gone(host: Host) -> None:
    for text in ("herons wade", "herons wade", "egrets fly"):
        host.put(text)
    before = state(host)[:2]
    merged, compacted = ok(host.consolidate())["runId"], ok(host.compact())["runId"]

    ok(host.undo(merged))
    assert len(host.entries()) == 2
    ok(host.undo(compacted))

    assert state(host)[:2] == before
    assert [about(host, it)["seen"] for it in ids(before[0])] == [1, 1, 1]


@requirement("OW-77", "OW-12")
def test_one_entry_is_in_no_two_merges(host: Host) -> None:
    made = ids([host.put(it) for it in ("one", "two", "three")])
    before = state(host)

    answer = host.consolidate({"ids": made[:2], "content": "a"}, {"ids": made[1:], "content": "b"})

    assert refused(answer) in [(400, "validation_error"), (409, "memory_changed")]
    assert state(host) == before


@pytest.mark.heavy
@requirement("OW-70", "OW-42")
def test_a_text_that_the_screen_makes_too_long_is_taken_as_a_put_takes_it(host: Host) -> None:
    long = "[BYOK:x]" * 8000  # of which the screen makes nearly twice as much
    status = host.post(long).status_code
    made = [host.put("herons wade"), host.put("egrets fly")]

    answers = [
        host.compact(content=long, keepSources=True), host.distill(content=long),
        host.consolidate({"ids": ids(made), "content": long}),
    ]  # fmt: skip

    wanted = 200 if status == 201 else status
    assert [it.status_code for it in answers] == [wanted] * 3


@pytest.mark.heavy
@requirement("OW-66", "OW-93")
def test_an_archive_of_many_subjects_is_of_each(host: Host) -> None:
    for number in range(60):
        host.put(f"heron {number}", tags=[f"subject:s{number}"])
    archive = archived(host, host.compact())

    assert {*archive["tags"]} >= {f"subject:s{number}" for number in range(60)}
    assert forgotten(host, "s7")["restored"] == 59
    assert len(host.entries()) == 59


@pytest.mark.heavy
@requirement("OW-66", "OW-71", "OW-29")
def test_what_passes_did_holds_when_their_runs_are_gone(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EVENTS="1h") as service:
        host = Host(service.http)
        for text in ("herons wade", "herons wade", "egrets fly"):
            host.put(text)
        run = ok(host.consolidate())["runId"]
        answer = host.compact()
        archive = archived(host, answer)
        held = counted(host)[REF]
        steadily(service, timedelta(hours=5))
        until(lambda: host.ask("GET", f"/runs/{run}").status_code == 404)
        until(lambda: host.ask("GET", f"/runs/{ok(answer)['runId']}").status_code == 404)

        assert host.entries() == [archive]
        assert counted(host)[REF] == held
        assert len(about(host, archive["id"])["derivedFrom"]) == 2
        assert refused(host.undo(run)) in [(404, "not_found"), NOT_UNDOABLE]
        assert host.index()["entryCount"] == 1
        ok(host.delete(archive["id"]))
        assert sorted(host.contents()) == ["egrets fly", "herons wade"]


@pytest.mark.heavy
@requirement("OW-66", "OW-71", "OW-29", "OW-45")
def test_an_archive_that_is_swept_leaves_its_sources(tmp_path: Path) -> None:
    with sweeping(tmp_path, MEMORY_KEEP_EXPIRED="1h") as service:
        host = Host(service.http)
        kept = host.put("herons wade")
        host.put("egrets fly", ttlSeconds=60)
        archive = archived(host, host.compact())
        service.clock.advance(seconds=60)
        swept_index(service)
        assert_index_is_whole(service.path)
        steadily(service, timedelta(hours=2))
        until(lambda: counted(host)[REF] == (1, len("herons wade")))

        assert host.entries() == [kept]
        assert refused(host.get(archive["id"])) == (404, "not_found")
        assert "supersededBy" not in about(host, kept["id"])


@pytest.mark.heavy
@requirement("OW-93", "OW-94")
def test_an_archive_of_a_source_that_is_long_gone_is_forgotten(tmp_path: Path) -> None:
    with sweeping(tmp_path) as service:
        host = Host(service.http)
        hers = host.put("ada: tea", tags=["subject:ada"])
        other = host.put("herons wade")
        archive = archived(host, host.compact(keepSources=True))
        ok(host.delete(hers["id"]))
        deleted_long_ago(service)

        told = forgotten(host, "ada")

        assert (told["entries"], told["archives"]) == (0, 1)
        assert host.entries() == [other]
        assert refused(host.get(archive["id"])) == (404, "not_found")


NAMES = ['a"b\\c', "\u00e9\U0001f600", "a\u2028b", "%_", "a'b", "{}", "[x]", "a:b/c", "\u00c5sa"]


@pytest.mark.heavy
@pytest.mark.representative(4)
@pytest.mark.parametrize("name", NAMES)
@requirement("OW-93", "OW-96", "OW-56")
def test_odd_names_leave_the_log_too(host: Host, name: str) -> None:
    run = host.in_run("r1")
    run.put("tea", tags=[f"subject:{name}", "x"]), replace(run, ref=name).put("tea")
    run.put("rain", tags=[f"subject:{name}s"])

    assert forgotten(host, name)["entries"] == 2

    payloads = [it["payload"] for it in events(host) if it["type"] == "memory.written"]
    assert [it["tags"] for it in payloads][1:] == [[], [f"subject:{name}s"]]
    assert f"subject:{name}" not in payloads[0]["tags"]
    assert payloads[1]["memoryRef"] != name
    assert host.contents() == ["rain"]


@pytest.mark.slow
@requirement("OW-77", "OW-78")
def test_what_says_nothing_stays(host: Host) -> None:
    made = [host.put(it) for it in ("!?!", "...", "herons wade", "!?!")]

    payload = passed(host.consolidate(), CONSOLIDATED)

    assert (payload["inputCount"], payload["outputCount"]) == (4, 4)
    assert host.entries() == made[::-1]
