"""Search in a ref: by words, in that ref alone, with the ranks beside the entries."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ..support.database import assert_index_is_whole
from ..support.openwop_hosts import Host, Json, faults, ok
from ..support.openwop_tenants import anew, said
from ..support.requirements import requirement
from ..support.service import Service


def found(host: Host, words: str, **query: object) -> Json:
    given = {"memoryRef": host.ref, "q": words, **query}
    answer: Json = ok(host.ask("GET", "/search", params=given))
    assert answer.keys() == {"memoryRef", "entries", "ranks"}
    assert answer["memoryRef"] == host.ref
    assert len(answer["entries"]) == len(answer["ranks"])
    assert answer["ranks"] == sorted(answer["ranks"])  # as everywhere, lower is better
    return answer


@requirement("OW-28")
def test_words_find_entries_of_the_ref_alone_the_best_first(service: Service, host: Host) -> None:
    host.put("One heron stood among very many storks and cranes by the water.")
    best = host.put("Herons, and a heron.")
    host.put("A crane.", tags=["pelican"])
    other = anew(host)
    other.put("A heron of another ref.", id="other")

    both = found(host, "heron")
    assert len(both["entries"]) == 2
    assert both["entries"][0] == best
    assert all(rank < 0 for rank in both["ranks"])
    assert said(found(host, "the pelicans")["entries"]) == ["A crane."]
    assert said(found(other, "heron crane")["entries"]) == ["A heron of another ref."]
    assert found(replace(host, ref="unknown"), "heron")["entries"] == []
    assert found(host, "zebra")["ranks"] == []
    assert found(host, '" OR * NEAR( -heron')["entries"] != []
    assert_index_is_whole(service.path)


@requirement("OW-28", "OW-20")
def test_a_search_has_ten_entries_unless_it_is_told_and_may_ask_for_a_tag(host: Host) -> None:
    for number in range(15):
        host.put(f"A heron, {number}.", tags=["odd"] if number % 2 else [])

    assert len(found(host, "heron")["entries"]) == 10
    assert len(found(host, "heron", limit=12)["entries"]) == 12
    assert len(found(host, "heron", limit=100)["entries"]) == 15
    odd = found(host, "heron", tag="odd")
    assert len(odd["entries"]) == 7
    assert all(it["tags"] == ["odd"] for it in odd["entries"])
    assert found(host, "heron", tag="ODD")["entries"] == []
    for wrong in ({"limit": "x"}, {"limit": "-1"}, {"tag": "t" * 257}):
        given = {"memoryRef": host.ref, "q": "heron", **wrong}
        assert faults(host.ask("GET", "/search", params=given)) == [*wrong]


@requirement("OW-28", "OW-23")
def test_another_refs_words_and_deletions_have_no_part_in_a_rank(host: Host) -> None:
    host.put("A heron.")
    before = found(host, "heron")
    doomed = host.put("A heron, and a heron.")
    for _ in range(3):
        anew(host).put("A heron; herons.")
    ok(host.delete(doomed["id"]))

    after = found(host, "heron")

    assert after["entries"] == before["entries"]
    assert after["ranks"][0] < 0


@pytest.mark.slow
@requirement("OW-28", "OW-29")
def test_what_racing_writers_have_put_is_found(service: Service, host: Host) -> None:
    start = threading.Barrier(6)

    def write(number: int) -> None:
        start.wait()
        for turn in range(4):
            made = host.put(f"A heron {number} {turn}.")
            if turn % 2:
                ok(host.delete(made["id"]))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))

    wanted = sorted(f"A heron {number} {turn}." for number in range(6) for turn in (0, 2))
    assert sorted(said(found(host, "heron", limit=100)["entries"])) == wanted
    assert_index_is_whole(service.path)
