"""Two services that start at once on a volume, again and again, and a database that is damaged."""

import signal
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from ..sqlite.test_hand_over import second
from ..support.files import assert_sound
from ..support.losses import Losses
from ..support.process import Load, Program, run, served, stored, until

pytestmark = pytest.mark.slow

ROUNDS = 4
SAVES = 60  # acknowledged by each service of a round, at least

Pods = dict[Program, httpx.Client]


def test_two_services_that_start_at_once_take_turns_and_lose_nothing(
    path: Path, lost: Losses
) -> None:
    acknowledged: dict[str, int] = {}
    for number in range(ROUNDS):
        end = (signal.SIGTERM, signal.SIGKILL)[number % 2]
        with ExitStack() as stack:
            begun = [stack.enter_context(second(path, MEMORY_DRAIN="0")) for _ in range(2)]
            for load in taking_turns(dict(begun), number, end):
                acknowledged |= load.acknowledged
                assert set(load.refused.values()) <= {503}

    found = stored(path)
    lost(
        "two services start at once on one volume",
        acknowledged=acknowledged.items(),
        found=found.items(),
        remark=f"{ROUNDS} times; one served, and the other when that was ended or killed",
    )
    assert_sound(path, live=len(found))


def taking_turns(pods: Pods, number: int, end: signal.Signals) -> list[Load]:
    """What both were sent: first the one that serves, then the other."""
    loads = [
        Load(str(http.base_url), about=f"round {number}, service {place}, save", saves=100_000)
        for place, http in enumerate(pods.values())
    ]
    pairs = list(zip(pods, loads, strict=True))
    first, load = until(lambda: [pair for pair in pairs if serves(pair[0])])[0]
    last, other = next(pair for pair in pairs if pair[0] is not first)
    assert not serves(last)
    until(lambda: "waiting for it to stop" in last.output)
    assert pods[last].get("/stats").status_code == 503
    load.start().reach(SAVES)
    assert not serves(last)
    first.send(end)
    first.wait()
    load.join()
    until(lambda: serves(last))
    other.start().reach(SAVES)
    last.send(end)
    last.wait()
    other.join()
    return loads


def serves(pod: Program) -> bool:
    return '"serving on http' in pod.output


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
    harmed = path.read_bytes()

    refused = run("serve", variables=variables)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 2)  # and its hint
    assert str(path) in refused.stderr
    assert path.read_bytes() == harmed

    restored = run("restore", str(archive), "--force", variables=variables)
    assert restored.returncode == 0, restored.stderr
    with served(path) as (_, http):
        found = {row["content"]: row["id"] for row in http.get("/export").json()["observations"]}
    lost(
        "a damaged database, and its backup",
        acknowledged=load.acknowledged.items(),
        found=found.items(),
        remark="the start was refused with one sentence, and the file left as it was",
    )
    assert_sound(path, live=len(found))
