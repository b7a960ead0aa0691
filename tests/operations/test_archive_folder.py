"""Which archives of a folder count, and which may go."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.memory.access import DEFAULT_TENANT
from agentops_memory.operations.backup import Scope, make_archive, newest, path_in, prune
from agentops_memory.settings import settings

from ..support.archives import repacked
from ..support.service import START, serving

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive of all, and one of a tenant."""
    folder = tmp_path_factory.mktemp("made")
    database = folder / "memory.db"
    with serving(database) as service:
        service.save("apple")
    place = settings({"MEMORY_DB_PATH": str(database)})
    make_archive(place, folder / "whole.zip", now=START)
    make_archive(place, folder / "some.zip", Scope(tenants=[DEFAULT_TENANT]), now=START)
    return folder


@pytest.fixture
def whole(made: Path) -> bytes:
    return (made / "whole.zip").read_bytes()


@pytest.fixture
def folder(tmp_path: Path, whole: bytes) -> Path:
    """A folder with archives of five days."""
    for days in range(5):
        at(tmp_path, days).write_bytes(whole)
    return tmp_path


def test_the_newest_is_the_newest_by_name_that_is_whole(
    folder: Path, made: Path, whole: bytes
) -> None:
    now = START + 9 * DAY
    found = newest(folder, now)
    assert found is not None
    assert (found.made_at, found.path, found.size) == (START + 4 * DAY, at(folder, 4), len(whole))

    at(folder, 5).write_bytes(whole[:-9])
    at(folder, 6).write_bytes(b"")
    shutil.copy(made / "some.zip", at(folder, 7))
    at(folder, 8).symlink_to(at(folder, 3))
    (folder / "memory-latest.zip").write_bytes(whole)

    assert newest(folder, now) == found
    assert newest(folder, START + DAY) == newest(folder, START + 2 * DAY - timedelta(seconds=1))
    assert newest(folder, START - DAY) is None
    with pytest.raises(FileNotFoundError):
        newest(folder / "away", now)


def test_so_many_stay_and_the_older_and_the_damaged_ones_go(folder: Path, whole: bytes) -> None:
    now = START + 4 * DAY
    assert prune(folder, 5, now) == prune(folder, 9, now) == []
    assert prune(folder, 2, now) == [at(folder, days) for days in (2, 1, 0)]
    assert prune(folder, 1, now) == [at(folder, 3)]
    assert prune(folder, 1, now) == []
    assert [*folder.iterdir()] == [at(folder, 4)]

    for days in range(5):  # damaged ones count for nothing
        at(folder, days).write_bytes(whole if days in (1, 3) else whole[:-9])
    assert prune(folder, 3, now) == []
    assert prune(folder, 2, now) == [at(folder, 0)]
    assert prune(folder, 1, now) == [at(folder, 2), at(folder, 1)]
    assert sorted(folder.iterdir()) == [at(folder, 3), at(folder, 4)]


def test_what_is_not_ours_stays_and_so_does_what_is_from_the_future(
    folder: Path, made: Path, whole: bytes
) -> None:
    strange = [
        "memory.db", "memory-2030-01-01.zip", "memory-20300101T120000Z.zip.old",
        "xmemory-20200101T120000Z.zip", "memory-20200101T120000Z.ZIP", "memory-2020011T120000Z.zip",
        "memory-20201301T120000Z.zip",
    ]  # fmt: skip
    for name in strange:
        (folder / name).write_bytes(b"what somebody else keeps")
    at(folder, -3).mkdir()
    at(folder, -2).symlink_to(at(folder, 4))
    shutil.copy(made / "some.zip", at(folder, -1))
    for days in (700, 701):  # by a clock that was wrong
        at(folder, days).write_bytes(whole)
    others = {folder / name for name in strange} | {
        at(folder, days) for days in (-3, -2, -1, 700, 701)
    }
    now = START + 4 * DAY
    found = newest(folder, now)

    assert found is not None
    assert found.path == at(folder, 4)
    assert prune(folder, 2, now) == [at(folder, days) for days in (2, 1, 0)]
    assert prune(folder, 1, now) == [at(folder, 3)]
    assert set(folder.iterdir()) == {*others, at(folder, 4)}


def test_the_newest_without_damaged_values_stays_however_old_it_is(
    folder: Path, made: Path
) -> None:
    def spoil(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
        manifest["tenants"][0]["damaged"] = ["memories 1: content (text that is no UTF-8)"]

    def forget(_: dict[str, bytes], manifest: dict[str, Any]) -> None:
        del manifest["tenants"][0]["damaged"]  # as earlier versions made it

    for days in (2, 3, 4):
        repacked(made / "whole.zip", at(folder, days), spoil)
    repacked(made / "whole.zip", at(folder, 1), forget)
    found = newest(folder, START + 4 * DAY)

    assert found is not None
    assert (found.path, found.is_damaged) == (at(folder, 4), True)
    assert prune(folder, 2, START + 4 * DAY) == [at(folder, 2), at(folder, 0)]
    assert prune(folder, 2, START + 4 * DAY) == []
    shutil.copy(made / "whole.zip", at(folder, 5))
    assert prune(folder, 2, START + 5 * DAY) == [at(folder, 3), at(folder, 1)]


def at(folder: Path, days: float) -> Path:
    made_at: datetime = START + days * DAY
    return path_in(folder, made_at)
