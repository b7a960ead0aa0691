"""What an observation said before, and bringing it back."""

import pytest

from ..support.engines import rows
from ..support.files import assert_index_is_whole
from ..support.openintent_agents import Agent, ok as done
from ..support.requirements import requirement
from ..support.service import Service
from ..support.stores import entry, redact, store, update, versions


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


STORED = "SELECT count(*) FROM revisions"


def test_an_entry_of_an_agent_has_no_rows(service: Service) -> None:
    ada = Agent(service.http)

    done(ada.patch(ada.make(), value={"colour": "red"}))

    assert rows(service.path, STORED) == [(0,)]


def test_a_memory_has_rows_once_it_was_changed_and_counts_as_one_revision_until_then(
    service: Service,
) -> None:
    for number in range(3):
        service.save(f"apple {number}", project="going")
    assert rows(service.path, STORED) == [(0,)]
    assert service.http.patch("/observations/1", json={"content": "pear"}).is_success
    assert rows(service.path, STORED) == [(2,)]
    plan = service.http.delete("/projects/going?hard=true&dry_run=true").json()

    receipt = service.http.delete("/projects/going?hard=true").json()

    assert (plan["revisions"], receipt["observations"], receipt["revisions"]) == (4, 3, 4)


def test_text_that_a_redacted_version_has_lost_does_not_come_back(service: Service) -> None:
    home = store(service.http)
    made = entry(service.http, home, "a", "zanzibar")
    (version,) = versions(service.http, home)
    redact(service.http, home, version)

    update(service.http, home, made, "open")

    texts = rows(service.path, "SELECT number, content FROM revisions ORDER BY number")
    assert texts == [(1, ""), (2, None)]


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
