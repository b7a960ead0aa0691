"""A disk that fails now and then, or fills and is emptied, under load."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..support.files import assert_sound, disk
from ..support.losses import Losses
from ..support.process import Load, served, stored
from .test_disk import MEBIBYTE, failing, leave

pytestmark = pytest.mark.slow

SAVES = 300


@pytest.mark.parametrize(
    ("fault", "call", "every"),
    [("failing fsync", "fdatasync", 4), ("failing write", "pwrite64", 97)],
)
def test_a_disk_that_fails_now_and_then_loses_nothing_that_was_acknowledged(
    fault: str, call: str, every: int, path: Path, lost: Losses
) -> None:
    with served(path) as (program, http):
        with failing(program, f"{call}:error=EIO:when=5+{every}"):
            load = Load(str(http.base_url), saves=SAVES).start()
            load.join()
        program.send(signal.SIGKILL)  # with the log as the failures left it
        program.wait()

    with served(path) as (_, http):
        exported = http.get("/export").json()["observations"]
    found = {row["content"]: row["id"] for row in exported}
    lost(
        fault, acknowledged=load.acknowledged.items(), found=found.items(),
        remark=f"{len(load.refused)} saves were refused, and none of them is there",
    )  # fmt: skip
    assert set(load.refused.values()) == {503}
    assert found.keys() == load.acknowledged.keys()
    assert_sound(path, live=len(found))


def test_a_disk_that_fills_under_load_and_is_emptied_loses_nothing(
    tmp_path: Path, lost: Losses
) -> None:
    with disk(tmp_path / "disk", size=64 * MEBIBYTE) as folder, ExitStack() as stack:
        path, ballast = folder / "memory.db", folder / "ballast"
        _, http = stack.enter_context(served(path))
        leave(folder, MEBIBYTE)
        full = Load(str(http.base_url), saves=SAVES).start()
        full.join()
        assert full.refused
        ballast.unlink()
        again = Load(str(http.base_url), saves=100, about="later save").start()
        again.join()
        stack.close()
        found = stored(path)
        assert_sound(path, live=len(found))

    acknowledged = full.acknowledged | again.acknowledged
    lost(
        "a full disk, emptied again", acknowledged=acknowledged.items(), found=found.items(),
        remark=f"{len(full.refused)} saves were refused, and none of them is there",
    )  # fmt: skip
    assert found == acknowledged
    assert again.refused == {}
    assert set(full.refused.values()) == {503}
