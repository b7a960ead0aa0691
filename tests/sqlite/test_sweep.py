"""The service sees to its index by itself, and says what it found."""

import asyncio
import logging
import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.jobs.jobs import WorkSignal
from agentops_memory.jobs.schedule import tidy
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.damage import REMEDY
from agentops_memory.sqlite import partitions
from agentops_memory.sqlite.connection import connect
from agentops_memory.telemetry import Telemetry

from ..support.damaged_values import damage as damage_row
from ..support.engine import impatient, locked, opened
from ..support.engines import rows
from ..support.files import assert_index_is_whole, put_in_index
from ..support.otlp import Collector, each_collector
from ..support.process import run, until
from ..support.recall import search
from ..support.service import Service, serving

__all__ = ["each_collector"]


@pytest.mark.slow
def test_a_sweep_merges_segments_mends_what_is_out_of_line_and_shows_by_how_much(
    service: Service, each_collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(60):
        service.save(f"apple {number}", session_id=f"{number}")
        put_in_index(service.path)
    before, hits = segments(service.path), search(service, "apple", limit=60)
    assert before > 2
    damage(service.path)
    caplog.clear()

    with caplog.at_level(logging.ERROR):
        swept(service.path, each_collector)

    assert each_collector.gauges["memory_index_drift_rows"] == 1
    assert each_collector.gauges["memory_index_partitions"] == 1
    assert [record.message for record in caplog.records] == [
        "index was inconsistent and has been rebuilt"
    ]
    service.save("apple at last")
    service.http.delete("/observations/61", params={"hard": True})

    swept(service.path, each_collector)

    assert each_collector.gauges["memory_index_drift_rows"] == 0
    assert segments(service.path) <= 2
    assert search(service, "apple", limit=60) == hits
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_a_sweep_lets_an_index_of_an_older_release_merge_as_one_of_today(path: Path) -> None:
    merging = "SELECT v FROM memories_fts_0_config WHERE k = 'automerge'"
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        service.save("apple")
    rows(path, "INSERT INTO memories_fts_0 (memories_fts_0, rank) VALUES ('automerge', 4)")
    assert rows(path, merging) == [(4,)]

    swept(path)

    assert rows(path, merging) == [(0,)]
    assert_index_is_whole(path)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["1.5", "x'ff'"])
def test_a_sweep_keeps_the_words_of_a_space_whose_place_is_damaged(
    path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        service.save("apple")
        service.save("banana", project="other", session_id="another")
    caplog.clear()
    damage_row(path, "spaces", "partition", place)

    swept(path)

    assert caplog.messages == ["a row in the database is damaged: " + REMEDY]
    with closing(connect(path)) as database:
        database.execute("UPDATE spaces SET partition = 0")
    assert_index_is_whole(path)
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        assert [it["title"] for it in search(service, "apple")] == ["apple"]


@pytest.mark.heavy
def test_a_running_service_mends_its_index_by_itself_also_after_a_sweep_that_failed(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, timedelta(milliseconds=50))
    caplog.set_level(logging.WARNING)  # whatever a command in this process has set
    with serving(path, MEMORY_SWEEP_EVERY="5ms") as service:
        service.save("apple")
        service.save("banana")
        service.save("cherry", ttl=60)
        with locked(service.path):
            service.clock.advance(minutes=2)  # so that there is something to sweep
            failed = "the sweep failed; the next one tries again"
            until(lambda: failed in [it.message for it in caplog.records])
        for _ in range(2):
            damage(service.path)
            until(lambda: not is_damaged(service.path))

    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_the_index_command_looks_and_mends(service: Service) -> None:
    service.save("apple")
    service.save("banana")
    asked = ("index", "--db", str(service.path))

    assert run(*asked).stdout == "partition 0: matches the memories\n"
    assert run(*asked, "--check").stdout == "partition 0: exact\n"

    damage(service.path)
    drifted = run(*asked)
    assert (drifted.returncode, drifted.stdout) == (
        1,
        "partition 0: differs from the memories in 1 row\n",
    )
    mended = run(*asked, "--check", "--rebuild")
    assert (mended.returncode, mended.stdout) == (0, "partition 0: rebuilt\n")

    change_a_word(service.path)
    assert run(*asked).returncode == 0
    wrong = run(*asked, "--check")
    assert wrong.returncode == 1
    assert wrong.stdout == "partition 0: its words differ from those of the memories\n"
    assert run(*asked, "--rebuild").stdout == "partition 0: rebuilt\n"
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_the_index_command_makes_no_file_and_changes_none(tmp_path: Path) -> None:
    letter, customers = tmp_path / "letter.db", tmp_path / "customers.db"
    missing = tmp_path / "nowhere" / "memory.db"
    letter.write_bytes(b"Dear Ada, this is no database." * 9)
    with closing(sqlite3.connect(customers)) as database:
        database.execute("CREATE TABLE customers (id)")
    with serving(tmp_path / "other.db") as other:
        other.save("apple")
    rows(other.path, "UPDATE index_rules SET rules = 'others'")
    before = other.path.read_bytes()

    for path, said in (
        (letter, "agentops-memory: The database .*"),
        (customers, f"agentops-memory: {customers} is a database of another program."),
        (missing, f"agentops-memory: There is no database: {missing} does not exist."),
        (other.path, ".* its index was built with other rules.*"),
    ):
        done = run("index", "--db", str(path))
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(said, done.stderr.partition("\n")[0]), done.stderr
    assert not missing.parent.exists()
    assert other.path.read_bytes() == before


def swept(path: Path, collector: Collector | None = None) -> None:
    """Let a sweep of the file be done; the collector, if there is one, has what it measured."""
    options = (collector.endpoint, collector.protocol) if collector else (None,)
    telemetry = Telemetry.started(*options)

    async def sweep() -> None:
        async with asyncio.timeout(60), opened(path) as engine:
            await tidy(engine.maintenance, [OPERATOR], telemetry.metrics, WorkSignal())

    try:
        asyncio.run(sweep())
    finally:
        telemetry.stop()


def damage(path: Path) -> None:
    """Take a row out of the index, behind the service's back."""
    with closing(connect(path)) as database:
        database.execute(
            """DELETE FROM memories_fts_0_docsize
                WHERE id = (SELECT min(id) FROM memories_fts_0_docsize)"""
        )


def change_a_word(path: Path) -> None:
    """Change what a memory says, and not the index."""
    with closing(connect(path)) as database:
        database.execute("UPDATE memories SET content = 'cherry' WHERE id = 1")


def is_damaged(path: Path) -> bool:
    with closing(connect(path)) as database:
        return partitions.Partitions(database, is_alone=True).drift(0) > 0


def segments(path: Path) -> int:
    with closing(connect(path)) as database:
        ((count,),) = database.execute("SELECT count(DISTINCT segid) FROM memories_fts_0_idx")
    return int(count)
