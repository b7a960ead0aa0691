"""Laws of consolidation over corpora by chance; limits of what a pass reads."""

import random
import re
import unicodedata
from collections import Counter
from typing import Any

import pytest

from ..support.database import assert_index_is_whole
from ..support.openwop_hosts import REF, Host, Json, ok, refused
from ..support.openwop_passes import CONSOLIDATED, about, events, ids, of_type, passed, state
from ..support.openwop_tenants import anew, counted
from ..support.requirements import requirement
from ..support.samples import sampled
from ..support.service import Service

WORDS = "heron Heron egret stork CRANE \u00e9tude e\u0301tude \u7530 7".split()
ENDS = [".", "!", "?", "\u2026", "\n", " ", ";"]
TAGS = ["a", "b", "source:x", "source:y", "run-id:1", "node:n", "workflow:w"]
KEYS, SUBJECTS = ["key:k", "key:l"], ["subject:ada", "subject:bob"]
BY_THE_WAY = ("source:", "run-id:", "node:", "workflow:")  # tags that do not tell apart

Units = frozenset[tuple[str, ...]]


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


def units(text: str) -> Units:
    """What a text says, sentence by sentence, as the words of each."""
    found = list[tuple[str, ...]]()
    for line in text.splitlines():
        parts = re.split(r"(?<=[.!?\u2026])\s+|(?<=[\u3002\uff01\uff1f])", line)
        found += [_words(it) for it in parts]
    return frozenset(it for it in found if it)


def _words(unit: str) -> tuple[str, ...]:
    folded = unicodedata.normalize("NFKC", unit).casefold()
    signs = [it if unicodedata.category(it)[0] in "LNM" else " " for it in folded]
    return tuple("".join(signs).split())


def told_apart_by(entry: Json) -> frozenset[str]:
    """The tags that entries must share to be one."""
    return frozenset(it for it in entry["tags"] if not it.startswith(BY_THE_WAY))


def keys_of(entry: Json) -> set[str]:
    return {it for it in entry["tags"] if it.startswith("key:")}


def subjects_of(entry: Json) -> set[str]:
    return {it for it in entry["tags"] if it.startswith("subject:")}


def may_pass(entry: Json) -> bool:
    """Whether it is an input."""
    return "pinned" not in entry["tags"] and "archive" not in entry["tags"]


def is_said_by(entry: Json, other: Json) -> bool:
    """Whether the other one says all of it, of the same."""
    alike = told_apart_by(entry) == told_apart_by(other)
    return alike and units(entry["content"]) <= units(other["content"])


def assert_nothing_is_lost(before: list[Json], after: list[Json]) -> None:
    """What is listed no more is said by one that is, or newer ones hold its keys; newest first."""
    place = {it["id"]: number for number, it in enumerate(before)}
    listed = {it["id"] for it in after}
    for entry in before:
        if entry["id"] in listed:
            continue
        assert may_pass(entry), entry
        newer = [it for it in after if place[it["id"]] < place[entry["id"]]]
        keys = keys_of(entry)
        is_stale = bool(keys) and all(any(key in it["tags"] for it in newer) for key in keys)
        assert is_stale or any(is_said_by(entry, it) for it in after if may_pass(it)), entry


def assert_nothing_is_left(after: list[Json]) -> None:
    """No two of what is listed say the same; none is stale but for one of another subject."""
    inputs = [it for it in after if may_pass(it)]
    for place, entry in enumerate(inputs):
        others = inputs[:place] + inputs[place + 1 :]
        # What has no word in it says nothing: whether that is said by another is not told.
        if units(entry["content"]):
            assert not any(is_said_by(entry, it) for it in others), entry
        keys, newer = keys_of(entry), inputs[:place]
        rivals = [it for it in newer if subjects_of(it) == subjects_of(entry)]
        assert not keys or not all(any(key in it["tags"] for it in rivals) for key in keys), entry


def tally(before: list[Json], after: list[Json]) -> Counter[str]:
    """How many inputs there were, and are."""
    return Counter(
        {"inputCount": sum(map(may_pass, before)), "outputCount": sum(map(may_pass, after))}
    )


def counts(payload: Json) -> dict[str, Any]:
    return {it: payload[it] for it in ("inputCount", "outputCount")}


def chance_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - the same each time


def size_of(entries: list[Json]) -> tuple[int, int]:
    return len(entries), sum(len(it["content"].encode()) for it in entries)


def consolidated(host: Host, before: list[Json]) -> str:
    """The run of a pass that has kept the law, and of which a second one leaves all as it is."""
    answer = host.consolidate()
    payload, after = passed(answer, CONSOLIDATED), host.entries(limit=500)
    assert counts(payload) == tally(before, after)
    assert payload["outputCount"] <= payload["inputCount"]
    gone = {*ids(before)} - {*ids(after)}
    assert {*payload.get("mergedIds", [])} == gone
    assert [it for it in before if it["id"] not in gone] == after
    assert_nothing_is_lost(before, after)
    assert_nothing_is_left(after)
    told = len(events(host))
    known = [about(host, it["id"]) for it in after]
    again = passed(host.consolidate(), CONSOLIDATED)
    assert counts(again) == {it: len([*filter(may_pass, after)]) for it in counts(again)}
    assert state(host) == (after, counted(host).get(host.ref), told + 3)
    assert [about(host, it["id"]) for it in after] == known
    return str(ok(answer)["runId"])


@pytest.mark.heavy
@pytest.mark.parametrize("seed", sampled(range(12), 3))
@requirement("OW-77", "OW-78", "OW-79", "OW-80", "OW-29", "OW-71")
def test_no_word_is_lost_and_all_can_be_undone(service: Service, host: Host, seed: int) -> None:
    chance = chance_of(seed)
    made = fill(host, chance, chance.choice([2, 8, 20, 35]))
    other = Host(host.http, "other")
    fill(other, chance, 3)
    beside, before = state(other)[:2], host.entries(limit=500)
    assert before == made[::-1]
    known = [about(host, it["id"]) for it in before]
    service.clock.advance(seconds=chance.choice([0, 60]))

    run = consolidated(host, before)

    assert counted(host)[REF] == size_of(made)
    after = host.entries(limit=500)
    for entry in made:
        assert ok(host.get(entry["id"]))["entry"] == entry
        for taker in about(host, entry["id"]).get("supersededBy", []):
            holder = next(it for it in made if it["id"] == taker)
            assert subjects_of(holder) == subjects_of(entry)
    if len(after) < len(before):
        ok(host.undo(run))
    assert host.entries(limit=500) == before
    assert counted(host)[REF] == size_of(made)
    told = [about(host, it["id"]) for it in before]
    assert [it | {"derivedFrom": []} for it in told] == known
    assert state(other)[:2] == beside
    assert_index_is_whole(service.path)


@pytest.mark.representative(2)
@pytest.mark.parametrize("seed", range(4))
@requirement("OW-80", "OW-78")
def test_what_stays_counts_each_that_it_took_in(host: Host, seed: int) -> None:
    chance = chance_of(1000 + seed)
    made = fill(host, chance, 25, keys=False)

    host.consolidate()

    told = [about(host, it["id"]) for it in host.entries(limit=500)]
    assert sum(it["seen"] for it in told) == len(made)
    taken = [it for one in told for it in one["derivedFrom"]]
    assert sorted(taken) == sorted({*ids(made)} - {*ids(host.entries(limit=500))})
    assert all(it["seen"] == 1 + len(it["derivedFrom"]) for it in told)


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("seed", range(3))
@requirement("OW-77", "OW-78", "OW-71", "OW-29")
def test_corpora_that_grow_are_consolidated_again_and_undone_in_turn(
    service: Service, host: Host, seed: int
) -> None:
    chance, states, runs = chance_of(2000 + seed), list[object](), list[tuple[str, list[Json]]]()
    for _ in range(4):
        service.clock.advance(seconds=1)
        new = fill(host, chance, 8)
        before = host.entries(limit=500)
        states.append((before, counted(host)))
        run = consolidated(host, before)
        runs.append((run if len(host.entries(limit=500)) < len(before) else "", new))

    for run, new in runs[::-1]:
        if run:
            ok(host.undo(run))
        assert (host.entries(limit=500), counted(host)) == states.pop()
        for entry in new:
            ok(host.delete(entry["id"]))
    assert host.entries() == []


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("seed", range(3))
@requirement("OW-66", "OW-71", "OW-73", "OW-29")
def test_passes_of_all_kinds_keep_counts_exact(service: Service, host: Host, seed: int) -> None:
    chance, at = chance_of(3000 + seed), anew(host)
    held, runs = dict[str, str](), list[str]()
    for _ in range(25):
        service.clock.advance(seconds=1)
        match chance.choice(["put", "put", "put", "pass", "pass", "undo", "delete"]):
            case "put":
                entry = at.put(text_by(chance))
                held[entry["id"]] = entry["content"]
            case "pass":
                work = chance.choice([at.compact, at.distill, at.consolidate])
                answer = work()
                if answer.status_code == 200:
                    runs.append(ok(answer)["runId"])
                else:
                    assert refused(answer)[1].startswith("nothing_to_")
            case "undo" if runs:
                undone = at.undo(runs.pop(chance.randrange(len(runs))))
                assert undone.status_code == 200 or refused(undone)[0] == 409
            case "delete" if entries := at.entries():
                ok(at.delete(chance.choice(entries)["id"]))
        held |= {it["id"]: it["content"] for it in at.entries(limit=500)}
        held = {it: text for it, text in held.items() if at.get(it).status_code == 200}
        size = sum(len(it.encode()) for it in held.values())
        assert counted(at).get(at.ref, (0, 0)) == (len(held), size)
    assert_index_is_whole(service.path)
    told = [it["sequence"] for it in events(host)]
    assert told == [0, 1, 2] * (len(told) // 3)


@pytest.mark.slow
@requirement("OW-66", "OW-69")
def test_a_compaction_takes_the_oldest_500(host: Host) -> None:
    made = [host.put(f"heron {number}") for number in range(502)]

    payload = passed(host.compact())

    assert payload["sourceCount"] == 500
    assert about(host, payload["outputId"])["derivedFrom"] == ids(made[:500])
    assert ids(host.entries()) == [payload["outputId"], made[501]["id"], made[500]["id"]]
    assert ok(host.undo(about(host, payload["outputId"])["writtenBy"]["runId"]))["restored"] == 500
    assert host.entries(limit=500) == made[:1:-1]


@pytest.mark.heavy
@requirement("OW-77")
def test_a_ref_that_is_too_large_is_refused_whole(host: Host) -> None:
    for number in range(257):
        host.put(f"heron{number:03} " + "stork " * 10_921 + ".")
    before = counted(host)

    assert refused(host.consolidate()) == (422, "memory_too_large")

    assert counted(host) == before
    assert of_type(host, CONSOLIDATED) == []
    ok(host.delete(host.entries(limit=1)[0]["id"]))
    assert passed(host.consolidate(), CONSOLIDATED)["inputCount"] == 256
