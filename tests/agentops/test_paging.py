"""Reading past one list, and answers that stay under their bound."""

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
