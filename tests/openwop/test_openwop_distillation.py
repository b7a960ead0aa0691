"""Distillation: an archive within a budget of tokens, beside its sources, which stay."""

from datetime import timedelta
from pathlib import Path

import pytest

from ..support.openwop_hosts import REF, Host, Json, ok, refused, wire
from ..support.openwop_passes import (
    DIGESTS,
    LINES,
    about,
    archived,
    corpus,
    digest,
    ids,
    is_recorded,
    passed,
    state,
    tokens,
)
from ..support.openwop_tenants import SECRET, anew, counted
from ..support.requirements import requirement
from ..support.service import Service, serving

NOTHING = (409, "nothing_to_distill")
TOO_SMALL = (422, "token_budget_exceeded")
VALUE = "Xylographer.77"


@pytest.fixture
def sources(service: Service, host: Host) -> list[Json]:
    return corpus(service, host)


def read(sources: list[Json]) -> int:
    """The tokens that reading the sources takes."""
    return sum(tokens(it["content"]) for it in sources)


@pytest.mark.slow
@requirement("OW-72", "OW-67")
def test_an_archive_stands_beside_its_sources(host: Host, sources: list[Json]) -> None:
    answer = host.distill(tokenBudget=1000)

    payload, archive, done = passed(answer), archived(host, answer), ok(answer)
    used = read(sources) + tokens(archive["content"])
    assert payload == {
        "memoryRef": REF, "outputId": archive["id"], "sourceIds": ids(sources), "sourceCount": 3,
        "trigger": "host-managed", "byteSize": 230,
        "distillation": {"tokenBudget": 1000, "tokensUsed": used, "indexUpdated": False},
    }  # fmt: skip
    assert archive["content"].split("\n") == LINES
    assert done["created"] is True
    assert done["archiveChecksum"] == digest(archive["content"]) == DIGESTS[1024]
    assert sorted(archive["tags"]) == ["archive", f"compacted-from:{done['runId']}", "distilled"]
    assert host.entries() == [archive, *sources[::-1]]
    told = about(host, archive["id"])
    assert (told["method"], told["derivedFrom"]) == ("extract-1", ids(sources))
    assert told["writtenBy"] == {"runId": done["runId"]}
    assert "supersededBy" not in about(host, sources[0]["id"])
    is_recorded(host, answer)


@requirement("OW-72")
def test_what_the_budget_leaves_is_the_cap_of_the_extract(host: Host, sources: list[Json]) -> None:
    answer = host.distill(tokenBudget=read(sources) + 30)

    assert archived(host, answer)["content"].split("\n") == LINES[1:3]
    assert ok(answer)["archiveChecksum"] == DIGESTS[120]


@requirement("OW-72", "OW-66")
def test_too_small_a_budget_is_refused_with_what_it_takes_and_writes_nothing(
    host: Host, sources: list[Json]
) -> None:
    size, before = read(sources), state(host)
    enough = size + max(16, -(-size // 10))
    answer = host.distill(tokenBudget=enough - 1)

    assert refused(answer) == TOO_SMALL
    assert answer.json()["details"] == {"budget": enough - 1, "minimumRequired": enough}
    assert state(host) == before
    payload = passed(host.distill(tokenBudget=enough))
    assert payload["distillation"]["tokensUsed"] <= enough
    assert 0 < payload["byteSize"] <= 4 * (enough - read(sources))


@pytest.mark.slow
@requirement("OW-73", "OW-29")
def test_the_same_sources_and_budget_are_the_same_archive(
    service: Service, host: Host, sources: list[Json]
) -> None:
    first = host.distill(tokenBudget=500)
    service.clock.advance(days=1)
    before = host.entries(), counted(host)

    again = host.distill(tokenBudget=500)

    assert (host.entries(), counted(host)) == before
    assert ok(again)["created"] is False
    assert passed(again) == passed(first)
    assert ok(again)["archiveChecksum"] == ok(first)["archiveChecksum"]
    assert ok(again)["runId"] != ok(first)["runId"]
    is_recorded(host, again)
    other = host.distill(tokenBudget=501)
    assert ok(other)["created"] is True
    assert passed(other)["outputId"] != passed(first)["outputId"]
    assert ok(other)["archiveChecksum"] == ok(first)["archiveChecksum"]
    host.put("herons wade")
    assert passed(host.distill(tokenBudget=500))["sourceCount"] == len(sources) + 1


@requirement("OW-74", "OW-73")
def test_a_budget_is_clamped_and_none_is_the_largest(host: Host, sources: list[Json]) -> None:
    first = host.distill()

    answers = [first, *(host.distill(tokenBudget=it) for it in (100_000, 100_001, 10**12))]

    assert [ok(it)["created"] for it in answers] == [True, False, False, False]
    assert len({passed(it)["outputId"] for it in answers}) == 1
    told = [passed(it)["distillation"]["tokenBudget"] for it in answers]
    assert told == [100_000] * 4
    assert len(host.entries()) == len(sources) + 1


@requirement("OW-72")
def test_what_has_no_word_is_not_distilled_and_one_source_is_enough(host: Host) -> None:
    assert refused(host.distill()) == NOTHING
    host.put("!?!")
    before = state(host)
    assert refused(host.distill()) == NOTHING
    assert state(host) == before
    host.put("herons wade", tags=["pinned"])
    host.put("egrets fly", tags=["due:2030-06-01T00:00:00Z"])

    content = archived(host, host.distill())["content"]

    assert content == "- 2030-01-01: herons wade\n- 2030-01-01: egrets fly"
    assert len(host.entries()) == 4


@pytest.mark.slow
@requirement("OW-70", "OW-42", "OW-72")
def test_the_text_of_a_host_is_screened_and_within_the_budget(
    host: Host, sources: list[Json]
) -> None:
    size = read(sources)
    answer = host.distill(content=f"all of it: {SECRET}", tokenBudget=size + 100)

    archive = archived(host, answer)
    assert archive["content"] == "all of it: [REDACTED:openai-key]"
    assert about(host, archive["id"])["method"] == "host"
    assert passed(answer)["distillation"]["tokensUsed"] == size + tokens(archive["content"])
    before = state(host)
    over = host.distill(content="x" * 401, tokenBudget=size + 100)
    assert refused(over) == TOO_SMALL
    assert over.json()["details"]["budget"] == size + 100
    assert state(host) == before
    assert ok(host.distill(content="x" * 400, tokenBudget=size + 100))["created"] is True


@pytest.mark.slow
@requirement("OW-75", "OW-68")
def test_archives_are_read_when_asked_for_and_keep_their_dates(
    host: Host, sources: list[Json]
) -> None:
    older = archived(host, host.compact())
    assert refused(host.distill()) == NOTHING
    new = host.put("herons wade")

    answer = host.distill(recursive=True)

    archive = archived(host, answer)
    assert archive["content"].split("\n") == [*LINES, "- 2030-01-01: herons wade"]
    assert passed(answer)["sourceIds"] == [older["id"], new["id"]]
    assert host.entries() == [archive, new, older]
    plain = archived(host, host.distill())
    assert plain["content"] == "- 2030-01-01: herons wade"
    assert about(host, older["id"])["derivedFrom"] == ids(sources)


@requirement("OW-75", "OW-42", "OW-40")
def test_what_an_archive_says_is_screened_again(service: Service, host: Host) -> None:
    host.put(f"the lock opens with {VALUE} today"), host.put("herons wade")
    assert VALUE in archived(host, host.compact())["content"]
    run = host.in_run("r1")
    run.register("lock", VALUE)

    archive = archived(host, host.distill(recursive=True))

    assert "opens with [REDACTED:lock] today" in archive["content"]
    assert VALUE not in archive["content"]
    run.end()
    service.clock.advance(seconds=1)
    assert ok(host.get(archive["id"]))["entry"] == archive


# The end of the request, else of the setting; that of a source where it is earlier.
ENDS: dict[str, list[tuple[int | None, int | None, int | None]]] = {
    "0": [(None, None, None), (60, None, 60), (None, 60, 60), (60, 30, 30)],
    "1h": [(None, None, 3600), (60, None, 60), (7200, None, 7200), (None, 7200, 3600),
           (7200, 60, 60)],
}  # fmt: skip


@pytest.mark.slow
@requirement("OW-66", "OW-72")
@pytest.mark.parametrize("kept", ENDS)
def test_an_archive_ends_with_what_ends_first(path: Path, kept: str) -> None:
    with serving(path, MEMORY_KEEP_ARCHIVES=kept) as service:
        for asked, of_source, seconds in ENDS[kept]:
            host, now = anew(Host(service.http)), service.clock.now
            host.put("herons wade"), host.put("egrets fly", ttlSeconds=of_source)
            fields = {} if asked is None else {"expiresAt": wire(now + timedelta(seconds=asked))}

            archive = archived(host, host.distill(**fields))

            end = None if seconds is None else wire(now + timedelta(seconds=seconds))
            assert archive.get("expiresAt") == end, (asked, of_source)
            if seconds is not None:
                service.clock.now = now + timedelta(seconds=seconds)
                assert refused(host.get(archive["id"])) == (404, "not_found")
                assert archive["id"] not in ids(host.entries())


@requirement("OW-72", "OW-73", "OW-29")
def test_a_distillation_is_undone_and_made_again(host: Host, sources: list[Json]) -> None:
    before = host.entries(), counted(host)
    first = host.distill()
    undone = ok(host.undo(ok(first)["runId"]))

    assert (undone["restored"], undone["removed"]) == (0, 1)
    assert (host.entries(), counted(host)) == before
    again = host.distill()
    assert ok(again)["created"] is True
    assert passed(again) == passed(first)
    assert about(host, passed(again)["outputId"])["derivedFrom"] == ids(sources)


@requirement("OW-73", "OW-66")
def test_what_has_the_ids_of_deleted_sources_makes_an_archive_of_its_own(host: Host) -> None:
    made = []
    for subject in ("ada", "bob"):
        put = [host.put(it, id=it[0], tags=[f"subject:{subject}"]) for it in ("a wades", "b flies")]
        made.append(archived(host, host.distill()))
        assert f"subject:{subject}" in made[-1]["tags"]
        for it in put:
            ok(host.delete(it["id"]))

    assert made[0]["id"] == made[1]["id"]
    assert "subject:ada" not in made[1]["tags"]
