"""An upgrade in adversity: damaged files, earlier copies, sudden death, a full disk."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentops_memory.errors import StartRefused
from agentops_memory.sqlite.migrate import migrated

from ..support.engines import rows
from ..support.files import NOW, assert_sound, copy_of, disk, found, old_texts
from ..support.original import DAMAGES, Original, filled, with_hot_journal, with_wal_left
from ..support.process import run
from ..support.samples import sampled

# Damage


@pytest.mark.slow
@pytest.mark.parametrize("damage", sampled(DAMAGES, 3))
def test_a_damaged_index_does_not_stop_the_upgrade(path: Path, damage: str) -> None:
    filled(path, journal_mode="WAL")
    before = old_texts(path)
    DAMAGES[damage](path)

    migrated(path, NOW)

    assert rows(path, "SELECT id, title, content FROM memories") == before
    assert found(path, "word77") == [77]
    assert_sound(path, live=200)


def test_damage_among_the_rows_is_refused_and_the_file_stays(path: Path) -> None:
    filled(path)
    content = path.read_bytes()
    page = content.rindex(b"word150 ") & ~0xFFF
    path.write_bytes(before := content[:page] + bytes(4096) + content[page + 4096 :])

    with pytest.raises(StartRefused, match="malformed"):
        migrated(path, NOW)

    assert path.read_bytes() == before


@pytest.mark.slow
def test_what_only_the_log_holds_is_upgraded_and_what_was_cut_off_is_rolled_back(
    tmp_path: Path,
) -> None:
    logged, cut_off = tmp_path / "logged" / "memory.db", tmp_path / "cut" / "memory.db"
    for path, left in ((logged, with_wal_left), (cut_off, with_hot_journal)):
        path.parent.mkdir()
        left(path)
    assert "only the log" not in logged.read_bytes().decode("latin-1")
    assert b"never committed" in cut_off.read_bytes()

    for path, live in ((logged, 2), (cut_off, 200)):
        migrated(path, NOW)

        assert_sound(path, live=live)
        assert len(old_texts(copy_of(path))) == live
    assert found(logged, "walrus") == [2]
    assert rows(cut_off, "SELECT DISTINCT title FROM memories") == [("A title",)]


# The copy


@pytest.mark.slow
def test_a_file_of_that_name_is_never_overwritten_but_half_a_copy(path: Path) -> None:
    filled(path)
    before = old_texts(path)
    killed_at(path, "sums_of")
    half = path.with_name("memory.db.before-upgrade.part")
    assert half.exists()
    half.write_text("half of it")
    killed_at(path, "content_hash")
    assert not half.exists()
    assert old_texts(copy_of(path)) == before  # the state of then stays
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        Original(database).observation("saved by the original in between")
    path.with_name("memory.db.before-upgrade-2").mkdir()

    migrated(path, NOW)

    assert old_texts(copy_of(path)) == before
    assert len(old_texts(path.with_name("memory.db.before-upgrade-3"))) == 201
    assert_sound(path, live=201)


# What stops it


@pytest.mark.slow
def test_a_disk_that_fills_up_on_the_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    source = filled(tmp_path / "source.db", journal_mode="DELETE", rows=2000)
    before, size = old_texts(source), source.stat().st_size
    with disk(tmp_path / "disk", size=int(size * 1.5)) as folder:
        path = folder / "memory.db"
        path.write_bytes(source.read_bytes())

        with pytest.raises(StartRefused, match=r"full|space"):
            migrated(path, NOW)

        assert old_texts(path) == before
        assert rows(path, "SELECT rowid FROM observations_fts('word77')") == [(77,)]


# Helpers


# Replaces a function that the upgrade calls with one that kills the process.
KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from agentops_memory.sqlite import connection, migrate

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(connection if hasattr(connection, sys.argv[2]) else migrate, sys.argv[2], kill)
migrate.migrated(Path(sys.argv[1]), datetime.now(UTC))
"""


def killed_at(path: Path, point: str) -> None:
    """An upgrade in a process that is killed when it comes to the point."""
    assert run(str(path), point, code=KILLED).returncode == -signal.SIGKILL
