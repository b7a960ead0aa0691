"""What only a real terminal, a pipe and a shell can ask of the program."""

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from rich.cells import cell_len

from agentops_memory.cli.output import cut, one_line, size

from ..support.engines import command
from ..support.forks import forking_command
from ..support.process import environment, free_port
from ..support.samples import for_each
from ..support.terminal import Terminal

PROGRAM = [sys.executable, "-m", "agentops_memory"]
IN_SHELL = shlex.join(PROGRAM)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A file with a memory that is wider than a terminal."""
    path = tmp_path_factory.mktemp("file") / "memory.db"
    terminal = Terminal({"MEMORY_DB_PATH": str(path), "MEMORY_PROJECT": "p"})
    terminal.say("save", "Wide " + "漢字" * 40, "x" * 300)
    return terminal


def in_shell(at: Terminal, line: str) -> subprocess.CompletedProcess[str]:
    """What became of a line that a shell runs."""
    words, variables = command(["bash", "-c", line], at.variables)
    return subprocess.run(
        words, env=environment(variables), capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The program as a command that is started quickly, and has the terminal of its caller."""
    with forking_command(tmp_path_factory.mktemp("forks")) as line:
        yield shlex.split(line)


def watched(forked: list[str], at: Terminal, *arguments: str, **variables: str) -> str:
    """What a terminal of 40 columns gets to see, of both outputs."""
    ours, theirs = pty.openpty()
    words, settings = command([*forked, *arguments], at.variables)
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment({**settings, "COLUMNS": "40", "TERM": "xterm", **variables}),
    )  # fmt: skip
    os.close(theirs)
    seen = bytearray()
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # it has ended
        pass
    os.close(ours)
    assert process.wait(30) == 0, seen
    return seen.decode()


@pytest.mark.slow
def test_a_terminal_gets_tables_and_lines_that_fit(forked: list[str], at: Terminal) -> None:
    listed, found = (
        re.sub(r"\x1b\[\d*m", "", seen).splitlines()
        for seen in (watched(forked, at, "list"), watched(forked, at, "search", "wide"))
    )
    assert listed[0].split() == ["ID", "CHANGED", "TYPE", "TITLE"]
    assert re.match(r"#1  .* discovery  .*\N{HORIZONTAL ELLIPSIS}$", listed[1])
    assert max(map(cell_len, listed)) <= 40
    assert [cell_len(line) for line in found] == [39, 40]
    assert "\N{HORIZONTAL ELLIPSIS}" in "".join(found)
    assert "\x1b[1m" in watched(forked, at, "list")


@pytest.mark.slow
@pytest.mark.sqlite_files
@pytest.mark.parametrize(
    ("arguments", "label", "last"),
    [
        (["export", "{file}"], "Exporting", "100%"),
        (["import", "{file}"], "Importing", "100%"),
        (["index", "--check"], "Examining", "partition 0: exact"),
        (["migrate"], "Migrating", "there is nothing to do."),
    ],
    ids=lambda it: it[0] if isinstance(it, list) else "",
)  # fmt: skip
def test_long_work_has_a_bar_at_a_terminal_alone(
    forked: list[str], at: Terminal, tmp_path: Path, arguments: list[str], label: str, last: str
) -> None:
    file = str(tmp_path / "all.json")
    words = [word.format(file=file) for word in arguments]
    if label == "Importing":
        at.say("export", file)
    seen = watched(forked, at, *words, COLUMNS="100", NO_COLOR="1")

    assert label in seen
    assert seen.rindex(last) > seen.index(label)
    assert re.search(r"\x1b\[\d*m", seen) is None
    if label == "Exporting":
        words += ["--force"]
    done = at.run(*words)
    assert label not in done.stdout + done.stderr


@contextmanager
def watched_service(
    *arguments: str, cwd: Path | None = None, **variables: str
) -> Iterator[tuple[str, Callable[[str], str]]]:
    """A service at a terminal: its address, and a wait for a line that matches a pattern."""
    ours, theirs = pty.openpty()
    address = f"127.0.0.1:{free_port()}"
    words, settings = command(
        [*PROGRAM, "--listen", address, *arguments], {"MEMORY_DRAIN": "0", **variables}
    )
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(settings), cwd=cwd
    )
    os.close(theirs)
    seen = ""

    def line(pattern: str) -> str:
        nonlocal seen
        while not (found := re.search(pattern, seen)):
            seen += os.read(ours, 4096).decode()
        return found[0]

    try:
        yield f"http://{address}", line
    finally:
        process.terminate()
        process.wait(30)
        os.close(ours)


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_service_at_a_terminal_speaks_to_people(tmp_path: Path) -> None:
    with watched_service("--db", "memory.db", cwd=tmp_path, NO_COLOR="1") as (url, line):
        banner = line(r"agentops-memory [\s\S]*Ctrl-C")
        httpx.get(f"{url}/stats?project=secret")
        request = line(r"\d\d:\d\d:\d\d  200  GET    /stats .*\n")

    for fact in (url, f"{tmp_path}/memory.db\r\n", f"{url}/docs"):
        assert fact in banner
    assert re.fullmatch(r".* /stats  [\d.]+ ms  default  127\.0\.0\.1\s*", request)
    with watched_service(cwd=tmp_path) as (_, line):
        banner = line(r".*agentops-memory[\s\S]*Ctrl-C")
        assert "\x1b[1magentops-memory" in banner
        assert "/data/memory.db" in banner


@pytest.mark.slow
def test_a_service_at_a_terminal_may_write_the_json_of_a_pipe(tmp_path: Path) -> None:
    with watched_service("--db", f"{tmp_path}/memory.db", MEMORY_LOG_FORMAT="json") as (_, line):
        assert line(r'\{"time": .*"serving on .*\}')


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_terminal_gets_what_a_restore_warns_of_whole(
    forked: list[str], at: Terminal, tmp_path: Path
) -> None:
    at.say("keys", "create", "--name", "ada", "--role", "admin")
    archive, elsewhere = str(tmp_path / "a.zip"), str(tmp_path / "new.db")
    at.say("backup", "--to", archive, "--keys")

    seen = watched(forked, at, "restore", archive, "--keys", "--dry-run", "--db", elsewhere)

    assert "so it is unknown which of its keys were revoked since." in seen


def test_no_terminal_gets_no_colours_and_whole_lines(at: Terminal) -> None:
    said = at.say("search", "wide")

    assert "\x1b" not in said
    assert said.splitlines()[1] == "    " + "x" * 300
    assert "\x1b" in at.run("search", "wide", color=True).stdout
    assert "\x1b" not in Terminal(at.variables | {"NO_COLOR": "1"}).run("stats", color=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", ["search wide", "import - --dry-run < {}"])
def test_a_reader_that_leaves_is_no_failure_worth_a_word(
    at: Terminal, tmp_path: Path, words: str
) -> None:
    file = tmp_path / "all.json"
    at.say("export", file)
    line = f"{IN_SHELL} {words.format(shlex.quote(str(file)))}"

    done = in_shell(at, f"{line} | true; echo ${{PIPESTATUS[0]}}")

    assert (done.stdout, done.stderr) == ("141\n", "")


@for_each(
    "text, room, shown",
    [("plain", None, "plain"), ("plain", 5, "plain"), ("plain", 4, "pla\N{HORIZONTAL ELLIPSIS}"),
     ("漢字漢", 5, "漢字\N{HORIZONTAL ELLIPSIS}"), ("漢字漢", 4, "漢\N{HORIZONTAL ELLIPSIS}"),
     ("e\u0301e\u0301", 2, "e\u0301e\u0301"), ("ab", -9, "a\N{HORIZONTAL ELLIPSIS}")],
)  # fmt: skip
def test_a_text_is_cut_by_the_columns_that_it_takes(
    text: str, room: int | None, shown: str
) -> None:
    assert cut(text, room) == shown


def test_texts_are_one_line_and_harmless() -> None:
    assert one_line(" a\n\tb\x1b[31m\u202e ") == r"a b\u001b[31m\u202e"
    assert [size(n) for n in (0, 1023, 1024, 5 << 30)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "5.0 GiB"
    ]  # fmt: skip


SCRIPT = 'eval "$(_AGENTOPS_MEMORY_COMPLETE=bash_source agentops-memory)"'


@pytest.mark.slow
def test_the_script_of_bash_completes_the_program(tmp_path: Path) -> None:
    program = tmp_path / "agentops-memory"
    program.write_text(f'#!/bin/sh\nexec {IN_SHELL} "$@"\n', "utf-8")
    program.chmod(0o700)
    asking = (
        "COMP_WORDS=(agentops-memory search --exp); COMP_CWORD=2; "
        '_agentops_memory_completion agentops-memory; echo "${COMPREPLY[@]}"'
    )

    done = subprocess.run(
        ["bash", "-c", f"{SCRIPT}\n{asking}"], capture_output=True, text=True, check=True,
        env=environment({"PATH": f"{tmp_path}:{os.environ['PATH']}"}),
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("--explain\n", "")


@pytest.mark.slow
def test_an_export_to_an_output_that_is_closed_is_refused(at: Terminal) -> None:
    done = in_shell(at, f"{IN_SHELL} export --project '' >&-")

    assert done.returncode == 1
    assert done.stderr.startswith("agentops-memory: Standard output is closed.\n")
