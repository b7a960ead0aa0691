"""Compaction: many entries become one archive, which supersedes them; none of them is lost."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from agentops_memory.openwop import archives

from ..support.openwop_hosts import REF, Host, ok, refused, wire
from ..support.openwop_passes import (
    COMPACTED,
    DIGESTS,
    LINES,
    about,
    archived,
    corpus,
    digest,
    ids,
    is_recorded,
    of_type,
    passed,
    state,
)
from ..support.openwop_tenants import NEVER, SECRET, anew, counted
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

NOTHING = (409, "nothing_to_compact")


@requirement("OW-66", "OW-67")
def test_an_archive_takes_the_place_of_its_sources_which_can_still_be_read(
    service: Service, host: Host
) -> None:
    made = corpus(service, host)

    answer = host.compact()

    payload, archive = passed(answer), archived(host, answer)
    assert payload == {
        "memoryRef": REF, "outputId": archive["id"], "sourceIds": ids(made), "sourceCount": 3,
        "trigger": "host-managed", "byteSize": 230,
    }  # fmt: skip
    assert archive["content"].split("\n") == LINES
    assert digest(archive["content"]) == DIGESTS[1024]
    assert archive["createdAt"] == "2030-01-01T12:00:00.000Z"
    assert archive.keys() == {"id", "content", "tags", "createdAt"}
    assert sorted(archive["tags"]) == ["archive", f"compacted-from:{ok(answer)['runId']}"]
    assert host.entries() == host.search("pricing") == host.entries(tag="archive") == [archive]
    for it in made:
        assert ok(host.get(it["id"]))["entry"] == it
        assert about(host, it["id"])["supersededBy"] == [archive["id"]]
    told = about(host, archive["id"])
    assert told["writtenBy"] == {"runId": ok(answer)["runId"]}
    assert (told["method"], told["derivedFrom"]) == ("extract-1", ids(made))
    assert "supersededBy" not in told
    is_recorded(host, answer)


@pytest.mark.slow
@requirement("OW-66", "OW-29")
def test_sources_that_are_kept_stay_in_the_list(service: Service, host: Host) -> None:
    made = corpus(service, host)

    first, second = host.compact(keepSources=True), host.compact(keepSources=True)

    archive = archived(host, first)
    assert archived(host, second) == archive
    assert host.entries() == [archive, *made[::-1]]
    assert about(host, archive["id"])["derivedFrom"] == ids(made)
    assert "supersededBy" not in about(host, made[0]["id"])
    size = sum(len(it["content"]) for it in host.entries())
    assert counted(host) == {REF: (4, size)}


@pytest.mark.slow
@requirement("OW-68", "OW-69")
def test_what_is_new_is_compacted_beside_archives_which_are_not(
    service: Service, host: Host
) -> None:
    corpus(service, host)
    first = archived(host, host.compact())
    host.put("herons wade")
    before = state(host)
    assert refused(host.compact()) == NOTHING
    assert state(host) == before

    host.put("egrets fly")
    second = archived(host, host.compact())

    assert host.entries() == [second, first]
    assert second["content"] == "- 2030-01-01: herons wade\n- 2030-01-01: egrets fly"


@requirement("OW-68")
def test_the_source_of_a_commitment_that_is_over_is_an_input(host: Host) -> None:
    made = [host.put("armed stone"), host.put("herons wade")]
    body = {"memoryRef": REF, "memoryId": made[0]["id"], "condition": "predicate", "tag": "rain"}
    armed = ok(host.ask("POST", "/commitments", body), 201)
    assert refused(host.compact()) == NOTHING

    ok(host.ask("DELETE", f"/commitments/{armed['id']}"))

    assert passed(host.compact())["sourceIds"] == ids(made)


EMPTY: dict[str, Callable[[Host], object]] = {
    "nothing": lambda _: None,
    "one": lambda it: it.put(),
    "one and a pinned one": lambda it: [it.put(), it.put(tags=["pinned"])],
    "no word": lambda it: [it.put("!?!"), it.put("-- ... --")],
    "one and a deleted one": lambda it: [it.put(), it.delete(it.put()["id"])],
    "one and a superseded one": lambda it: it.put(supersedes=[it.put()["id"]]),
}


@for_each("name", EMPTY)
@requirement("OW-69", "OW-68", "OW-14")
def test_fewer_than_two_inputs_or_no_word_is_refused_and_told_of_nowhere(
    host: Host, name: str
) -> None:
    at = anew(host)
    EMPTY[name](at)
    before = state(at)

    answer = at.compact()

    assert refused(answer) == NOTHING
    assert state(at) == before
    assert "details" not in answer.json()


@requirement("OW-70", "OW-42")
def test_the_text_of_a_host_takes_the_place_of_the_extract_and_is_screened(
    service: Service, host: Host
) -> None:
    made = corpus(service, host)

    answer = host.compact(content=f"The provider is slow; {SECRET}. [BYOK:x]")

    archive = archived(host, answer)
    assert archive["content"] == "The provider is slow; [REDACTED:openai-key]. [REDACTED:byok]"
    assert passed(answer)["byteSize"] == len(archive["content"])
    told = about(host, archive["id"])
    assert (told["method"], told["derivedFrom"]) == ("host", ids(made))
    assert host.entries() == [archive]


@requirement("OW-66")
def test_of_many_sources_the_number_is_told_and_not_each(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_NAMED", 3)
    for count in (3, 4):
        at = anew(host)
        made = [at.put(f"heron {it}") for it in range(count)]

        payload = passed(at.compact())

        assert payload["sourceCount"] == count
        assert payload.get("sourceIds") == (ids(made) if count == 3 else None)
        assert about(at, payload["outputId"])["derivedFrom"] == ids(made)
        assert ids(at.entries()) == [payload["outputId"]]


@requirement("OW-66")
def test_the_oldest_sources_that_fit_into_memory_are_taken(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_COMPACTED_BYTES", 8 * len("heron 00"))
    made = [host.put(f"heron {it:02}") for it in range(10)]

    payload = passed(host.compact())

    assert payload["sourceIds"] == ids(made[:8])
    assert ids(host.entries()) == [payload["outputId"], *ids(made[:7:-1])]


@requirement("OW-66", "OW-53")
def test_an_archive_ends_when_the_first_of_its_sources_does(service: Service, host: Host) -> None:
    end = service.clock.now + timedelta(seconds=60)
    kept = host.put("herons wade")
    host.put("storks nest", ttlSeconds=600), host.put("egrets fly", expiresAt=wire(end))
    before = host.in_run("before")

    archive = archived(host, host.compact())

    after = host.in_run("after")
    assert after.entries() == [archive]
    assert archive["expiresAt"] == wire(end)
    service.clock.now = end
    for at in (host, before, after):
        assert kept in at.entries()
        assert sorted(at.contents()) == ["herons wade", "storks nest"]
    assert refused(host.get(archive["id"])) == (404, "not_found")


@pytest.mark.slow
@requirement("OW-83", "OW-66")
def test_a_pass_is_of_one_ref_and_of_no_run(service: Service, host: Host) -> None:
    other = replace(host, ref=f"{REF}/")
    corpus(service, host), corpus(service, other)
    before = other.entries()

    payload = passed(host.compact(runId="no such run", limit=1, tags=["x"], content=None))

    assert payload["memoryRef"] == REF
    assert other.entries() == before
    assert refused(other.get(payload["outputId"])) == (404, "not_found")
    assert refused(anew(host).compact()) == NOTHING
    assert len(of_type(host, COMPACTED)) == 1
    assert counted(other)[other.ref][0] == 3


@requirement("OW-71", "OW-29")
def test_an_archive_that_is_deleted_gives_its_sources_back(service: Service, host: Host) -> None:
    made = corpus(service, host)
    before = host.entries()
    archive = archived(host, host.compact())

    ok(host.delete(archive["id"]))

    assert host.entries() == before
    assert counted(host)[REF][0] == 3
    assert host.get(archive["id"]).content == host.get(NEVER).content
    again = archived(host, host.compact())
    assert (again["id"], again["content"]) == (archive["id"], archive["content"])
    assert host.entries() == [again]
    assert about(host, made[0]["id"])["supersededBy"] == [again["id"]]
