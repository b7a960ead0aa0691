"""An import stores what is not there yet: whole or not at all, and any number of times."""

from typing import Any

import pytest

from ..support.engines import rows
from ..support.files import assert_index_is_whole
from ..support.samples import for_each
from ..support.service import Service, observation

Row = dict[str, object]

UID = "01900000-0000-7000-8000-000000000001"
OTHER = "01900000-0000-7000-8000-000000000002"
AT = "2029-05-06T07:08:09Z"
EARLIER = "2029-05-05T07:08:09Z"
LATER = "2029-05-07T07:08:09Z"


def row(content: str, **fields: object) -> Row:
    """An observation as an export shows it."""
    return observation(content, uid=UID, created_at=AT, updated_at=AT, last_seen_at=AT, **fields)


def carried(
    service: Service, *observations: Row, sessions: tuple[Row, ...] = ()
) -> tuple[int, int]:
    """How many sessions and observations an import added."""
    body = {"observations": observations, "sessions": sessions}
    answer = service.http.post("/import", json=body)
    assert answer.status_code == 200, answer.text
    assert_index_is_whole(service.path)
    return answer.json()["imported_sessions"], answer.json()["imported_observations"]


def stored(service: Service) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = service.http.get("/export").json()["observations"]
    return rows


def sessions(service: Service) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = service.http.get("/export").json()["sessions"]
    return rows


def contents(service: Service, memory: object) -> list[str]:
    """What the revisions of an observation say, newest first."""
    history = service.http.get(f"/observations/{memory}/history").json()
    return [revision.get("content", "") for revision in history]


def test_counters_and_dates_are_kept_and_hashes_are_computed_anew(service: Service) -> None:
    given = row(
        "Queues hold.", tags=["a", ""], scope="team", topic_key="q/1", promoted_to="docs",
        revision_count=7, duplicate_count=3, normalized_hash="wrong", id=99, deleted_at=AT,
    )  # fmt: skip

    assert carried(service, given) == (0, 1)

    [found] = stored(service)
    assert len(found.pop("normalized_hash")) == 64
    given.pop("normalized_hash"), given.pop("deleted_at")
    assert found == given | {"id": 1}


def test_a_row_of_the_least_is_completed(service: Service) -> None:
    least: Row = {"id": "s2", "project": "demo"}

    assert carried(service, observation("Least."), sessions=(least,)) == (1, 1)

    [found] = stored(service)
    assert (found["scope"], found["revision_count"], found["duplicate_count"]) == ("project", 1, 1)
    assert {found[name] for name in ("created_at", "updated_at", "last_seen_at")} == {
        "2030-01-01T12:00:00Z"
    }
    assert sessions(service)[0] == {
        "id": "s2", "project": "demo", "started_at": "2030-01-01T12:00:00Z", "message_count": 0
    }  # fmt: skip


@pytest.mark.representative(2)
@pytest.mark.parametrize(
    "given",
    ["2029-05-06T07:08:09Z", "2029-05-06 07:08:09", "2029-05-06T09:08:09.5+02:00",
     "2029-05-06T07:08:09.123456789Z"],
)  # fmt: skip
def test_times_are_read_in_both_formats(service: Service, given: str) -> None:
    start: Row = {"id": "s1", "project": "demo", "started_at": given, "ended_at": given}
    carried(service, row("When.") | {"created_at": given, "updated_at": given}, sessions=(start,))

    assert stored(service)[0]["created_at"] == stored(service)[0]["updated_at"] == AT
    assert sessions(service)[0]["started_at"] == sessions(service)[0]["ended_at"] == AT


def test_sessions_come_first_and_are_made_where_they_are_missing_and_else_left_alone(
    service: Service,
) -> None:
    body = (
        b'{"observations": [{"session_id": "s1", "type": "t", "title": "t", "content": "c",'
        b' "project": "other"}], "sessions": [{"id": "s1", "project": "DeMo", "summary": "Done."}]}'
    )

    assert service.http.post("/import", content=body).json() == {
        "imported_sessions": 1, "imported_observations": 1
    }  # fmt: skip

    [session] = sessions(service)
    assert (session["project"], session["summary"]) == ("demo", "Done.")
    assert carried(service, row("Alone.", session_id="lost", project=" CAFE\u0301 ")) == (0, 1)
    lost = {"id": "lost", "project": "café", "started_at": AT, "message_count": 0}
    assert lost in sessions(service)
    before = sessions(service)
    added = carried(service, sessions=({"id": "s1", "project": "other", "summary": "Other."},))
    assert (added, sessions(service)) == ((0, 0), before)


@pytest.mark.slow
@pytest.mark.parametrize("uid", [UID, None])
def test_a_row_is_known_again_by_its_uid_or_by_its_fields(
    service: Service, uid: str | None
) -> None:
    given = row("Known.", topic_key="k") | {"uid": uid}
    assert carried(service, given) == (0, 1)
    before = stored(service)

    again = [carried(service, given), carried(service, given | {"created_at": AT[:-1] + ".9Z"})]

    assert (again, stored(service)) == ([(0, 0), (0, 0)], before)


@pytest.mark.heavy
@for_each(
    "change",
    [{"project": "other"}, {"scope": "global"}, {"session_id": "s2"}, {"type": "other"},
     {"topic_key": "other"}, {"title": "Other"}, {"content": "known."}, {"created_at": LATER}],
)  # fmt: skip
def test_a_row_without_uid_that_differs_is_another(service: Service, change: Row) -> None:
    given = row("Known.") | {"uid": None}
    carried(service, given)

    assert carried(service, given | change) == (0, 1)


def test_a_known_uid_is_left_alone_whatever_else_differs(service: Service) -> None:
    carried(service, row("Known."))
    before = stored(service)

    assert carried(service, row("Changed.", project="other", session_id="s9")) == (0, 0)
    assert stored(service) == before
    assert [session["id"] for session in sessions(service)] == ["s1"]


@pytest.mark.slow
@pytest.mark.parametrize("uid", [UID, None])
def test_a_deleted_row_comes_back_and_counts(service: Service, uid: str | None) -> None:
    given = row("Back.", topic_key="k") | {"uid": uid}
    carried(service, given)
    service.http.delete("/observations/1")
    assert stored(service) == []

    assert carried(service, given) == (0, 1)
    assert carried(service, given) == (0, 0)

    assert [found["content"] for found in stored(service)] == ["Back."]
    assert contents(service, 1) == ["Back.", "", "Back."]
    assert service.http.get("/search?q=back").json() != []
    service.http.delete("/observations/1?hard=true")
    assert carried(service, given) == (0, 1)  # what was removed for good is new
    assert [found["id"] for found in stored(service)] == [2]


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize(
    ("updated_at", "now", "past"),
    [(LATER, "Theirs.", "Ours."), (AT, "Ours.", "Theirs."), (EARLIER, "Ours.", "Theirs.")],
)
def test_the_later_of_two_at_one_key_stays_and_the_other_is_its_revision(
    service: Service, updated_at: str, now: str, past: str
) -> None:
    carried(service, row("Ours.", topic_key="k"))
    theirs = row("Theirs.", topic_key="k") | {"uid": OTHER, "updated_at": updated_at}

    assert carried(service, theirs) == (0, 1)
    before = stored(service)
    again = [carried(service, theirs) for _ in range(3)]

    assert (again, stored(service)) == ([(0, 0)] * 3, before)
    [found] = before
    assert (found["id"], found["content"], found["revision_count"]) == (1, now, 2)
    assert contents(service, 1) == [now, past]


def test_rows_of_one_document_at_one_key_become_one_with_its_history(service: Service) -> None:
    times = {2: AT, 3: LATER, 1: EARLIER}
    rows = [
        row(f"State {day}.", topic_key="k") | {"uid": None, "updated_at": at}
        for day, at in times.items()
    ]

    assert carried(service, *rows) == (0, 3)
    assert carried(service, *rows) == (0, 0)

    assert [found["content"] for found in stored(service)] == ["State 3."]
    assert sorted(contents(service, 1)) == ["State 1.", "State 2.", "State 3."]


def test_a_state_that_is_there_is_known_again_by_its_second(service: Service) -> None:
    service.clock.advance(seconds=0.5)
    service.save("Ours.", topic_key="k")

    [found] = stored(service)

    assert carried(service, found | {"uid": OTHER}) == (0, 0)
    assert contents(service, 1) == ["Ours."]


@pytest.mark.slow
def test_a_full_history_takes_no_earlier_state(service: Service) -> None:
    rows = [
        row(f"State {number}.", topic_key="k") | {"uid": None, "updated_at": at}
        for number, at in enumerate([LATER, *[EARLIER] * 150])
    ]

    added = [carried(service, *rows) for _ in range(3)]

    assert added == [(0, 100), (0, 0), (0, 0)]
    assert contents(service, 1)[0] == "State 0."
    assert len(contents(service, 1)) == 100


def test_what_comes_back_meets_who_holds_its_key_by_now(service: Service) -> None:
    carried(service, row("First.", topic_key="k"))
    service.http.delete("/observations/1")
    service.save("Second.", topic_key="k")

    moved = row("First.", topic_key="k", project="elsewhere")
    added = [carried(service, moved) for _ in range(2)]

    assert added == [(0, 1), (0, 0)]
    assert [found["content"] for found in stored(service)] == ["Second."]
    assert contents(service, 2) == ["Second.", "First."]


@pytest.mark.parametrize("count", [2**53 - 1, 2**53])
def test_a_memory_with_the_largest_count_of_revisions_takes_earlier_states_and_changes(
    service: Service, count: int
) -> None:
    most = row("Now.", topic_key="k", revision_count=count)
    earlier = [
        row(f"Earlier {day}.", topic_key="k")
        | {"uid": None, "updated_at": f"2029-05-0{day}T07:08:09Z"}
        for day in (1, 2, 3)
    ]

    added = [carried(service, most, *earlier) for _ in range(2)]
    for content in ("Later.", "Latest."):
        assert service.http.patch("/observations/1", json={"content": content}).status_code == 200

    assert added == [(0, 4), (0, 0)]
    assert contents(service, 1)[:3] == ["Latest.", "Later.", "Now."]
    assert sorted(contents(service, 1)[3:]) == ["Earlier 1.", "Earlier 2.", "Earlier 3."]


@pytest.mark.slow
def test_a_damaged_revision_does_not_stop_an_import_at_its_key(service: Service) -> None:
    carried(service, row("First.", topic_key="k"))
    carried(service, row("Second.", topic_key="k") | {"uid": OTHER, "updated_at": LATER})
    rows(service.path, "UPDATE revisions SET at = -4611686018427387904 WHERE number = 1")
    state = row("Earlier.", topic_key="k") | {"uid": None, "updated_at": EARLIER}

    assert carried(service, state) == (0, 1)
    assert carried(service, state) == (0, 0)
