"""A long import is stored chunk by chunk, and a process reads it: none is lost with either.

Others save in between, and a repeat completes what was cut off.
"""

import asyncio
import gc
import io
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from agentops_memory.agentops import transfer
from agentops_memory.agentops.reader import Reader
from agentops_memory.agentops.transfer import Document, Transfer, chunks_of
from agentops_memory.cli.output import TERMINATED
from agentops_memory.engine.engine import Engine
from agentops_memory.errors import Denied, Full, OverQuota, Unavailable
from agentops_memory.http.bodies import IN_MEMORY
from agentops_memory.http.gate import ALLOCATIONS, SWITCH_INTERVAL
from agentops_memory.memory import redactor
from agentops_memory.memory.access import OPERATOR, Caller, Patterns
from agentops_memory.memory.imports import BRIEF, CHUNK, SLICE_CONTENDED, Tally, import_some
from agentops_memory.memory.memory import SessionId
from agentops_memory.memory.redactor import Redactor
from agentops_memory.memory.sessions import open_session
from agentops_memory.memory.space import Project
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.server import GC_THRESHOLD
from agentops_memory.sqlite import SqliteEngine, transaction
from agentops_memory_client.contract.models import Imported

from ..support import raw
from ..support.engine import opened
from ..support.engines import rows, storage_at
from ..support.files import assert_index_is_whole, assert_sound
from ..support.forks import PROGRAM
from ..support.process import program, run, until
from ..support.service import Clock, observation, serving

LONGER_THAN_A_PIPE = 200_000
OTHER = Project("other")
TOLD = {"id": "told", "project": "demo"}


def document(size: int, **fields: Any) -> Document:
    """So many observations, every third in another project."""
    observations = [
        observation(
            f"Row {number} of many.", project="other" if number % 3 == 0 else "demo",
            session_id=f"s{number % 3 == 0}-{number % 7}",
            created_at=f"2029-01-01T00:00:{number % 60:02}Z", **fields,
        )
        for number in range(size)
    ]  # fmt: skip
    return of(observations=observations, sessions=[TOLD])


def of(**parts: object) -> Document:
    made = Document(io.BytesIO(json.dumps(parts).encode()), Clock()())
    made.check()
    return made


async def exported(engine: Engine) -> dict[str, Any]:
    """All that is stored, as far as two imports of one document agree on it."""
    pieces = [it async for it in Transfer(engine=engine).export(OPERATOR, None, Clock()())]
    found: dict[str, Any] = json.loads(b"".join(pieces))
    for row in found["observations"]:
        del row["uid"]
    return {"sessions": found["sessions"], "observations": found["observations"]}


class Dying:
    """An engine that makes so many writes, and none from then on."""

    def __init__(self, engine: SqliteEngine, writes: int, error: type[Exception] = Unavailable):
        self._engine, self._left, self._error = engine, writes, error

    async def read(self, *args: Any) -> Any:
        return await self._engine.read(*args)

    async def write(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise self._error("The power is gone.")
        return await self._engine.write(*args, **kwargs)


LINKS = """SELECT n.uid, o.uid
             FROM supersessions
             JOIN memories n ON n.id = newer_id
             JOIN memories o ON o.id = older_id
         ORDER BY 1"""


def chained(size: int) -> Document:
    """Each second supersedes the one after it, and the others the one before."""
    return of(sessions=[TOLD], observations=[
        observation(
            f"Row {n}.", uid=str(UUID(int=n + 1)), created_at="2029-01-01T00:00:00Z",
            supersedes=[str(UUID(int=n + 2))] if n % 4 == 3 else [str(UUID(int=n))] if n % 4 == 2
            else [],
        )
        for n in range(size)
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("step", "error"), [(2, Unavailable), (1, Full)])
async def test_whoever_dies_at_any_step_has_stored_whole_chunks_and_a_repeat_stores_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, error: type[Exception]
) -> None:
    path, size = tmp_path / "memory.db", 15
    async with opened(tmp_path / "whole.db") as engine:
        in_one_chunk = await Transfer(engine=engine).import_all(OPERATOR, chained(size))
        whole = await exported(engine)
    monkeypatch.setattr(transfer, "CHUNK", 4)
    async with opened(path) as engine:
        dying = Transfer(engine=cast("Engine", Dying(engine, step, error)))
        stored = f"The first {4 * step} rows of the document were stored before; repeat"
        with pytest.raises(error, match=rf"^The power is gone\. {stored}"):
            await dying.import_all(OPERATOR, chained(size))
        assert len((await exported(engine))["observations"]) == 4 * step - 1  # and a session

    async with opened(path) as engine:  # the next start
        rest = await Transfer(engine=engine).import_all(OPERATOR, chained(size))
        assert rest.imported_observations == size - 4 * step + 1
        assert await exported(engine) == whole
        again = await Transfer(engine=engine).import_all(OPERATOR, chained(size))
        assert (again.imported_sessions, again.imported_observations) == (0, 0)
    assert in_one_chunk.imported_observations == size
    due = rows(tmp_path / "whole.db", LINKS)  # what rows supersede is completed, too
    assert len(due) >= 5
    assert rows(path, LINKS) == due
    assert_sound(path, live=size)


@pytest.mark.slow
async def test_others_wait_for_few_rows_alone(path: Path) -> None:
    async with opened(path) as engine:
        (some,) = chunks_of(Redactor(DEFAULT_RULES), document(500))
        tallies = await asyncio.gather(
            engine.write(OPERATOR, import_some, some, Tally()),
            engine.write(OPERATOR, import_some, some, Tally()),
        )

    # Nobody waits for the second.
    assert [it.rows for it in tallies] == [SLICE_CONTENDED, 501]


async def test_what_is_due_in_the_index_is_a_transaction_of_its_own_for_others_who_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "MOST_WAITING", 40)
    (some,) = chunks_of(Redactor(DEFAULT_RULES), document(100))
    async with opened(path) as engine:
        first = await engine.write(OPERATOR, import_some, some[:36], Tally())
        tallies = await asyncio.gather(
            *(engine.write(OPERATOR, import_some, some[36:70], Tally()) for _ in range(2))
        )
        # Nobody waits for the second; nor for this one, which shares no commit with what is short.
        last, _ = await asyncio.gather(
            engine.write(OPERATOR, import_some, some[70:], Tally()),
            engine.write(OPERATOR, open_session, SessionId("other"), OTHER),
        )

    assert [it.rows for it in (first, *tallies, last)] == [36, 0, 34, 31]
    assert_index_is_whole(path)


class Watched:
    """An engine in which another change waits while the first rows of an import are stored."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self.rows = list[int]()  # that were to be stored by each transaction
        self.read = engine.read

    async def write(self, caller: Caller, work: Any, *args: Any) -> Any:
        self.rows.append(len(args[0]))
        import_ = self._engine.write(caller, work, *args)
        if len(self.rows) > 1:
            return await import_
        other = self._engine.write(caller, work, [], Tally())  # which shares no transaction
        return (await asyncio.gather(import_, other))[0]


@pytest.mark.slow
async def test_after_others_waited_few_rows_are_stored_at_a_time_for_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CALM", 5)
    async with opened(path) as engine:
        watched = Watched(engine)
        transfers = Transfer(engine=cast("Engine", watched))
        await transfers.import_all(OPERATOR, document(CHUNK + 500))

    chunk = CHUNK - SLICE_CONTENDED - 5 * BRIEF
    assert watched.rows == [CHUNK, *[BRIEF] * 5, chunk, 501, 0]  # and a write that syncs


def test_rows_of_long_contents_are_stored_few_at_a_time_and_the_faults_of_twenty_named() -> None:
    some = [observation("x" * 50_000, title=f"Row {n}") for n in range(50)]
    chunks = chunks_of(Redactor(DEFAULT_RULES), of(observations=some))

    assert [len(chunk) for chunk in chunks] == [21, 21, 8]  # a mebibyte each
    with pytest.raises(Exception, match=r"validation failed.*observations\[19\]") as refused:
        of(observations=[{}] * 50)
    assert "observations[20]" not in str(refused.value)


async def test_an_import_beyond_the_quota_or_with_a_row_of_another_s_project_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHUNK", 4)
    monkeypatch.setattr(redactor, "QUOTA_MARGIN", 0)
    nothing: dict[str, list[object]] = {"sessions": [], "observations": []}
    async with opened(tmp_path / "full.db", quota=1) as engine:
        for given in (of(sessions=[TOLD]), document(9)):
            with pytest.raises(OverQuota):
                await Transfer(engine=engine).import_all(OPERATOR, given)
        assert await exported(engine) == nothing

    mine = Caller(projects=Patterns(("demo",)))
    some = [observation(f"Row {n}.", created_at="2029-01-01T00:00:00Z") for n in range(9)]
    async with opened(tmp_path / "memory.db") as engine:
        await engine.write(OPERATOR, open_session, SessionId("theirs"), OTHER)
        for last in ({"project": "other"}, {"session_id": "theirs"}):
            theirs = of(observations=[*some, observation("Last.") | last])
            with pytest.raises(Denied):
                await Transfer(engine=engine).import_all(mine, theirs)
        assert (await exported(engine))["observations"] == []
        imported = await Transfer(engine=engine).import_all(mine, of(observations=some))
        assert imported.imported_observations == 9


# Processes


@pytest.mark.slow
def test_threads_take_turns_sooner_while_a_long_body_is_read_and_then_as_before(path: Path) -> None:
    before, long = sys.getswitchinterval(), b" " * (2 * IN_MEMORY)
    thresholds = gc.get_threshold()
    head = raw.request("POST", "/import", content_length=str(len(long) + 2))
    short = SWITCH_INTERVAL.total_seconds()
    with serving(path) as service, ExitStack() as open_:
        one, other = (open_.enter_context(raw.wire(service.url)) for _ in range(2))
        assert service.http.post("/import", content=b"{}").is_success
        assert sys.getswitchinterval() == before
        open_.callback(gc.set_threshold, *thresholds)
        gc.set_threshold(GC_THRESHOLD)

        one.send(head, long)
        until(lambda: sys.getswitchinterval() == pytest.approx(short))
        assert gc.get_threshold()[0] >= ALLOCATIONS  # it looks for garbage seldom
        other.send(head, long, b"{}")
        assert other.answer().status == 200
        assert sys.getswitchinterval() == pytest.approx(short)
        one.close()  # in the middle of its body
        until(lambda: sys.getswitchinterval() == pytest.approx(before))
        assert gc.get_threshold()[0] == GC_THRESHOLD


# A thread that takes the signals, so that none of them wakes a read of the main thread.
UNWOKEN = f"""
import signal, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
{PROGRAM}
"""


@pytest.mark.slow
def test_sigterm_ends_an_import_whose_pipe_is_silent_with_one_line_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    path, pipe = tmp_path / "memory.db", tmp_path / "pipe"
    os.mkfifo(pipe)
    variables, before = storage_at(path), {*tmp_path.iterdir()}
    with (
        program("import", str(pipe), variables=variables, code=UNWOKEN) as process,
        pipe.open("w") as writer,
    ):
        writer.write("{" + " " * LONGER_THAN_A_PIPE)
        writer.flush()
        until(lambda: any(it.stat().st_size for it in tmp_path.glob(".import-*")))
        process.send(signal.SIGTERM)
        assert process.wait() == TERMINATED

    assert process.errors.strip() == "agentops-memory: Stopped."
    assert {*tmp_path.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize(("number", "least"), [(signal.SIGTERM, 1), (signal.SIGKILL, CHUNK)])
def test_a_command_that_ends_in_an_import_is_completed_by_the_next(
    tmp_path: Path, number: signal.Signals, least: int
) -> None:
    size, path = 6000, tmp_path / "memory.db"
    file, variables = tmp_path / "large.json", {"MEMORY_DB_PATH": str(path)}
    at = {"created_at": "2029-01-01T00:00:00Z"}
    many = [observation(f"Row {number}.", **at) for number in range(size)]
    file.write_text(json.dumps({"observations": many}))
    (tmp_path / "empty.json").write_text("{}")
    assert run("import", str(tmp_path / "empty.json"), variables=variables).returncode == 0
    with program("import", str(file), variables=variables) as process:
        until(lambda: stored(path) >= least)
        process.send(number)
        code = process.wait()

    assert stored(path) >= least
    assert_sound(path, live=stored(path))
    if number is signal.SIGTERM:
        assert code == TERMINATED
        assert process.errors.strip() == "agentops-memory: Stopped."
    assert run("import", str(file), variables=variables).returncode == 0
    assert stored(path) == size
    assert_sound(path, live=size)


def stored(path: Path) -> int:
    ((count,),) = rows(path, "SELECT count(*) FROM memories")
    return int(count)


SIZE = CHUNK + 200
MOST_SELECTED = 1024  # FD_SETSIZE
SECRET = "AKIA" + "IOSFODNN7" + "EXAMPLE"
UID = "01900000-0000-7000-8000-{:012}"
STORED = (
    """SELECT uid, session_id, key, type, title, content, tags, content_hash, fingerprint, revision,
              duplicates, last_seen_at, promoted_to, created_at, updated_at
         FROM memories
     ORDER BY uid""",
    """SELECT m.uid, l.expires_at, l.pinned_at, l.review_at, l.confirmed_at
         FROM lifecycles l
         JOIN memories m ON m.id = l.memory_id
     ORDER BY m.uid""",
    """SELECT n.uid, o.uid
         FROM supersessions s
         JOIN memories n ON n.id = s.newer_id
         JOIN memories o ON o.id = s.older_id
     ORDER BY n.uid""",
    "SELECT id, project, started_at, ended_at, summary, message_count FROM sessions ORDER BY id",
)


def _row(number: int) -> dict[str, object]:
    row = observation(
        f"Row {number} of many calls max_connections in HTTPServer.run. {'x' * 200} {number}",
        title=f"naïve Größe {number}" if number % 5 == 0 else f"Title {number}",
        project="other" if number % 3 == 0 else "demo", session_id=f"s{number % 3 == 0}-{number}",
        uid=UID.format(number), tags=["one", "two"][: number % 3],
        created_at=f"2029-01-01T00:00:{number % 60:02}.{number:06}Z",
    )  # fmt: skip
    if number % 100 == 0:
        row |= {"content": f"The key is {SECRET}, said {number}.", "pinned": True,
                "expires_at": "2039-01-01T00:00:00Z"}  # fmt: skip
    if number % 100 == 1:
        row |= {"topic_key": f"topic/{number}", "promoted_to": f"docs/{number}.md",
                "revision_count": 3, "supersedes": [UID.format(0)]}  # fmt: skip
    return row


def _body(size: int = SIZE, **more: object) -> bytes:
    sessions = [{"id": "told", "project": "demo", "summary": f"It had {SECRET}."}]
    body = {"sessions": sessions, "observations": [_row(it) for it in range(size)], **more}
    return json.dumps(body, ensure_ascii=False).encode()


@pytest.fixture
def reader() -> Iterator[Reader]:
    with closing(Reader()) as made:
        started(made)
        yield made


def started(reader: Reader) -> None:
    """Wait until its process is ready for the next document."""
    with spooled(_body()) as file:
        assert reader.opened(file, Clock()())
        reader.end(file)


def spooled(body: bytes) -> Any:
    file = tempfile.SpooledTemporaryFile(2 * len(body))  # noqa: SIM115 - its caller closes it
    file.write(body)
    return file


async def imported(path: Path, reader: Reader | None, kill_at: int = SIZE + 2) -> Imported:
    """Import the document; the process is killed once so many rows are stored."""

    def on_progress(stored: int) -> None:
        if stored >= kill_at and reader is not None and reader.process is not None:
            reader.process.kill()

    async with opened(path) as engine:
        with spooled(_body()) as file, closing(Document(file, Clock()(), reader)) as document:
            document.check()
            assert document.is_read == (reader is not None)
            answer = await Transfer(engine=engine).import_all(OPERATOR, document, on_progress)
    assert_sound(path, live=SIZE)
    return answer


@pytest.mark.parametrize(
    "kill_at", [None, *(pytest.param(it, marks=pytest.mark.slow) for it in (0, 1, CHUNK))]
)
async def test_a_process_reads_a_document_as_a_thread_which_continues_where_it_was_killed(
    tmp_path: Path, reader: Reader, kill_at: int | None
) -> None:
    one, other = tmp_path / "a.db", tmp_path / "b.db"
    as_ever = await imported(one, None)
    if kill_at == 0:
        assert reader.process is not None
        reader.process.kill()
        reader.process.wait()
        started(reader)  # another one

    assert await imported(other, reader, kill_at or SIZE + 2) == as_ever
    assert as_ever.redacted == 1 + SIZE // 100
    for statement in STORED:
        assert rows(other, statement) == rows(one, statement) != []
        assert SECRET not in str(rows(other, statement))


def test_a_signal_while_rows_are_received_loses_none(reader: Reader) -> None:
    signals = list[int]()
    before = signal.signal(signal.SIGALRM, lambda number, _: signals.append(number))
    try:
        with spooled(_body(5 * SIZE)) as file:
            assert reader.opened(file, Clock()())
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            received = sum(len(rows) for rows, _ in reader.rows(file, DEFAULT_RULES, CHUNK))
            reader.end(file)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert signals
    assert received == 5 * SIZE + 1  # and a session


@pytest.mark.slow
@pytest.mark.parametrize("executable", [None, "", "/none"])
def test_without_a_process_threads_read_all_documents(
    path: Path, monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with serving(path) as service:
        answer = service.http.post("/import", content=_body()).raise_for_status()

    assert answer.json()["imported_observations"] == SIZE


@pytest.mark.slow
def test_the_process_starts_while_a_long_document_is_still_being_received(path: Path) -> None:
    def children() -> set[str]:
        tasks = Path("/proc/self/task").glob("*/children")
        return {pid for it in tasks for pid in it.read_text("ascii").split()}

    with serving(path) as service, raw.wire(service.url) as connection:
        before, body = children(), _body()
        connection.send(raw.request("POST", "/import", content_length=str(len(body))))
        started = until(lambda: children() - before)
        connection.send(body)
        assert connection.answer().json["imported_observations"] == SIZE
        assert children() - before == started


@pytest.mark.slow
def test_a_service_names_each_faulty_row_and_stores_none_whoever_reads_them(path: Path) -> None:
    rows_: list[object] = [_row(it) for it in range(2 * CHUNK)]
    rows_[3], rows_[CHUNK] = {"title": 1}, _row(CHUNK) | {"project": " "}
    rows_[-1] = _row(2 * CHUNK) | {"created_at": "yesterday"}
    places = (3, CHUNK, 2 * CHUNK - 1)
    body = json.dumps({"sessions": [{}], "observations": rows_}).encode()
    with serving(path) as service:
        for query in ("", "?dry_run=true", ""):  # the first starts a process, which reads others
            answer = service.http.post(f"/import{query}", content=body)
            assert answer.status_code == 400
            faults = answer.json()["error"].removeprefix("validation failed: ").split("; ")
            assert {it.partition(".")[0] for it in faults} == {
                "sessions[0]", *(f"observations[{it}]" for it in places)
            }  # fmt: skip
        assert service.http.post("/import?dry_run=true", content=_body()).is_success
    assert rows(path, "SELECT count(*) FROM memories") == [(0,)]


@pytest.mark.slow
def test_a_document_is_read_by_a_thread_while_the_process_reads_another_which_ends_with_its_service(
    reader: Reader,
) -> None:
    assert reader.process is not None
    with spooled(_body()) as one, spooled(_body()) as other:
        assert reader.opened(one, Clock()()) == {"sessions": 1, "observations": SIZE}
        assert reader.opened(other, Clock()()) is None
        late = reader.rows(one, DEFAULT_RULES, 10)
        assert len(next(late)[0]) == 10
        reader.end(one)
        assert reader.opened(other, Clock()())
        with pytest.raises(EOFError):  # and gets no rows of another
            next(late)
    pid = reader.process.pid
    reader.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_service_with_many_connections_has_a_process_too() -> None:
    """Whose numbers are more than `select` takes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * MOST_SELECTED), limits[1]))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(MOST_SELECTED):
            stack.enter_context(Path(os.devnull).open("rb"))
        started(stack.enter_context(closing(Reader())))


@pytest.mark.slow
def test_a_process_of_another_version_than_the_service_reads_nothing() -> None:
    program = "from agentops_memory.agentops.reader import main; main()"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", program, "0.0.0"]
        assert (
            subprocess.run(command, stdin=theirs.fileno(), timeout=60, check=False).returncode == 0
        )
