"""The program at the terminal: its help, its demonstration, its probe."""

import re
from pathlib import Path

import pytest

from agentops_memory import __version__
from agentops_memory.settings.settings import VARIABLES

from ..support.forks import PROGRAM
from ..support.process import free_port, run
from ..support.samples import for_each
from ..support.service import Service


def test_help_shows_the_commands_and_where_the_options_are() -> None:
    done = run("--help")

    assert done.returncode == 0
    assert done.stdout.startswith("Usage: agentops-memory [OPTIONS] COMMAND")
    for command in ("serve", "demo", "health", "agentops-memory serve --help-all"):
        assert command in done.stdout
    assert "..." not in done.stdout.partition("Memories:")[2]  # no sentence is cut


def test_the_help_of_serve_names_every_flag_variable_and_default() -> None:
    done = run("serve", "--help-all")

    words = " ".join(done.stdout.split())
    assert "MEMORY_DATABASE_URL, which may contain a password, has no option." in words
    for variable in filter(lambda it: it.flag, VARIABLES):
        assert f"{variable.flag} {variable.kind} " in words
        assert f"[{variable.name}, default: {variable.default or 'unset'}]" in words


def test_an_option_and_help_is_the_help_of_serve() -> None:
    assert run("--listen", ":0", "--help").stdout == run("serve", "--help").stdout


@for_each("arguments", [("--help",), ("demo", "--help"), ("health", "-h")])
def test_help_fits_a_terminal(arguments: tuple[str, ...]) -> None:
    assert max(map(len, run(*arguments).stdout.splitlines())) <= 80


def test_version_is_one_line() -> None:
    assert run("--version").stdout == f"agentops-memory {__version__}\n"


@for_each(
    "arguments, said",
    [
        (("remember",), "No such command 'remember'"),
        (("--colour", "red"), "No such option '--colour'"),
        (("--listen",), "Option '--listen' requires an argument"),
    ],
)
def test_what_is_no_command_and_no_option_is_named(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)

    assert done.returncode == 2
    assert said in done.stderr.replace(":", "")


def test_the_demonstration_shows_the_context_that_an_agent_would_get(service: Service) -> None:
    done = run("demo", "--url", service.url)

    saved, _, shown = done.stdout.partition("The next prompt:")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.findall(r"^  (\w+) +#\d", saved, re.MULTILINE) == ["created"] * 3
    blocks = re.fullmatch(
        r"<memory:sessions>\n- (.*)\n</memory:sessions>\n<memory:context>\n(.*)\n</memory:context>",
        shown[shown.index("<memory:sessions>") :].strip(),
        re.DOTALL,
    )
    assert blocks
    assert blocks[1].startswith("Session: 3 messages (2 user, 1 assistant). Started with: ")
    assert re.findall(r"^- \[(\w+)\] ", blocks[2], re.MULTILINE) == ["config", "decision"]


@pytest.mark.slow
def test_the_second_demonstration_stores_nothing_twice(service: Service) -> None:
    run("demo", "--url", service.url)
    done = run("demo", "--url", service.url)

    actions = re.findall(r"^  (\w+) +#\d", done.stdout, re.MULTILINE)
    assert actions == ["updated", "deduplicated", "deduplicated"]
    assert service.http.get("/stats").json()["total_observations"] == 3


def test_the_demonstration_goes_round_a_proxy_of_the_environment(service: Service) -> None:
    proxy = {"http_proxy": f"http://127.0.0.1:{free_port()}"}

    assert run("demo", "--url", service.url, variables=proxy).returncode == 0


@for_each("url", ["http://127.0.0.1:{port}", "http://", "127.0.0.1:7437", "http://a:b"])
def test_the_demonstration_says_so_when_nothing_answers(url: str) -> None:
    done = run("demo", "--url", url.format(port=free_port()))

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"agentops-memory: [^\n]*\.\n", done.stderr), done.stderr


def test_the_demonstration_says_so_when_something_else_answers(service: Service) -> None:
    done = run("demo", "--url", f"{service.url}/elsewhere")

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"agentops-memory: [^\n]* refused POST [^\n]*\n", done.stderr)


def test_health_is_0_where_the_service_answers_and_1_where_nothing_does(service: Service) -> None:
    address = service.url.removeprefix("http://")

    assert run("health", "--listen", address).returncode == 0
    assert run("health", variables={"MEMORY_LISTEN": address}).returncode == 0
    everywhere = {"MEMORY_LISTEN": f":{address.rpartition(':')[2]}"}
    assert run("health", variables=everywhere).returncode == 0
    assert run("health", "--listen", f"127.0.0.1:{free_port()}").returncode == 1


def test_health_refuses_a_wrong_setting_with_a_sentence() -> None:
    done = run("health", "--listen", "here")

    assert done.returncode == 1
    assert done.stderr.startswith("agentops-memory: MEMORY_LISTEN: 'here' is not an address")


@pytest.mark.slow
def test_health_does_not_load_the_server() -> None:
    profile = {"PYTHONPROFILEIMPORTTIME": "1"}

    loaded = run("health", "--listen", f"127.0.0.1:{free_port()}", variables=profile).stderr

    assert "click" in loaded
    for module in ("uvicorn", "starlette", "pydantic", "sqlite3", "opentelemetry"):
        assert not re.search(rf"\| +{module}$", loaded, re.MULTILINE)


def imported(*arguments: str, code: str = PROGRAM) -> tuple[str, set[str]]:
    """What a program printed, and the modules that it imported, started anew."""
    done = run(*arguments, variables={"PYTHONPROFILEIMPORTTIME": "1"}, code=code)
    return done.stdout, set(re.findall(r"\| +(\S+)$", done.stderr, re.MULTILINE))


OF_OTHER_WORK = {
    "uvicorn", "starlette.requests", "prometheus_client", "opentelemetry.metrics",
    *(f"agentops_memory.{it}" for it in (
        "compose", "openwop.routes", "openintent.routes", "agentops.transfer", "memory.imports",
        "memory.projects", "memory.model.keys", "operations.files.audit", "operations.files.keys",
        "secrets.assignments", "secrets.shapes", "recall.explanation",
    )),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_command_on_the_file_loads_no_server_and_no_other_protocol(path: Path) -> None:
    file = ("--db", str(path), "--project", "p")
    run("save", "Queue", "Orders go through a queue.", *file)

    printed, modules = imported("search", "queue", *file)

    assert printed.startswith("#1 [discovery] Queue")
    assert not modules & {*OF_OTHER_WORK, "pydantic", "rich", "email", "tempfile"}


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_session_over_mcp_loads_no_server_and_no_other_protocol(path: Path) -> None:
    _, modules = imported("mcp", "--db", str(path), "--project", "p")

    assert "agentops_memory.mcp.server" in modules
    assert not modules & OF_OTHER_WORK


CALLED = """
import atexit, sys, threading
called = set()
threading.setprofile(lambda frame, *_: called.add(frame.f_code.co_qualname))
atexit.register(lambda: print(*called, file=sys.stderr))
from agentops_memory.cli import main
main()
"""


@pytest.mark.sqlite_files
def test_a_command_on_the_file_loads_no_index_into_memory(path: Path) -> None:
    file = ("--db", str(path), "--project", "p")
    run("save", "Queue", "Orders go through a queue.", *file)

    done = run("search", "queue", *file, code=CALLED)

    assert done.stdout.startswith("#1 [discovery] Queue")
    assert "Threads._serve" in done.stderr.split()
    assert "DatabaseIndex.install" not in done.stderr.split()


@pytest.mark.slow
def test_a_service_listens_before_it_loads_its_protocols() -> None:
    _, modules = imported("--version", code="import agentops_memory.server")

    assert "agentops_memory.http.middleware" in modules
    rest = OF_OTHER_WORK - {"uvicorn", "starlette.requests", "agentops_memory.memory.keys"}
    assert not modules & {*rest, "agentops_memory.backend", "agentops_memory.sqlite.engine"}
