"""A wall clock that jumps back an hour: what was promised by it still holds."""

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..support.callers import calling, made_key, revoke
from ..support.files import assert_sound
from ..support.losses import Losses
from ..support.process import Load
from ..support.service import START, Clock, Service, observation, serving
from ..support.vitals import looked_on

Row = dict[str, Any]

SAID = [{"role": "user", "content": "hello"}]
SAVES = 200
JUMPS = 8


def test_what_was_promised_before_the_clock_jumped_back_holds_and_ids_and_times_go_on_upward(
    tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "memory.db"
    with serving(path, clock=clock) as service:
        for number in range(5):
            service.save(f"before {number}")
            clock.advance(seconds=1)
        kept = service.save("the first words", topic_key="kept/key")["id"]
        service.http.post("/sessions", json={"id": "long", "project": "demo"})
        service.http.post("/sessions/long/messages", json={"messages": SAID})
        first = once(service)
        clock.advance(hours=-1)

        assert once(service) == first
        assert service.save("before 3")["action"] == "deduplicated"
        for number in range(5):
            service.save(f"later {number}")
        service.save("the second words", topic_key="kept/key")
        assert service.http.post("/sessions/long/end", json={}).status_code == 200

        exported = service.http.get("/export").json()
        rows = sorted(exported["observations"], key=lambda row: row["id"])
        assert [row["uid"] for row in rows] == sorted(row["uid"] for row in rows)
        (session,) = [row for row in exported["sessions"] if row["id"] == "long"]
        assert instant(session["ended_at"]) >= instant(session["started_at"])
        times = [
            instant(row["created_at"])
            for row in service.http.get(f"/observations/{kept}/history").json()
        ]
        assert times == sorted(set(times), reverse=True)
        pages: list[Row] = []
        before = ""
        while page := service.http.get(f"/observations/recent?limit=2{before}").json():
            pages += page
            before = f"&before_id={page[-1]['id']}"
        assert sorted(row["id"] for row in pages) == [row["id"] for row in rows]
        clock.advance(hours=24)
        assert once(service) == first

    # The later of two states wins where an export meets another memory at its key.
    with serving(tmp_path / "other.db", clock=Clock(START - timedelta(minutes=30))) as other:
        held = other.save("words of half an hour before", topic_key="kept/key")
        other.http.post("/import", json=exported)
        newest = other.http.get(f"/observations/{held['id']}").json()
    assert newest["content"] == "the second words"


@pytest.mark.slow
def test_a_session_goes_on_and_ends_when_it_is_idle_and_a_revoked_key_opens_nothing(
    path: Path, clock: Clock
) -> None:
    def ends(http: httpx.Client) -> dict[str, str | None]:
        sessions = http.get("/export").json()["sessions"]
        return {row["id"]: row.get("ended_at") for row in sessions}

    token, other = made_key(path), made_key(path)
    for hours, ended in ((0, None), (-1, None), (3, "2030-01-01T12:00:00Z")):
        clock.advance(hours=hours)
        with (
            serving(path, clock=clock, MEMORY_SESSION_IDLE="2h") as service,
            calling(service, token) as caller,
            calling(service, other) as standing,
        ):
            if not hours:
                standing.post("/sessions/s1/messages", json={"messages": SAID})
                revoke(path, token)
            assert ends(standing) == {"s1": ended}
            assert caller.get("/stats").status_code == 401


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


def instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    assert at.utcoffset() == timedelta(0)
    return at
