"""Lists, timelines and totals: their order, reading past one list, and the bound of an answer."""

import pytest

from ..support.files import imported
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, observation

BOUND = 2 * 1024 * 1024  # bytes
WIDE = "\u0001"  # one character, six bytes of JSON


@requirement("agentops:paging:before-id")
@for_each("noun", ["observations", "sessions"])
def test_a_list_is_read_to_the_very_end(service: Service, noun: str) -> None:
    if noun == "observations":
        _import_times(service)
    ids = _paged(service, f"/{noun}/recent?project=demo&limit=7")

    assert len(ids) == 60
    assert ids == [row["id"] for row in service.http.get(f"/{noun}/recent?limit=99").json()]


@requirement("agentops:paging:before-id")
def test_a_page_follows_on_a_row_that_is_deleted_meanwhile(service: Service) -> None:
    for number in range(4):
        service.save(f"word {number}")
    service.http.delete("/observations/3")

    rows = service.http.get("/observations/recent?before_id=3").json()
    assert [row["id"] for row in rows] == [2, 1]


@requirement("agentops:paging:before-id")
def test_what_is_no_row_is_refused_as_a_place_to_read_on_from(service: Service) -> None:
    for path in ("/observations/recent?before_id=1", "/observations/recent?before_id=x"):
        assert service.http.get(path).status_code == 400
    assert service.http.get("/sessions/recent?before_id=x").json() == {
        "error": "before_id must be the id of a session."
    }


@pytest.mark.slow
@requirement("agentops:answers:two-mebibytes")
def test_a_list_leaves_out_what_would_pass_the_bound_and_says_so(service: Service) -> None:
    imported(service, [observation(f"word {number} " + "x" * 49_000) for number in range(60)])

    timeline = "/timeline?observation_id=50&before=1000&after=2"
    for path, omitted in (
        ("/search?q=word&limit=60", 18), ("/observations/recent?limit=60", 18), (timeline, 10)
    ):  # fmt: skip
        answer = service.http.get(path)
        assert len(answer.content) < BOUND
        assert len(answer.json()) == 42
        assert answer.headers["X-Results-Omitted"] == str(omitted)
    assert [row["id"] for row in answer.json()] == list(range(11, 53))  # and not the farthest
    assert "X-Results-Omitted" not in service.http.get("/search?q=word&limit=42").headers
    assert len(_paged(service, "/observations/recent?limit=60")) == 60


@requirement("agentops:answers:two-mebibytes")
def test_a_context_stays_under_the_bound_with_its_summaries(service: Service) -> None:
    messages = [{"role": "user", "content": WIDE * 300}] * 2
    for number in range(3):
        service.http.post(f"/sessions/s{number}/end?project=demo", json={"messages": messages})
    text = {"title": WIDE * 499 + "x", "type": WIDE * 49 + "x"}
    imported(service, [observation(WIDE * 310 + str(n), **text) for n in range(450)])
    answer = service.http.get("/context?project=demo&limit=1000")

    assert len(answer.content) < BOUND
    assert len(answer.json()["recent_sessions"]) == 3
    omitted = int(answer.headers["X-Results-Omitted"])
    assert omitted == 450 - len(answer.json()["recent_observations"])
    assert 0 < omitted < 60


def _import_times(service: Service) -> None:
    """Rows out of order, most of them with the time of others."""
    times = [f"2030-01-01T12:00:00.{number * 7 % 5}Z" for number in range(60)]
    imported(
        service,
        [observation(f"word {n}", created_at=at) for n, at in enumerate(times)],
        [{"id": f"s{n}", "project": "demo", "started_at": at} for n, at in enumerate(times, 1)],
    )


def _paged(service: Service, path: str) -> list[int | str]:
    ids: list[int | str] = []
    rows = service.http.get(path).json()
    while rows:
        ids += [row["id"] for row in rows]
        rows = service.http.get(f"{path}&before_id={ids[-1]}").json()
    assert len(set(ids)) == len(ids)
    return ids


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
