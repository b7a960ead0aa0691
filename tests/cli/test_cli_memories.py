"""Memories at the terminal: the same over HTTP and on the file, for people and programs."""

import itertools
import json
import re
import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from agentops_memory.cli.output import (
    HINTS,
    MAY_BE_DONE,
    FileRefused,
    explained,
    fail,
    file_errors,
)
from agentops_memory_client.contract import models
from agentops_memory_client.contract.models import Unreachable

from ..support.process import free_port
from ..support.service import Service, lasting_with, observation
from ..support.terminal import AGO, WAYS, Terminal, at_a_project

service = lasting_with()

HOSTILE = "\x1b]0;mine\x07\x1b[2J\u202eback\x9b31m\rgone\x00\x7f\u2028end"
NUMBERS = itertools.count()


@pytest.fixture(params=WAYS)
def terminal(request: pytest.FixtureRequest, service: Service) -> Terminal:
    return at_a_project(service, request.param, f"Shop {next(NUMBERS)}")


def project(terminal: Terminal) -> str:
    return terminal.variables["MEMORY_PROJECT"].lower()


def saved(terminal: Terminal, *arguments: object, given: str | None = None) -> int:
    told: dict[str, int] = terminal.json("save", *arguments, given=given)
    return told["id"]


@pytest.mark.slow
def test_a_save_says_what_became_of_it(terminal: Terminal, service: Service) -> None:
    first = terminal.say("save", "Queue", "Orders go through a queue.", "--topic-key", "q")
    id_ = int(re.fullmatch(r"Saved as new #(\d+)\.\n", first)[1])  # type: ignore[index]

    again = terminal.say(
        "save", "Queue", "Two queues.", "--topic-key", "q", "--tag", "a", "--tag", "b"
    )
    same = [terminal.json("save", "Door", "It is open.", "--type", "note") for _ in range(2)]
    twice = terminal.say("save", "Door", "It is open.", "--type", "note")

    assert again == f"Updated #{id_} (revision 2).\n"
    assert [it["action"] for it in same] == ["created", "deduplicated"]
    assert twice == f"Already known as #{same[0]['id']} (seen 3 times).\n"
    stored = service.http.get(f"/observations/{id_}").json()
    assert (stored["content"], stored["tags"]) == ("Two queues.", ["a", "b"])
    assert stored["project"] == project(terminal)
    assert re.fullmatch(rf"cli:{project(terminal)}:\d{{4}}-\d\d-\d\d", stored["session_id"])
    assert (stored["type"], stored["scope"]) == ("discovery", "project")

    for options, given, content in (
        ((), "two\nlines\n", "two\nlines"),
        (("-", "--session", "mine", "--scope", "team"), "\xe9\r\n", "\xe9"),
    ):  # fmt: skip
        id_ = saved(terminal, f"Piped {content}", *options, given=given)
        stored = service.http.get(f"/observations/{id_}").json()
        assert stored["content"] == content
    assert (stored["session_id"], stored["scope"]) == ("mine", "team")
    secret = terminal.run("save", "Key", "It is AKIAIOSFODNN7EXAMPLE.", "--json")
    assert secret.stderr == "Secrets removed: 1 secret.\n"


@pytest.mark.slow
def test_people_get_lines(terminal: Terminal) -> None:
    first = saved(terminal, "Queue", "Orders go\nthrough a queue.", "--topic-key", "a/q")
    saved(
        terminal, "Queue 2", "Orders go\nthrough two queues.", "--topic-key", "a/q", "--type", "fix"
    )
    other = saved(terminal, "Door", "It is open.")

    assert terminal.say("search", "queues", "--limit", "1") == (
        f"#{first} [fix] Queue 2 (a/q)\n    Orders go through two queues.\n"
    )
    assert terminal.say("context", "queues", "--limit", "1") == (
        "<memory:context>\n- [fix] Queue 2: Orders go\nthrough two queues.\n</memory:context>\n"
    )
    assert re.fullmatch(
        rf"   ID +SAVED +TYPE +TITLE\n>  #{first} +{AGO}  fix        Queue 2\n"
        rf"   #{other} +{AGO}  discovery  Door\n",
        terminal.say("timeline", first),
    )
    shown = terminal.say("history", first)
    assert re.fullmatch(
        rf"2  updated  {AGO}\n   - type: discovery\n   - title: Queue\n"
        r"   \+ type: fix\n   \+ title: Queue 2\n"
        r"   - through a queue\.\n   \+ through two queues\.\n"
        rf"1  created  {AGO}\n   \+ type: discovery\n   \+ title: Queue\n   \+ Orders go\n"
        r"   \+ through a queue\.\n",
        shown,
    )
    assert terminal.say("sessions").splitlines()[1].startswith(f"cli:{project(terminal)}:")
    assert terminal.say("stats") == (
        f"2 observations and 1 session in the project {project(terminal)}\n"
    )
    terminal.say("delete", first)
    assert re.match(rf"3  deleted  {AGO}\n2  updated", terminal.say("history", first))


def test_reasons_are_told_of_whatever_was_found() -> None:
    for explanation, sentence in (
        ({"place": 1, "method": "topic_key"}, "Place 1, its topic key contains the words."),
        ({"place": 2, "method": "recency"}, "Place 2, as one of the newest: no word matched."),
        ({"place": 1, "method": "pinned"}, "Place 1, because it is pinned."),
        ({"degraded": True}, "The search timed out; these are the newest memories instead."),
    ):
        assert list(explained(explanation)) == [sentence]
    assert list(explained({})) == []


def test_an_explanation_is_sentences(terminal: Terminal) -> None:
    saved(terminal, "Queue", "Orders go through a queue.")
    saved(terminal, "Door", "It is open.")

    found = terminal.say("search", "where", "is", "the", "queeu", "--explain", "--limit", "2")
    reminded = terminal.say("context", "queue", "--explain", "--limit", "2")

    assert re.match(
        r"#\d+ \[discovery\] Queue\n    Orders go through a queue\.\n"
        r"    Place 1, by its words\.\n    Matched: queue \(for queeu\)\.\n"
        r"    Where: title \d+%, content \d+%\.\n",
        found,
    ), found
    assert "    Where: what was saved just before it 100%." in found
    assert found.endswith(
        "Searched for: queeu, queue.\n"
        "Words not searched, as too common or too many: where, is, the.\n"
        "No memory contains queeu; searched for queue instead.\n"
    )
    assert "</memory:context>\n[discovery] Queue\n    Place 1, by its words.\n" in reminded
    assert re.search(r"    The memories saved right after it add \d+%: #\d+\.\n", reminded), (
        reminded
    )


@pytest.mark.slow
def test_stored_text_cannot_speak_to_the_terminal(terminal: Terminal) -> None:
    project = f"p{next(NUMBERS)} \x1b[2J\u202e"
    named = Terminal(terminal.variables | {"MEMORY_PROJECT": project})
    stored = observation(
        f"word {HOSTILE}\n{HOSTILE}", title=f"T {HOSTILE}", project=project, type=HOSTILE,
        topic_key=HOSTILE, tags=[HOSTILE], session_id=HOSTILE,
    )  # fmt: skip
    named.say("import", "-", given=json.dumps({"observations": [stored]}))
    first = saved(
        named, f"T2 {HOSTILE}", f"word\n{HOSTILE}", "--topic-key", HOSTILE, "--session", HOSTILE
    )

    for arguments in (
        ("search", "word", HOSTILE, "--explain"), ("context", "word", "--explain"), ("context",),
        ("timeline", first), ("history", first), ("sessions",), ("stats",),
        ("stats", "--project", ""),
        ("search", "word", "--json"), ("history", first, "--json"), ("export",),
    ):  # fmt: skip
        done = named.run(*arguments)
        assert done.exit_code == 0
        if arguments != ("export",):  # which is the document, to the byte
            assert _harmful(done.stdout) == [], arguments
        assert _harmful(done.stderr) == []


def _harmful(text: str) -> list[str]:
    return [
        repr(letter)
        for letter in text
        if letter not in "\n\ufffd" and unicodedata.category(letter)[0] in "CZ" and letter != " "
    ]


def test_a_refusal_is_a_sentence_and_where_it_helps_a_hint(terminal: Terminal) -> None:
    for arguments, sentence, hint in [
        (("history", 999_999), "No such observation.", rf"Hint: {re.escape(HINTS['NotFound'])}\n"),
        (("save", "T", " "), "validation failed: content is required", ""),
        (("sessions", "--before", "none"), "before_id must be the id of a session.", ""),
    ]:
        done = terminal.run(*arguments)

        assert (done.exit_code, done.stdout) == (1, ""), arguments
        assert re.fullmatch(rf"agentops-memory: {re.escape(sentence)}\n{hint}", done.stderr)


@pytest.mark.sqlite_files
def test_wrong_use_is_told_from_a_refusal(service: Service) -> None:
    for arguments in (
        ("save", "T", "C", "--project", ""), ("save",), ("search",), ("history", "x"),
        ("search", "x", "--limit", "0"), ("stats", "--url", service.url, "--db", "x"),
        ("stats", "--url", service.url, "--tenant", "x"),
        ("import", "-"),
    ):  # fmt: skip
        given = None if arguments != ("import", "-") else ""
        done = Terminal().run(*arguments, given=given)
        assert done.exit_code == (1 if given == "" else 2), arguments


def test_every_refusal_is_a_harmless_sentence_and_has_an_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(failure: models.MemoryServiceError) -> tuple[object, str]:
        with pytest.raises(SystemExit) as ended:
            fail(failure)
        sentence, *hints = capsys.readouterr().err.splitlines()
        assert sentence == r"agentops-memory: It is so.\u001b[2J"
        return ended.value.code, "".join(hints).removeprefix("Hint: ")

    codes = {}
    for kind in vars(models).values():
        if isinstance(kind, type) and issubclass(kind, models.MemoryServiceError):
            codes[kind.__name__], _ = told(kind("It is so.\x1b[2J"))

    assert {name for name, code in codes.items() if code == 3} == {
        "Unreachable", "TooMany", "Unavailable"
    }  # fmt: skip
    assert set(codes.values()) == {1, 3}
    for may_be_done, hint in ((True, MAY_BE_DONE), (False, HINTS["Unreachable"])):
        failure = Unreachable("It is so.\x1b[2J")
        failure.may_be_done = may_be_done
        assert told(failure) == (3, hint)


def test_a_file_that_fails_is_told_in_the_words_of_whoever_knows() -> None:
    for error, sentence in (
        (OSError("The file became shorter."), "The file became shorter."),
        (OSError(28, "No space left", "a.json"), "a.json cannot be used: No space left."),
        (OSError(28, "No space left"), "A file cannot be used: No space left."),
    ):
        with pytest.raises(FileRefused) as refused, file_errors():
            raise error
        assert str(refused.value) == sentence


@pytest.mark.sqlite_files
def test_a_command_that_reads_makes_no_file(tmp_path: Path) -> None:
    terminal = Terminal({"MEMORY_DB_PATH": str(tmp_path / "new" / "memory.db")})

    for arguments in (
        ("stats",), ("search", "x"), ("context",), ("timeline", 1), ("history", 1), ("sessions",),
        ("export",), ("stats", "--tenant", "acme"),
        ("save", "T", "C", "--project", "p", "--tenant", "acme"),
        ("stats", "--tenant", "A B"),
    ):  # fmt: skip
        done = terminal.run(*arguments)
        assert (done.exit_code, done.stdout) == (1, ""), arguments
        assert re.fullmatch(r"agentops-memory: .*\.\n(Hint: .*\.\n)?", done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == []

    folder = terminal.run("stats", "--db", tmp_path)
    assert (folder.exit_code, str(tmp_path) in folder.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_save_makes_the_file_a_flag_goes_before_the_environment_and_an_older_file_is_left_alone(
    path: Path,
) -> None:
    terminal = Terminal({"MEMORY_URL": f"http://127.0.0.1:{free_port()}", "MEMORY_PROJECT": "p"})

    made = terminal.run("save", "T", "C", "--db", path)

    assert (made.exit_code, made.stdout) == (0, "Saved as new #1.\n")
    assert made.stderr == f"Creating {path}.\n"
    assert terminal.say("stats", "--db", path) == "1 observation and 1 session in the project p\n"
    assert terminal.run("stats").exit_code == 3

    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 1")
    for arguments in (("stats",), ("save", "T", "C2")):
        done = terminal.run(*arguments, "--db", path)
        assert done.exit_code == 1
        assert "has an older format" in done.stderr
        assert HINTS["StartRefused"] in done.stderr
