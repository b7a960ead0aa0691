"""What was acknowledged is there after a crash, and what was refused is not."""

import signal
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agentops_memory.local import LocalService
from agentops_memory.sqlite.connection import connect

from ..support.another import another
from ..support.engines import rows
from ..support.files import assert_sound
from ..support.process import Load, served, stored
from ..support.service import observation, serving


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


@pytest.mark.slow
def test_a_deletion_that_was_acknowledged_survives_kill_9(path: Path) -> None:
    with served(path) as (program, http):
        for number in range(3):
            http.post("/observations", json=observation(f"memory {number}"))
        http.delete("/observations/1")
        http.delete("/observations/2", params={"hard": "true"})
        program.send(signal.SIGKILL)
        program.wait()

    assert stored(path) == {"memory 2": 3}
    assert rows(path, "SELECT id FROM memories ORDER BY id") == [(1,), (3,)]
    assert_sound(path, live=1)


@pytest.mark.slow
def test_a_service_and_another_program_on_one_file_see_each_other_at_once(path: Path) -> None:
    with served(path) as (_, http), another(path) as other:
        load = Load(str(http.base_url), saves=100).start()
        for number in range(20):
            mine = http.post("/observations", json=observation(f"mine {number}")).json()
            assert other.asked(partial(found, mine["id"])) == f"mine {number}"
            yours = other.save(f"yours {number}")
            answer = http.get(f"/observations/{yours.id}").json()
            assert answer["content"] == f"yours {number}"
        for number in range(100):
            other.save(f"What save {number} has learned")
        load.join()

    # Each content was saved twice, once through each: one memory, seen twice.
    assert load.refused == {}
    assert rows(
        path, "SELECT count(*), min(duplicates) FROM memories WHERE content GLOB 'What*'"
    ) == [(100, 2)]
    assert_sound(path, live=140)


async def found(observation: int, here: LocalService) -> str:
    """The content of an observation."""
    return (await here.get(observation)).content


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
