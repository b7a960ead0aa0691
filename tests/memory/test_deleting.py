"""Deleting: soft, hard, again and again, and the index stays whole."""

from itertools import permutations

import pytest

from ..support.database import assert_index_is_whole
from ..support.requirements import requirement
from ..support.service import Service

SOFT, HARD = "", "?hard=true"


@requirement("agentops:observations:delete")
def test_a_deleted_observation_is_seen_nowhere(service: Service) -> None:
    service.save("a word", scope="global", topic_key="a/b")
    service.save("neighbour")

    for how in (SOFT, HARD):
        answer = service.http.delete(f"/observations/1{how}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert service.http.get("/observations/1").status_code == 404
        assert [row["id"] for row in service.http.get("/observations/recent").json()] == [2]
        assert service.http.get("/search?q=word").json() == []
        assert service.http.get("/search?q=a/b").json() == []
        context = service.http.get("/context?project=demo&query=word").json()
        assert [row["title"] for row in context["recent_observations"]] == ["neighbour"]
        assert service.http.get("/timeline?observation_id=1").status_code == 404
        around = service.http.get("/timeline?observation_id=2").json()
        assert [row["id"] for row in around] == [2]
        assert service.http.get("/stats").json()["total_observations"] == 1


@requirement("agentops:observations:delete")
def test_a_soft_deletion_keeps_the_history_and_a_hard_one_nothing(service: Service) -> None:
    service.save("one")
    service.http.delete("/observations/1")
    kept = service.http.get("/observations/1/history")
    service.http.delete("/observations/1?hard=true")
    gone = service.http.get("/observations/1/history")

    assert (kept.status_code, len(kept.json())) == (200, 2)
    assert gone.status_code == 404
    assert service.http.post("/observations/1/restore", json={"revision": 1}).status_code == 404
    assert service.save("two")["id"] == 2


@requirement("agentops:observations:delete")
def test_a_deletion_of_what_is_not_there_is_no_error(service: Service) -> None:
    for id_ in ("1", "-1", "9223372036854775807"):
        for how in (SOFT, HARD):
            assert service.http.delete(f"/observations/{id_}{how}").status_code == 204


@requirement("agentops:observations:delete")
def test_a_second_deletion_leaves_no_trace(service: Service) -> None:
    service.save("one")
    service.http.delete("/observations/1")
    once = service.http.get("/observations/1/history").json()
    service.clock.advance(hours=1)
    service.http.delete("/observations/1")

    assert service.http.get("/observations/1/history").json() == once


@pytest.mark.slow
@requirement("agentops:observations:delete-keeps-index", "agentops:fault:repeated-deletes")
def test_no_order_of_deletions_harms_the_index(service: Service) -> None:
    service.save("the word stays")
    orders = {tuple(order) for order in permutations([SOFT, SOFT, HARD, HARD])}

    for number, order in enumerate(sorted(orders)):
        id_ = service.save(f"word {number}", topic_key="k")["id"]
        for how in order:
            service.http.delete(f"/observations/{id_}{how}")
            assert_index_is_whole(service.path)
    assert [hit["id"] for hit in service.http.get("/search?q=word").json()] == [1]


@requirement("agentops:observations:delete-keeps-index")
def test_changes_between_deletions_do_not_harm_the_index(service: Service) -> None:
    for turn in range(3):
        id_ = service.save(f"first words {turn}", topic_key="k")["id"]
        service.http.patch(f"/observations/{id_}", json={"content": "other words", "title": "x"})
        service.http.delete(f"/observations/{id_}")
        service.http.patch(f"/observations/{id_}", json={"content": "lost words"})
        service.http.post(f"/observations/{id_}/restore", json={"revision": 1})
        service.save("second words", topic_key="k")
        service.http.delete(f"/observations/{id_}")
        assert_index_is_whole(service.path)

    assert service.http.get("/search?q=words").json() == []
