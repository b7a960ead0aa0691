"""What kept a memory out of an answer, and how far it was from it."""

from typing import Any
from uuid import uuid4

import pytest

from agentops_memory.http import query as http
from agentops_memory.memory import memories
from agentops_memory.recall import explanation, search

from ..support.service import Service


def why_not(service: Service, memory: int, path: str = "/search", **asked: Any) -> Any:
    """What an answer says of a memory, without its id."""
    if path == "/context":
        asked = {"project": "demo", **asked}
    answer = service.http.get(path, params={"why_not": memory, **asked})
    assert answer.status_code == 200, answer.text
    told = answer.json()["explain"]["why_not"]
    assert told.pop("id") == memory
    return told


def saved(service: Service, content: str, **fields: object) -> int:
    """The id of a memory in a session of its own, so that it borrows nothing."""
    return int(str(service.save(content, session_id=uuid4().hex, **fields)["id"]))


def test_what_is_deleted_is_as_unknown_as_what_never_was_and_what_is_no_id_is_refused(
    service: Service,
) -> None:
    memory = saved(service, "apple")
    service.http.delete(f"/observations/{memory}")

    for path in ("/search", "/context"):
        for unknown in (memory, 77, 0, -1, (1 << 63) - 1):
            told = why_not(service, unknown, path, q="apple", query="apple")
            assert told == {"reason": "unknown"}
        for wrong in ("x", "1.5", "1e3", str(1 << 63), "9" * 30, "٣"):
            answer = service.http.get(path, params={"why_not": wrong})
            assert answer.status_code == 400
            assert answer.json() == {"error": "why_not must be a whole number."}


def test_it_names_each_filter_that_it_does_not_pass(service: Service) -> None:
    own = saved(service, "apple", type="note", tags=["x"])
    everyones = saved(service, "apple", scope="global", project="other")
    asked = {"q": "apple", "query": "apple"}

    def filters(memory: int, path: str, **given: str) -> Any:
        told = why_not(service, memory, path, **asked, **given)
        return told.get("filters", told["reason"])

    for path in ("/search", "/context"):
        assert filters(own, path, project="demo", type="note", tag="x") == "none"
        assert filters(own, path, project="Else") == ["project"]
        assert filters(own, path, project="demo", scope="team") == ["scope"]
        assert filters(own, path, project="demo", scope="global") == ["scope"]
        assert filters(own, path, project="demo", type="n", tag="y") == ["type", "tag"]
        assert filters(everyones, path, project="demo") == "none"
        assert filters(everyones, path, project="demo", scope="global") == "none"
        assert filters(everyones, path, project="demo", scope="project") == ["project"]
        assert filters(everyones, path, project="other", scope="global", tag="x") == ["tag"]
    assert filters(own, "/search") == "none"
    assert filters(own, "/search", scope="project") == "none"
    assert filters(own, "/context", project="") == ["project"]
    assert filters(own, "/context", project="", scope="project") == ["project"]
    assert filters(own, "/context", project="", scope="global") == ["scope"]
    assert filters(everyones, "/context", project="") == "none"
    assert filters(everyones, "/context", project="", scope="team") == ["project"]


def test_a_memory_without_any_of_the_words_has_matched_none_and_the_newest_come_first(
    service: Service,
) -> None:
    pear, _, plum = (saved(service, it) for it in ("pear", "apple", "plum"))
    unmatched = {"reason": "no_matched_term"}

    for text in ("apple", "", "?!", "/"):
        assert why_not(service, pear, q=text) == unmatched
    for limit, more in ((1, {}), (2, {"older": True})):
        told = why_not(service, pear, "/context", query="apple", limit=limit)
        assert told == unmatched | more
    assert why_not(service, plum, "/context", query="fig") == {"reason": "none", "place": 1}
    for query in ("", "?!"):
        told = why_not(service, pear, "/context", query=query, limit=1)
        assert told == {"reason": "recency", "older": True}


@pytest.mark.parametrize(("path", "name"), [("/search", "q"), ("/context", "query")])
def test_a_memory_that_others_outrank_has_its_place_among_all(
    service: Service, path: str, name: str
) -> None:
    ids = [saved(service, "apple " + "and pears " * number) for number in range(9)]
    ranks = {hit["id"]: hit["rank"] for hit in service.http.get("/search?q=apple").json()}
    tier = "every" if path == "/search" else "any"

    for place in (3, 9):
        told = why_not(service, ids[place - 1], path, **{name: "apple", "limit": 2})
        assert told == {
            "reason": "rank", "tier": tier, "place": place,
            "score": pytest.approx(ranks[ids[place - 1]]),
            "last_score": pytest.approx(ranks[ids[1]]),
        }  # fmt: skip


@pytest.mark.slow
def test_the_places_of_a_search_go_through_its_tiers(service: Service) -> None:
    keyed = [saved(service, f"plum {n}", topic_key=f"apple/pear/{n}") for n in range(2)]
    both = [saved(service, f"apple pear {n}", topic_key=f"apple/pear/+{n}") for n in range(1)]
    every = [saved(service, "apple pear " + "and more " * n) for n in range(1, 3)]
    one = [saved(service, "apple " + "and more " * n) for n in range(2)]
    wanted = [*reversed([*keyed, *both]), *every, *one]

    assert [hit["id"] for hit in service.http.get("/search?q=apple/pear").json()] == wanted
    for place, memory in enumerate(wanted, start=1):
        for limit in range(1, 7):
            told = why_not(service, memory, q="apple/pear", limit=limit)
            assert told["reason"] == ("none" if place <= limit else "rank")
            assert told["place"] == place


def test_a_memory_of_which_no_sentence_is_among_the_best_has_a_score_and_no_place(
    service: Service,
) -> None:
    """The score that it would have beside no other."""
    for number in range(11):
        saved(service, f"apple {number}")
        saved(service, f"banana {number}")
    last = saved(service, "apple banana " + "and more " * 40)
    asked = {"q": "Apple none. Banana here.", "project": "demo"}
    all_ = service.http.get("/search", params={**asked, "limit": 99, "explain": "1"}).json()
    (whole,) = (hit["explain"]["score"] for hit in all_["results"] if hit["id"] == last)

    told = why_not(service, last, limit=3, **asked)

    assert (told["reason"], told["beyond_depth"], "place" in told) == ("rank", True, False)
    assert told["score"] == pytest.approx(whole)
    shown = service.http.get("/search", params={**asked, "limit": 3}).json()
    assert told["last_score"] == pytest.approx(shown[-1]["rank"])


def test_without_a_project_a_context_ranks_global_memories_alone(service: Service) -> None:
    saved(service, "apple")
    saved(service, "apple apple", scope="global")
    last = saved(service, "apple and many more words", scope="global")

    told = why_not(service, last, "/context", project="", query="apple", limit=1)

    assert (told["reason"], told["place"]) == ("rank", 2)


def test_a_memory_that_a_budget_left_out_is_said_to_be(service: Service) -> None:
    long = saved(service, "apple " * 20, title="long")
    saved(service, "apple and some", title="short")

    told = why_not(service, long, "/context", query="apple", max_chars=60)

    assert told == {"reason": "budget", "place": 1}


def test_a_memory_that_one_answer_or_one_list_cannot_hold_is_said_to_be(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [saved(service, "apple " + "and pears " * 100 * number) for number in range(5)]
    monkeypatch.setattr(http, "MAX_ANSWER", 6000)

    for path, name in (("/search", "q"), ("/context", "query")):
        asked: dict[str, Any] = {name: "apple", "project": "demo", "content_chars": 50_000}
        answer = service.http.get(path, params={**asked, "why_not": str(ids[4])})
        assert int(answer.headers["X-Results-Omitted"]) > 0
        body = answer.json()
        assert body["explain"]["why_not"] == {"id": 5, "reason": "size", "place": 5}
        shown = body["results" if path == "/search" else "recent_observations"]
        assert (body["explain"]["explained"], "explain" in shown[0]) == (0, False)
        assert why_not(service, ids[0], path, **asked) == {"reason": "none", "place": 1}
    monkeypatch.setattr(memories, "MAX_LIST", 20)
    assert why_not(service, ids[4], q="apple")["reason"] == "size"


@pytest.mark.sqlite_files
def test_a_memory_behind_very_many_has_no_place(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PLACES", 4)
    monkeypatch.setattr(explanation, "PLACES", 4)
    ids = [saved(service, "apple " + "and pears " * number) for number in range(6)]

    assert why_not(service, ids[3], q="apple", limit=1)["place"] == 4
    for text in ("apple", "apple. apple none"):
        told = why_not(service, ids[5], q=text, limit=1)
        assert sorted(told) == ["last_score", "reason", "score"]
        assert told["reason"] == "rank"
