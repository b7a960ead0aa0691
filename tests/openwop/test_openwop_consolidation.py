"""Consolidation: what another entry says, or a newer one of its key replaces, is listed no more."""

from dataclasses import replace

import pytest

from ..support.erasing import remains
from ..support.openwop_hosts import REF, Host, Json, faults, ok, refused
from ..support.openwop_passes import (
    CHANGED,
    CONSOLIDATED,
    NOT_UNDOABLE,
    about,
    events,
    ids,
    is_recorded,
    of_type,
    passed,
    state,
)
from ..support.openwop_tenants import NEVER, SECRET, anew, counted
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service

VALUE = "Xylographer.77"


@pytest.mark.slow
@requirement("OW-77", "OW-78", "OW-80")
def test_what_another_entry_says_is_superseded_by_it_and_counted(
    service: Service, host: Host
) -> None:
    made = [host.put(it) for it in ("Herons wade. Storks nest!", "herons WADE", "Storks nest?")]
    service.clock.advance(seconds=60)
    newest = host.put("Egrets fly.")

    answer = host.consolidate()

    payload = passed(answer, CONSOLIDATED)
    assert payload | {"mergedIds": sorted(payload["mergedIds"])} == {
        "memoryRef": REF, "inputCount": 4, "outputCount": 2, "trigger": "on-demand",
        "mergedIds": sorted(ids(made[1:])),
    }  # fmt: skip
    assert host.entries() == [newest, made[0]]
    told = about(host, made[0]["id"])
    assert (told["seen"], sorted(told["derivedFrom"])) == (3, sorted(ids(made[1:])))
    assert (told["method"], told["writtenBy"]) == ("put", {})
    for it in made[1:]:
        assert about(host, it["id"])["supersededBy"] == [made[0]["id"]]
        assert ok(host.get(it["id"]))["entry"] == it
    assert (about(host, newest["id"])["seen"], counted(host)[REF][0]) == (1, 4)
    assert host.search("storks") == [made[0]]
    is_recorded(host, answer)


@requirement("OW-77", "OW-78")
def test_of_equal_ones_the_newest_stays(host: Host) -> None:
    made = [host.put("green apples") for _ in range(3)]

    answer = host.consolidate()

    assert host.entries() == made[:1:-1]
    assert sorted(passed(answer, CONSOLIDATED)["mergedIds"]) == sorted(ids(made[:2]))
    assert about(host, made[2]["id"])["seen"] == 3


SAME = ["source:x", "run-id:7", "node:n", "workflow:w"]
APART = [["b"], [], ["A"], ["a", "b"], ["subject:ada", "a"], ["key:k", "a"], ["sourcex", "a"]]


@requirement("OW-78", "OW-79")
def test_tags_tell_entries_apart_but_for_those_of_their_origin(host: Host) -> None:
    made = [host.put(tags=tags) for tags in [["a"], *APART]]
    same = [host.put(tags=[*tags, "a"]) for tags in [SAME, SAME[:1], ["source:y"]]]

    assert passed(host.consolidate(), CONSOLIDATED)["outputCount"] == len(made)

    assert host.entries() == [same[-1], *made[:0:-1]]


@requirement("OW-78")
def test_of_a_key_the_newest_holds_and_of_several_keys_each_must_be_older(host: Host) -> None:
    older = host.put("The proxy waits 12 s.", tags=["key:wait"])
    both = host.put("It waits 20 s, and retries.", tags=["key:wait", "key:retry"])
    newest = host.put("It waits 30 s.", tags=["key:wait", "other"])

    assert ids(host.entries()) == ids([newest, both, older])
    assert passed(host.consolidate(), CONSOLIDATED)["mergedIds"] == [older["id"]]

    assert host.entries() == [newest, both]
    last = host.put("It retries twice.", tags=["key:retry"])
    host.consolidate()
    assert host.entries() == [last, newest]
    assert sorted(about(host, both["id"])["supersededBy"]) != []


@requirement("OW-78", "OW-71")
def test_what_takes_anothers_place_gives_it_back_when_it_ends(service: Service, host: Host) -> None:
    made = host.put("green apples"), host.put("It waits 12 s.", tags=["key:k"])
    ended = host.put("green apples", ttlSeconds=60), host.put("30 s", tags=["key:k"], ttlSeconds=60)
    host.consolidate()
    assert host.entries() == [*ended[::-1]]

    service.clock.advance(seconds=60)

    assert host.entries() == [*made[::-1]]
    assert passed(host.consolidate(), CONSOLIDATED)["outputCount"] == 2


@requirement("OW-79")
def test_entries_of_different_subjects_are_never_one(host: Host) -> None:
    made = [
        host.put(text, tags=[f"subject:{name}", *tags])
        for text, tags in (("likes tea", []), ("lives in Oslo", ["key:home"]))
        for name in ("ada", "bob", "Ada")
    ]

    assert passed(host.consolidate(), CONSOLIDATED)["outputCount"] == 6

    assert host.entries() == made[::-1]


@requirement("OW-68")
def test_what_is_pinned_armed_or_an_archive_neither_goes_nor_takes(host: Host) -> None:
    host.put("herons wade"), host.put("egrets fly")
    archive = passed(host.compact())["outputId"]
    kept = [host.put(tags=tags) for tags in (["pinned"], ["pinned"], ["due:2030-06-01T00:00:00Z"])]
    plain = [host.put(), host.put("herons wade"), host.put()]

    payload = passed(host.consolidate(), CONSOLIDATED)

    assert (payload["inputCount"], payload["outputCount"]) == (3, 2)
    assert ids(host.entries()) == [*ids(plain[:0:-1]), *ids(kept[::-1]), archive]


@requirement("OW-77")
def test_a_ref_without_entries_is_0_and_0(host: Host) -> None:
    for at in (host, anew(host)):
        answer = at.consolidate()
        assert passed(answer, CONSOLIDATED)["inputCount"] == 0
        assert passed(answer, CONSOLIDATED)["outputCount"] == 0
        is_recorded(at, answer)
        assert counted(host).get(at.ref, (0, 0)) == (0, 0)


@requirement("OW-77", "OW-80")
def test_a_second_pass_writes_nothing_but_its_run(service: Service, host: Host) -> None:
    for _ in range(3):
        host.put(), host.put("herons wade", tags=["key:k"])
    host.consolidate()
    listed, held, told = state(host)
    known = [about(host, it["id"]) for it in listed]
    service.clock.advance(days=1)

    answer = host.consolidate()

    payload = passed(answer, CONSOLIDATED)
    assert (payload["inputCount"], payload["outputCount"]) == (2, 2)
    assert not payload.get("mergedIds")
    assert state(host) == (listed, held, told + 3)
    assert [about(host, it["id"]) for it in listed] == known
    is_recorded(host, answer)


# What a host merges


@requirement("OW-77", "OW-70", "OW-42")
def test_a_host_merges_what_it_judges_to_be_one(host: Host) -> None:
    made = [host.put(it, tags=["subject:ada", it[0]]) for it in ("likes tea", "drinks tea", "old")]

    merge = {"ids": ids(made[:2]), "content": f"tea; {SECRET}", "tags": ["a"], "more": 1}
    answer = host.consolidate(merge)

    payload, (merged, *rest) = passed(answer, CONSOLIDATED), host.entries()
    assert rest == made[2:]
    assert merged["content"] == "tea; [REDACTED:openai-key]"
    assert sorted(merged["tags"]) == ["a", "subject:ada"]
    assert (payload["inputCount"], payload["outputCount"]) == (3, 2)
    told = about(host, merged["id"])
    assert (told["method"], sorted(told["derivedFrom"])) == ("host", sorted(ids(made[:2])))
    assert told["writtenBy"] == {"runId": ok(answer)["runId"]}
    assert told["seen"] == 3
    assert about(host, made[0]["id"])["supersededBy"] == [merged["id"]]
    assert counted(host)[REF][0] == 4


@requirement("OW-77", "OW-83")
def test_a_merge_of_what_is_not_there_changes_nothing(host: Host) -> None:
    made, other = [host.put("one"), host.put("one")], replace(host, ref="other").put("one")
    gone = host.put("gone")
    ok(host.delete(gone["id"]))
    before = state(host)

    for missing in (NEVER, other["id"], gone["id"], "plan"):
        good: Json = {"ids": ids(made), "content": "both"}
        bad: Json = {"ids": [made[0]["id"], missing], "content": "both"}
        assert refused(host.consolidate(bad)) == CHANGED, missing
        assert refused(host.consolidate(good, bad)) in (CHANGED, (400, "validation_error"))
    assert state(host) == before


@requirement("OW-12", "OW-79", "OW-68")
def test_a_merge_that_may_not_be_is_refused(host: Host) -> None:
    made = [host.put("one", tags=["subject:ada"]), host.put("two", tags=["subject:ada"])]
    pinned, bob = host.put("x", tags=["pinned"]), host.put("y", tags=["subject:bob"])
    armed = host.put("z", tags=["due:2030-06-01T00:00:00Z", "subject:ada"])
    archive = {"id": passed(host.distill())["outputId"]}
    many = [NEVER[:-3] + f"{it:03}" for it in range(101)]
    wrong: list[object] = [
        {"ids": ids(made)}, {"content": "x"}, {"ids": [], "content": "x"}, "x", 7,
        {"ids": ids(made[:1]), "content": "x"}, {"ids": ids(made[:1] * 2), "content": "x"},
        {"ids": many, "content": "x"}, {"ids": "x", "content": "x"},
        {"ids": [1, 2], "content": "x"},
        *({"ids": ids(made), "content": it} for it in ("", " ", "x" * 65_537, 7)),
        *({"ids": ids(made), "content": "x", "tags": [it]}
          for it in ("archive", "distilled", "compacted-from:x", 7, "x" * 257)),
        *({"ids": [made[0]["id"], it["id"]], "content": "x"}
          for it in (pinned, bob, armed, archive)),
    ]  # fmt: skip
    before = state(host)

    for merge in wrong:
        answer = host.consolidate(merge)  # type: ignore[arg-type]
        assert refused(answer) == (400, "validation_error"), merge
    for merges in ("x", 7, {"ids": ids(made), "content": "x"}):
        assert {it.split("[")[0] for it in faults(host.consolidate(merges=merges))} == {"merges"}

    assert state(host) == before


@requirement("OW-12")
def test_a_merge_of_one_is_told_how_many_there_must_be(host: Host) -> None:
    answer = host.consolidate(merges=[{"ids": [host.put()["id"]], "content": "herons"}])

    assert faults(answer) == ["merges[0].ids"]
    assert answer.json()["details"]["fields"][0]["problem"] == "has at least 2 items"


# Secrets that were stored before they were known


@requirement("OW-81", "OW-42", "OW-29")
def test_a_secret_behind_the_screen_does_not_survive_a_pass_that_merges_it(
    service: Service, host: Host
) -> None:
    made = [host.put(f"it is {VALUE}"), host.put(f"It is {VALUE}!"), host.put("herons wade")]
    run = host.in_run("r1")
    run.register("s", VALUE)

    answer = host.consolidate()

    assert passed(answer, CONSOLIDATED)["outputCount"] == 2
    contents = host.contents()
    assert sorted(it.lower() for it in contents) == ["herons wade", "it is [redacted:s]!"]
    assert host.search("xylographer") == []
    assert refused(host.get(made[1]["id"])) == (404, "not_found")
    assert VALUE not in host.get(made[0]["id"]).text + str(events(host))
    until(lambda: not remains(service.path.parent, VALUE))
    assert len(of_type(host, CONSOLIDATED)) == 1
    assert refused(host.undo(ok(answer)["runId"])) == NOT_UNDOABLE
    assert sorted(host.contents()) == sorted(contents)
    again = passed(host.consolidate(), CONSOLIDATED)
    assert (again["inputCount"], again["outputCount"]) == (2, 2)


@pytest.mark.heavy
@requirement("OW-81", "OW-80")
def test_what_is_renewed_stands_for_all_that_say_the_same_however_many(host: Host) -> None:
    for number in range(402):  # more than one step takes, those of an entry far apart
        host.put(f"{'owls' if number % 2 else 'herons'} know {VALUE}")
    host.in_run("r1").register("s", VALUE)

    payload = passed(host.consolidate(), CONSOLIDATED)

    assert (payload["inputCount"], payload["outputCount"]) == (402, 2)
    assert sorted(host.contents()) == ["herons know [REDACTED:s]", "owls know [REDACTED:s]"]
    assert [about(host, it["id"])["seen"] for it in host.entries()] == [201, 201]
