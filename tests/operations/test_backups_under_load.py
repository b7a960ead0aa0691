"""Backups of a service that is asked meanwhile, ends meanwhile, or is killed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL, SIGTERM

import httpx
import pytest
from benchmarks.seeding import Size, seeded

from agentops_memory.operations.backup import Archive

from ..support.files import assert_sound
from ..support.forks import PROGRAM
from ..support.losses import Losses
from ..support.process import Load, Program, program, stored, until

MEMORIES = 3_000
SAVES = 300
OFTEN = f"""
from datetime import timedelta
from agentops_memory.jobs import schedule
schedule.LOOK_AT_FOLDER = timedelta(milliseconds=20)
{PROGRAM}
"""

pytestmark = pytest.mark.slow


def test_a_backup_beside_a_load_and_its_end_by_any_signal_loses_nothing(
    tmp_path: Path, lost: Losses
) -> None:
    path, folder = tmp_path / "memory.db", tmp_path / "backups"
    folder.mkdir()
    seeded(path, Size(rows=MEMORIES, projects=3), seed=1)
    with backed_up(path, folder) as (service, _):
        until(lambda: list(folder.iterdir()))
        service.send(SIGKILL)
        service.wait()
    (left,) = folder.iterdir()
    with backed_up(path, folder) as (service, _):
        until(lambda: drafts(folder) - {left})
        begun = time.monotonic()
        service.send(SIGTERM)
        assert service.wait() == 0
        took = time.monotonic() - begun
    remaining = drafts(folder)  # of a thread too slow for the end; the next backup removes it
    assert left not in remaining
    for finished in folder.glob("*.zip"):  # before the signal came
        with Archive.opened(finished) as archive:
            archive.verify()
        finished.unlink()
    with backed_up(path, folder) as (service, http):
        until(lambda: drafts(folder) - remaining)
        load = Load(str(http.base_url), saves=SAVES).start()
        (made,) = until(lambda: list(folder.glob("*.zip")))
        while_made = len(load.acknowledged)
        load.join()
        service.send(SIGTERM)
        assert service.wait() == 0

    assert while_made > 0
    assert drafts(folder) == set()
    assert (load.refused, load.unanswered) == ({}, set())
    with Archive.opened(made) as archive:
        archive.verify()
        (part,) = archive.manifest.tenants
        assert MEMORIES <= part.counts.observations <= MEMORIES + SAVES
    assert_sound(path, live=MEMORIES + SAVES)
    remark = f"{while_made} saved while it was made; SIGTERM amid one took {took:.2f} s"
    lost(
        "a backup beside a load", acknowledged=load.acknowledged, found=stored(path), remark=remark
    )


@contextmanager
def backed_up(path: Path, folder: Path) -> Iterator[tuple[Program, httpx.Client]]:
    """The service over the file, which looks at the folder of its backups all the time."""
    variables = {
        "MEMORY_LISTEN": "127.0.0.1:0", "MEMORY_DB_PATH": str(path),
        "MEMORY_BACKUP_DIR": str(folder), "MEMORY_DRAIN": "0",
    }  # fmt: skip
    with program("serve", variables=variables, code=OFTEN) as service, service.client() as http:
        yield service, http


def drafts(folder: Path) -> set[Path]:
    return set(folder.glob(".*.part"))
