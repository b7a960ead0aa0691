"""A volume that fails, fills or is damaged under load, or on which two services start at once."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from ..sqlite.test_hand_over import second
from ..support.damages import harmed, page_of
from ..support.files import assert_index_is_whole, assert_sound, disk
from ..support.losses import Losses
from ..support.process import Load, Program, run, served, until
from ..support.service import observation
from ..support.vitals import looked_on
from .test_disk import MEBIBYTE, failing, leave

pytestmark = pytest.mark.slow

ROUNDS = 4
SAVES = 60  # acknowledged by each service of a round, at least

Pods = dict[Program, httpx.Client]


def found_again(
    losses: Losses, fault: str, path: Path, acknowledged: dict[str, int], remark: str
) -> dict[str, int]:
    """What a service that starts on the file has: all that was acknowledged, and it is sound."""
    with served(path) as (_, http):
        found = {row["content"]: row["id"] for row in http.get("/export").json()["observations"]}
    losses(fault, acknowledged=acknowledged.items(), found=found.items(), remark=remark)
    assert_sound(path, live=len(found))
    return found


@pytest.mark.parametrize(
    ("fault", "call", "every"),
    [("failing fsync", "fdatasync", 4), ("failing write", "pwrite64", 97)],
)
def test_a_disk_that_fails_now_and_then_loses_nothing_that_was_acknowledged(
    fault: str, call: str, every: int, path: Path, lost: Losses
) -> None:
    with served(path) as (program, http):
        with failing(program, f"{call}:error=EIO:when=5+{every}"):
            load = Load(str(http.base_url), saves=300).start()
            load.join()
        program.send(signal.SIGKILL)  # with the log as the failures left it
        program.wait()

    remark = f"{len(load.refused)} saves were refused, and none of them is there"
    assert found_again(lost, fault, path, load.acknowledged, remark) == load.acknowledged
    assert set(load.refused.values()) == {503}


def test_a_disk_that_fills_under_load_and_is_emptied_loses_nothing(
    tmp_path: Path, lost: Losses
) -> None:
    with disk(tmp_path / "disk", size=64 * MEBIBYTE) as folder:
        path, ballast = folder / "memory.db", folder / "ballast"
        with served(path) as (_, http):
            leave(folder, MEBIBYTE)
            full = Load(str(http.base_url), saves=300).start()
            full.join()
            assert full.refused
            ballast.unlink()
            again = Load(str(http.base_url), saves=100, about="later save").start()
            again.join()

        acknowledged = full.acknowledged | again.acknowledged
        remark = f"{len(full.refused)} saves were refused, and none of them is there"
        fault = "a full disk, emptied again"
        assert found_again(lost, fault, path, acknowledged, remark) == acknowledged
    assert again.refused == {}
    assert set(full.refused.values()) == {503}


def test_a_damaged_page_of_the_index_under_load_loses_nothing(path: Path, lost: Losses) -> None:
    prompt = "/context?query=what+has+save+7+learned&project=demo"
    with (
        served(path) as (program, http),
        looked_on(http.base_url, [prompt], count=1) as agent,
    ):
        load = Load(str(http.base_url), saves=400).start()
        load.reach(150)
        harmed(path, page_of(path, "memories_fts_0_idx"))
        began = time.monotonic()
        program.line("index was damaged and has been rebuilt")
        mended = time.monotonic() - began
        load.join()
        until(lambda: http.get("/health/ready").status_code == 200)
        again = http.post("/observations", json=observation("zebra"))
        found = http.get("/search", params={"q": "zebra"}).json()

    assert (again.status_code, found[0]["content"]) == (201, "zebra")
    assert agent.statuses.keys() == {200}
    assert set(load.refused.values()) <= {503}
    assert load.unanswered == set()
    assert_index_is_whole(path)
    found_again(
        lost, "a damaged page of the index, under load", path, load.acknowledged,
        f"mended after {mended:.1f} s, {len(load.refused)} saves refused meanwhile",
    )  # fmt: skip


def test_a_damaged_database_is_refused_as_it_is_and_its_backup_brings_all_back(
    tmp_path: Path, lost: Losses
) -> None:
    path, archive = tmp_path / "memory.db", tmp_path / "memory.zip"
    variables = {"MEMORY_DB_PATH": str(path), "MEMORY_LISTEN": "127.0.0.1:0"}
    with served(path, MEMORY_DRAIN="0") as (program, http):
        load = Load(str(http.base_url), saves=300).start()
        load.join()
        assert run("backup", "--to", str(archive), variables=variables).returncode == 0
        program.send(signal.SIGTERM)  # or else the log has those pages, too
        program.wait()
    with path.open("r+b") as file:
        file.write(b"no database any more" * 400)
    damaged = path.read_bytes()

    refused = run("serve", variables=variables)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 2)  # and its hint
    assert str(path) in refused.stderr
    assert path.read_bytes() == damaged

    restored = run("restore", str(archive), "--force", variables=variables)
    assert restored.returncode == 0, restored.stderr
    remark = "the start was refused with one sentence, and the file left as it was"
    found_again(lost, "a damaged database, and its backup", path, load.acknowledged, remark)


def test_two_pods_on_one_volume_serve_one_after_the_other(path: Path, lost: Losses) -> None:
    with two_at_once(path) as (pods, first, last):
        load = Load(str(pods[first].base_url)).start()
        load.reach(150)
        assert "waiting for it to stop" in last.output
        assert pods[last].get("/observations/1").status_code == 503
        first.end()
        began = time.monotonic()
        last.line('"serving on http')
        lasted = time.monotonic() - began
        load.join()
        again = pods[last].post("/observations", json=observation("by the second"))

    assert again.status_code == 201
    acknowledged = load.acknowledged | {"by the second": again.json()["id"]}
    fault = "two pods start on one volume, the first is killed"
    found_again(lost, fault, path, acknowledged, f"the second served {lasted:.1f} s later")


def test_two_services_that_start_at_once_take_turns_and_lose_nothing(
    path: Path, lost: Losses
) -> None:
    acknowledged: dict[str, int] = {}
    for number in range(ROUNDS):
        end = (signal.SIGTERM, signal.SIGKILL)[number % 2]
        with two_at_once(path) as (pods, *order):
            for place, pod in enumerate(order):
                until(lambda pod=pod: serves(pod))  # type: ignore[misc]
                about = f"round {number}, service {place}, save"
                load = Load(str(pods[pod].base_url), about=about, saves=100_000).start()
                load.reach(SAVES)
                assert not serves(order[1]) or place
                pod.send(end)
                pod.wait()
                load.join()
                acknowledged |= load.acknowledged
                assert set(load.refused.values()) <= {503}

    remark = f"{ROUNDS} times; one served, and the other when that was ended or killed"
    found_again(lost, "two services start at once on one volume", path, acknowledged, remark)


@contextmanager
def two_at_once(path: Path) -> Iterator[tuple[Pods, Program, Program]]:
    """Two services on the file: all, the one that serves, and the one that waits."""
    with ExitStack() as stack:
        pods = dict(stack.enter_context(second(path, MEMORY_DRAIN="0")) for _ in range(2))
        (first,) = until(lambda: [pod for pod in pods if serves(pod)])
        (last,) = (pod for pod in pods if pod is not first)
        until(lambda: "waiting for it to stop" in last.output)
        assert pods[last].get("/stats").status_code == 503
        yield pods, first, last


def serves(pod: Program) -> bool:
    return '"serving on http' in pod.output
