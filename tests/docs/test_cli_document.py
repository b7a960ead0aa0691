"""docs/cli.md tells of every command and option, and of every exit code."""

import re
from pathlib import Path

import click

from agentops_memory.cli import output as failing
from agentops_memory.cli.catalog import COMMANDS, OF_MEMORIES, loaded

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "cli.md").read_text("utf-8")
ROWS = {row[1]: row[0] for row in re.finditer(r"^\| `(\w+)[^`]*`.*\|$", TEXT, re.MULTILINE)}


def test_every_command_of_memories_is_documented_with_its_options() -> None:
    told = set(re.findall(r"`(--[\w-]+)", TEXT))

    for command in map(loaded, (*OF_MEMORIES, "completion")):
        row = ROWS[str(command.name)]
        options = [
            option
            for parameter in command.params
            if isinstance(parameter, click.Option)
            for option in parameter.opts
        ]
        assert set(options) <= told, (command.name, options)
        of_its_own = set(options) - {
            "--project", "--url", "--key-file", "--db", "--tenant", "--json",
        }  # fmt: skip
        assert {option for option in of_its_own if option not in row} == set(), command.name


def test_every_other_command_is_documented_somewhere() -> None:
    paths = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
    documents = "\n".join(path.read_text("utf-8") for path in paths)

    for name in COMMANDS:
        command = loaded(name)
        assert f"agentops-memory {name}" in documents or f"`{name}" in TEXT, name
        of_it = command.commands if isinstance(command, click.Group) else {}
        assert [each for each in of_it if f"{name} {each}" not in documents] == [], name


def test_every_exit_code_is_documented() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}

    signals = {failing.INTERRUPTED, failing.READER_GONE, failing.TERMINATED}
    assert codes == {0, 2, failing.REFUSED, failing.LATER} | signals
