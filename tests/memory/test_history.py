"""What an observation said before, and bringing it back."""

import pytest

from ..support.files import assert_index_is_whole
from ..support.requirements import requirement
from ..support.service import Service


@requirement("agentops:observations:history")
def test_every_change_is_a_revision_newest_first(service: Service) -> None:
    service.save("one", topic_key="k", tags=["a"])
    service.clock.advance(seconds=1)
    service.save("two", topic_key="k", title="Two")
    service.clock.advance(seconds=1)
    service.http.patch("/observations/1", json={"type": "decision"})
    service.clock.advance(seconds=1)
    service.http.delete("/observations/1")

    at = "2030-01-01T12:00:0{}Z".format
    one = {"type": "discovery", "title": "one", "content": "one", "tags": ["a"]}
    two = {"type": "discovery", "title": "Two", "content": "two"}
    assert service.http.get("/observations/1/history").json() == [
        {"revision": 4, "action": "deleted", "created_at": at(3)},
        {"revision": 3, "action": "updated", "created_at": at(2)} | two | {"type": "decision"},
        {"revision": 2, "action": "updated", "created_at": at(1)} | two,
        {"revision": 1, "action": "created", "created_at": at(0)} | one,
    ]


@pytest.mark.slow
@requirement("agentops:observations:history")
def test_the_newest_hundred_revisions_are_kept(service: Service) -> None:
    for number in range(1, 104):
        service.save(f"turn {number}", topic_key="k")

    rows = service.http.get("/observations/1/history").json()
    assert [row["revision"] for row in rows] == list(range(103, 3, -1))
    assert [row["content"] for row in rows] == [f"turn {row['revision']}" for row in rows]
    assert _restored(service, 3) == 404
    assert _restored(service, 4) == 200


@requirement("agentops:observations:restore")
def test_a_restored_revision_is_a_new_one(service: Service) -> None:
    service.save("old words", topic_key="k", tags=["a"])
    service.save("new words", topic_key="k")
    service.clock.advance(hours=1)
    answer = service.http.post("/observations/1/restore", json={"revision": 1})

    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["content"], shown["tags"], shown["revision_count"]) == ("old words", ["a"], 3)
    assert shown["updated_at"] == "2030-01-01T13:00:00Z"
    assert service.http.get("/observations/1").json() == shown
    assert service.http.get("/search?q=new").json() == []
    assert len(service.http.get("/search?q=old").json()) == 1
    assert len(service.http.get("/observations/1/history").json()) == 3
    assert_index_is_whole(service.path)


@requirement("agentops:observations:restore")
def test_a_deleted_observation_comes_back_and_not_as_deleted(service: Service) -> None:
    service.save("one", topic_key="k")
    service.http.delete("/observations/1")
    assert _restored(service, 2) == 404
    assert service.http.get("/observations/1").status_code == 404
    answer = service.http.post("/observations/1/restore", json={"revision": 1})

    assert answer.status_code == 200
    assert answer.json()["revision_count"] == 3
    assert service.http.get("/observations/1").json() == answer.json()
    assert len(service.http.get("/search?q=one").json()) == 1
    assert service.save("two", topic_key="k")["id"] == 1
    assert_index_is_whole(service.path)


@requirement("agentops:observations:restore")
def test_a_taken_topic_key_is_a_conflict_and_changes_nothing(service: Service) -> None:
    service.save("one", topic_key="k")
    service.http.delete("/observations/1")
    service.save("two", topic_key="k")
    answer = service.http.post("/observations/1/restore", json={"revision": 1})

    assert answer.status_code == 409
    assert answer.json() == {"error": "Another observation has this topic key now."}
    assert [row["id"] for row in service.http.get("/observations/recent").json()] == [2]
    service.http.delete("/observations/2")
    assert _restored(service, 1) == 200
    assert_index_is_whole(service.path)


@requirement("agentops:observations:restore")
def test_what_is_no_revision_is_refused(service: Service) -> None:
    service.save("one")

    wrong: list[object] = [True, 1.0, "1", [], {}, 0, -1, 2**53 + 1, None]
    for revision in wrong:
        assert _restored(service, revision) == 400, revision
    assert service.http.post("/observations/1/restore", json={}).json() == {
        "error": "validation failed: revision is required"
    }
    assert service.http.post("/observations/1/restore", json={"revision": 0}).json() == {
        "error": "validation failed: revision must be 1 or more"
    }
    assert _restored(service, 2) == 404
    assert _restored(service, 2**53) == 404
    assert service.http.get("/observations/1").json()["revision_count"] == 1


def _restored(service: Service, revision: object) -> int:
    body = {"revision": revision}
    return service.http.post("/observations/1/restore", json=body).status_code
