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

from agentops_memory.cli.output import cut, one_line, padded, size, width

from ..support.engines import command
from ..support.process import environment, free_port, run
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


def watched(at: Terminal, *arguments: str, **variables: str) -> str:
    """What a terminal of 40 columns gets to see, of both outputs."""
    ours, theirs = pty.openpty()
    words, settings = command([*PROGRAM, *arguments], at.variables)
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


@pytest.mark.heavy
def test_a_terminal_gets_colours_and_lines_that_fit(at: Terminal) -> None:
    seen = watched(at, "search", "wide")

    plain = re.sub(r"\x1b\[\d*m", "", seen)
    assert plain != seen
    assert [width(line) for line in plain.splitlines()] == [39, 40]
    assert "\N{HORIZONTAL ELLIPSIS}" in plain


def test_a_terminal_gets_tables_that_fit(at: Terminal) -> None:
    seen = watched(at, "list")

    lines = re.sub(r"\x1b\[\d*m", "", seen).splitlines()
    assert "\x1b[1m" in seen
    assert lines[0].split() == ["ID", "CHANGED", "TYPE", "TITLE"]
    assert re.match(r"#1  .* discovery  .*\N{HORIZONTAL ELLIPSIS}$", lines[1])
    assert max(map(width, lines)) <= 40


@pytest.mark.sqlite_files
@pytest.mark.parametrize(
    ("arguments", "label", "last"),
    [
        (["doctor"], "Examining", "100%"),
        pytest.param(
            ["index", "--check"], "Examining", "partition 0: exact", marks=pytest.mark.slow
        ),
        pytest.param(["migrate"], "Migrating", "there is nothing to do.", marks=pytest.mark.slow),
    ],
)
def test_long_work_has_a_bar_at_a_terminal_alone(
    at: Terminal, arguments: list[str], label: str, last: str
) -> None:
    seen = watched(at, *arguments, COLUMNS="100")

    assert label in seen
    assert seen.rindex(last) > seen.index(label)
    done = at.run(*arguments)
    assert label not in done.stdout + done.stderr


@contextmanager
def watched_service(path: Path, **variables: str) -> Iterator[tuple[str, Callable[[str], str]]]:
    """A service at a terminal: its address, and a wait for a line that matches a pattern."""
    ours, theirs = pty.openpty()
    address = f"127.0.0.1:{free_port()}"
    words, settings = command(
        [*PROGRAM, "--listen", address, "--db", str(path)], {"MEMORY_DRAIN": "0", **variables}
    )
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(settings)
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


def test_a_service_at_a_terminal_speaks_to_people(tmp_path: Path) -> None:
    with watched_service(tmp_path / "memory.db", NO_COLOR="1") as (url, line):
        banner = line(r"agentops-memory [\s\S]*Ctrl-C")
        httpx.get(f"{url}/stats?project=secret")
        request = line(r"\d\d:\d\d:\d\d  200  GET    /stats .*\n")

    for fact in (url, f"{tmp_path}/memory.db", f"{url}/docs"):
        assert fact in banner
    assert re.fullmatch(r".* /stats  [\d.]+ ms  default  127\.0\.0\.1\s*", request)


@pytest.mark.slow
def test_a_service_at_a_terminal_has_colors_or_the_json_of_a_pipe(path: Path) -> None:
    with watched_service(path) as (_, line):
        assert "\x1b[1magentops-memory" in line(r".*agentops-memory[\s\S]*Ctrl-C")
    with watched_service(path, MEMORY_LOG_FORMAT="json") as (_, line):
        assert line(r'\{"time": .*"serving on .*\}')


@pytest.mark.slow
def test_a_terminal_sees_how_far_an_import_is_without_colours_if_it_wants_none(
    at: Terminal, tmp_path: Path
) -> None:
    at.say("export", tmp_path / "all.json")

    seen = watched(at, "import", str(tmp_path / "all.json"), NO_COLOR="1")

    assert re.search(r"importing \S+ 100% 0:00:\d\d", seen)
    assert seen.rstrip().endswith("Imported 0 observations and 0 sessions.")
    assert re.search(r"\x1b\[\d*m", seen) is None


@pytest.mark.heavy
@pytest.mark.sqlite_files
def test_a_terminal_gets_what_a_restore_warns_of_whole(at: Terminal, tmp_path: Path) -> None:
    at.say("keys", "create", "--name", "ada", "--role", "admin")
    at.say("backup", "--to", tmp_path / "a.zip", "--keys")
    elsewhere = str(tmp_path / "new.db")

    seen = watched(at, "restore", str(tmp_path / "a.zip"), "--keys", "--dry-run", "--db", elsewhere)

    assert "so nobody can know which of its keys were revoked since." in seen


def test_no_terminal_gets_no_colours_and_whole_lines(at: Terminal) -> None:
    said = at.say("search", "wide")

    assert "\x1b" not in said
    assert said.splitlines()[1] == "    " + "x" * 300
    assert "\x1b" in at.run("search", "wide", color=True).stdout
    assert "\x1b" not in Terminal(at.variables | {"NO_COLOR": "1"}).run("stats", color=True).stdout


@pytest.mark.heavy
def test_a_reader_that_leaves_is_no_failure_worth_a_word(at: Terminal) -> None:
    done = in_shell(at, f"{IN_SHELL} search wide | true; echo ${{PIPESTATUS[0]}}")

    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.heavy
def test_an_output_that_has_no_such_letter_spells_it_out(at: Terminal) -> None:
    done = run("search", "wide", variables=at.variables | {"PYTHONIOENCODING": "latin-1"})

    assert (done.returncode, done.stderr) == (0, "")
    assert r"Wide \u6f22\u5b57" in done.stdout


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
    assert padded("漢", 4) == "漢  "
    assert [size(n) for n in (0, 1023, 1024, 5 << 30)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "5.0 GiB"
    ]  # fmt: skip


def completed(*words: str) -> list[str]:
    """What bash is told when it completes the last of these words."""
    asked = Terminal(
        {
            "_AGENTOPS_MEMORY_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["agentops-memory", *words]),
            "COMP_CWORD": str(len(words)),
        }
    )
    return asked.say().splitlines()


def test_a_shell_completes_commands_before_options_of_serve() -> None:
    commands = [line.removeprefix("plain,") for line in completed("")]

    assert {"save", "search", "export", "import", "serve", "keys"} <= set(commands)
    assert not any(command.startswith("-") for command in commands)
    assert completed("se") == ["plain,seal", "plain,search", "plain,serve", "plain,sessions"]
    assert completed("search", "--exp") == ["plain,--explain"]
    assert completed("keys", "cr") == ["plain,create"]
    assert completed("--listen", ":1", "--dr") == ["plain,--drain"]
    assert completed("completion", "f") == ["plain,fish"]
    assert completed("import", "x") == ["file,x"]


@pytest.mark.slow
def test_the_script_of_bash_completes_the_program(tmp_path: Path) -> None:
    program = tmp_path / "agentops-memory"
    program.write_text(f'#!/bin/sh\nexec {IN_SHELL} "$@"\n', "utf-8")
    program.chmod(0o700)
    script = Terminal().say("completion", "bash")
    asking = (
        "COMP_WORDS=(agentops-memory search --exp); COMP_CWORD=2; "
        '_agentops_memory_completion agentops-memory; echo "${COMPREPLY[@]}"'
    )

    done = subprocess.run(
        ["bash", "-c", f"{script}\n{asking}"], capture_output=True, text=True, check=True,
        env=environment({"PATH": f"{tmp_path}:{os.environ['PATH']}"}),
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("--explain\n", "")
    for shell in ("zsh", "fish"):
        assert "agentops-memory" in Terminal().say("completion", shell)


@pytest.mark.slow
def test_a_reader_that_leaves_a_plan_of_what_came_through_a_pipe_is_no_failure(
    at: Terminal, tmp_path: Path
) -> None:
    at.say("export", tmp_path / "all.json")
    told = f"{IN_SHELL} import - --dry-run < {shlex.quote(str(tmp_path / 'all.json'))}"

    done = in_shell(at, f"{told} | true; echo ${{PIPESTATUS[0]}}")

    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.slow
def test_an_export_to_an_output_that_is_closed_is_refused(at: Terminal) -> None:
    done = in_shell(at, f"{IN_SHELL} export --project '' >&-")

    assert done.returncode == 1
    assert done.stderr.startswith("agentops-memory: Standard output is closed.\nHint: ")
