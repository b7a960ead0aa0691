"""The program at the terminal: its help, its demonstration, its probe."""

import re
from pathlib import Path

import pytest

from agentops_memory import __version__
from agentops_memory.settings import VARIABLES

from ..support.forks import PROGRAM
from ..support.process import free_port, run
from ..support.service import Service
from ..support.terminal import Terminal


def test_help_shows_the_commands_and_where_the_options_are() -> None:
    whole, serve = Terminal().say("--help"), Terminal().say("serve", "--help")

    assert whole.startswith("Usage: agentops-memory [OPTIONS] COMMAND")
    for command in ("serve", "demo", "health", "agentops-memory serve --help-all"):
        assert command in whole
    for group in ("Memories:", "Agents:", "Operations:", "Administration:"):
        assert f"\n{group}\n" in whole
    assert "..." not in whole.partition("Memories:")[2]  # no sentence is cut
    assert "\nExample:\n  agentops-memory serve" in serve
    assert "--keep-audit" not in serve
    assert Terminal().say("--listen", ":0", "--help") == serve
    for shown in (whole, *(Terminal().say(it, "-h") for it in ("demo", "health"))):
        assert max(map(len, shown.splitlines())) <= 80
    assert Terminal().say("--version") == f"agentops-memory {__version__}\n"


def test_the_help_of_serve_names_every_flag_variable_and_default() -> None:
    words = " ".join(run("serve", "--help-all").stdout.split())
    assert "MEMORY_DATABASE_URL, which may contain a password, has no option." in words
    for variable in filter(lambda it: it.flag, VARIABLES):
        assert f"{variable.flag} {variable.kind} " in words
        assert f"[{variable.name}, default: {variable.default or 'unset'}]" in words


def test_the_demonstration_shows_the_context_that_an_agent_would_get(service: Service) -> None:
    demo = Terminal({"http_proxy": f"http://127.0.0.1:{free_port()}"})  # round which it goes
    first, second = (demo.run("demo", "--url", service.url) for _ in range(2))

    saved, _, shown = first.stdout.partition("The next prompt:")
    assert (first.exit_code, first.stderr, second.exit_code) == (0, "", 0)
    assert re.findall(r"^  (\w+) +#\d", saved, re.MULTILINE) == ["created"] * 2
    blocks = re.fullmatch(
        r"<memory:sessions>\n- (.*)\n</memory:sessions>\n<memory:context>\n(.*)\n</memory:context>",
        shown[shown.index("<memory:sessions>") :].strip(),
        re.DOTALL,
    )
    assert blocks
    assert blocks[1].startswith("Session: 3 messages (2 user, 1 assistant). Started with: ")
    assert re.findall(r"^- \[(\w+)\] ", blocks[2], re.MULTILINE) == ["config", "decision"]
    actions = re.findall(r"^  (\w+) +#\d", second.stdout, re.MULTILINE)
    assert actions == ["updated", "deduplicated"]
    assert service.http.get("/stats").json()["total_observations"] == 2


def test_the_demonstration_says_so_when_nothing_or_something_else_answers(
    service: Service,
) -> None:
    for url, sentence in (
        (f"http://127.0.0.1:{free_port()}", r"[^\n]*\."), ("http://", r"[^\n]*\."),
        ("127.0.0.1:7437", r"[^\n]*\."), ("http://a:b", r"[^\n]*\."),
        (f"{service.url}/elsewhere", r"[^\n]*"),
    ):  # fmt: skip
        done = Terminal().run("demo", "--url", url)

        assert (done.exit_code, done.stdout) in ((1, ""), (3, ""))
        assert re.fullmatch(rf"agentops-memory: {sentence}\n(Hint: .*\n)?", done.stderr), (
            done.stderr
        )


def test_health_is_0_where_the_service_answers_and_1_where_nothing_does(service: Service) -> None:
    address = service.url.removeprefix("http://")

    for listen in (address, f":{address.rpartition(':')[2]}"):
        Terminal().say("health", "--listen", listen)
        Terminal({"MEMORY_LISTEN": listen}).say("health")
    assert Terminal().run("health", "--listen", f"127.0.0.1:{free_port()}").exit_code == 1
    wrong = Terminal().run("health", "--listen", "here")
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("agentops-memory: MEMORY_LISTEN: 'here' is not an address")


OF_OTHER_WORK = {
    "uvicorn", "starlette.requests", "prometheus_client", "opentelemetry",
    *(f"agentops_memory.{it}" for it in (
        "compose", "openwop.routes", "openintent.routes", "agentops.transfer", "memory.imports",
        "memory.projects", "memory.model.keys", "operations.files.keys",
        "secrets.assignments", "secrets.shapes", "recall.explanation",
    )),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_command_loads_what_it_needs_alone_and_a_service_listens_before_its_protocols(
    path: Path,
) -> None:
    file = ("--db", str(path), "--project", "p")
    Terminal().say("save", "Queue", "Orders go through a queue.", *file)
    nobody = ("health", "--listen", f"127.0.0.1:{free_port()}")
    rest = OF_OTHER_WORK - {"uvicorn", "starlette.requests"}
    for arguments, code, needed, others in (
        (nobody, PROGRAM, "click",
         {"uvicorn", "starlette", "pydantic", "sqlite3", "opentelemetry"}),
        (("search", "queue", *file), PROGRAM, "click",
         {*OF_OTHER_WORK, "pydantic", "rich", "email", "tempfile"}),
        (("mcp", *file), PROGRAM, "agentops_memory.mcp.tools", OF_OTHER_WORK),
        (("--version",), "import agentops_memory.server", "agentops_memory.http.app",
         {*rest, "agentops_memory.backend", "agentops_memory.sqlite.engine"}),
    ):  # fmt: skip
        done = run(*arguments, variables={"PYTHONPROFILEIMPORTTIME": "1"}, code=code)
        modules = set(re.findall(r"\| +(\S+)$", done.stderr, re.MULTILINE))
        assert needed in modules
        assert not modules & others, arguments


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
    Terminal().say("save", "Queue", "Orders go through a queue.", *file)

    done = run("search", "queue", *file, code=CALLED)

    assert done.stdout.startswith("#1 [discovery] Queue")
    assert "Threads._serve" in done.stderr.split()
    assert "DatabaseIndex.install" not in done.stderr.split()


COUNTED = """
import atexit, sys
classes = methods = 0
def count(frame, event, it):
    global classes, methods
    if frame.f_globals.get("__name__") == "dataclasses":
        classes += event == "call" and frame.f_code.co_name == "_process_class"
        methods += event == "c_call" and it is exec
def report():
    own = [it for it in sys.modules if it.partition(".")[0] == "agentops_memory"]
    print(len(own), classes, methods, file=sys.stderr)
atexit.register(report)
sys.setprofile(count)
from agentops_memory.cli import main
main()
"""


CEILINGS = {"modules of ours": 80, "dataclasses": 138, "methods compiled for them": 238}


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_search_on_the_file_imports_and_compiles_no_more_than_before(path: Path) -> None:
    """Most of its time: a figure that fell is lowered here."""
    file = ("--db", str(path), "--project", "p")
    run("save", "Queue", "Orders go through a queue.", *file)

    done = run("search", "queue", *file, variables={"PYTHONHASHSEED": "0"}, code=COUNTED)

    figures = dict(zip(CEILINGS, map(int, done.stderr.split()), strict=True))
    assert {name: it for name, it in figures.items() if it > CEILINGS[name]} == {}
