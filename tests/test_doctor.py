"""The doctor finds what is wrong, says so in sentences, and mends what is safe and no more."""

import ast
import hashlib
import re
import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentops_memory.doctor import Patient, findings_of, mended
from agentops_memory.domain.examination import CODES, Finding, Status
from agentops_memory.environment import usable
from agentops_memory.storage.sqlite.connection import connect

from .damages import CASES, Case
from .terminal import Terminal

ROOT = Path(__file__).parents[1]
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
    path.chmod(0o600)
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "memory.db"
    shutil.copy2(sound, copy)
    return copy


def patient(path: Path, *, thorough: bool = False, **environment: str) -> Patient:
    variables = {"MEMORY_DB_PATH": str(path), **environment}
    return Patient(
        usable=usable(variables, {}),
        environment=variables,
        now=datetime.now(UTC),
        is_thorough=thorough,
    )


def wrong(found: list[Finding]) -> list[Finding]:
    return [it for it in found if it.status is not Status.OK and it.code != "auth"]


def everything(folder: Path) -> dict[str, object]:
    """All that lies in a folder, byte for byte, with its modes and times; but for SQLite's own."""
    return {
        it.name: (it.lstat().st_mode, it.lstat().st_mtime_ns, it.read_bytes())
        for it in folder.iterdir()
        if it.is_file() and not it.name.endswith("-shm")
    }


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


def test_nothing_is_wrong_with_a_sound_database(path: Path) -> None:
    for thorough in (False, True):
        before = everything(path.parent)

        found = findings_of(patient(path, thorough=thorough))

        assert wrong(found) == []
        assert {it.code for it in found} <= CODES.keys()
        assert everything(path.parent) == before


@pytest.mark.parametrize("name", CASES)
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
        assert {it.status for it in mended(found)} == {Status.OK}, [*mended(found)]
        assert wrong(findings_of(patient(path, thorough=True))) == []
        assert rows(path) == kept


def section(heading: str) -> list[list[str]]:
    """The rows of a section's last table, without its heading."""
    text = DOCUMENT.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.rpartition("|---|")[2].splitlines()[1:] if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_finding_is_documented() -> None:
    documented = {code.strip("`"): what for code, what, _ in section("Doctor")}

    assert documented == CODES


def test_every_code_that_is_found_is_one_of_those() -> None:
    texts = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]

    found = {code for text in texts for code in re.findall(r'\bcode="([a-z-]+)",?\n? ', text)}
    assert found - {"error"} <= CODES.keys()


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


def test_every_sentence_that_is_explained_is_one_that_the_service_says() -> None:
    said = sentences()
    quoted = [
        sentence
        for symptom, *_ in section("Troubleshooting by symptom")
        for sentence in re.findall(r"`([^`]+ [^`]+)`", symptom)
    ]

    assert len(quoted) > 30
    assert [it for it in quoted if not any(it in sentence for sentence in said)] == []
