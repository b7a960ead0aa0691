"""How the service starts, what stops it, and what becomes of requests that come meanwhile."""

import asyncio
import json
import re
import signal
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.responses import JSONResponse
from starlette.types import Message

from agentops_memory import __version__
from agentops_memory.compose import PROTOCOLS
from agentops_memory.http import app
from agentops_memory.http.app import HttpService
from agentops_memory.http.protocol import Protocol
from agentops_memory.settings import default_db_path, settings
from agentops_memory.sqlite.connection import APPLICATION_ID, connect
from agentops_memory.telemetry import Telemetry

from ..support.callers import made_key, revoke
from ..support.engine import turns
from ..support.engines import rows
from ..support.forks import PROGRAM
from ..support.original import filled
from ..support.process import ANEW, Program, free_port, program, run, until
from ..support.raw import Answer, Wire, request, wire
from ..support.samples import for_each
from ..support.service import PLAIN, observation, serving

SENTENCE = re.compile(r"agentops-memory: [^\n]*\.\nHint: [^\n]*\.\n")


@pytest.mark.slow
@pytest.mark.skipif(default_db_path().startswith("/data"), reason="/data can be written here")
def test_a_bare_serve_makes_its_file_below_the_working_folder_and_says_so(tmp_path: Path) -> None:
    with program("--listen", "127.0.0.1:0", cwd=tmp_path, within=ANEW) as process:
        assert json.loads(process.line("serving"))["db"] == f"{tmp_path}/data/memory.db"
        assert (tmp_path / "data" / "memory.db").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen=127.0.0.1:0", "--db=here.db"),
        ("--listen", "127.0.0.1:0", "serve", "--db", "here.db"),
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
def test_a_start_that_lets_anyone_in_says_so_in_one_line_until_there_is_a_key(
    path: Path,
) -> None:
    own = {
        "MEMORY_LISTEN": ":0", "MEMORY_DB_PATH": str(path),
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
        "Hint: `agentops-memory serve --help-all` describes every setting, and `agentops-memory "
        "status` shows what is running.\n"
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


STARTING = {"error": "The service is starting; try again."}
STOPPING = {"error": "The service is stopping; try again."}
SAVE = json.dumps(observation("asked for before it was open")).encode()
POST = request("POST", "/observations", SAVE)
STATS = request("GET", "/stats")


def patient_for(time: str) -> str:
    """The program, which lets requests wait so long for its start."""
    return f"""
from datetime import timedelta
from agentops_memory.http import app
app.START_TIMEOUT = timedelta({time})
{PROGRAM}"""


PATIENT = patient_for("hours=1")


@contextmanager
def asking(http: httpx.Client, *requests: bytes) -> Iterator[list[Wire]]:
    """Connections on which the service has met these requests, one each."""
    with ExitStack() as stack:
        clients = [stack.enter_context(wire(str(http.base_url))) for _ in requests]
        for client, sent in zip(clients, requests, strict=True):
            client.send(sent)
        assert http.get("/health").json() == {"status": "ok"}  # it came later than those
        yield clients


def is_to_be_tried_again(answer: Answer, body: dict[str, str] = STARTING) -> bool:
    return (answer.status, answer.json, answer.headers["retry-after"]) == (503, body, "1")


@pytest.mark.slow
def test_what_comes_while_it_starts_waits_and_is_served(path: Path) -> None:
    head = request("POST", "/observations", content_length=str(len(SAVE)), expect="100-continue")
    asked = [head, POST, STATS, request("GET", "/nowhere"), request("GET", "/metrics")]
    with starting(path, code=PATIENT) as (process, http, lock):
        with asking(http, POST, STATS):
            pass  # clients that leave, and leave nothing behind
        with asking(http, *asked) as clients:
            assert [client.is_quiet(0.1) for client in clients] == [True] * 5
            states = {it: http.get(f"/health/{it}") for it in ("live", "startup", "ready")}
            assert [it.status_code for it in states.values()] == [200, 503, 503]
            assert states["startup"].json()["error"] == "The service is starting."
            ready = states["ready"].json()
            assert (ready["status"], list(ready["checks"])) == ("failed", ["migrations"])
            lock.close()
            process.line("serving")

            assert clients[0].answer().status == 100
            clients[0].send(SAVE)  # nothing of a body is read before
            assert [client.answer().status for client in clients] == [201, 201, 200, 404, 200]
        assert http.get("/stats").json()["total_observations"] == 1  # both say the same
        assert http.get("/observations/1").json()["duplicate_count"] == 2
        assert [http.get(f"/health/{it}").status_code for it in ("startup", "ready")] == [200] * 2
        process.send(signal.SIGINT)

        assert (process.wait(), process.errors) == (0, "")
        assert [line for line in process.lines if '"ERROR"' in line] == []


@pytest.mark.slow
def test_who_asks_is_looked_at_when_the_request_is_served(path: Path) -> None:
    token = made_key(path)
    asked = request("GET", "/stats", authorization=f"Bearer {token}")
    with (
        starting(path, code=PATIENT) as (_, http, lock),
        asking(http, asked, STATS) as (keyed, keyless),
    ):
        revoke(path, token)
        lock.close()

        assert (keyed.answer().status, keyless.answer().status) == (401, 401)


@pytest.mark.slow
def test_a_start_that_takes_too_long_is_a_503(path: Path) -> None:
    with starting(path, code=patient_for("milliseconds=50")) as (_, http, lock):
        with asking(http, POST, request("GET", "/anthropic/v1/memory_stores")) as (ours, other):
            assert is_to_be_tried_again(ours.answer())
            refused = other.answer()
        error = {"type": "api_error", "message": STARTING["error"]}
        assert (refused.status, refused.json["error"]) == (503, error)
        assert http.get("/health/live").status_code == 200
        lock.close()


def test_no_more_requests_wait_than_there_are_places_and_one_whose_client_leaves_frees_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "MOST_WAITING", 1)

    async def statuses() -> list[int]:
        gate = http_service()
        first = await waiting_at(gate)
        crowded = await waiting_at(gate)
        assert crowded.done()  # at once
        first.cancel()
        await asyncio.wait([first])
        second = await waiting_at(gate)
        gate.open(JSONResponse({}))
        return [await crowded, await second]

    assert asyncio.run(statuses()) == [503, 200]


def test_probes_are_answered_before_the_protocols_are_imported() -> None:
    def protocols() -> Sequence[Protocol]:
        raise AssertionError("the import takes half of a start")

    async def status() -> int:
        service = HttpService(protocols, Telemetry.started(None).metrics, settings({}))
        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return (await http.get("/health/live")).status_code

    assert asyncio.run(status()) == 200


def http_service() -> HttpService:
    return HttpService(lambda: PROTOCOLS, Telemetry.started(None).metrics, settings({}))


async def waiting_at(gate: HttpService, path: str = "/stats") -> "asyncio.Task[int]":
    """The status of a request that has come to the gate."""
    status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            status.set_result(message["status"])

    async def receive() -> Message:
        raise AssertionError

    async def ask() -> int:
        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        await gate(scope, receive, send)
        return await status

    task = asyncio.create_task(ask())
    await turns(2)
    return task


def test_a_probe_is_told_of_the_end_of_a_start_that_came_to_nothing() -> None:
    async def statuses(probe: str) -> list[int]:
        gate = http_service()
        before = await waiting_at(gate, probe)
        gate.close()
        return [await before, await (await waiting_at(gate, probe))]

    assert asyncio.run(statuses("/health")) == [200, 503]
    assert asyncio.run(statuses("/health/ready")) == [503, 503]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_refuses_what_waits_and_leaves_the_file_whole(
    number: signal.Signals, path: Path
) -> None:
    with starting(path, code=PATIENT) as (process, http, _), asking(http, POST, STATS) as clients:
        process.send(number)

        assert all(is_to_be_tried_again(client.answer(), STOPPING) for client in clients)
        assert [client.rest() for client in clients] == [b"", b""]
        assert (process.wait(), process.errors) == (0, "")
        assert "serving on" not in "".join(process.lines)
    with serving(path) as service:
        assert service.http.get("/stats").json()["total_observations"] == 0


def test_a_start_that_is_refused_refuses_what_waits(path: Path) -> None:
    with (
        starting(path, lock="EXCLUSIVE", code=PATIENT) as (process, http, lock),
        asking(http, POST, STATS) as clients,
    ):
        lock.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        lock.execute("PRAGMA user_version = 99")
        lock.execute("COMMIT")

        assert all(is_to_be_tried_again(client.answer(), STOPPING) for client in clients)
        assert process.wait() == 1


@pytest.mark.slow
def test_an_upgrade_refuses_what_waits_already(tmp_path: Path) -> None:
    path = filled(tmp_path / "memory.db")
    with (
        starting(path, lock="EXCLUSIVE", code=PATIENT) as (process, http, lock),
        asking(http, POST, STATS) as clients,
    ):
        assert [client.is_quiet(0.1) for client in clients] == [True] * 2
        lock.close()

        assert all(is_to_be_tried_again(client.answer()) for client in clients)
        process.line("serving")


@pytest.mark.slow
@pytest.mark.parametrize("older", ["the original", "index", "pages"])
def test_while_a_file_or_its_index_is_made_anew_everything_but_probes_is_to_be_tried_again(
    older: str, path: Path
) -> None:
    if older == "the original":
        filled(path)
    else:
        with serving(path):
            pass
    if older == "index":
        rows(path, "UPDATE index_rules SET rules = 'others'")
    if older == "pages":
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO remains (one) VALUES (1)")

    with starting(path, code=PATIENT) as (process, http, lock):
        with asking(http, POST, STATS, request("GET", "/nowhere")) as clients:
            assert all(is_to_be_tried_again(client.answer()) for client in clients)
        lock.close()
        process.line("serving")

        assert http.post("/observations", content=SAVE).status_code == 201
