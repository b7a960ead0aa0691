"""The timeline of an observation, and the totals."""

from ..support.requirements import requirement
from ..support.service import Service


@requirement("agentops:timeline:order")
def test_neighbours_come_in_the_order_of_their_saves(service: Service) -> None:
    for number in range(1, 10):
        service.save(f"word {number}", session_id=f"s{number}", scope=f"scope{number % 3}")
        service.clock.advance(seconds=1)

    assert _ids(service, "observation_id=5") == [2, 3, 4, 5, 6, 7, 8]
    assert _ids(service, "observation_id=5&before=1&after=2") == [4, 5, 6, 7]
    assert _ids(service, "observation_id=2&before=9") == [1, 2, 3, 4, 5]
    assert _ids(service, "observation_id=9&after=9") == [6, 7, 8, 9]
    assert service.http.get("/timeline?observation_id=2&before=1&after=1").json()[1] == {
        "id": 2, "type": "discovery", "title": "word 2", "content": "word 2",
        "created_at": "2030-01-01T12:00:01Z",
    }  # fmt: skip


@requirement("agentops:timeline:order", "agentops:fault:timeline-same-second")
def test_neighbours_of_the_same_second_and_instant_are_kept(service: Service) -> None:
    for number in range(1, 8):
        service.save(f"word {number}")
        service.clock.advance(microseconds=number % 2)

    assert _ids(service, "observation_id=4") == [1, 2, 3, 4, 5, 6, 7]


@requirement("agentops:timeline:order", "agentops:global:visibility")
def test_a_timeline_stays_in_its_project(service: Service) -> None:
    service.save("one")
    service.save("two", project="other")
    service.save("three", project="other", scope="global")
    service.save("four", scope="global")
    service.save("five", scope="team")
    service.http.delete("/observations/5")
    service.save("six")

    assert _ids(service, "observation_id=4") == [1, 4, 6]
    assert _ids(service, "observation_id=3") == [2, 3]
    assert _ids(service, "observation_id=4&project=other") == [1, 4, 6]


@requirement("agentops:timeline:refusals")
def test_a_timeline_needs_an_observation(service: Service) -> None:
    service.save("one")

    for query in ("", "observation_id=", "observation_id=x", "observation_id=1.5", "before=1"):
        answer = service.http.get(f"/timeline?{query}")
        assert (answer.status_code, answer.json().keys()) == (400, {"error"})
    for id_ in ("2", "0", "-1"):
        answer = service.http.get(f"/timeline?observation_id={id_}")
        assert (answer.status_code, answer.json()) == (404, {"error": "No such observation."})


@requirement("agentops:stats", "agentops:global:visibility")
def test_totals_are_of_the_project_or_of_all(service: Service) -> None:
    service.save("one")
    service.save("two", project="other", scope="global", session_id="s2")
    service.save("gone", project="former", session_id="s3")
    service.http.delete("/observations/3")
    service.http.post("/sessions", json={"id": "s4", "project": "Empty"})

    projects = ["demo", "empty", "former", "other"]
    for query, sessions, observations in (
        ("", 4, 2), ("?project=demo", 1, 1), ("?project=EMPTY", 1, 0), ("?project=former", 1, 0),
        ("?project=nobody", 0, 0),
    ):  # fmt: skip
        assert service.http.get(f"/stats{query}").json() == {
            "total_sessions": sessions, "total_observations": observations, "projects": projects,
        }  # fmt: skip


def _ids(service: Service, query: str) -> list[int]:
    return [row["id"] for row in service.http.get(f"/timeline?{query}").json()]
