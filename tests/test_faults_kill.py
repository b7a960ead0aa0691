"""kill -9 under load: what was acknowledged is there, and nothing that nobody sent."""

import signal
from pathlib import Path

import pytest

from .files import assert_sound
from .losses import Losses
from .onlookers import looked_on
from .process import Load, served

pytestmark = pytest.mark.slow

ROUNDS = 5
SAVES = 150  # acknowledged in a round, at least


def test_kill_9_under_load_again_and_again_loses_nothing_that_was_acknowledged(
    tmp_path: Path, lost: Losses
) -> None:
    path = tmp_path / "memory.db"
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

    with served(path) as (_, http):
        exported = http.get("/export").json()["observations"]
    found = {row["content"]: row["id"] for row in exported}
    lost(
        "kill -9 under load",
        acknowledged=acknowledged.items(),
        found=found.items(),
        remark=f"{ROUNDS} kills; {len(unanswered)} saves got no answer",
    )
    assert unanswered
    assert found.keys() <= acknowledged.keys() | unanswered
    assert_sound(path, live=len(found))
