"""How the service starts: where, on what, what it says meanwhile, and what stops it."""

import json
import re
import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from agentops_memory import __version__
from agentops_memory.settings import default_db_path
from agentops_memory.sqlite.connection import connect

from ..support.forks import PROGRAM
from ..support.process import ANEW, Program, free_port, program, run, until
from ..support.samples import for_each
from ..support.service import PLAIN, serving

SENTENCE = re.compile(r"agentops-memory: [^\n]*\.\nHint: [^\n]*\.\n")


@pytest.mark.slow
@pytest.mark.skipif(default_db_path().startswith("/data"), reason="/data can be written here")
def test_a_bare_serve_makes_its_file_below_the_working_folder_and_says_so(tmp_path: Path) -> None:
    with program("--listen", "127.0.0.1:0", cwd=tmp_path, within=ANEW) as process:
        assert json.loads(process.line("serving"))["db"] == f"{tmp_path}/data/memory.db"
        assert (tmp_path / "data" / "memory.db").is_file()


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "127.0.0.1:0", "--db", "here.db"),
        ("--listen=127.0.0.1:0", "--db=here.db"),
        ("serve", "--listen", "127.0.0.1:0", "--db", "here.db"),
        ("--listen", "127.0.0.1:0", "serve", "--db", "here.db"),
        ("--listen", "127.0.0.1:0", "--db", "here.db", "serve"),
    ],
)
def test_flags_may_stand_before_the_word_serve_or_without_it(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    elsewhere = {"MEMORY_LISTEN": "127.0.0.1:1", "MEMORY_DB_PATH": "/nowhere/memory.db"}
    with (
        program(*arguments, variables=elsewhere, cwd=tmp_path) as process,
        process.client() as http,
    ):
        assert http.get("/health").json() == {"status": "ok"}
        assert (tmp_path / "here.db").is_file()


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize(
    ("listen", "reached"),
    [
        (":0", ["127.0.0.1", "[::1]"]), ("localhost:0", ["localhost"]), ("[::1]:0", ["[::1]"]),
        ("0.0.0.0:0", ["127.0.0.1"]),
    ],
)  # fmt: skip
def test_it_listens_where_it_is_told(listen: str, reached: list[str], path: Path) -> None:
    if "::1" in str(reached) and not has_ipv6():
        pytest.skip("there is no IPv6 here")
    own = {"MEMORY_LISTEN": listen, "MEMORY_DB_PATH": str(path)}
    with program(variables=own | {"MEMORY_AUTH": "none"}) as process:
        port = json.loads(process.line("serving"))["listen"].rpartition(":")[2]
        for host in reached:
            answer = httpx.get(f"http://{host}:{port}/health", verify=PLAIN)
            assert answer.status_code == 200


def warnings(process: Program) -> list[dict[str, str]]:
    """What the lines that are printed by the end warn of."""
    process.client().close()
    process.send(signal.SIGTERM)
    assert process.wait() == 0
    return [it for it in map(json.loads, process.lines) if it["level"] == "WARNING"]


@pytest.mark.slow
@pytest.mark.representative(1)
@pytest.mark.parametrize("listen", [":0", "0.0.0.0:0"])
def test_a_start_that_lets_anyone_in_says_so_in_one_line_until_there_is_a_key(
    listen: str, path: Path
) -> None:
    own = {
        "MEMORY_LISTEN": listen, "MEMORY_DB_PATH": str(path),
        "MEMORY_AUTH": "none", "MEMORY_DRAIN": "0",
    }  # fmt: skip
    with program(variables=own) as process:
        (line,) = warnings(process)
    port = json.loads(process.line("serving"))["listen"].rpartition(":")[2]
    assert line["message"] == (
        f"anyone who can reach port {port} is admin; `agentops-memory keys create` restricts access"
    )

    run("keys", "create", "--name", "me", "--role", "admin", variables=own)
    with program(variables=own) as process:
        assert warnings(process) == []


@pytest.mark.slow
def test_a_start_on_a_loopback_address_warns_of_misspelt_variables_alone(path: Path) -> None:
    own = {
        "MEMORY_LISTEN": "localhost:0", "MEMORY_DB_PATH": str(path), "MEMORY_AUTH": "none",
        "MEMORY_DRAIN": "0", "MEMORY_LISTN": "s3cret", "MEMORY_PORT_80_TCP_ADDR": "::",
        "MEMORY_XYZZY": "", "MEMORY_URL": "",
    }  # fmt: skip
    with program(variables=own) as process:
        (line,) = warnings(process)

    assert line["message"] == "an unknown variable is ignored"
    assert (line["variable"], line["meant"]) == ("MEMORY_LISTN", "MEMORY_LISTEN")
    assert "s3cret" not in process.output
    told = json.loads(process.line("serving"))
    address = told["listen"]
    assert told.pop("time")
    assert told == {
        "level": "INFO", "logger": "agentops_memory.server", "listen": address, "db": str(path),
        "message": f"serving on http://{address}, data in {path}, "
        "every write on disk before it is answered",
        "version": __version__,
    }  # fmt: skip


@pytest.mark.slow
def test_a_file_that_cannot_be_used_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no database" * 1000)
    (tmp_path / "folder").mkdir()
    with serving(tmp_path / "newer.db"):
        pass
    with closing(connect(tmp_path / "newer.db")) as database:
        database.execute("PRAGMA user_version = 99")
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE somebody_elses (id)")

    for path in ("file/memory.db", "file", "folder", "newer.db", "other.db"):
        own = {"MEMORY_LISTEN": "127.0.0.1:0", "MEMORY_DB_PATH": path}
        done = run(variables=own, cwd=tmp_path)

        assert done.returncode == 1, path
        assert SENTENCE.fullmatch(done.stderr), done.stderr
        assert "waiting for" not in done.stdout
        assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_port_in_use_ends_the_start_with_a_sentence(path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = run(variables={"MEMORY_LISTEN": address, "MEMORY_DB_PATH": str(path)})

    assert done.returncode == 1
    assert done.stderr == (
        f"agentops-memory: MEMORY_LISTEN: {address} cannot be used: Address already in use.\n"
        "Hint: `agentops-memory status` shows what answers there; --listen selects another "
        "address.\n"
    )
    assert done.stdout == ""  # nothing else is said
    assert not (path).exists()


@pytest.mark.slow
@for_each(
    "name, value",
    [
        ("MEMORY_LISTEN", "7437"), ("MEMORY_LISTEN", "nowhere.invalid:1"),
        ("MEMORY_LISTEN", "a..b:1"), ("MEMORY_LISTEN", "192.0.2.1:1"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "smtp"),
    ],
)  # fmt: skip
def test_a_wrong_setting_ends_the_start_with_a_sentence_that_names_it(
    name: str, value: str, path: Path
) -> None:
    done = run(variables={"MEMORY_DB_PATH": str(path), name: value})

    assert (done.returncode, done.stdout) == (1, "")
    assert SENTENCE.fullmatch(done.stderr), done.stderr
    assert name in done.stderr
    assert value in done.stderr


@contextmanager
def starting(
    path: Path, *, lock: str = "IMMEDIATE", code: str = PROGRAM
) -> Iterator[tuple[Program, httpx.Client, sqlite3.Connection]]:
    """A service that cannot open its file until the lock is given up; an exclusive one hides it."""
    port = free_port()
    own = {"MEMORY_LISTEN": f"127.0.0.1:{port}", "MEMORY_DB_PATH": str(path)}
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute(f"BEGIN {lock}")
        with (
            program(variables=own, code=code) as process,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, verify=PLAIN) as http,
        ):
            until(lambda: listens(port))
            yield process, http, holder


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
