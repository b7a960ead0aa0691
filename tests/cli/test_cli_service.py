"""Commands of operators: on a running service where it has a route, and on what files hold."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentops_memory.cli.output import HINTS

from ..support.callers import calling, made_key
from ..support.process import free_port
from ..support.samples import for_each
from ..support.service import Service, observation, serving
from ..support.terminal import Terminal

WITHOUT_ROUTES = (
    ("keys", "create"), ("keys", "list"), ("keys", "revoke"), ("keys", "rotate"), ("keys", "reset"),
    ("tenants", "create"), ("tenants", "list"), ("tenants", "erase"), ("tenants", "rewrite"),
    ("agents", "list"), ("agents", "set"), ("agents", "export"), ("agents", "erase"),
    ("projects", "list"), ("projects", "rename"), ("projects", "merge"),
)  # fmt: skip


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that needs a key, with three memories in two projects."""
    with serving(tmp_path_factory.mktemp("closed") / "memory.db") as service:
        service.save("apple", project="a", session_id="s1")
        service.save("quince", project="a", session_id="s1")
        service.save("pear", project="b", session_id="s2")
        made_key(service.path)
        yield service


@pytest.fixture
def key_file(closed: Service, tmp_path: Path) -> Path:
    file = tmp_path / "operator.key"
    file.write_text(f"{made_key(closed.path)}\n", "utf-8")
    return file


@pytest.fixture
def elsewhere(tmp_path: Path) -> Terminal:
    """A terminal where no database is."""
    return Terminal({"MEMORY_DB_PATH": str(tmp_path / "none" / "memory.db")})


def test_a_key_file_lets_every_command_of_memories_in(
    closed: Service, key_file: Path, elsewhere: Terminal
) -> None:
    at = ("--url", closed.url, "--key-file", key_file)
    with_a_wrong_key = Terminal({"MEMORY_URL": closed.url, "MEMORY_API_KEY": "amk_wrong"})

    assert elsewhere.json("stats", *at)["total_observations"] == 3
    assert elsewhere.json("search", "pear", "--project", "", *at)[0]["title"] == "pear"
    assert with_a_wrong_key.run("stats").exit_code == 1
    assert with_a_wrong_key.json("stats", "--key-file", key_file)["total_observations"] == 3
    reader = {"MEMORY_URL": closed.url, "MEMORY_API_KEY": made_key(closed.path, role="reader")}
    assert Terminal(reader).json("stats")["total_observations"] == 3
    denied = Terminal(reader).run("save", "T", "C", "--project", "p")
    without = Terminal({"MEMORY_URL": closed.url}).run("stats")
    assert (denied.exit_code, HINTS["Denied"] in denied.stderr) == (1, True)
    assert (without.exit_code, HINTS["Unauthenticated"] in without.stderr) == (1, True)


def test_a_project_of_a_service_is_erased_as_one_of_a_file(
    closed: Service, key_file: Path, elsewhere: Terminal
) -> None:
    at = ("--url", closed.url, "--key-file", key_file)
    here = Terminal({"MEMORY_DB_PATH": str(closed.path)})
    planned = elsewhere.json("projects", "erase", " A ", *at, "--dry-run")

    assert planned == here.json("projects", "erase", "a", "--dry-run")
    assert elsewhere.run("projects", "erase", "a", *at).exit_code == 2  # nobody can be asked
    assert elsewhere.json("stats", *at)["projects"] == ["a", "b"]

    receipt = elsewhere.json("projects", "erase", "a", *at, "--yes")
    said = elsewhere.say("projects", "erase", "b", *at, "--yes")

    assert (receipt["project"], receipt["observations"], receipt["sessions"]) == ("a", 2, 1)
    on_file = here.json("projects", "erase", "a", "--yes")
    assert (on_file["id"], on_file.keys()) == (receipt["id"], receipt.keys())
    assert said.startswith("Erased b: 1 observations, 1 revisions, 1 sessions.\nReceipt: ")
    unknown = elsewhere.run("projects", "erase", "c", *at, "--yes")
    assert (unknown.exit_code, HINTS["NotFound"] in unknown.stderr) == (1, True)


def test_health_asks_the_service_that_is_named(
    closed: Service, key_file: Path, elsewhere: Terminal
) -> None:
    assert elsewhere.say("health", "--url", closed.url) == ""
    assert elsewhere.say("health", "--url", closed.url, "--key-file", key_file) == ""
    for command, code in (("health", 1), ("projects erase a --yes", 3)):
        nobody = elsewhere.run(*command.split(), "--url", f"http://127.0.0.1:{free_port()}")
        assert (nobody.exit_code, nobody.stdout) == (code, "")
        assert nobody.stderr.startswith("agentops-memory: ")
    assert HINTS["Unreachable"] in nobody.stderr


@for_each("command", WITHOUT_ROUTES)
def test_a_command_for_which_the_service_has_no_route_says_so(
    command: tuple[str, str], closed: Service, key_file: Path, elsewhere: Terminal
) -> None:
    for option in (("--url", closed.url), ("--key-file", key_file)):
        done = elsewhere.run(*command, *option)

        assert (done.exit_code, done.stdout) == (2, "")
        assert f"The service has no route for `agentops-memory {' '.join(command)}`" in done.stderr


@pytest.mark.sqlite_files
@for_each("command", [("stats",), ("health",), ("projects", "erase", "a", "--yes")])
def test_options_of_a_service_and_of_a_file_are_not_given_together_and_an_empty_one_is_none(
    command: tuple[str, ...], closed: Service, key_file: Path, elsewhere: Terminal, path: Path
) -> None:
    for options, sentence in (
        (("--key-file", key_file), "--key-file is the key for a service"),
        (("--url", closed.url, "--db", "memory.db"), "--url selects a service; --db"),
        *([(("--url", ""), "--url")] if command != ("stats",) else []),
    ):  # fmt: skip
        done = elsewhere.run(*command, *options)
        assert (done.exit_code, sentence in done.stderr) == (2, True), options

    # Nothing but an option sends a command of operators to a service.
    done = Terminal({"MEMORY_URL": closed.url, "MEMORY_DB_PATH": str(path)}).run(
        "projects", "erase", "a", "--yes"
    )
    assert (done.exit_code, "There is no database" in done.stderr) == (1, True)


@for_each(
    "content, said",
    [
        (b"", "must contain one line"), (b" \n", "must contain one line"),
        (b"one\ntwo\n", "characters that are not valid in a key"),
        (b"\xff\xfe", "characters that are not valid in a key"),
        (b"k" * 100_000, "must contain one line"), (None, "cannot be read"),
    ],
)  # fmt: skip
def test_a_key_file_without_a_key_is_refused_and_no_other_key_is_tried(
    content: bytes | None, said: str, closed: Service, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    terminal = Terminal({"MEMORY_API_KEY": made_key(closed.path)})

    for command in ("stats", "health", "projects erase a --yes"):
        done = terminal.run(*command.split(), "--url", closed.url, "--key-file", file)
        assert (done.exit_code, done.stdout) == (1, "")
        assert said in done.stderr


@pytest.mark.sqlite_files
def test_each_tenant_is_shown_and_the_audit_file(path: Path) -> None:
    token = made_key(path, tenant="acme")
    with serving(path) as service, calling(service, token) as acme:
        for number in range(2):
            acme.post("/observations", json=observation(f"A pear {number}.", topic_key="pears"))
        acme.post("/observations", json=observation("A plum."))
        acme.delete("/observations/2")
    terminal = Terminal({"MEMORY_DB_PATH": str(path), "MEMORY_KEEP_REVISIONS": "1"})

    told = terminal.json("stats", "--storage")

    assert [it["tenant"] for it in told["tenants"]] == ["default", "acme"]
    kinds = {it["kind"]: it for it in told["tenants"][1]["kept"]}
    assert kinds["deleted"] == {
        "kind": "deleted", "rows": 3, "kept_for": "for ever", "next_sweep": 0,
    }  # fmt: skip
    assert (kinds["revisions"]["rows"], kinds["revisions"]["next_sweep"]) == (2, 1 + 1)
    assert kinds["revisions"]["kept_for"] == "newest 1"
    assert kinds["idempotency"]["kept_for"] == "1d"
    assert told["audit"]["rows"] == 1
    assert told["tenants"][1]["database_bytes"] > told["tenants"][1]["index_bytes"] > 0
    people = Terminal({"MEMORY_DB_PATH": str(path), "MEMORY_KEEP_AUDIT": "36h"})
    lines = people.say("stats", "--storage", "--tenant", "default").splitlines()
    assert lines[0].startswith("default: ")
    assert lines[1].split() == ["KIND", "ROWS", "KEPT", "NEXT", "SWEEP"]
    assert lines[2].split() == ["deleted", "0", "for", "ever", "0"]
    assert lines[-1].split()[-2:] == ["1.5d", "0"]


@pytest.mark.sqlite_files
def test_what_cannot_be_looked_at_is_said(tmp_path: Path) -> None:
    nowhere = Terminal({"MEMORY_DB_PATH": str(tmp_path / "memory.db")})
    service = Terminal({"MEMORY_URL": "http://127.0.0.1:1"})

    refused = [nowhere.run("stats", "--storage"), service.run("stats", "--storage")]

    assert [it.exit_code for it in refused] == [1, 2]
    assert "There is no database: " in refused[0].stderr
    assert "--storage reads files" in refused[1].stderr
    assert list(tmp_path.iterdir()) == []
