"""What somebody does with memories every day at the terminal, over HTTP and on the file."""

import itertools
import re
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time_ns

import click
import pytest

from agentops_memory.cli.output import ago
from agentops_memory.cli.program import COMMANDS, loaded

from ..support.process import free_port
from ..support.samples import for_each
from ..support.service import Service, lasting_with
from ..support.terminal import AGO, WAYS, Terminal, at_a_project

service = lasting_with()

NUMBERS = itertools.count()


@pytest.fixture(params=WAYS)
def terminal(request: pytest.FixtureRequest, service: Service) -> Terminal:
    return at_a_project(service, request.param, f"verbs-{next(NUMBERS)}")


@pytest.fixture
def here(service: Service) -> Terminal:
    """A terminal that no variable gives a project."""
    return Terminal({"MEMORY_URL": service.url})


def saved(terminal: Terminal, *arguments: object) -> int:
    told: dict[str, int] = terminal.json("save", *arguments)
    return told["id"]


def titles(terminal: Terminal, *arguments: object) -> list[str]:
    return [it["title"] for it in terminal.json("list", *arguments)]


def complete(terminal: Terminal, *words: str) -> list[str]:
    """What bash is told when it completes the last of these words."""
    asking = {
        "_AGENTOPS_MEMORY_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["agentops-memory", *words]),
        "COMP_CWORD": str(len(words)),
    }
    told = Terminal(terminal.variables | asking).say()
    return [line.removeprefix("plain,") for line in told.splitlines()]


@pytest.mark.slow
def test_lists_pins_confirmations_and_replacements(terminal: Terminal) -> None:
    one, two, three = (
        saved(terminal, title, f"The memory {title}.", "--type", title.lower())
        for title in ("One", "Two", "Three")
    )
    assert terminal.say("pin", three) == f"Pinned #{three}: Three\n"

    whole = terminal.say("list")
    part = terminal.run("list", "--limit", "2")
    before = re.fullmatch(r"There is more: (--before) (\d+)\n", part.stderr)

    assert [line.split()[-1] for line in whole.splitlines()] == ["TITLE", "Three", "Two", "One"]
    assert re.search(rf"^#{three} +{AGO} +three +\(pinned\) Three$", whole, re.MULTILINE)
    assert before
    assert titles(terminal, *before.groups()) == ["One"]
    assert titles(terminal, "--type", "two") == ["Two"]
    assert titles(terminal, "--exclude-type", "two") == ["Three", "One"]

    def reminded() -> list[str]:
        return [it["title"] for it in terminal.json("context")["recent_observations"]]

    terminal.say("pin", one)
    terminal.say("unpin", three)
    assert reminded()[0] == "One"
    terminal.say("unpin", one)
    assert reminded() == ["Three", "Two", "One"]
    confirmed = f"Confirmed #{one}: One\nConfirmed #{two}: Two\n"
    assert terminal.say("confirm", one, two) == confirmed

    assert terminal.say("supersede", one, two) == f"#{one} is replaced by #{two}: Two\n"
    by = terminal.json("supersede", f"#{two}", "The memory Four.")
    assert (by["title"], by["content"], by["supersedes"]) == ("Two", "The memory Four.", [two])
    assert {it["id"] for it in terminal.json("search", "memory")} == {by["id"], three}
    assert "(replaced) One\n" in terminal.say("list")


def test_a_text_alone_is_a_memory_of_the_day_and_one_is_shown_in_full(terminal: Terminal) -> None:
    days = [f"{datetime.now(UTC):%Y-%m-%d}" for _ in range(2)]
    long = "Orders go through a queue since the shop was slow at Christmas, when all came at once."
    first, second = (
        terminal.json("show", saved(terminal, text)) for text in (long, "Queue\n\nOrders wait.")
    )
    days[1] = f"{datetime.now(UTC):%Y-%m-%d}"
    id_ = saved(
        terminal, "Queues", "Two\n  queues.", "--tag", "a", "--tag", "b", "--topic-key", "q",
        "--ttl", "3d", "--supersedes", f"#{first['id']}",
    )  # fmt: skip

    head, _, content = terminal.say("show", f"#{id_}").partition("\n\n")

    cut = "Orders go through a queue since the shop was slow at Christ\N{HORIZONTAL ELLIPSIS}"
    assert (first["title"], first["content"], first["type"]) == (cut, long, "discovery")
    assert first["session_id"] in {f"cli:{first['project']}:{day}" for day in days}
    assert (second["title"], second["content"]) == ("Queue", "Orders wait.")
    assert content == "Two\n  queues.\n"
    assert re.fullmatch(
        rf"#{id_} \[discovery\] Queues\n  project      {terminal.variables['MEMORY_PROJECT']}\n"
        rf"  session      cli:\S+\n  saved        {AGO}\n  expires      in \d \w+\n"
        rf"  topic key    q\n  tags         a, b\n  supersedes   #{first['id']}",
        head,
    ), head
    assert terminal.json("show", id_)["expires_at"].endswith("Z")


@pytest.mark.slow
def test_a_memory_is_edited_by_what_is_named(terminal: Terminal) -> None:
    id_ = saved(terminal, "Queue", "One.", "--tag", "a")

    told = terminal.say("edit", id_, "--title", "Queues", "--tag", "b")
    terminal.say("edit", id_, "-", given="Two.\n")
    terminal.say("edit", id_, "--ttl", "1h", "--tag", "")
    has_end = terminal.json("show", id_)
    changed = terminal.json("edit", id_, "--ttl", "0")

    assert told == f"Changed #{id_}: Queues\n"
    assert (changed["title"], changed["content"]) == ("Queues", "Two.")
    assert "expires_at" in has_end
    assert not changed.keys() & {"expires_at", "tags"}
    assert terminal.run("edit", id_).exit_code == 2
    assert terminal.run("edit", 999_999, "x").exit_code == 1


@pytest.mark.slow
def test_what_is_deleted_comes_back(terminal: Terminal) -> None:
    ids = [saved(terminal, title, f"It is {title}.") for title in ("One", "Two")]

    refused = terminal.run("delete", ids[0], 999_999)
    assert (refused.exit_code, titles(terminal)) == (1, ["Two", "One"])
    assert "There is no memory #999999; nothing was changed." in refused.stderr
    assert terminal.say("delete", *ids) == f"Deleted #{ids[0]}\nDeleted #{ids[1]}\n"
    assert titles(terminal) == []
    assert terminal.say("restore", ids[0]) == f"Restored #{ids[0]}: One\n"
    assert titles(terminal) == ["One"]
    again = terminal.run("restore", ids[0])
    assert again.exit_code == 1
    assert "is not deleted" in again.stderr

    terminal.say("edit", ids[0], "It was One.")
    terminal.say("restore", ids[0], "--revision", 1)
    assert terminal.json("show", ids[0])["content"] == "It is One."


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_number_is_a_memory_and_a_path_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    at = Terminal({"MEMORY_DB_PATH": str(tmp_path / "memory.db")})
    at.say("save", "Queue", "--project", "p")
    at.say("backup", "--to", "./12")

    memory = at.run("restore", "12")

    assert (memory.exit_code, memory.stderr.splitlines()[0]) == (
        1, "agentops-memory: No such observation."
    )  # fmt: skip
    assert at.say("restore", "./12", "--dry-run").endswith("Nothing was changed.\n")
    for wrong in ("12 --force", "12 --dry-run", "./12 --revision 1"):
        assert at.run("restore", *wrong.split()).exit_code == 2


@pytest.mark.slow
def test_nothing_found_says_what_was_left_out(terminal: Terminal, here: Terminal) -> None:
    here.say("save", "Elsewhere", "It is in another project.", "--project", "aaa")
    old, new = saved(terminal, "Queue", "One.", "--type", "note"), saved(terminal, "Door", "Two.")
    terminal.say("supersede", old, new)
    project = terminal.variables["MEMORY_PROJECT"]

    found = terminal.run("search", "queue", "--type", "note")

    assert (found.exit_code, found.stdout) == (0, "")
    assert found.stderr.splitlines()[:3] == [
        f"Nothing was found in the project {project}, which has 2 memories.",
        "Filtered out: memories that do not match --type.",
        "Hidden: 1 memory replaced by another; --superseded shows them.",
    ]
    assert re.match(
        r"Other projects: aaa[,.].* --project '' searches all projects\.$",
        found.stderr.splitlines()[3],
    )
    assert "It is in another project." in terminal.say("search", "elsewhere", "--project", "")
    assert (
        "found: the project nowhere has no memories."
        in here.run("list", "--project", "nowhere").stderr
    )
    assert (
        "context would be empty: the project nowhere has no memories."
        in here.run("context", "--project", "nowhere").stderr
    )


@pytest.mark.slow
def test_a_project_is_that_of_the_remote_or_the_folder_unless_a_file_names_it(
    tmp_path: Path, here: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, bare = tmp_path / "Shop", tmp_path / "no repository"

    def git(*arguments: str) -> None:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *author, *arguments], cwd=top, check=True)

    def project_in(folder: Path) -> str:
        monkeypatch.chdir(folder)
        project: str = here.json("show", saved(here, f"It is {time_ns()}."))["project"]
        return project

    for folder in (top / "deep", bare):
        folder.mkdir(parents=True)
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "a")
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    projects = [project_in(it) for it in (top, top / "deep", tmp_path / "tree", bare)]
    assert projects == ["shop", "shop", "shop", "no repository"]

    git("remote", "add", "origin", "x")
    for remote in (
        "git@example.com:acme/web-shop.git", "https://example.com/acme/web-shop",
        "/srv/web-shop.git/",
    ):  # fmt: skip
        git("remote", "set-url", "origin", remote)
        assert project_in(top / "deep") == "web-shop"

    (top / ".agentops-memory.toml").write_text('project = "billing"\n', "utf-8")
    assert project_in(top / "deep") == "billing"
    (top / ".agentops-memory.toml").write_text("project = 1\n", "utf-8")
    refused = here.run("save", "No name.")
    assert refused.exit_code == 1
    assert "project must be text in quotes" in refused.stderr


def test_a_time_is_told_as_people_tell_it() -> None:
    told = [
        ago(datetime.now(UTC) - timedelta(**{unit: count}))
        for unit, count in (("seconds", 1), ("seconds", 10), ("seconds", 61), ("minutes", 190),
                            ("days", 1), ("days", 15), ("days", 70), ("days", 800), ("hours", -5))
    ]  # fmt: skip

    assert told == [
        "just now", "10 seconds ago", "1 minute ago", "3 hours ago", "1 day ago", "2 weeks ago",
        "2 months ago", "2 years ago", "in 4 hours",
    ]  # fmt: skip


def test_a_status_tells_where_all_is(service: Service, tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    file = Terminal({"MEMORY_DB_PATH": str(tmp_path / "new.db"), "MEMORY_LISTEN": listen})
    missing = file.say("status", "--project", "p")
    file.say("save", "Queue", "--project", "p")
    stored = file.say("status", "--project", "p")
    running = Terminal({"MEMORY_URL": service.url})
    running.say("save", "Queue", "--project", "p")

    assert f"not running at http://{listen}" in missing
    assert "`agentops-memory save` creates it" in missing
    assert stored.splitlines()[2:] == [
        "Stored    1 memory in 1 project", "Here      1 memory in the project p",
        "Last save just now",
    ]  # fmt: skip
    assert f"Service   running at {service.url}, its API at {service.url}/docs\n" in running.say(
        "status"
    )
    assert Terminal().say("open", "--print", "--url", service.url) == f"{service.url}/docs\n"
    nobody = Terminal({"MEMORY_URL": f"http://{listen}"}).run("open", "--print")
    assert (nobody.exit_code, "`agentops-memory serve` starts it" in nobody.stderr) == (1, True)
    nobody = Terminal().run("open", "--print", "--listen", f"[::1]:{free_port()}")
    assert "Nothing answers at http://[::1]:" in nobody.stderr
    facts = running.json("status", "--project", "p")
    assert (facts["is_running"], facts["checks"]["database"]["status"]) == (True, "ok")
    assert facts["last_saved_at"].endswith("Z")


def test_a_shell_completes_projects_types_ids_and_commands_before_options_of_serve(
    terminal: Terminal,
) -> None:
    id_ = saved(terminal, "Queue", "One queue.", "--type", "ruling")
    project = terminal.variables["MEMORY_PROJECT"]
    commands = complete(terminal, "")

    assert {"save", "search", "export", "import", "serve", "keys"} <= set(commands)
    assert not any(command.startswith("-") for command in commands)
    for words, completed in (
        (f"list --project {project}", [project]), ("list --type rul", ["ruling"]),
        (f"show {id_}", [str(id_)]), ("se", ["seal", "search", "serve", "sessions"]),
        ("search --exp", ["--explain"]), ("keys cr", ["create"]),
        ("--listen :1 --dr", ["--drain"]), ("import x", ["file,x"]),
    ):  # fmt: skip
        assert complete(terminal, *words.split()) == completed


@for_each(
    "written, told",
    [
        *[
            (wrong, f"No such command '{wrong}'. Did you mean '{meant}'?")
            for wrong, meant in (("serach", "search"), ("delte", "delete"))
        ],
        ("search x --tpye y", "Did you mean '--type'?"),
        ("save x --tags y", "Did you mean '--tag'?"), ("keys craete", "Did you mean 'create'?"),
        *[(wrong, "") for wrong in ("edit 1 --zzz x", "list --since 3d", "keys frobnicate", "foo")],
        ("--colour red", ""), ("--listen", "Option '--listen' requires an argument."),
    ],
)  # fmt: skip
def test_a_command_or_an_option_that_is_none_is_told_what_was_meant(
    written: str, told: str
) -> None:
    done = Terminal().run(*written.split())

    assert done.exit_code == 2
    assert done.stderr.rstrip().endswith(told)
    assert told or "mean" not in done.stderr


@for_each("name", COMMANDS)
def test_every_example_of_a_help_is_understood(name: str) -> None:
    words, command = shlex.split(COMMANDS[name].example), loaded(name)
    if isinstance(command, click.Group):
        below, *words = words
        command = command.commands[below]

    assert command.make_context(name, words).params
