"""Limits: at the limit all is well; one over, the answer names the field."""

from ..support.requirements import requirement
from ..support.service import Service, observation

LIMITS = {
    "session_id": 500, "type": 50, "title": 500, "content": 50_000, "project": 200, "scope": 50,
    "topic_key": 200,
}  # fmt: skip
WIDE = "😀"  # one character, four bytes


@requirement("agentops:limits:characters")
def test_texts_at_their_limits_are_stored_whole(service: Service) -> None:
    texts = {name: WIDE * limit for name, limit in LIMITS.items()}
    tags = [f"{number:02}" + WIDE * 98 for number in range(20)]
    answer = service.http.post("/observations", json=texts | {"tags": tags})

    assert answer.status_code == 201
    stored = service.http.get("/observations/1").json()
    assert {name: stored[name] for name in texts} == texts
    assert stored["tags"] == tags


@requirement("agentops:limits:characters", "agentops:validation:every-fault")
def test_one_character_too_many_is_refused_and_every_fault_named(service: Service) -> None:
    texts: dict[str, object] = {name: WIDE * (limit + 1) for name, limit in LIMITS.items()}
    answer = service.http.post("/observations", json=texts | {"tags": ["a", WIDE * 101]})

    assert answer.status_code == 400
    assert answer.json() == {
        "error": "validation failed: session_id exceeds 500 chars; type exceeds 50 chars; "
        "title exceeds 500 chars; content exceeds 50000 chars; project exceeds 200 chars; "
        "tags[1] exceeds 100 chars; scope exceeds 50 chars; topic_key exceeds 200 chars"
    }
    assert service.http.get("/stats").json()["total_observations"] == 0


@requirement("agentops:validation:every-fault")
def test_everything_that_is_missing_or_blank_is_named(service: Service) -> None:
    saved = service.http.post("/observations", json={"title": "x" * 501, "scope": "team"})
    started = service.http.post("/sessions", json={})

    assert saved.status_code == started.status_code == 400
    assert saved.json() == {
        "error": "validation failed: session_id is required; type is required; "
        "title exceeds 500 chars; content is required; project is required"
    }
    assert started.json() == {"error": "validation failed: id is required; project is required"}
    for blank in ("", " ", "\t\r\n", "\u2003\u00a0", "\x1c\x1f"):
        fields = dict.fromkeys(["type", "title", "content", "project"], blank)
        answer = service.http.post("/observations", json=observation("one") | fields)
        assert answer.json() == {
            "error": "validation failed: type is required; title is required; "
            "content is required; project is required"
        }
        assert service.http.post("/sessions", json={"id": "s", "project": blank}).status_code == 400


@requirement("agentops:limits:characters", "agentops:observations:patch")
def test_a_patch_has_the_same_limits_and_neither_takes_more_than_twenty_tags(
    service: Service,
) -> None:
    service.save("one")
    over = {"type": "t" * 51, "title": "t" * 501, "content": "c" * 50_001, "tags": ["t" * 101]}
    tags = [str(number) for number in range(21)]
    refusal = {"error": "validation failed: tags exceed 20 items"}
    answer = service.http.patch("/observations/1", json=over)

    assert answer.status_code == 400
    assert answer.json() == {
        "error": "validation failed: type exceeds 50 chars; title exceeds 500 chars; "
        "content exceeds 50000 chars; tags[0] exceeds 100 chars"
    }
    assert service.http.post("/observations", json=observation("two", tags=tags)).json() == refusal
    assert service.http.patch("/observations/1", json={"tags": tags}).json() == refusal
    assert service.http.patch("/observations/1", json={"tags": tags[:20]}).status_code == 200


@requirement("agentops:limits:characters")
def test_sessions_have_the_same_limits(service: Service) -> None:
    fits = {"id": WIDE * 500, "project": WIDE * 200}
    over = {"id": WIDE * 501, "project": WIDE * 201}
    refusal = {"error": "validation failed: id exceeds 500 chars; project exceeds 200 chars"}
    late = service.http.post("/sessions/" + "x" * 501 + "/end", params={"project": "p" * 201})

    assert service.http.post("/sessions", json=fits).json()["id"] == fits["id"]
    assert service.http.post("/sessions", json=over).json() == refusal
    assert late.status_code == 400
    assert late.json() == refusal
    assert service.http.post("/sessions/" + "x" * 500 + "/end").status_code == 200
