"""Deleting: soft, hard, again and again, and the index stays whole."""

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
    service.clock.advance(hours=1)
    service.http.delete("/observations/1")
    assert service.http.get("/observations/1/history").json() == kept.json()
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
