"""What an upgrade would do is told before; then it is done, for every tenant."""

import shutil
from pathlib import Path

import pytest

from agentops_memory.operations.files.service_lock import service_lock

from ..support.damages import running
from ..support.engines import rows
from ..support.files import NEWEST, assert_sound
from ..support.original import filled
from ..support.terminal import Terminal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "memory.db", rows=3)


@pytest.fixture
def terminal(path: Path) -> Terminal:
    return Terminal({"MEMORY_DB_PATH": str(path)})


def everything(folder: Path) -> dict[str, bytes]:
    return {it.name: it.read_bytes() for it in folder.rglob("*") if it.is_file()}


def test_a_dry_run_tells_and_changes_nothing(path: Path, terminal: Terminal) -> None:
    before = everything(path.parent)

    told = terminal.say("migrate", "--dry-run")

    assert told == (
        f"default: is upgraded from the original's format to {NEWEST}, after a copy is made, "
        "and its index is rebuilt.\n"
    )
    assert everything(path.parent) == before


@pytest.mark.slow
def test_every_tenant_is_brought_up_to_date(path: Path, terminal: Terminal) -> None:
    other = path.with_name("memory.db.tenants") / "acme.db"
    other.parent.mkdir()
    shutil.copyfile(path, other)

    done = terminal.say("migrate").splitlines()

    assert [line.partition(":")[0] for line in done] == ["default", "acme"]
    assert all(line.endswith("Done.") for line in done)
    for file in (path, other):
        assert_sound(file, live=3)
    assert terminal.say("migrate").count("there is nothing to do.") == 2


def test_one_that_is_refused_stays_and_the_others_go_on(path: Path, terminal: Terminal) -> None:
    folder = path.with_name("memory.db.tenants")
    folder.mkdir()
    (folder / "acme.db").write_bytes(b"garbage" * 999)
    shutil.copyfile(path, folder / "globex.db")
    running("PRAGMA application_id = 1095583053", "PRAGMA user_version = 99")(path)

    told, done = terminal.run("migrate", "--dry-run"), terminal.run("migrate")

    assert (told.exit_code, done.exit_code) == (1, 1)
    for answer in (told, done):
        default, acme, globex, *_ = answer.stdout.splitlines()
        assert "made by a newer version" in default
        assert "file is not a database" in acme
        assert "is upgraded from the original's format" in globex
    assert (folder / "acme.db").read_bytes() == b"garbage" * 999
    assert rows(folder / "globex.db", "SELECT count(*) FROM memories") == [(3,)]


def test_nothing_is_done_while_a_service_has_the_databases(path: Path, terminal: Terminal) -> None:
    with service_lock(path):
        before = everything(path.parent)

        refused, told = terminal.run("migrate"), terminal.run("migrate", "--dry-run")

        assert everything(path.parent) == before
    assert (refused.exit_code, told.exit_code) == (1, 0)
    assert "is served by" in refused.stderr


@pytest.mark.slow
def test_other_rules_make_the_index_anew(path: Path, terminal: Terminal) -> None:
    terminal.say("migrate")
    running("UPDATE index_rules SET rules = 'others'", "PRAGMA journal_mode = DELETE")(path)

    told = terminal.say("migrate", "--dry-run")
    assert f"stays at format {NEWEST}, and its index is rebuilt." in told
    assert terminal.say("migrate").endswith("Done.\n")
    assert terminal.say("migrate", "--dry-run").count("nothing to do") == 1

    none = path.with_name("none") / "memory.db"
    done = Terminal({"MEMORY_DB_PATH": str(none)}).run("migrate")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "There is no database at" in done.stderr
    assert not none.parent.exists()
