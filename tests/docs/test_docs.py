"""The documents tell the truth: their commands run, and nothing is left out of them."""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest

from agentops_memory.cli import output
from agentops_memory.cli.program import COMMANDS, OF_MEMORIES, loaded
from agentops_memory.http.app import ALWAYS
from agentops_memory.memory.access import Role
from agentops_memory.secrets.redaction import PRIVATE, VALUE
from agentops_memory.secrets.shapes import KINDS

from ..support.forks import forking_command
from ..support.requirements import REQUIREMENTS
from ..support.samples import for_each
from ..support.service import serving

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Commands, each of which starts the program.
WITH_MANY = """
    anthropic api cli client configuration development memory-stores openintent openwop operations
    runtime true
""".split()

PYTHON = shlex.quote(sys.executable)
PROGRAMS = {"pytest": f"{PYTHON} -m pytest", "python": PYTHON}
PROGRAM = re.compile(rf"(?<![\w/])\.venv/bin/(agentops-memory|{'|'.join(PROGRAMS)})\b")
FENCE = re.compile(r"^```(?P<kind>[\w-]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)

# What is not run here, and what checks it instead; test_chart.py reads what is given to Helm.
CHECKED_ELSEWHERE = {
    "console-install": "test_the_commands_that_install_are_those_of_the_checks",
    "console-make": "test_every_make_target_in_the_documents_exists",
    "console-cluster": "test_a_cluster_command_names_what_exists",
    "console-postgresql": "test_the_commands_on_a_database_print_what_the_document_says",
    "console-suite": "test_the_application_of_the_document_serves_the_suite",
    "console-host": "test_a_command_for_a_machine_names_what_exists",  # in test_machine.py
}
NO_COMMANDS = {"text", "mermaid", "json", "sql", "python", "ini", "toml", "yaml"}


@dataclass(frozen=True)
class Step:
    """A command of a document, and what it says that the command prints."""

    command: str
    output: str


def blocks(document: Path, kind: str) -> list[str]:
    return [
        match["body"]
        for match in FENCE.finditer(document.read_text("utf-8"))
        if match["kind"] == kind
    ]


def with_commands(kind: str) -> Iterator[object]:
    """The documents with blocks of a kind."""
    for path in DOCUMENTS:
        if blocks(path, kind):
            marks = [pytest.mark.slow] if path.stem in WITH_MANY else []
            yield pytest.param(path, marks=marks, id=path.name)


@cache
def steps(block: str) -> Sequence[Step]:
    """The commands of a block; bash tells where each ends."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.rstrip().splitlines()
        # A command goes on while a quotation is open.
        length = next(n for n in range(1, len(lines) + 1) if _is_whole("\n".join(lines[:n])))
        found.append(Step("\n".join(lines[:length]), "\n".join(lines[length:]).strip()))
    return found


def _is_whole(command: str) -> bool:
    checked = subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False)
    return checked.returncode == 0 and not command.endswith("\\")


def as_pattern(output: str) -> str:
    return re.escape(output).replace(re.escape("..."), r".*?")


@pytest.mark.parametrize("document", [*with_commands("console")])
def test_the_commands_of_a_document_print_what_it_says(document: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        for block in blocks(document, "console"):
            for step in steps(block):
                command = step.command.replace("localhost:7437", service.url.split("//")[1])
                command = command.replace(
                    "agentops-memory demo", f"agentops-memory demo --url {service.url}"
                )
                service.clock.now = datetime.now(UTC)  # as the commands on the file have it
                folder = ROOT if re.search("pytest|docs/", step.command) else tmp_path
                # The service's file is where the commands look for it, unless told.
                assert_prints(step, command, folder, MEMORY_DB_PATH=str(service.path))


@pytest.mark.slow
@pytest.mark.parametrize("document", [*with_commands("console-postgresql")])
def test_the_commands_on_a_database_print_what_the_document_says(
    document: Path, postgresql: str, tmp_path: Path
) -> None:
    for block in blocks(document, "console-postgresql"):
        for step in steps(block):
            assert_prints(step, step.command, tmp_path, MEMORY_DATABASE_URL=postgresql)


def assert_prints(step: Step, command: str, folder: Path, **variables: str) -> None:
    """What a command prints there, with these settings, is what the document says of the step."""
    with TemporaryDirectory() as sockets, forking_command(Path(sockets)) as forked:
        script = PROGRAM.sub(lambda it: PROGRAMS.get(it[1], forked), command)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder, env={**os.environ, **variables},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    assert done.returncode == 0, (step.command, done.stderr)
    assert re.fullmatch(as_pattern(step.output), done.stdout.strip(), re.DOTALL), (
        step.command,
        done.stdout,
    )


def test_the_commands_that_install_are_those_of_the_checks() -> None:
    run, test = (
        block.removeprefix("$ ").strip() for block in blocks(DOCUMENTS[0], "console-install")
    )

    assert test in (ROOT / ".ci" / "run").read_text("utf-8")
    assert run in (ROOT / ".ci" / "run").read_text("utf-8")


def test_every_make_target_in_the_documents_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    commands = [
        step.command
        for document in DOCUMENTS
        for block in blocks(document, "console-make")
        for step in steps(block)
    ]

    assert commands
    for command in commands:
        program, target = command.split("#")[0].split()
        assert program == "make"
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), command


def test_a_cluster_command_names_what_exists() -> None:
    for document in DOCUMENTS:
        for block in blocks(document, "console-cluster"):
            for step in steps(block):
                for path in re.findall(r"-[kf] (\S+)", step.command):
                    assert (ROOT / path).exists(), step.command


SESSION = re.compile(
    r'"?(?:session_id|id)"?[=:]\s*"([^"]+)",\s+"?project"?[=:]\s*"([^"]+)"'
    r'|start_session\("([^"]+)", "([^"]+)"'
)


def test_the_documents_use_a_session_id_for_one_project() -> None:
    projects: dict[str, set[str]] = {}
    for document in DOCUMENTS:
        for session, project, started, of in SESSION.findall(document.read_text("utf-8")):
            projects.setdefault(session or started, set()).add((project or of).strip().lower())

    assert len(projects) > 5
    assert {id_: names for id_, names in projects.items() if len(names) > 1} == {}


HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


@cache
def anchors(document: Path, levels: range = range(1, 7)) -> set[str]:
    """The parts of a document that a link can name: its headings, and what it marks itself."""
    text = FENCE.sub("", document.read_text("utf-8"))
    headings = [title.lower() for signs, title in HEADING.findall(text) if len(signs) in levels]
    names = {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in headings}
    return names | set(re.findall(r'<a id="([^"]+)"', text))


@for_each("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"])
def test_all_that_a_document_names_exists_and_each_block_is_checked_somewhere(
    document: Path,
) -> None:
    """The name of a source stands for the end of a path: `handlers.py` for that of any protocol."""
    text = document.read_text("utf-8")
    if document in DOCUMENTS:
        kinds = {match["kind"] for match in FENCE.finditer(text)}
        assert kinds <= {"console", *CHECKED_ELSEWHERE, *NO_COMMANDS}
        named = re.findall(r"`([\w/]+\.py)`", text)
        assert [name for name in named if f"/{name}\n" not in sources()] == []
    for target, part in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
        path = document.parent / target if target else document
        assert target.startswith("http") or path.exists(), target
        assert not part or path.suffix != ".md" or part in anchors(path), (target, part)


def test_the_index_links_every_page_and_a_long_page_its_sections() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = {it.name for it in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"]({name})" not in index} == set()

    for name in ("api", "client", "mcp", "memory-stores", "openintent", "openwop", "runtime"):
        document = ROOT / "docs" / f"{name}.md"
        begin, _, _ = document.read_text("utf-8").partition("\n## ")
        assert anchors(document, range(2, 3)) - set(re.findall(r"\]\(#([^)]+)\)", begin)) == set()


@cache
def sources() -> str:
    """The path of every source, each on a line."""
    folders = ("service", "tests", "benchmarks")
    return "".join(
        f"/{path.relative_to(ROOT)}\n" for it in folders for path in (ROOT / it).rglob("*.py")
    )


@cache
def class_names() -> set[str]:
    texts = (path.read_text("utf-8") for path in (ROOT / "service").rglob("*.py"))
    return {name for text in texts for name in re.findall(r"^class (\w+)", text, re.MULTILINE)}


OF_THE_SOURCES = [
    it for it in DOCUMENTS if it.stem in {"architecture", "development"} or it.parent.name != "docs"
]


@for_each("document", OF_THE_SOURCES)
def test_every_folder_and_class_that_a_document_of_the_sources_names_exists(document: Path) -> None:
    """A folder has a slash in it or at its end; a class has two capitals."""
    spans = re.findall(r"`([^`\n]+)`", document.read_text("utf-8"))
    folders = [it.rstrip("/") for it in spans if re.fullmatch(r"[a-z_]+(/[a-z_]+)*/?", it)
               if "/" in it]  # fmt: skip
    paths = [f"/{it.relative_to(ROOT)}" for it in ROOT.glob("[a-z]*/**/") if it.is_dir()]
    classes = {name for span in spans for name in re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", span)}

    assert [it for it in folders if not any(path.endswith(f"/{it}") for path in paths)] == []
    assert classes - class_names() == set()


# What looks after the service asks this again and again.
WITHOUT_SPAN = {"health", "live", "ready", "startup", "metrics", "openapi", "docs"}
COMMANDS_PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")


def test_every_command_of_memories_is_documented_with_its_options() -> None:
    rows = {
        row[1]: row[0] for row in re.finditer(r"^\| `(\w+)[^`]*`.*\|$", COMMANDS_PAGE, re.MULTILINE)
    }
    told = set(re.findall(r"`(--[\w-]+)", COMMANDS_PAGE))
    shared = {"--project", "--url", "--key-file", "--db", "--tenant", "--json"}

    for command in map(loaded, OF_MEMORIES):
        options = {
            option
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for option in parameter.opts
        }
        assert options <= told, (command.name, options)
        row = rows[str(command.name)]
        assert {option for option in options - shared if option not in row} == set(), command.name


def test_every_other_command_and_exit_code_is_documented() -> None:
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    documents = "\n".join(path.read_text("utf-8") for path in paths)

    for name in COMMANDS:
        command = loaded(name)
        assert f"agentops-memory {name}" in documents or f"`{name}" in COMMANDS_PAGE, name
        of_it = command.commands if isinstance(command, click.Group) else {}
        assert [each for each in of_it if f"{name} {each}" not in documents] == [], name
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", COMMANDS_PAGE, re.MULTILINE)}
    signals = {output.INTERRUPTED, output.READER_GONE, output.TERMINATED}
    assert codes == {0, 2, output.REFUSED, output.LATER} | signals


def test_every_kind_of_secret_role_and_header_is_documented() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    assert [kind for kind in (*KINDS, PRIVATE, VALUE) if f"| `{kind}` | " not in text] == []
    assert [role for role in Role if f"| `{role}` |" not in text] == []
    text = text.lower().replace("a content security policy", "content-security-policy")
    assert [name for name, _ in ALWAYS if name.decode() not in text] == []


@cache
def suite() -> list[str]:
    return [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]


def test_each_fault_in_the_documents_has_its_test() -> None:
    texts = [(ROOT / "docs" / it).read_text("utf-8") for it in ("operations.md", "postgresql.md")]
    sections = [it.partition("## Fault tolerance")[2].partition("\n## ")[0] for it in texts]
    listed = re.findall(r"`(test_\w+)` \|$", "\n".join(sections), re.MULTILINE)

    with_a_loss = [
        test.name
        for text in suite()
        if "Losses" in text
        for test in ast.parse(text).body
        if isinstance(test, ast.FunctionDef) and "lost" in {it.arg for it in test.args.args}
    ]
    assert sorted(listed) == sorted(with_a_loss)


REQUIRED = re.compile(
    r"^@requirement\(([^)]*)\)\s*(?:(?:@[^\n]*|\)|# fmt: skip)\s*)*(?:async )?def test_",
    re.MULTILINE,
)


def test_every_requirement_has_a_test() -> None:
    marks = [mark for text in suite() for mark in REQUIRED.findall(text)]

    assert {name for mark in marks for name in re.findall(r'"([^"]+)"', mark)} == REQUIREMENTS
