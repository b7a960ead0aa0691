"""A wall clock that jumps back an hour: what was promised by it still holds."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ..support.callers import calling, made_key, revoke
from ..support.files import assert_sound
from ..support.losses import Losses
from ..support.process import Load
from ..support.service import START, Clock, Service, observation, serving
from ..support.vitals import looked_on

Row = dict[str, Any]

SAVES = 200
JUMPS = 8


@pytest.fixture(scope="module")
def turned_back(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that was told something before its clock jumped back an hour."""
    clock = Clock()
    with serving(tmp_path_factory.mktemp("service") / "memory.db", clock=clock) as service:
        for number in range(5):
            service.save(f"before {number}")
            clock.advance(seconds=1)
        service.save("the first words", topic_key="kept/key")
        service.http.post("/sessions", json={"id": "long", "project": "demo"})
        service.http.post("/sessions/long/messages", json={"messages": said("in time")})
        clock.advance(hours=-1)
        yield service


def test_a_request_that_was_done_is_not_done_again(path: Path, clock: Clock) -> None:
    with serving(path, clock=clock, MEMORY_DEDUPE_WINDOW="0") as service:
        answers = []
        for hours in (-1, 24, 0):
            answers.append(once(service))
            clock.advance(hours=hours)

    assert answers[0] == answers[1] == answers[2]


def test_what_was_just_saved_is_still_known_and_ids_and_times_go_on_upward(
    turned_back: Service,
) -> None:
    assert turned_back.save("before 3")["action"] == "deduplicated"
    turned_back.save("after")
    assert turned_back.http.post("/sessions/long/end", json={}).status_code == 200

    exported = turned_back.http.get("/export").json()

    rows = sorted(exported["observations"], key=lambda row: row["id"])
    assert [row["uid"] for row in rows] == sorted(row["uid"] for row in rows)
    (session,) = [row for row in exported["sessions"] if row["id"] == "long"]
    assert instant(session["ended_at"]) >= instant(session["started_at"])


def test_each_memory_is_on_one_page(turned_back: Service) -> None:
    for number in range(5):
        turned_back.save(f"later {number}")
    pages: list[Row] = []
    before = ""
    while page := turned_back.http.get(f"/observations/recent?limit=2{before}").json():
        pages += page
        before = f"&before_id={page[-1]['id']}"

    exported = turned_back.http.get("/export").json()["observations"]
    assert len(pages) == len(exported)
    assert {row["id"] for row in pages} == {row["id"] for row in exported}


def test_a_change_is_dated_after_what_it_replaces(turned_back: Service, tmp_path: Path) -> None:
    """So that the later of two states wins where an export meets another memory at its key."""
    turned_back.save("the second words", topic_key="kept/key")
    exported = turned_back.http.get("/export").json()
    with serving(tmp_path / "other.db", clock=Clock(START - timedelta(minutes=30))) as other:
        held = other.save("words of half an hour before", topic_key="kept/key")
        other.http.post("/import", json=exported)

        newest = other.http.get(f"/observations/{held['id']}").json()
        history = turned_back.http.get(f"/observations/{kept(exported)['id']}/history").json()
    assert newest["content"] == "the second words"
    times = [instant(row["created_at"]) for row in reversed(history)]
    assert times == sorted(set(times))


@pytest.mark.slow
def test_a_session_that_is_told_of_goes_on_and_ends_when_it_is_idle(
    path: Path, clock: Clock
) -> None:
    with serving(path, clock=clock, MEMORY_SESSION_IDLE="2h") as service:
        service.http.post("/sessions/s1/messages", json={"messages": said("hello")})
        clock.advance(hours=-1)
    with serving(path, clock=clock, MEMORY_SESSION_IDLE="2h") as service:
        assert ends(service) == {"s1": None}
        clock.advance(hours=3)
    with serving(path, clock=clock, MEMORY_SESSION_IDLE="2h") as service:
        assert ends(service) == {"s1": "2030-01-01T12:00:00Z"}


def test_a_revoked_key_opens_nothing_whatever_the_clock_says(path: Path, clock: Clock) -> None:
    token, other = made_key(path), made_key(path)
    with (
        serving(path, clock=clock) as service,
        calling(service, token) as caller,
        calling(service, other) as standing,
    ):
        revoke(path, token)
        clock.advance(hours=-1)

        assert caller.get("/stats").status_code == 401
        assert standing.get("/stats").status_code == 200


@pytest.mark.slow
def test_a_clock_that_jumps_to_and_fro_under_load_loses_nothing(
    tmp_path: Path, lost: Losses
) -> None:
    path, clock, chance = tmp_path / "memory.db", Clock(), random.Random(7)  # noqa: S311
    with serving(path, clock=clock) as service, looked_on(service.url) as onlookers:
        load = Load(service.url, saves=SAVES).start()
        for number in range(1, JUMPS):
            load.reach(number * SAVES // JUMPS)
            clock.advance(hours=chance.choice((-1, -1, 1, 2)))
        load.join()
        exported = service.http.get("/export").json()["observations"]

    found = {row["content"]: row["id"] for row in exported}
    lost(
        "a clock that jumps back an hour", acknowledged=load.acknowledged.items(),
        found=found.items(), remark=f"{JUMPS - 1} jumps to and fro; {onlookers.told}",
    )  # fmt: skip
    assert not load.refused
    assert not load.unanswered
    assert onlookers.statuses.keys() == {200}
    assert found == load.acknowledged
    assert_sound(path, live=SAVES)


def once(service: Service) -> object:
    """The answer to one request that is sent with one key."""
    headers = {"Idempotency-Key": "one"}
    return service.http.post("/observations", json=observation("once"), headers=headers).json()


def kept(exported: Row) -> Row:
    """The memory that has a key."""
    (found,) = [row for row in exported["observations"] if row.get("topic_key")]
    assert isinstance(found, dict)
    return found


def said(content: str) -> list[Row]:
    return [{"role": "user", "content": content}]


def ends(service: Service) -> dict[str, str | None]:
    """When each session has ended."""
    rows = service.http.get("/export").json()["sessions"]
    return {row["id"]: row.get("ended_at") for row in rows}


def instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    assert at.utcoffset() == timedelta(0)
    return at
