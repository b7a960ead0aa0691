"""A database under two names is refused; a second one that a killed restore left is removed."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentops_memory.sqlite import snapshots as replacing
from agentops_memory.sqlite.open_files import kept_name

from ..support.archives import at, backed_up
from ..support.files import beside
from ..support.forks import Forked
from ..support.process import ANY_PORT, run, served, stored
from ..support.service import serving

LONG = 120.0  # seconds
COMMANDS: list[Sequence[str]] = [
    ("serve", "--listen", "127.0.0.1:0"), ("save", "Title", "Content", "--project", "shop"),
    ("stats", "--storage"), ("index",), ("scan",), ("migrate",),
    ("projects", "erase", "shop", "--yes"), ("export", "--tenant", "default"),
    ("backup", "--to", "memory.zip"),
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database without a service."""
    path = tmp_path / "memory.db"
    at(path).say("save", "Apple", "about apple", "--project", "shop")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False], ids=["replaced", "put where none was"])
def test_a_restore_killed_at_any_line_leaves_no_second_name(
    path: Path, tmp_path: Path, is_there: bool
) -> None:
    archive = backed_up(path, tmp_path / "memory.zip")
    if is_there:
        (tmp_path / "kept").touch()
    else:
        path.unlink()

    call = f"before_each_line(pathlib.Path({str(archive)!r}), pathlib.Path({str(path)!r}))"
    code = f"import pathlib; from tests.support import killing_restores; killing_restores.{call}"
    process = Forked(code, [], {}, cwd=tmp_path)
    with process.stdout, process.stderr:
        printed, complained = process.stdout.read(), process.stderr.read()
        assert process.wait(LONG) == 0, complained

    names = [tuple(map(int, line.split())) for line in printed.splitlines()]
    assert {after for _, after in names} == {1}
    assert 2 in {left for left, _ in names}


@pytest.mark.slow
def test_a_database_under_two_names_is_opened_by_no_command(path: Path, tmp_path: Path) -> None:
    at(path).say("tenants", "create", "acme")
    acme = tmp_path / "memory.db.tenants" / "acme.db"
    os.link(acme, tmp_path / "acme.db")
    os.link(path, tmp_path / "second.db")
    before = {it.name for it in tmp_path.iterdir()}

    for command in COMMANDS:
        done = run(*command, "--db", str(tmp_path / "second.db"), cwd=tmp_path)
        assert done.returncode == 1
        told = done.stderr + done.stdout
        assert f"{tmp_path / 'second.db'} has 2 names (hard links)." in told
        assert "remove all but one" in told
    erasure = at(path).run("tenants", "erase", "acme", "--yes")

    assert {it.name for it in tmp_path.iterdir()} - before == {"second.db.lock"}
    assert (erasure.exit_code, "has 2 names" in erasure.stderr) == (1, True)
    assert acme.exists()
    (tmp_path / "second.db").unlink()
    with served(path) as (_, http):
        os.link(path, tmp_path / "second.db")
        done = run("serve", variables={"MEMORY_DB_PATH": str(tmp_path / "second.db"), **ANY_PORT})
        assert (done.returncode, "has 2 names" in done.stderr) == (1, True)
        (tmp_path / "second.db").unlink()
        assert http.get("/health/ready").status_code == 200


@pytest.mark.slow
def test_a_second_name_is_removed_only_if_it_is_that_of_the_same_file_and_no_restore_runs(
    path: Path, tmp_path: Path
) -> None:
    (link := tmp_path / "elsewhere" / "link.db").parent.mkdir()
    link.symlink_to(path)
    shutil.copy(path, tmp_path / "memory.db.before-restore")
    for through in (path, link):  # of which the latter leads to where the second name is
        os.link(path, tmp_path / "memory.db.before-restore-2")

        with serving(through):
            pass

        assert beside(path) == ["elsewhere", "memory.db.before-restore"]
        assert path.stat().st_nlink == 1
        assert set(stored(path)) == {"about apple"}

    with replacing._closed_to_others(path):  # noqa: SLF001 - while a restore runs
        kept = kept_name(path)
        done = run("stats", "--db", str(path))
        assert (done.returncode, "has 2 names" in done.stderr) == (1, True)
        assert kept.exists()
    assert run("stats", "--db", str(path)).returncode == 0
    assert not kept.exists()
