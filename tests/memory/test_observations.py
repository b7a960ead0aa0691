"""Observations: read, listed, changed."""

import hashlib

from ..support.files import assert_index_is_whole
from ..support.requirements import requirement
from ..support.service import Service

FULL = {
    "id": 1, "session_id": "s1", "type": "decision", "title": "Use WAL",
    "content": "Readers never wait.", "tags": ["sqlite", "a b"], "project": "demo", "scope": "team",
    "topic_key": "db/journal",
    "normalized_hash": hashlib.sha256(b"readers never wait.").hexdigest(), "revision_count": 1,
    "duplicate_count": 1, "last_seen_at": "2030-01-01T12:00:00Z",
    "created_at": "2030-01-01T12:00:00Z", "updated_at": "2030-01-01T12:00:00Z",
}  # fmt: skip


@requirement("agentops:observations:get", "agentops:observations:recent")
def test_an_observation_is_shown_in_full(service: Service) -> None:
    _save_full(service)

    assert service.http.get("/observations/1").json() == FULL
    assert service.http.get("/observations/recent").json() == [FULL]


@requirement("agentops:observations:get")
def test_an_id_that_is_unknown_is_404_and_one_that_is_no_number_400(service: Service) -> None:
    service.save("one")
    service.http.delete("/observations/1")

    for id_ in ("1", "2", "0", "-1", "9223372036854775807"):
        _assert_refused(service, id_, 404)
    for id_ in ("abc", "1.0", "1e3", "0x1", "%EF%BC%91", "1%20", "9223372036854775808", "9" * 5000):
        _assert_refused(service, id_, 400)


@requirement("agentops:observations:recent")
def test_observations_are_listed_newest_first_by_what_is_asked(service: Service) -> None:
    service.save("a", type="decision", tags=["x", "y"])
    service.save("b", scope="team", tags=["x"])
    service.save("c", project="other", tags=["xy"])
    service.save("d", type="decision", scope="team")

    asked = {
        "": "dcba", "project=demo": "dba", "type=decision": "da", "scope=team": "db",
        "scope=project": "ca", "tag=x": "ba", "tag=X": "", "tag=%5B%22x": "",
        "project=demo&type=decision&scope=team": "d", "project=demo&limit=2": "db",
        "project=nobody": "",
    }  # fmt: skip
    for query, contents in asked.items():
        rows = service.http.get(f"/observations/recent?{query}").json()
        assert "".join(row["content"] for row in rows) == contents, query


@requirement("agentops:observations:patch", "agentops:observations:patch-counts")
def test_a_patch_changes_the_parts_given(service: Service) -> None:
    _save_full(service)
    service.clock.advance(hours=1)
    answer = service.http.patch("/observations/1", json={"title": "Use a log", "tags": ["new"]})

    assert answer.status_code == 200
    changed = {"revision_count": 2, "updated_at": "2030-01-01T13:00:00Z"}
    assert answer.json() == FULL | {"title": "Use a log", "tags": ["new"]} | changed
    assert service.http.get("/observations/1").json() == answer.json()
    cleared = service.http.patch("/observations/1", json={"tags": []}).json()
    assert ("tags" in cleared, cleared["revision_count"]) == (False, 3)
    assert service.http.get("/observations/recent?tag=new").json() == []
    assert service.http.patch("/observations/1", json={"tags": []}).json()["revision_count"] == 3


@requirement("agentops:observations:patch", "agentops:save:hash-normalized")
def test_a_patched_content_has_its_own_hash_and_is_found(service: Service) -> None:
    service.save("old words", title="t")
    service.http.patch("/observations/1", json={"content": "NEW  words", "type": "decision"})
    again = service.save("new WORDS", title="t", type="decision")

    assert again["action"] == "deduplicated"
    assert service.http.get("/search?q=old").json() == []
    assert [hit["id"] for hit in service.http.get("/search?q=new").json()] == [1]
    assert_index_is_whole(service.path)


@requirement("agentops:observations:patch-counts", "agentops:json:null-is-absent")
def test_a_patch_that_changes_nothing_leaves_no_trace(service: Service) -> None:
    _save_full(service)
    service.clock.advance(hours=1)
    same = {name: FULL[name] for name in ("type", "title", "content", "tags")}

    ignored = {"scope": "global", "project": "other"}
    for body in ({}, same, {"title": FULL["title"]}, ignored, dict.fromkeys(same)):
        assert service.http.patch("/observations/1", json=body).json() == FULL
    assert len(service.http.get("/observations/1/history").json()) == 1


@requirement("agentops:observations:patch")
def test_a_patch_to_a_blank_text_is_refused(service: Service) -> None:
    service.save("one")
    answer = service.http.patch("/observations/1", json={"title": " ", "content": "", "type": "\n"})

    assert answer.status_code == 400
    assert answer.json() == {
        "error": "validation failed: type is required; title is required; content is required"
    }
    assert service.http.get("/observations/1").json()["revision_count"] == 1


@requirement("agentops:observations:patch", "agentops:fault:patch-missing")
def test_a_patch_of_what_is_not_there_is_404(service: Service) -> None:
    service.save("one")
    service.http.delete("/observations/1")

    for id_ in ("1", "2"):
        answer = service.http.patch(f"/observations/{id_}", json={"title": "x"})
        assert answer.status_code == 404
        assert answer.json() == {"error": "No such observation."}
    assert service.http.patch("/observations/x", json={}).status_code == 400


def _save_full(service: Service) -> None:
    fields = ("session_id", "type", "title", "tags", "scope", "topic_key")
    service.save("Readers never wait.", **{name: FULL[name] for name in fields})


def _assert_refused(service: Service, id_: str, status: int) -> None:
    http, path = service.http, f"/observations/{id_}"
    answers = [http.get(path), http.patch(path, json={"title": "x"})]
    if id_ != "1":  # a deleted observation keeps its history
        answers += [http.get(f"{path}/history"), http.post(f"{path}/restore", json={"revision": 1})]
    if status == 400:
        answers.append(http.delete(path))
    for answer in answers:
        assert (answer.status_code, answer.json().keys()) == (status, {"error"}), answer.url
