"""kill -9 under load: what was acknowledged is there, and nothing that nobody sent."""

import signal
from contextlib import closing
from pathlib import Path

import pytest

from agentops_memory.sqlite.connection import connect

from ..support.engines import rows
from ..support.files import assert_sound
from ..support.losses import Losses, found_again
from ..support.process import Load, served, until
from ..support.service import observation, serving
from ..support.vitals import looked_on

ROUNDS = 3
SAVES = 100  # acknowledged in a round, at least
ENDED = 40  # saved in a round, after their end


@pytest.mark.slow
def test_kill_9_under_load_again_and_again_loses_nothing_that_was_acknowledged(
    path: Path, lost: Losses
) -> None:
    acknowledged: dict[str, int] = {}
    unanswered: set[str] = set()
    for number in range(ROUNDS):  # each amid sweeps of what has expired, and after deletions
        with (
            served(path, MEMORY_SWEEP_EVERY="1ms") as (program, http),
            looked_on(http.base_url) as onlookers,
        ):
            load = Load(str(http.base_url), about=f"round {number}, save").start()
            for it in range(ENDED):
                body = observation(f"ended {number} {it}", expires_at="2000-01-01T00:00:00Z")
                http.post("/observations", json=body).raise_for_status()
            for hard in ("false", "true"):
                body = observation(f"deleted {number} {hard}")
                id_ = http.post("/observations", json=body).raise_for_status().json()["id"]
                http.delete(f"/observations/{id_}?hard={hard}").raise_for_status()
            load.reach(SAVES)
            program.send(signal.SIGKILL)
            load.join()
        assert onlookers.statuses.keys() == {200}
        acknowledged |= load.acknowledged
        unanswered |= load.unanswered

    with served(path, MEMORY_SWEEP_EVERY="1ms"):
        swept = "SELECT count(*) FROM lifecycles WHERE is_swept"
        until(lambda: rows(path, swept) == [(ROUNDS * ENDED,)])
    remark = f"{ROUNDS} kills; {len(unanswered)} saves got no answer"
    found = found_again(lost, "kill -9 under load", path, acknowledged, remark)
    assert unanswered
    assert found.keys() <= acknowledged.keys() | unanswered
    kept = rows(path, "SELECT content FROM memories WHERE content LIKE 'deleted%'")
    assert sorted(kept) == [(f"deleted {number} false",) for number in range(ROUNDS)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["-wal", "-shm"])
def test_a_log_that_is_removed_under_load_and_a_kill_lose_nothing_that_was_acknowledged(
    path: Path, lost: Losses, kind: str
) -> None:
    with served(path) as (program, http):
        load = Load(str(http.base_url)).start()
        load.reach(SAVES)
        path.with_name(f"memory.db{kind}").unlink()
        program.line("all commits were copied into the database file")
        program.send(signal.SIGKILL)
        load.join()

    remark = f"{len(load.refused)} saves were refused"
    fault = f"memory.db{kind} is removed under load, then kill -9"
    found_again(lost, fault, path, load.acknowledged, remark)
    assert set(load.refused.values()) <= {503}


@pytest.mark.sqlite_files
def test_kill_9_amid_changes_of_one_memory_keeps_every_acknowledged_revision(path: Path) -> None:
    with served(path) as (program, http):
        load = Load(str(http.base_url), topic_key="one").start()
        load.reach(100)
        program.send(signal.SIGKILL)
        load.join()

    ((revision, content),) = rows(path, "SELECT revision, content FROM memories")
    numbers = rows(path, "SELECT number FROM revisions ORDER BY number")
    newest = max(answer["revision_count"] for answer in load.answers)
    assert newest <= revision <= newest + len(load.unanswered)
    assert content in load.acknowledged.keys() | load.unanswered
    assert numbers == [(number,) for number in range(revision - 99, revision + 1)]
    assert_sound(path, live=1)


@pytest.mark.sqlite_files
def test_every_connection_has_the_settings_that_durability_needs(path: Path) -> None:
    with serving(path), closing(connect(path)) as database:
        settings = {
            name: database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in (
                "journal_mode", "synchronous", "foreign_keys", "temp_store", "secure_delete",
            )
        }  # fmt: skip

    full, memory = 2, 2
    assert settings == {
        "journal_mode": "wal", "synchronous": full, "foreign_keys": 1, "temp_store": memory,
        "secure_delete": 1,
    }  # fmt: skip
