"""The file of a checkpoint: whole at every moment, private, and alone in its folder."""

import fcntl
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory_client.runtime import WorkingMemory, working_memory
from agentops_memory_client.runtime.working_memory import read, write

from ..support.files import disk
from ..support.forks import Forked

LONG = 60.0  # seconds; far more than it takes
KIBIBYTE = 1024


def kill(tmp_path: Path, call: str) -> str:
    """What a process prints that runs a function of `killing`; it must end well."""
    code = f"import pathlib; from tests.support import killing; killing.{call}"
    process = Forked(code, [], {}, cwd=tmp_path)
    with process.stdout, process.stderr:
        printed, complained = process.stdout.read(), process.stderr.read()
        assert process.wait(LONG) == 0, complained
    return printed


def names(folder: Path) -> list[str]:
    return sorted(it.name for it in folder.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("is_stale", [False, True], ids=["new", "beside a stale draft"])
def test_a_process_killed_at_any_line_leaves_the_old_state_or_the_new(
    is_stale: bool, tmp_path: Path
) -> None:
    path = tmp_path / "states" / "agent.json"
    path.parent.mkdir()

    turns = kill(
        tmp_path, f"at_each_line(pathlib.Path({str(path)!r}), is_stale={is_stale})"
    ).split()

    assert turns == sorted(turns)
    assert set(turns) == {"1", "2"}
    assert turns.count("1") > 15


@pytest.mark.slow
def test_a_process_killed_at_any_moment_loses_nothing_that_it_has_stored(tmp_path: Path) -> None:
    kill(tmp_path, f"at_any_moment(pathlib.Path({str(tmp_path / 'agent.json')!r}))")


def test_what_is_written_is_on_disk_before_it_counts_and_its_owner_alone_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, fsync = tmp_path / "agent.json", [], os.fsync
    path.write_text("old")
    path.chmod(0o644)

    def noted(file: int) -> None:
        synced.append((Path(f"/proc/self/fd/{file}").readlink().name, read(path)))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    write(path, b"new")

    assert synced == [(".agent.json.new", b"old"), (tmp_path.name, b"new")]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_stands_in_place_of_the_draft_is_neither_used_nor_followed(tmp_path: Path) -> None:
    path, draft, victim = (tmp_path / name for name in ("agent.json", ".agent.json.new", "victim"))
    victim.write_text("precious, and longer than a state")
    for put, target in (
        (Path.hardlink_to, victim), (Path.symlink_to, victim),
        (Path.symlink_to, tmp_path / "nothing"),
    ):  # fmt: skip
        put(draft, target)
        write(path, b"new")

        assert (read(path), path.is_symlink(), draft.exists()) == (b"new", False, False)
        assert victim.read_text() == "precious, and longer than a state"
    os.mkfifo(draft)
    with pytest.raises(OSError, match="No such device"):
        write(path, b"newer")
    assert (read(path), draft.is_fifo(), names(tmp_path)) == (
        b"new", True, [draft.name, path.name, "victim"],
    )  # fmt: skip


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    folder, link = tmp_path / "volume", tmp_path / "agent.json"
    folder.mkdir()
    link.symlink_to(Path("volume") / "state.json")

    for document in (b"first", b"second"):
        write(link, document)

        assert (folder / "state.json").read_bytes() == read(link) == document
    assert (names(tmp_path), names(folder)) == (["agent.json", "volume"], ["state.json"])
    assert link.is_symlink()


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    folder, busy = tmp_path / "folder", tmp_path / "busy.json"
    (folder / "in it").mkdir(parents=True)
    write(busy, b"old")
    (tmp_path / ".busy.json.new").mkdir()

    for path in (folder, tmp_path / "missing" / "agent.json", Path("/"), busy / "a", busy):
        with pytest.raises(OSError, match=r"folder|No such file|Not a directory|Is a directory"):
            write(path, b"new")

    assert names(tmp_path) == [".busy.json.new", "busy.json", "folder"]
    assert read(busy) == b"old"


def test_a_full_disk_leaves_the_old_state_and_no_litter(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", size=256 * KIBIBYTE) as folder:
        path = folder / "agent.json"
        memory = WorkingMemory(turn=1)
        memory.checkpoint(path)
        memory.extra["large"] = "x" * 512 * KIBIBYTE

        with pytest.raises(OSError, match="No space left"):
            memory.checkpoint(path)

        assert WorkingMemory.restore(path).extra == {}
        assert names(folder) == ["agent.json"]
        memory.extra["large"] = "x" * 64 * KIBIBYTE
        memory.checkpoint(path)
        assert WorkingMemory.restore(path).extra == memory.extra


def test_writers_of_one_path_take_turns_and_who_waits_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, draft = tmp_path / "agent.json", tmp_path / ".agent.json.new"
    documents = [bytes([letter]) * 100_000 for letter in b"abcd"]
    write(path, documents[0])

    def many(document: bytes) -> list[bytes]:
        found = []
        for _ in range(25):
            write(path, document)
            found.append(read(path))
        return found

    with ThreadPoolExecutor(len(documents)) as threads:
        found = [it for mine in threads.map(many, documents) for it in mine]
    assert set(found) <= set(documents)

    write(path, b"old")
    monkeypatch.setattr(working_memory, "LOCK_TIMEOUT", timedelta())
    with draft.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="Another process keeps writing it"):
            write(path, b"new")
        assert (read(path), draft.exists()) == (b"old", True)
    write(path, b"new")
    assert (read(path), names(tmp_path)) == (b"new", ["agent.json"])


def test_what_is_no_ordinary_file_is_neither_replaced_nor_waited_for(tmp_path: Path) -> None:
    pipe, plug, link = (tmp_path / name for name in ("pipe", "socket", "link"))
    os.mkfifo(pipe)
    os.mknod(plug, stat.S_IFSOCK)
    link.symlink_to(pipe)

    for path in (pipe, plug, link):
        with pytest.raises(OSError, match="A checkpoint is an ordinary file"):
            write(path, b"new")
        with pytest.raises(OSError, match="A checkpoint is an ordinary file"):
            read(path)

    assert (pipe.is_fifo(), plug.is_socket()) == (True, True)
    assert names(tmp_path) == ["link", "pipe", "socket"]
