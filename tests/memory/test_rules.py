"""The rules that hold for every request: JSON, text, parameters, times."""

import json

from ..support.requirements import requirement
from ..support.service import Service, observation

SESSION = {"id": "s1", "project": "demo"}


@requirement("agentops:json:any-content-type")
def test_json_is_read_whatever_the_content_type_says(service: Service) -> None:
    types = [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "?"]

    for type_ in types:
        headers = {"Content-Type": type_} if type_ else {}
        answer = service.http.post("/sessions", content=json.dumps(SESSION), headers=headers)
        assert answer.status_code == 201
        assert answer.headers["Content-Type"] == "application/json"


@requirement("agentops:json:null-is-absent", "agentops:json:absent-values")
def test_null_is_the_same_as_absent(service: Service) -> None:
    absent = dict.fromkeys(["tags", "scope", "topic_key"])
    saved = service.save("one", **absent)
    tagged = service.save("two", tags=["a", None, "b"])
    required = dict.fromkeys(["session_id", "type", "title", "content", "project"])
    refused = service.http.post("/observations", json=required)
    ended = service.http.post("/sessions/s1/end", json={"messages": None})

    shown = service.http.get(f"/observations/{saved['id']}").json()
    assert shown.keys() == {
        "id", "session_id", "type", "title", "content", "project", "scope", "normalized_hash",
        "revision_count", "duplicate_count", "last_seen_at", "created_at", "updated_at",
    }  # fmt: skip
    assert shown["scope"] == "project"
    assert service.http.get(f"/observations/{tagged['id']}").json()["tags"] == ["a", "b"]
    assert refused.json()["error"].count("is required") == len(required)
    assert ended.json() == {"session_id": "s1", "summary": "", "message_count": 0}


@requirement("agentops:json:unknown-fields")
def test_unknown_fields_are_ignored(service: Service) -> None:
    unknown = {"id": 9, "nested": [{"deep": [1]}], "uid": "x", "created_at": 1}
    unreadable = json.dumps(SESSION | {"\ud800": "\ud800"})
    message = {"role": "user", "content": "hi", "tool_calls": [{}]}

    assert service.save("one", **unknown)["id"] == 1
    assert service.http.post("/sessions", json=SESSION | {"started_at": 5}).status_code == 201
    assert service.http.post("/sessions", content=unreadable).status_code == 201
    assert service.http.patch("/observations/1", json=unknown).json()["revision_count"] == 1
    ended = service.http.post("/sessions/s1/end", json={"messages": [message], "x": [1]})
    assert ended.json()["message_count"] == 1


@requirement("agentops:json:numbers-for-strings")
def test_numbers_for_strings_are_refused_by_name(service: Service) -> None:
    names = ["session_id", "type", "title", "content", "project", "scope", "topic_key"]
    answer = service.http.post("/observations", json=dict.fromkeys(names, 5) | {"tags": [1]})
    listed = service.http.post("/observations", json=observation("one", tags="a"))
    message = service.http.post("/sessions/s1/end", json={"messages": [{"content": 5}]})

    assert answer.status_code == 400
    assert {f"{name} must be a string" for name in [*names, "tags[0]"]} == set(
        answer.json()["error"].removeprefix("validation failed: ").split("; ")
    )
    assert listed.json() == {"error": "validation failed: tags must be a list"}
    assert message.json() == {"error": "validation failed: messages[0].content must be a string"}


@requirement("agentops:json:empty-lists", "agentops:json:malformed")
def test_empty_lists_are_lists_and_malformed_json_is_refused_with_a_sentence(
    service: Service,
) -> None:
    for path in ("/sessions/recent", "/observations/recent", "/search?q=word"):
        assert service.http.get(path).text == "[]"
    assert service.http.get("/context?project=demo").json() == {
        "recent_sessions": [],
        "recent_observations": [],
    }
    assert service.http.get("/stats").json()["projects"] == []

    for path in ("/sessions", "/observations", "/sessions/s1/end", "/observations/1/restore"):
        for body in (b"{", b"[]", b'{"id":1}}', b"\x00", b'"text"', b"{'id': 1}"):
            answer = service.http.post(path, content=body)
            assert answer.status_code == 400
            assert answer.json()["error"].startswith("invalid JSON: ")


@requirement("agentops:text:replacement")
def test_what_is_no_text_becomes_the_replacement_character(service: Service) -> None:
    body = json.dumps(observation("-")).replace('"content": "-"', '"content": "a \\ud800 b"')
    service.http.post("/observations", content=body)
    cut = body.encode().replace(b"a \\ud800 b", "naïve é".encode()[:-1])
    service.http.post("/observations", content=cut)
    pair = body.encode().replace(b"\\ud800", b"\\ud83d\\ude00")
    service.http.post("/observations", content=pair)

    assert [row["content"] for row in service.http.get("/observations/recent").json()] == [
        "a 😀 b", "naïve \ufffd", "a \ufffd b",
    ]  # fmt: skip


@requirement("agentops:text:nul")
def test_nul_becomes_the_replacement_character_everywhere(service: Service) -> None:
    nul = {"session_id": "s\0", "type": "t\0", "title": "a\0", "project": "p\0", "scope": "o\0"}
    saved = service.save("c\0", topic_key="k\0", tags=["g\0"], **nul)
    shown = service.http.get(f"/observations/{saved['id']}").json()
    row = service.http.post("/sessions/s%00/end").json()
    found = service.http.get("/observations/recent", params={"project": "P\0", "tag": "g\0"}).json()

    texts = ("session_id", "type", "title", "content", "project", "scope", "topic_key")
    assert [shown[name] for name in texts] == [f"{c}\ufffd" for c in "stacpok"]
    assert shown["tags"] == ["g\ufffd"]
    assert row["session_id"] == "s\ufffd"
    assert found == [shown]


@requirement("agentops:parameters:first-counts")
def test_the_first_of_repeated_parameters_counts(service: Service) -> None:
    for number in range(3):
        service.save(f"word {number}", project=f"p{number}")

    lists = service.http.get("/observations/recent?project=p1&project=p2&limit=1&limit=x").json()
    found = service.http.get("/search?q=2&q=0&project=p2&project=p0").json()
    assert [row["content"] for row in lists] == ["word 1"]
    assert [row["content"] for row in found] == ["word 2"]


@requirement("agentops:parameters:empty-is-unset")
def test_an_empty_parameter_is_an_unset_one(service: Service) -> None:
    service.save("word", type="decision", scope="team", tags=["a"], project="p")
    query = "project=&type=&scope=&tag=&limit=&before_id=&hard="

    assert len(service.http.get(f"/observations/recent?{query}").json()) == 1
    assert len(service.http.get(f"/search?q=word&{query}").json()) == 1
    assert len(service.http.get(f"/sessions/recent?{query}").json()) == 1
    assert service.http.get(f"/stats?{query}").json()["total_observations"] == 1
    assert service.http.get(f"/search?q=&{query}").json() == []
    assert len(service.http.get("/timeline?observation_id=1&before=&after=").json()) == 1
    service.http.delete("/observations/1?hard=")
    assert service.http.get("/observations/1/history").status_code == 200


@requirement("agentops:times:whole-seconds", "agentops:times:order-kept")
def test_times_are_whole_seconds_but_the_order_inside_one_is_kept(service: Service) -> None:
    service.clock.advance(microseconds=900_000)
    for name in ("first", "second", "third"):
        service.http.post("/sessions", json={"id": name, "project": "demo"})
        service.save(name, session_id=name)
        service.clock.advance(microseconds=1)
    service.clock.advance(microseconds=-2)
    service.save("same instant as the second", session_id="late")

    rows = service.http.get("/observations/recent").json()
    sessions = service.http.get("/sessions/recent").json()
    assert {row["created_at"] for row in rows} == {"2030-01-01T12:00:00Z"}
    assert {row["started_at"] for row in sessions} == {"2030-01-01T12:00:00Z"}
    assert [row["session_id"] for row in rows] == ["third", "late", "second", "first"]
    assert [row["id"] for row in sessions] == ["third", "late", "second", "first"]
