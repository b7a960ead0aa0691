"""A long import is stored chunk by chunk: others save in between, and a repeat completes it."""

import asyncio
import io
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
import pytest

from agentops_memory.agentops import transfer
from agentops_memory.agentops.transfer import (
    CHUNK,
    SLICE_CONTENDED,
    Document,
    Transfer,
    chunks_of,
    import_some,
    import_whole,
)
from agentops_memory.cli.output import TERMINATED
from agentops_memory.engine.engine import Engine
from agentops_memory.errors import Denied, Full, OverQuota, Unavailable
from agentops_memory.http.bodies import IN_MEMORY
from agentops_memory.http.gate import SWITCH_INTERVAL
from agentops_memory.memory import redactor
from agentops_memory.memory.access import OPERATOR, Caller, Patterns
from agentops_memory.memory.imports import Tally
from agentops_memory.memory.memory import SessionId
from agentops_memory.memory.redactor import Redactor
from agentops_memory.memory.sessions import open_session
from agentops_memory.memory.space import Project
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.sqlite import SqliteEngine
from agentops_memory_client.contract.models import Imported

from ..support import raw
from ..support.engine import opened
from ..support.engines import rows, storage_at
from ..support.files import assert_sound
from ..support.forks import PROGRAM
from ..support.process import program, run, served, until
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


async def in_one_transaction(engine: Engine, given: Document) -> Imported:
    chunks = [row for chunk in chunks_of(Redactor(DEFAULT_RULES), given) for row in chunk]
    tally = await engine.write(OPERATOR, import_whole, chunks)
    opened = sum(count for outcome, count in tally.sessions.items() if outcome.is_stored)
    return Imported(
        imported_sessions=opened,
        imported_observations=tally.stored,
        refused_supersessions=tally.refused or None,
    )


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
    monkeypatch.setattr(transfer, "CHUNK", 4)
    path, size = tmp_path / "memory.db", 15
    async with opened(tmp_path / "whole.db") as engine:
        as_ever = await in_one_transaction(engine, chained(size))
        whole = await exported(engine)
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
    assert as_ever.imported_observations == size
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


@pytest.mark.slow
def test_each_fault_is_named_with_its_row_and_nothing_is_stored(tmp_path: Path) -> None:
    some: list[object] = [observation(f"Row {n}.") for n in range(2 * CHUNK)]
    some[3] = {"title": 1}
    some[CHUNK] = observation("x", project=" ")
    some[-1] = observation("x", uid="none")
    with serving(tmp_path / "memory.db") as service:
        for path in ("/import", "/import?dry_run=true"):
            answer = service.http.post(path, json={"sessions": [{}], "observations": some})
            assert answer.status_code == 400
            faults = answer.json()["error"].removeprefix("validation failed: ").split("; ")
            assert {it.partition(".")[0] for it in faults} == {
                "sessions[0]", "observations[3]", f"observations[{CHUNK}]",
                f"observations[{2 * CHUNK - 1}]",
            }  # fmt: skip
        assert service.http.get("/stats").json()["total_observations"] == 0


# Processes


@pytest.mark.slow
def test_threads_take_turns_sooner_while_a_long_body_is_read_and_then_as_before(path: Path) -> None:
    before, long = sys.getswitchinterval(), b" " * (2 * IN_MEMORY)
    head = raw.request("POST", "/import", content_length=str(len(long) + 2))
    short = SWITCH_INTERVAL.total_seconds()
    with serving(path) as service, ExitStack() as open_:
        one, other = (open_.enter_context(raw.wire(service.url)) for _ in range(2))
        assert service.http.post("/import", content=b"{}").is_success
        assert sys.getswitchinterval() == before

        one.send(head, long)
        until(lambda: sys.getswitchinterval() == pytest.approx(short))
        other.send(head, long, b"{}")
        assert other.answer().status == 200
        assert sys.getswitchinterval() == pytest.approx(short)
        one.close()  # in the middle of its body
        until(lambda: sys.getswitchinterval() == pytest.approx(before))


def large_file(folder: Path, size: int) -> Path:
    file = folder / "large.json"
    file.write_text(json.dumps({"observations": [
        observation(f"Row {n}.", created_at="2029-01-01T00:00:00Z") for n in range(size)
    ]}))  # fmt: skip
    return file


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
    file, variables = large_file(tmp_path, size), {"MEMORY_DB_PATH": str(path)}
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


@pytest.mark.slow
def test_a_service_that_is_killed_in_an_import_loses_nothing_and_a_repeat_completes_it(
    tmp_path: Path,
) -> None:
    size, least, path = 6000, CHUNK, tmp_path / "memory.db"
    body = large_file(tmp_path, size).read_bytes()
    with served(path) as (process, http), ThreadPoolExecutor(1) as apart:
        importing = apart.submit(http.post, "/import", content=body)
        until(lambda: http.get("/stats").json()["total_observations"] >= least)
        process.send(signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            importing.result()
    with served(path) as (_, http):
        before = http.get("/stats").json()["total_observations"]
        imported = http.post("/import", content=body).json()["imported_observations"]
        assert before >= least
        assert before + imported == http.get("/stats").json()["total_observations"] == size
    assert_sound(path, live=size)


def stored(path: Path) -> int:
    ((count,),) = rows(path, "SELECT count(*) FROM memories")
    return int(count)
