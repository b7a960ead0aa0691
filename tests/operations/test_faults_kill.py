"""kill -9 under load: what was acknowledged is there, and nothing that nobody sent."""

import signal
from pathlib import Path

import pytest

from ..support.engines import rows
from ..support.files import assert_sound
from ..support.losses import Losses
from ..support.process import Load, served, until
from ..support.service import observation
from ..support.vitals import looked_on
from .test_faults_volume import found_again

pytestmark = pytest.mark.slow

ROUNDS = 3
SAVES = 100  # acknowledged in a round, at least
ENDED = 40  # saved in a round, after their end


def test_kill_9_under_load_again_and_again_loses_nothing_that_was_acknowledged(
    path: Path, lost: Losses
) -> None:
    acknowledged: dict[str, int] = {}
    unanswered: set[str] = set()
    for number in range(ROUNDS):
        with served(path) as (program, http), looked_on(http.base_url) as onlookers:
            load = Load(str(http.base_url), about=f"round {number}, save").start()
            load.reach(SAVES)
            program.send(signal.SIGKILL)
            load.join()
        assert onlookers.statuses.keys() == {200}
        acknowledged |= load.acknowledged
        unanswered |= load.unanswered

    remark = f"{ROUNDS} kills; {len(unanswered)} saves got no answer"
    found = found_again(lost, "kill -9 under load", path, acknowledged, remark)
    assert unanswered
    assert found.keys() <= acknowledged.keys() | unanswered


def test_kill_9_in_the_midst_of_sweeps_of_what_has_expired_loses_nothing_else(path: Path) -> None:
    kept, ended = set[str](), 0
    for number in range(ROUNDS):
        with served(path, MEMORY_SWEEP_EVERY="1ms") as (program, http):
            load = Load(str(http.base_url), about=f"round {number}, save").start()
            for it in range(ENDED):
                body = observation(f"ended {number} {it}", expires_at="2000-01-01T00:00:00Z")
                http.post("/observations", json=body).raise_for_status()
            load.reach(ENDED)
            program.send(signal.SIGKILL)
            load.join()
        kept |= load.acknowledged.keys()
        ended += ENDED

    with served(path, MEMORY_SWEEP_EVERY="1ms") as (_, http):
        until(lambda: rows(path, "SELECT count(*) FROM lifecycles WHERE is_swept") == [(ended,)])
        found = {it["content"] for it in http.get("/export").json()["observations"]}
    assert kept <= {it for it in found if not it.startswith("ended")}
    (live,) = rows(path, "SELECT count(*) FROM memories WHERE content NOT LIKE 'ended%'")
    assert_sound(path, live=live[0])


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
