"""Laws of consolidation over corpora by chance; limits of what a pass reads."""

import random

import pytest

from ..support.database import assert_index_is_whole
from ..support.openwop_corpora import (
    assert_nothing_is_left,
    assert_nothing_is_lost,
    counts,
    fill,
    may_pass,
    subjects_of,
    tally,
    text_by,
)
from ..support.openwop_hosts import REF, Host, Json, ok, refused
from ..support.openwop_passes import CONSOLIDATED, about, events, ids, of_type, passed, state
from ..support.openwop_tenants import anew, counted
from ..support.requirements import requirement
from ..support.samples import sampled
from ..support.service import Service


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
