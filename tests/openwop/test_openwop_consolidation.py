"""Consolidation: what another says, or a newer one of its key replaces, is listed no more."""

import random
from dataclasses import replace

import pytest

from agentops_memory.openwop import consolidation

from ..support.erasing import remains
from ..support.files import assert_index_is_whole
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
from ..support.samples import for_each, sampled
from ..support.service import Service
from .test_openwop_merging import entries, model

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


@requirement("OW-78", "OW-71")
def test_what_takes_anothers_place_gives_it_back_when_it_ends(service: Service, host: Host) -> None:
    made = host.put("green apples"), host.put("It waits 12 s.", tags=["key:k"])
    ended = host.put("green apples", ttlSeconds=60), host.put("30 s", tags=["key:k"], ttlSeconds=60)
    host.consolidate()
    assert host.entries() == [*ended[::-1]]

    service.clock.advance(seconds=60)

    assert host.entries() == [*made[::-1]]
    assert passed(host.consolidate(), CONSOLIDATED)["outputCount"] == 2


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


@requirement("OW-77", "OW-70", "OW-42")
def test_a_host_merges_what_it_judges_to_be_one(host: Host) -> None:
    made = [
        host.put(it, tags=["subject:ada", it[0]], ttlSeconds=60 * len(it))
        for it in ("likes tea", "drinks tea", "old")
    ]

    merge = {"ids": ids(made[:2]), "content": f"tea; {SECRET}", "tags": ["a"], "more": 1}
    answer = host.consolidate(merge)

    payload, (merged, *rest) = passed(answer, CONSOLIDATED), host.entries()
    assert rest == made[2:]
    assert merged["content"] == "tea; [REDACTED:openai-key]"
    assert merged["expiresAt"] == made[0]["expiresAt"]  # the first of them to end
    assert sorted(merged["tags"]) == ["a", "subject:ada"]
    assert (payload["inputCount"], payload["outputCount"]) == (3, 2)
    told = about(host, merged["id"])
    assert (told["method"], sorted(told["derivedFrom"])) == ("host", sorted(ids(made[:2])))
    assert told["writtenBy"] == {"runId": ok(answer)["runId"]}
    assert told["seen"] == 3
    assert about(host, made[0]["id"])["supersededBy"] == [merged["id"]]
    assert counted(host)[REF][0] == 4


@pytest.mark.slow
@requirement("OW-12", "OW-77", "OW-79", "OW-68", "OW-83")
def test_a_merge_that_may_not_be_or_of_what_is_not_there_is_refused(host: Host) -> None:
    made = [host.put("one", tags=["subject:ada"]), host.put("two", tags=["subject:ada"])]
    pinned, bob = host.put("x", tags=["pinned"]), host.put("y", tags=["subject:bob"])
    armed = host.put("z", tags=["due:2030-06-01T00:00:00Z", "subject:ada"])
    archive = {"id": passed(host.distill())["outputId"]}
    many = [NEVER[:-3] + f"{it:03}" for it in range(101)]
    other, gone = replace(host, ref="other").put("one")["id"], host.put("gone")["id"]
    ok(host.delete(gone))
    older = host.put("older")["id"]
    host.put("newer", supersedes=[older])
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
    alone = host.consolidate({"ids": ids(made[:1]), "content": "x"}).json()["details"]["fields"]
    assert alone == [{"field": "merges[0].ids", "problem": "must have at least 2 items"}]
    good: Json = {"ids": ids(made), "content": "x"}
    assert refused(host.consolidate(good, good)) in [(400, "validation_error"), CHANGED]
    for missing in (NEVER, other, gone, older, "plan"):
        bad: Json = {"ids": [made[0]["id"], missing], "content": "both"}
        assert refused(host.consolidate(bad)) == CHANGED, missing
        assert refused(host.consolidate(good, bad)) in (CHANGED, (400, "validation_error"))

    assert state(host) == before


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


@requirement("OW-71", "OW-81")
def test_an_undo_never_takes_away_the_one_text_of_a_renewed_entry(host: Host) -> None:
    host.put("herons wade"), host.put(f"Herons wade. The code is {VALUE}. Storks nest.")
    host.in_run("r1").register("s", VALUE)
    run = ok(host.consolidate())["runId"]
    assert host.contents() == ["Herons wade. The code is [REDACTED:s]. Storks nest."]

    host.undo(run)

    assert any("Storks nest" in it for it in host.contents())


@requirement("OW-69", "OW-77")
def test_a_consolidation_that_takes_too_much_memory_has_merged_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidation, "MOST_CONSOLIDATED_BYTES", 1000)
    made = ids([host.put("a"), host.put("b")])
    host.put("storks nest " * 80)
    before = state(host)

    answer = host.consolidate({"ids": made, "content": "c" * 100})

    assert refused(answer) == (422, "memory_too_large")
    assert state(host) == before
    ok(host.consolidate())  # without what is merged it is small enough


@requirement("OW-85")
def test_a_merge_with_an_awaited_tag_does_not_silence_the_commitment(host: Host) -> None:
    host.put("ship it", tags=["when:done"])
    made = ids([host.put("a one"), host.put("b two")])
    ok(host.consolidate({"ids": made, "content": "all done", "tags": ["done"]}))
    host.put("done again", tags=["done"])

    assert [it["type"] for it in events(host)].count("commitment.fired") == 1


WORDS = "heron Heron egret stork CRANE \u00e9tude e\u0301tude \u7530 7".split()
ENDS = [".", "!", "?", "\u2026", "\n", " ", ";"]
TAGS = ["a", "b", "source:x", "source:y", "run-id:1", "node:n", "workflow:w"]
KEYS, SUBJECTS = ["key:k", "key:l"], ["subject:ada", "subject:bob"]


def text_by(chance: random.Random) -> str:
    """A few sentences of few words, so that many say the same."""
    parts = list[str]()
    for _ in range(chance.choice([1, 1, 2, 3])):
        parts += [" ".join(chance.choices(WORDS[:5], k=chance.choice([1, 1, 2])))]
        parts += [chance.choice(ENDS), chance.choice([" ", " ", "  "])]
    return "".join(parts) + chance.choice(["", "", chance.choice(WORDS)])


def tags_by(chance: random.Random, *, keys: bool = True) -> list[str]:
    """Few tags, among them now and again a key, a subject or a pin."""
    tags = [it for it in TAGS if chance.random() < 0.15]
    if keys:
        tags += [it for it in KEYS if chance.random() < 0.2]
    tags += [chance.choice(SUBJECTS)] if chance.random() < 0.2 else []
    tags += ["pinned"] if chance.random() < 0.05 else []
    chance.shuffle(tags)
    return tags


def fill(host: Host, chance: random.Random, count: int, *, keys: bool = True) -> list[Json]:
    return [host.put(text_by(chance), tags=tags_by(chance, keys=keys)) for _ in range(count)]


def may_pass(entry: Json) -> bool:
    """Whether it is an input."""
    return "pinned" not in entry["tags"] and "archive" not in entry["tags"]


def left_by_the_rule(listed: list[Json]) -> list[Json]:
    """What the model of the rule leaves of a list, newest first."""
    inputs = [it for it in listed[::-1] if may_pass(it)]
    links = model(entries(*((it["content"], tuple(it["tags"])) for it in inputs)))
    gone = {inputs[older]["id"] for _, older in links}
    return [it for it in listed if it["id"] not in gone]


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(12), 3))
@requirement("OW-77", "OW-78", "OW-79", "OW-80", "OW-29", "OW-71")
def test_a_pass_leaves_what_the_rule_says_and_can_be_undone(
    service: Service, host: Host, seed: int
) -> None:
    chance, has_keys = random.Random(seed), bool(seed % 2)  # noqa: S311 - the same each time
    made = fill(host, chance, 20, keys=has_keys)
    other = replace(host, ref="other")
    fill(other, chance, 3)
    beside, before = state(other)[:2], host.entries(limit=500)
    known, left = [about(host, it["id"]) for it in before], left_by_the_rule(before)
    assert len(left) < len(before)

    answer = host.consolidate()

    payload = passed(answer, CONSOLIDATED)
    assert host.entries(limit=500) == left
    assert payload["inputCount"] == sum(map(may_pass, before))
    assert payload["outputCount"] == sum(map(may_pass, left))
    assert sorted(payload["mergedIds"]) == sorted({*ids(before)} - {*ids(left)})
    assert [ok(host.get(it["id"]))["entry"] for it in made] == made
    if not has_keys:  # then each is said by one that stays
        told = [about(host, it["id"]) for it in left]
        assert sum(it["seen"] for it in told) == len(made)
        assert all(it["seen"] == 1 + len(it["derivedFrom"]) for it in told)
    held = state(host)
    assert passed(host.consolidate(), CONSOLIDATED)["outputCount"] == payload["outputCount"]
    assert state(host) == (*held[:2], held[2] + 3)
    ok(host.undo(ok(answer)["runId"]))
    assert host.entries(limit=500) == before
    assert counted(host)[REF] == (len(made), sum(len(it["content"].encode()) for it in made))
    told = [about(host, it["id"]) for it in before]
    assert [it | {"derivedFrom": []} for it in told] == known
    assert state(other)[:2] == beside
    assert_index_is_whole(service.path)


SECRETS: dict[str, tuple[list[tuple[str, list[str]]], str | None, list[str]]] = {
    "in a tag": ([("it is here", [f"at {VALUE}"])] * 3, None, ["it is here"]),
    "in what a host merges": (
        [(f"the lock: {VALUE}", ["a"]), (f"the lock: {VALUE}", ["b"])], "a code", ["a code"]
    ),
    "in what is stale": (
        [(f"the code is {VALUE}", ["key:code"]), ("it was changed", ["key:code"])], None,
        ["it was changed"],
    ),
}  # fmt: skip


@pytest.mark.slow
@requirement("OW-81", "OW-42")
@for_each("name", SECRETS)
def test_a_secret_does_not_survive_a_pass_that_has_its_entries(service: Service, name: str) -> None:
    puts, merged, left = SECRETS[name]
    host = Host(service.http, f"of {name}")
    made = ids([host.put(text, tags=tags) for text, tags in puts])
    run = host.in_run(name)
    run.register("s", VALUE)

    ok(host.consolidate(*[{"ids": made, "content": merged}] if merged else ()))

    assert host.contents() == left
    assert not [it for it in made if VALUE in host.get(it).text]
    until(lambda: not remains(service.path.parent, VALUE))
    assert_index_is_whole(service.path)
    run.end()
