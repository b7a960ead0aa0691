"""The doctor finds what is wrong, says so in sentences, and mends what is safe and no more."""

import ast
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.files import drafts
from agentops_memory.memory.damage import Finding, Status
from agentops_memory.memory.space import DEFAULT_RETENTIONS
from agentops_memory.operations.backup import make_archive, path_in
from agentops_memory.operations.doctor import (
    DoctorContext,
    apply_fixes,
    check_environment,
    findings_of,
)
from agentops_memory.operations.files.service_lock import service_lock
from agentops_memory.settings import settings
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.tenants import storage_stats

from ..support.damages import CASES, Case, beside, running
from ..support.samples import for_each, sampled
from ..support.terminal import Terminal

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "operations.md"
PACKAGE = ROOT / "service" / "agentops_memory"

# What no fault of the index changes, and no mending either.
OF_ROWS = ("memories", "sessions", "spaces", "revisions", "erasures", "transcripts", "stores")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with some memories, which nobody has open."""
    path = tmp_path_factory.mktemp("sound") / "memory.db"
    terminal = Terminal({"MEMORY_DB_PATH": str(path)})
    for number in range(3):
        terminal.say("save", f"Title {number}", f"word{number} and more", "--project", "demo")
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "memory.db"
    shutil.copy2(sound, copy)
    return copy


def patient(path: Path, *, thorough: bool = False, **environment: str) -> DoctorContext:
    variables = {"MEMORY_DB_PATH": str(path), **environment}
    return DoctorContext(
        settings=settings(variables), environment=variables, now=datetime.now(UTC),
        is_thorough=thorough,
    )  # fmt: skip


def wrong(found: list[Finding]) -> list[Finding]:
    return [it for it in found if it.status is not Status.OK and it.code != "auth"]


def everything(folder: Path) -> dict[str, object]:
    """All that lies in a folder, byte for byte, with its modes and times; but for SQLite's own."""
    return {
        it.name: (it.lstat().st_mode, it.lstat().st_mtime_ns, it.lstat().st_size, _begin(it))
        for it in folder.iterdir()
        if it.is_file() and not it.name.endswith("-shm")
    }


def _begin(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(2**22)


def rows(path: Path) -> str:
    """A digest of all that was stored."""
    digest = hashlib.sha256()
    with closing(connect(path)) as database:
        for table in OF_ROWS:
            for row in database.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY 1"):
                digest.update(repr((table, row)).encode())
    return digest.hexdigest()


def met(case: Case, found: list[Finding]) -> list[Finding]:
    return [
        it
        for it in found
        if (it.code, it.status) == (case.code, case.status) and case.said in it.sentence
    ]


@pytest.mark.slow
def test_nothing_is_wrong_with_a_sound_database(path: Path) -> None:
    for thorough in (False, True):
        before = everything(path.parent)

        found = findings_of(patient(path, thorough=thorough))

        assert wrong(found) == []
        assert {it.code for it in found} <= codes()
        assert everything(path.parent) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(CASES, 3, first=1))
def test_a_damage_is_found_and_mended_where_that_is_promised(name: str, path: Path) -> None:
    case = CASES[name]
    case.damage(path)
    before = everything(path.parent)

    found = findings_of(patient(path, thorough=case.is_thorough))

    assert met(case, found), wrong(found)
    assert everything(path.parent) == before
    assert any(it.is_fixable for it in met(case, found)) == case.is_mended
    assert all(it.remedy or it.status is Status.OK for it in found)
    if case.is_mended:
        kept = rows(path)
        assert {it.status for it in apply_fixes(found)} == {Status.OK}, [*apply_fixes(found)]
        left = wrong(findings_of(patient(path, thorough=True)))
        assert {it.code for it in left} <= {"copies"}  # of the file as it was
        assert rows(path) == kept


def section(heading: str) -> list[list[str]]:
    """The rows of a section's last table, without its heading."""
    text = DOCUMENT.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.rpartition("|---|")[2].splitlines()[1:] if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def codes() -> set[str]:
    """Those that the documentation lists, each with what is examined."""
    return {code.strip("`") for code, _ in section("Doctor")}


def test_every_code_of_a_finding_is_documented_and_no_other() -> None:
    made = re.compile(r'\b(?:ok|note|warn|failed)\(\s*"([a-z-]+)"')
    program = "\n".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    found = set(made.findall(program))
    assert found
    assert found <= codes()
    assert [it for it in sorted(codes()) if f'"{it}"' not in program] == []


def sentences() -> set[str]:
    """Every text in the program; what is filled in is an ellipsis."""
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    return {_text(node) for tree in trees for node in ast.walk(tree)}


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "..."


@pytest.mark.slow
def test_every_sentence_that_is_explained_is_one_that_the_service_says() -> None:
    said = sentences()
    quoted = [
        sentence
        for symptom, *_ in section("Troubleshooting by symptom")
        for sentence in re.findall(r"`([^`]+ [^`]+)`", symptom)
    ]

    assert len(quoted) > 30
    assert [it for it in quoted if not any(it in sentence for sentence in said)] == []


def test_at_the_terminal_what_is_wrong_comes_first_and_warnings_do_not_fail(path: Path) -> None:
    misspelt = {"MEMORY_DB_PATH": str(path), "MEMORY_LISTN": ":1"}
    warned = Terminal(misspelt).json("doctor", "--thorough")
    assert (warned["is_well"], warned["failed"], warned["warning"]) == (True, 0, 1)
    assert warned["findings"][0] == {
        "code": "environment", "tenant": None, "status": "warning",
        "sentence": "MEMORY_LISTN is not a setting and is ignored.",
        "remedy": "Did you mean MEMORY_LISTEN?", "is_fixable": False,
    }  # fmt: skip

    done = Terminal(misspelt | {"MEMORY_DRAIN": "x"}).run("doctor")
    assert (done.exit_code, "MEMORY_DRAIN: 'x' is not a duration" in done.stderr) == (1, True)
    terminal = Terminal(misspelt)
    CASES["no index of sessions"].damage(path)
    found = terminal.run("doctor")

    assert found.exit_code == 1
    lines = found.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["failed", "warning", "note"]
    assert lines[0].partition("default")[2].startswith("): Missing: the index sessions_by_start.")
    assert lines[1].endswith("Did you mean MEMORY_LISTEN?")
    assert lines[-1] == "1 failure, 1 warning; --fix can fix 1 of them."
    assert terminal.run("doctor", "--fix").stdout.splitlines()[0] == (
        "fixed      schema (default): All ordinary indexes were rebuilt."
    )


@pytest.mark.slow
def test_every_tenant_is_looked_at_or_one(path: Path) -> None:
    terminal = Terminal({"MEMORY_DB_PATH": str(path)})
    terminal.say("tenants", "create", "acme")
    path.with_name("memory.db.tenants").joinpath("globex.db").write_bytes(b"garbage" * 999)

    every, one = terminal.run("doctor"), terminal.run("doctor", "--tenant", "acme")

    assert (every.exit_code, one.exit_code) == (1, 0)
    assert "integrity (globex): It cannot be read: file is not a database." in every.stdout
    assert "globex" not in one.stdout
    assert "default:" not in one.stdout


@for_each(
    "variables, status, said",
    [
        ({"MEMORY_TENANT_QOUTA": "1"}, Status.WARNING, "Did you mean MEMORY_TENANT_QUOTA?"),
        ({"MEMORY_XYZZY": "1"}, Status.NOTE, "docs/configuration.md"),
        ({"MEMORY_SERVICE_PORT_HTTP": "1", "MEMORY_PORT_80_TCP_ADDR": "::"}, Status.OK, ""),
        ({"MEMORY_API_KEY": "1", "MEMORY_URL": "", "memory_listn": ""}, Status.OK, ""),
    ],
)
def test_a_variable_that_is_no_setting_is_noticed(
    variables: dict[str, str], status: Status, said: str
) -> None:
    (found,) = check_environment(variables)

    assert (found.status, found.remedy[: len(said)]) == (status, said)


def test_a_log_that_a_crash_left_is_read_and_stays(path: Path, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed" / "memory.db"
    crashed.parent.mkdir(mode=0o700)
    with closing(connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("DELETE FROM sessions")
        for suffix in ("", "-wal"):
            shutil.copy2(f"{path}{suffix}", f"{crashed}{suffix}")
    before = everything(crashed.parent)

    found = findings_of(patient(crashed, thorough=True))

    assert [it.code for it in wrong(found)] == ["references"]
    assert everything(crashed.parent) == before


def test_a_file_that_is_in_use_is_looked_at_and_mended(path: Path) -> None:
    with closing(connect(path)) as database:
        database.execute("INSERT INTO memories_fts_0 (rowid, title) VALUES (99, 'more')")
        found = findings_of(patient(path))
        done = list(apply_fixes(found))

        assert [(it.code, it.status) for it in wrong(found)] == [("index", Status.WARNING)]
        assert [it.sentence for it in done] == ["Partition 0 was recreated."]
        assert database.execute("SELECT count(*) FROM memories").fetchone() == (3,)


def then_rows(path: Path) -> Path:
    CASES["damaged rows"].damage(path)
    return path


def then_a_link(path: Path) -> Path:
    theirs = path.rename(path.with_name("theirs"))
    path.symlink_to(theirs)
    return theirs


def same_keys(path: Path) -> Path:
    running("UPDATE memories SET key = 'same'")(path)
    return path


@pytest.mark.parametrize(
    ("name", "meanwhile", "said"),
    [
        ("no unique index", same_keys, "SQLite refuses: UNIQUE constraint failed"),
        ("no index of sessions", then_rows, ""), ("readable by others", then_a_link, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_mended_or_would_still_be_damaged_is_left_as_it_was(
    path: Path, name: str, meanwhile: Callable[[Path], Path], said: str
) -> None:
    CASES[name].damage(path)
    found = findings_of(patient(path))
    theirs = meanwhile(path)
    before = hashlib.sha256(theirs.read_bytes()).hexdigest(), theirs.stat().st_mode

    (done,) = apply_fixes(found)

    assert done.status is not Status.OK
    assert f"Not fixed: {said}" in done.sentence
    assert (hashlib.sha256(theirs.read_bytes()).hexdigest(), theirs.stat().st_mode) == before


def test_drafts_are_copies_unless_somebody_writes_them(path: Path) -> None:
    beside(".before-upgrade.part")(path)

    with drafts(path.parent) as folder:
        copies = [it for it in findings_of(patient(path)) if it.code == "copies"]
        assert folder.is_dir()
    assert [it.sentence.partition(":")[0] for it in copies] == ["memory.db.before-upgrade.part"]


def test_no_link_is_followed_to_close_what_is_not_ours(path: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "elsewhere" / "passwd"
    theirs.parent.mkdir()
    theirs.write_text("")
    path.parent.chmod(0o755)
    for mode in (0o600, 0o644):
        for name in (".audit", ".keys"):
            path.with_name(f"memory.db{name}").unlink(missing_ok=True)
            path.with_name(f"memory.db{name}").symlink_to(theirs)
        path.chmod(mode)
        theirs.chmod(0o644)

        found = findings_of(patient(path))
        assert {it.code for it in found if it.is_fixable} <= {"mode"}
        [*apply_fixes(found)]

        assert (theirs.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (
            0o644,
            mode & ~0o007,
        )


def test_a_database_behind_a_link_is_looked_at_with_its_log(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "linked" / "memory.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with closing(connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("DELETE FROM sessions")

        assert [it.code for it in wrong(findings_of(patient(link)))] == ["references"]
        assert storage_stats(link, DEFAULT_RETENTIONS, datetime.now(UTC)).log


def test_backups_that_are_not_made_or_would_be_lost_are_noticed(path: Path) -> None:
    folder, now = path.with_name("backups"), datetime.now(UTC).replace(microsecond=0)

    def told(now: datetime) -> list[str]:
        asked = patient(path, MEMORY_BACKUP_DIR=str(folder), MEMORY_BACKUP_EVERY="1h")
        found = findings_of(replace(asked, now=now))
        return [it.sentence.removeprefix(str(folder)) for it in wrong(found) if it.code == "backup"]

    same_disk = " is on the same disk as the database, and would be lost with it."
    assert told(now) == [" cannot be read: No such file or directory."]
    folder.mkdir()
    assert told(now) == ["There is no backup yet.", same_disk]
    make_archive(patient(path).settings, path_in(folder, now), now=now)
    assert told(now + timedelta(hours=2)) == [same_disk]
    late = now + timedelta(hours=2, minutes=1)
    assert told(late) == ["The newest backup is too old.", same_disk]


ERASED = """INSERT INTO erasures (id, kind, project, observations, revisions, sessions, erased_at,
                                  bytes_gone_at)
            VALUES ('e', 'project', 'p', 1, 1, 1, 1750000000000000, {})"""
TOMORROW = f"{(datetime.now(UTC) + timedelta(days=1)).timestamp() * 1_000_000:.0f}"
CHANGED = f"""INSERT INTO revisions (memory_id, number, deed, at)
              SELECT min(id), 1, 'created', {TOMORROW} FROM memories"""
NOTICED: list[tuple[str, dict[str, str], list[tuple[str, Status]]]] = [
    ("", {"MEMORY_TENANT_QUOTA": "210000"}, [("quota", Status.WARNING)]),
    ("", {"MEMORY_LISTEN": ":1"}, [("auth", Status.FAILED)]),
    ("", {"MEMORY_AUTH": "keys"}, [("auth", Status.FAILED)]),
    (CHANGED, {}, [("clock", Status.WARNING)]),
    (f"UPDATE memories SET updated_at = {TOMORROW}", {}, [("clock", Status.WARNING)]),
    (ERASED.format("1750000000000001"), {}, []),
]


@pytest.mark.slow
@for_each("statement, variables, expected", NOTICED)
def test_what_else_is_noticed(
    sound: Path, tmp_path_factory: pytest.TempPathFactory, statement: str,
    variables: dict[str, str], expected: list[tuple[str, Status]],
) -> None:  # fmt: skip
    path = Path(shutil.copy2(sound, tmp_path_factory.mktemp("noticed") / "memory.db"))
    running(statement)(path)

    found = findings_of(patient(path, thorough=False, **variables))

    named = [(it.code, it.status) for it in found if it.status is not Status.OK]
    assert [it for it in named if it != ("auth", Status.NOTE)] == expected
    assert (("auth", Status.NOTE) in named) is (("auth", Status.FAILED) not in expected)


def test_who_serves_is_named_and_a_clock_that_was_never_set_is_noticed(path: Path) -> None:
    with service_lock(path):
        found = findings_of(patient(path))
    assert [it.sentence for it in found if it.code == "served" and "process" in it.sentence]
    assert wrong(found) == []

    found = findings_of(replace(patient(path), now=datetime(1970, 1, 2, tzinfo=UTC)))
    assert ("clock", Status.FAILED) in [(it.code, it.status) for it in wrong(found)]


def test_a_disk_without_room_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(path)
    told = []
    for blocks, inodes in ((2**20, 2), (10, 10_000), (2**20, 0)):
        values = list(real[:10])
        values[1], values[4], values[5], values[7] = 4096, blocks, 1, inodes
        monkeypatch.setattr(os, "statvfs", lambda _, of=tuple(values): os.statvfs_result(of))
        told += [(it.code, it.status) for it in wrong(findings_of(patient(path)))]

    assert told == [("space", Status.WARNING), ("space", Status.FAILED), ("space", Status.FAILED)]


def test_words_are_not_made_of_rows_that_are_damaged(path: Path) -> None:
    CASES["damaged words"].damage(path)
    CASES["damaged rows"].damage(path)

    found = [it for it in findings_of(patient(path)) if it.code == "integrity"]

    assert {it.is_fixable for it in found} == {False}
    assert all(it.status is Status.FAILED for it in found)
