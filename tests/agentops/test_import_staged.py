"""A large import is staged, accepted and applied: whole or not at all, whoever dies."""

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentops_memory.agentops.transfer import Document, imported
from agentops_memory.agentops.transfers import transfer
from agentops_memory.agentops.transfers import transfer as importing
from agentops_memory.agentops.transfers.transfer import (
    STAGING_TIMEOUT,
    STEP,
    Transfer,
    apply_rows,
    chunks_of,
    discard_rows,
    import_rows,
    stage_rows,
)
from agentops_memory.agentops.wire import json_bytes
from agentops_memory.cli.errors import TERMINATED
from agentops_memory.engine.engine import Engine
from agentops_memory.errors import Conflict, Denied, Full, NotFound, OverQuota, Unavailable
from agentops_memory.http.requests import IN_MEMORY, SWITCH_INTERVAL
from agentops_memory.memory import limits
from agentops_memory.memory.lifecycle.projects import Erasures, Projects
from agentops_memory.memory.memories import Memories
from agentops_memory.memory.model.access import OPERATOR, Caller, Patterns, TenantId
from agentops_memory.memory.model.memory import Draft, Imported, Memory, SessionId, Text
from agentops_memory.memory.model.space import Project, Space
from agentops_memory.memory.redactor import Redactor, default_rules
from agentops_memory.memory.sessions import Sessions
from agentops_memory.memory.sql.imports import ImportId
from agentops_memory.operations.scan import Scan
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.sqlite.engine.tenants import tenant_file
from agentops_memory_client.contract import reading

from ..support import raw
from ..support.callers import calling, made_key
from ..support.engine import opened
from ..support.engines import rows, storage_at
from ..support.erasing import remains
from ..support.files import assert_sound
from ..support.forks import PROGRAM
from ..support.process import program, run, served, until
from ..support.service import Clock, observation, serving

LARGE = 450  # rows: three chunks, and more than one transaction of either kind
LONGER_THAN_A_PIPE = 200_000
DEMO, OTHER = Project("demo"), Project("other")
TOLD = {"id": "told", "project": "demo"}
SECRET = "AKIA" + "IOSFODNN7" + "EXAMPLE"


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test as a plain function."""

    @wraps(test)
    def run_it(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run_it


def document(size: int, **fields: Any) -> Document:
    """So many observations, every third in another project."""
    observations = [
        observation(
            f"Row {number} of many.",
            project="other" if number % 3 == 0 else "demo",
            session_id=f"s{number % 3 == 0}-{number % 7}",
            created_at=f"2029-01-01T00:00:{number % 60:02}Z",
            **fields,
        )
        for number in range(size)
    ]
    return of(observations=observations, sessions=[TOLD])


def of(**parts: object) -> Document:
    return Document(io.BytesIO(json.dumps(parts).encode()), Clock()())


async def exported(engine: Engine) -> list[object]:
    """All that is stored, as far as two imports of one document agree on it."""
    service = Transfer(engine=engine)
    sessions = [row async for page in service.sessions(OPERATOR, None) for row in page]
    memories = [row async for page in service.memories(OPERATOR, None) for row in page]
    return [*sessions, *(replace(memory, uid="") for memory in memories)]


async def contents(engine: Engine) -> set[str]:
    found = await exported(engine)
    return {row.text.content for row in found if isinstance(row, Memory)}


def left(path: Path) -> tuple[int, int]:
    """Imports that are not finished, and rows that wait."""
    ((imports,),) = rows(path, "SELECT count(*) FROM imports WHERE finished_at IS NULL")
    ((staged,),) = rows(path, "SELECT count(*) FROM import_rows")
    return imports, staged


async def in_one_transaction(engine: Engine, given: Document) -> Imported:
    chunks = [row for chunk in chunks_of(Redactor(DEFAULT_RULES), given) for row in chunk]
    return await engine.write(OPERATOR, import_rows, chunks)


async def staged(engine: Engine, given: Document, *, is_last: bool = True) -> ImportId:
    """An import of which everything is staged; accepted if that was the last."""
    (chunk,) = [[row for chunk in chunks_of(Redactor(DEFAULT_RULES), given) for row in chunk]]
    return await engine.write(OPERATOR, stage_rows, None, chunk, is_last=is_last)


def hasty() -> Callable[[], float]:
    """A clock by which each row takes longer than a step may."""
    return count().__next__


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


class Telling(Dying):
    """An engine that tells when the last of so many writes begins, and goes on."""

    def __init__(self, engine: SqliteEngine, writes: int) -> None:
        super().__init__(engine, writes)
        self.begun = asyncio.Event()

    async def write(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if not self._left:
            self.begun.set()
        return await self._engine.write(*args, **kwargs)


@awaited
async def test_a_large_import_stores_what_one_transaction_would(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as one, opened(tmp_path / "b.db") as other:
        as_ever = await in_one_transaction(one, document(LARGE))
        counts = await Transfer(engine=other).import_all(OPERATOR, document(LARGE))
        again = await Transfer(engine=other).import_all(OPERATOR, document(LARGE))

        assert counts == as_ever
        assert (counts.sessions, counts.memories) == (1, LARGE)
        assert (again.sessions, again.memories) == (0, 0)
        assert await exported(other) == await exported(one)
    assert left(tmp_path / "b.db") == (0, 0)
    assert_sound(tmp_path / "b.db", live=LARGE)


@awaited
async def test_what_others_apply_of_an_import_is_counted_in_its_answer(tmp_path: Path) -> None:
    uids = [f"01900000-0000-7000-8000-00000000000{number}" for number in range(2)]
    saved = [
        observation(f"herons {number}", uid=uid, supersedes=[uids[1 - number]])
        for number, uid in enumerate(uids)
    ]
    saved += [observation(f"storks {number}") for number in range(LARGE)]
    async with opened(tmp_path / "a.db") as one, opened(tmp_path / "b.db") as other:
        as_ever = await in_one_transaction(one, of(observations=saved))
        resting = Transfer(engine=other, rest=timedelta(milliseconds=50))
        told = asyncio.ensure_future(resting.import_all(OPERATOR, of(observations=saved)))
        while not told.done():
            await Transfer(engine=other).resume(OPERATOR)

        assert as_ever.refused == 1
        assert await told == as_ever


few = st.integers(0, 2).map(str)
observations = st.fixed_dictionaries(
    {"content": few, "title": st.just("t"), "session_id": few, "project": st.sampled_from("pq")},
    optional={
        "topic_key": few,
        "scope": st.sampled_from(["project", "global"]),
        "uid": few.map("01900000-0000-7000-8000-00000000000{}".format),
        "created_at": few.map("2029-01-01T00:00:0{}Z".format),
        "updated_at": few.map("2029-02-01T00:00:0{}Z".format),
    },
)
sessions = st.fixed_dictionaries({"id": few, "project": st.sampled_from("pq"), "summary": few})


@settings(
    max_examples=6, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(parts=st.lists(st.tuples(st.lists(sessions), st.lists(observations)), max_size=3))
def test_any_documents_are_stored_as_by_one_transaction_each(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, parts: Any
) -> None:
    monkeypatch.setattr(transfer, "CHUNK", 2)
    monkeypatch.setattr(importing, "MAX_APPLIED", 2)
    documents = [
        of(sessions=told, observations=[row | {"type": "t"} for row in saved])
        for told, saved in parts
    ]

    async def compare() -> None:
        folder = tmp_path_factory.mktemp("files")
        async with opened(folder / "a.db") as one, opened(folder / "b.db") as other:
            for each in documents:
                as_ever = await in_one_transaction(one, each)
                assert await Transfer(engine=other).import_all(OPERATOR, each) == as_ever
                assert await exported(other) == await exported(one)

    asyncio.run(compare())


@awaited
async def test_whoever_dies_at_any_step_has_stored_nothing_or_leaves_all_to_be_completed(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "whole.db") as engine:
        await in_one_transaction(engine, document(LARGE))
        whole = await exported(engine)
    outcomes = []
    for writes in range(7):
        path, clock = tmp_path / f"{writes}.db", Clock()
        async with opened(path, clock) as engine:
            dying = Transfer(engine=cast("Engine", Dying(engine, writes)), elapsed=hasty())
            try:
                await dying.import_all(OPERATOR, document(LARGE))
            except Unavailable:
                assert await exported(engine) == []
        async with opened(path, clock) as engine:  # the next start
            clock.advance(seconds=2 * STAGING_TIMEOUT.total_seconds())
            assert await Transfer(engine=engine).resume(OPERATOR)
            found = await exported(engine)
            assert found in ([], whole)
            outcomes.append(found == whole)
        assert left(path) == (0, 0)

    # Three transactions stage it, and the third accepts it.
    assert outcomes == [False] * 3 + [True] * 4


@awaited
async def test_a_save_is_answered_while_an_import_goes_on(tmp_path: Path) -> None:
    begun = asyncio.Event()
    async with opened(tmp_path / "memory.db") as engine:
        service = Transfer(engine=engine)
        task = asyncio.create_task(
            service.import_all(OPERATOR, document(5 * LARGE), lambda *_: begun.set())
        )
        await begun.wait()
        saved = await Memories(engine=engine, dedupe_window=timedelta()).save(OPERATOR, draft())

        assert not task.done()
        assert saved.memory.text.content == "mine"
        assert (await task).memories == 5 * LARGE


@awaited
async def test_others_wait_for_few_rows_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as engine:
        import_ = await staged(engine, document(LARGE))
        states = await asyncio.gather(
            engine.write(OPERATOR, apply_rows, import_, lambda: 0.0, STEP),
            engine.write(OPERATOR, apply_rows, import_, lambda: 0.0, STEP),
        )

    # Nobody waits for the second.
    assert [state.applied for state in states] == [importing.MAX_APPLIED_CONTENDED, LARGE + 1]


def draft() -> Draft:
    text = Text(type="t", title="mine", content="mine", tags=())
    return Draft(session=SessionId("mine"), space=Space(project=DEMO), key=None, text=text)


# Refused before it is accepted


@pytest.mark.sqlite_files
@awaited
async def test_an_import_beyond_the_quota_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        await engine.write(OPERATOR, import_rows, [])
    quota = path.stat().st_size + 128 * 1024
    async with opened(path, quota=quota) as engine:
        with pytest.raises(OverQuota):
            await Transfer(engine=engine).import_all(OPERATOR, document(4 * LARGE))

        assert await exported(engine) == []
    assert left(path) == (0, 0)


@pytest.mark.sqlite_files
@pytest.mark.parametrize("times", [0, 2])
@awaited
async def test_an_import_is_accepted_that_will_fit_once_it_is_indexed(
    tmp_path: Path, times: int
) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        import_ = await staged(engine, document(LARGE), is_last=False)
    ((size,),) = rows(path, "SELECT size FROM imports")
    async with opened(path, quota=path.stat().st_size + 4096 + times * size) as engine:
        accepting = engine.write(OPERATOR, stage_rows, import_, [], is_last=True)
        if times:
            await accepting
        else:
            with pytest.raises(OverQuota):
                await accepting


@pytest.mark.sqlite_files
@awaited
async def test_what_waits_already_leaves_less_room_for_the_next_import(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        await staged(engine, document(LARGE))
        import_ = await staged(engine, document(LARGE), is_last=False)
    ((size,),) = rows(path, "SELECT DISTINCT size FROM imports")
    async with opened(path, quota=path.stat().st_size + 3 * size // 2) as engine:
        with pytest.raises(OverQuota):
            await engine.write(OPERATOR, stage_rows, import_, [], is_last=True)
        await Transfer(engine=engine).resume(OPERATOR)
    async with opened(path, quota=path.stat().st_size + 3 * size // 2) as engine:
        await engine.write(OPERATOR, stage_rows, import_, [], is_last=True)


@awaited
async def test_nothing_is_staged_beyond_the_quota(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path, quota=1) as engine:
        with pytest.raises(OverQuota):
            await staged(engine, document(LARGE), is_last=False)
    assert left(path) == (0, 0)


@awaited
async def test_a_small_import_stores_no_session_without_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUOTA_MARGIN", 0)
    async with opened(tmp_path / "memory.db", quota=1) as engine:
        with pytest.raises(OverQuota):
            await Transfer(engine=engine).import_all(OPERATOR, of(sessions=[TOLD]))

        assert await exported(engine) == []


@awaited
async def test_what_is_accepted_within_the_quota_is_stored_whole(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        await staged(engine, document(LARGE))
    async with opened(path, quota=1) as engine:
        assert await Transfer(engine=engine).resume(OPERATOR)

        assert len(await contents(engine)) == LARGE


@awaited
async def test_a_row_of_another_s_project_anywhere_refuses_the_whole_import(
    tmp_path: Path,
) -> None:
    path, mine = tmp_path / "memory.db", Caller(projects=Patterns(("demo",)))
    fields = {"project": "demo", "created_at": "2029-01-01T00:00:00Z"}
    some = [observation(f"Row {n}.", **fields) for n in range(LARGE)]
    theirs = observation("Last.", **fields | {"project": "other"})
    in_session = observation("Last.", **fields | {"session_id": "theirs"})
    async with opened(path) as engine:
        await Sessions(engine=engine).open(OPERATOR, SessionId("theirs"), OTHER)
        for last in (theirs, in_session):
            with pytest.raises(Denied):
                await Transfer(engine=engine).import_all(mine, of(observations=[*some, last]))

        assert await contents(engine) == set()
        assert (await Transfer(engine=engine).import_all(mine, of(observations=some))).memories
    assert left(path) == (0, 0)


@awaited
async def test_a_document_longer_than_what_is_read_at_once_is_stored_for_a_key_with_patterns(
    tmp_path: Path,
) -> None:
    fields = {"project": "demo", "created_at": "2029-01-01T00:00:00Z"}
    some = [observation(f"Row {n}. " + "x" * 400, **fields) for n in range(LARGE)]
    async with opened(tmp_path / "memory.db") as engine:
        service = Transfer(engine=engine)
        mine = Caller(projects=Patterns(("demo",)))

        assert (await service.import_all(mine, of(observations=some))).memories == LARGE


@awaited
async def test_each_secret_is_counted_once_for_a_key_with_patterns(tmp_path: Path) -> None:
    fields = {"project": "demo", "title": SECRET, "created_at": "2029-01-01T00:00:00Z"}
    some = [observation(f"Row {n}.", **fields) for n in range(LARGE)]
    async with opened(tmp_path / "memory.db") as engine:
        mine = Caller(projects=Patterns(("demo",)))
        counts = await Transfer(engine=engine).import_all(mine, of(observations=some))

    assert (counts.memories, counts.redacted) == (LARGE, LARGE)


def test_rows_of_long_contents_are_staged_few_at_a_time() -> None:
    some = [observation("x" * 50_000, title=f"Row {n}") for n in range(50)]
    chunks = chunks_of(Redactor(DEFAULT_RULES), of(observations=some))

    assert [len(chunk) for chunk in chunks] == [21, 21, 8]  # a mebibyte each


@pytest.mark.parametrize("writes", [1, 2, 3])
@awaited
async def test_a_request_that_is_cancelled_leaves_nothing_or_what_will_be_completed(
    tmp_path: Path, writes: int
) -> None:
    path, heard = tmp_path / "memory.db", list[Caller]()
    async with opened(path) as engine:
        telling = Telling(engine, writes)
        service = Transfer(engine=cast("Engine", telling), on_left=heard.append)
        task = asyncio.create_task(service.import_all(OPERATOR, document(LARGE)))
        await telling.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert heard
        assert await Transfer(engine=engine).resume(OPERATOR)
        assert len(await contents(engine)) == (LARGE if writes == 3 else 0)
    assert left(path) == (0, 0)


@awaited
async def test_a_bad_row_at_the_end_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    bad = of(observations=[*([observation("x")] * LARGE), {"title": 1}])
    async with opened(path) as engine:
        with pytest.raises(Exception, match=r"observations\[450\]"):
            await Transfer(engine=engine).import_all(OPERATOR, bad)
    assert left(path) == (0, 0)


@awaited
async def test_what_nobody_stages_any_more_goes_and_its_stager_is_refused(tmp_path: Path) -> None:
    path, clock = tmp_path / "memory.db", Clock()
    async with opened(path, clock) as engine:
        service = Transfer(engine=engine)
        import_ = await staged(engine, document(LARGE), is_last=False)
        assert not await service.resume(OPERATOR)  # somebody may be at it
        assert left(path)[0] == 1

        clock.advance(seconds=2 * STAGING_TIMEOUT.total_seconds())
        assert await service.resume(OPERATOR)
        assert left(path) == (0, 0)
        with pytest.raises(Unavailable, match="nothing was stored"):
            await engine.write(OPERATOR, stage_rows, import_, [], is_last=True)


@awaited
async def test_what_is_staged_at_a_time_to_come_goes_once_the_clock_was_put_back(
    tmp_path: Path,
) -> None:
    path, clock = tmp_path / "memory.db", Clock()
    async with opened(path, clock) as engine:
        await staged(engine, document(LARGE), is_last=False)
        clock.now -= 2 * STAGING_TIMEOUT

        assert await Transfer(engine=engine).resume(OPERATOR)
    assert left(path) == (0, 0)


@awaited
async def test_the_next_imports_forget_none_that_is_not_gone(tmp_path: Path) -> None:
    path, clock = tmp_path / "memory.db", Clock()
    async with opened(path, clock) as engine:
        half = await staged(engine, document(importing.MAX_DISCARDED + 1), is_last=False)
        assert await engine.write(OPERATOR, discard_rows, half)  # there is more of it
        await staged(engine, document(LARGE))
        clock.advance(days=2)

        await staged(engine, document(1), is_last=False)
        clock.advance(minutes=2)

        assert await Transfer(engine=engine).resume(OPERATOR)
        assert len(await contents(engine)) == LARGE
    assert left(path) == (0, 0)


@awaited
async def test_who_completes_an_import_hears_that_another_has_while_others_begin(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "memory.db") as engine:
        import_ = await staged(engine, document(1))
        await Transfer(engine=engine).resume(OPERATOR)
        await staged(engine, document(1), is_last=False)

        state = await engine.write(OPERATOR, apply_rows, import_, hasty(), STEP)

    assert (state.is_finished, state.memories) == (True, 1)


@awaited
async def test_an_import_of_which_some_rows_are_gone_is_not_accepted(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        import_ = await staged(engine, document(importing.MAX_DISCARDED + 1), is_last=False)
        assert await engine.write(OPERATOR, discard_rows, import_)  # there is more of it

        with pytest.raises(Unavailable, match="nothing was stored"):
            await engine.write(OPERATOR, stage_rows, import_, [], is_last=True)
        assert await Transfer(engine=engine).resume(OPERATOR) is False
        assert not await engine.write(OPERATOR, discard_rows, import_)
    assert left(path) == (0, 0)


# After it was accepted


@awaited
async def test_a_full_disk_leaves_the_rest_to_be_completed_and_says_so(tmp_path: Path) -> None:
    heard: list[Caller] = []
    async with opened(tmp_path / "memory.db") as engine:
        full = cast("Engine", Dying(engine, 5, Full))
        service = Transfer(engine=full, on_left=heard.append, elapsed=hasty())
        counts = await service.import_all(OPERATOR, document(LARGE))

        assert counts.goes_on
        assert 0 < counts.memories < LARGE
        assert heard == [OPERATOR]
        assert await Transfer(engine=engine).resume(OPERATOR)
        assert len(await contents(engine)) == LARGE


@awaited
async def test_an_erased_project_takes_its_rows_that_wait_along(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        import_ = await staged(engine, document(LARGE))
        await engine.write(OPERATOR, apply_rows, import_, hasty(), STEP)
        await Projects(engine=engine, audit=unaudited).erase(OPERATOR, DEMO)
        await Erasures(engine=engine).finish(OPERATOR)
        waiting = said(path, *(f"Row {n} of many" for n in (1, 447, 449)))
        await Transfer(engine=engine).resume(OPERATOR)
        found = await contents(engine)

    assert found == {f"Row {n} of many." for n in range(0, LARGE, 3)}
    assert waiting == {"Row 447 of many"}


@awaited
async def test_a_project_can_be_erased_that_only_waits_to_be_stored(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as engine:
        await staged(engine, document(LARGE))
        projects = Projects(engine=engine, audit=unaudited)
        await projects.erase(OPERATOR, OTHER)
        await projects.erase(OPERATOR, DEMO)
        await Transfer(engine=engine).resume(OPERATOR)

        assert await exported(engine) == []


@awaited
async def test_an_erasure_leaves_what_is_not_accepted_whole(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        await Sessions(engine=engine).open(OPERATOR, SessionId("s"), DEMO)
        import_ = await staged(engine, document(LARGE), is_last=False)
        await Projects(engine=engine, audit=unaudited).erase(OPERATOR, DEMO)
        await engine.write(OPERATOR, stage_rows, import_, [], is_last=True)
        await Transfer(engine=engine).resume(OPERATOR)

        assert len(await contents(engine)) == LARGE


@awaited
async def test_what_is_not_accepted_is_of_no_project_yet(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as engine:
        import_ = await staged(engine, document(LARGE), is_last=False)
        projects = Projects(engine=engine, audit=unaudited)
        with pytest.raises(NotFound):
            await projects.erase(OPERATOR, DEMO)
        await Sessions(engine=engine).open(OPERATOR, SessionId("s"), DEMO)
        await projects.rename(OPERATOR, DEMO, Project("new"))
        await engine.write(OPERATOR, stage_rows, import_, [], is_last=True)
        await Transfer(engine=engine).resume(OPERATOR)
        names = [it.project for it in await projects.list(OPERATOR)]

    assert names == ["demo", "new", "other"]


@pytest.mark.parametrize("is_merge", [False, True])
@awaited
async def test_rows_that_wait_follow_their_project_to_its_new_name(
    tmp_path: Path, is_merge: bool
) -> None:
    async with opened(tmp_path / "memory.db") as engine:
        import_ = await staged(engine, document(LARGE))
        await engine.write(OPERATOR, apply_rows, import_, hasty(), STEP)
        projects = Projects(engine=engine, audit=unaudited)
        if is_merge:
            await projects.merge(OPERATOR, DEMO, OTHER)
        else:
            await projects.rename(OPERATOR, DEMO, Project("new"))
        await Transfer(engine=engine).resume(OPERATOR)
        names = [it.project for it in await projects.list(OPERATOR)]

        assert names == (["other"] if is_merge else ["new", "other"])
        assert len(await contents(engine)) == LARGE


@awaited
async def test_rows_of_a_key_with_patterns_follow_their_project_too(tmp_path: Path) -> None:
    mine = Caller(projects=Patterns(("demo",)))
    row = observation("Mine.", created_at="2029-01-01T00:00:00Z")
    async with opened(tmp_path / "memory.db") as engine:
        some = next(chunks_of(Redactor(DEFAULT_RULES), of(observations=[row])))
        await engine.write(mine, stage_rows, None, some, is_last=True)
        projects = Projects(engine=engine, audit=unaudited)
        await projects.rename(OPERATOR, DEMO, Project("new"))
        await Transfer(engine=engine).resume(OPERATOR)

        assert await contents(engine) == {"Mine."}


@awaited
async def test_rows_of_a_key_with_patterns_follow_their_project_amid_the_import(
    tmp_path: Path,
) -> None:
    mine = Caller(projects=Patterns(("demo", "other")))
    steps = 0

    async with opened(tmp_path / "memory.db") as engine:

        class Renaming(Dying):
            """An engine that renames the project once the first rows are applied."""

            async def write(self, caller: Caller, work: Any, *args: Any, **kwargs: Any) -> Any:
                nonlocal steps
                steps += work is apply_rows
                done = await engine.write(caller, work, *args, **kwargs)
                if work is apply_rows and steps == 1:
                    projects = Projects(engine=engine, audit=unaudited)
                    await projects.rename(OPERATOR, DEMO, Project("new"))
                return done

        transfer = Transfer(engine=cast(Engine, Renaming(engine, 0)), elapsed=hasty())
        imported = await transfer.import_all(mine, document(LARGE))

        assert (imported.memories, imported.goes_on) == (LARGE, False)
        assert len(await contents(engine)) == LARGE
        found = await exported(engine)
        assert {row.space.project for row in found if isinstance(row, Memory)} == {"new", "other"}


@awaited
async def test_a_project_that_only_waits_to_be_stored_has_its_name_already(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as engine:
        await Sessions(engine=engine).open(OPERATOR, SessionId("new"), Project("new"))
        await staged(engine, document(LARGE))
        with pytest.raises(Conflict):
            await Projects(engine=engine, audit=unaudited).rename(OPERATOR, Project("new"), DEMO)


@awaited
async def test_a_key_of_one_project_erases_no_global_row_that_waits(tmp_path: Path) -> None:
    mine = Caller(projects=Patterns(("demo",)))
    row = observation("Of all.", scope="global", created_at="2029-01-01T00:00:00Z")
    async with opened(tmp_path / "memory.db") as engine:
        await staged(engine, of(observations=[row]))
        with pytest.raises(Denied):
            await Projects(engine=engine, audit=unaudited).erase(mine, DEMO)


@pytest.mark.parametrize("value", ['"\\ud800"', "1.5", "true", "{}"])
@awaited
async def test_a_row_that_is_damaged_is_left_out_and_the_others_are_stored(
    value: str, tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        await staged(engine, document(LARGE))
        ((number, row),) = rows(
            path, "SELECT number, row FROM import_rows ORDER BY number DESC LIMIT 1"
        )
        damaged = json.dumps([*json.loads(row)[:9], json.loads(value), *json.loads(row)[10:]])
        rows(
            path, "UPDATE import_rows SET row = :row WHERE number = :number",
            row=damaged, number=number,
        )  # fmt: skip
        assert await Transfer(engine=engine).resume(OPERATOR)

        assert len(await contents(engine)) == LARGE - 1
    assert left(path) == (0, 0)


@pytest.mark.parametrize("row", ['["session", "s"]', '["observation"]', "[]", "5", "{}", "["])
@awaited
async def test_a_row_that_is_none_is_left_out_and_the_others_are_stored(
    row: str, tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        await staged(engine, document(LARGE))
        rows(
            path,
            """UPDATE import_rows SET row = :row WHERE number =
               (SELECT max(number) FROM import_rows)""",
            row=row,
        )
        assert await Transfer(engine=engine).resume(OPERATOR)

        assert len(await contents(engine)) == LARGE - 1
    assert left(path) == (0, 0)


@awaited
async def test_two_who_complete_one_import_store_each_row_once(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as one, opened(path) as other:
        await staged(one, document(LARGE))
        services = [Transfer(engine=one), Transfer(engine=other)]
        await asyncio.gather(*(it.resume(OPERATOR) for it in services))

        assert len(await exported(one)) == LARGE + 15  # sessions
    assert rows(path, "SELECT sessions, observations FROM imports") == [(1, LARGE)]


@awaited
async def test_a_row_that_its_caller_may_not_store_any_more_is_left_out(tmp_path: Path) -> None:
    mine = Caller(projects=Patterns(("demo",)))
    row = observation("Mine.", session_id="late", created_at="2029-01-01T00:00:00Z")
    rest = observation("Rest.", session_id="mine", created_at="2029-01-01T00:00:00Z")
    async with opened(tmp_path / "memory.db") as engine:
        some = next(chunks_of(Redactor(DEFAULT_RULES), of(observations=[row, rest])))
        await engine.write(mine, stage_rows, None, some, is_last=True)
        await Sessions(engine=engine).open(OPERATOR, SessionId("late"), OTHER)
        await Transfer(engine=engine).resume(OPERATOR)

        assert await contents(engine) == {"Rest."}


@awaited
async def test_no_secret_waits_to_be_stored(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        given = document(LARGE, title=f"It is {SECRET}")
        dying = Transfer(engine=cast("Engine", Dying(engine, 3)))
        counts = await dying.import_all(OPERATOR, given)
        waiting = said(path, "Row 449", SECRET)

    assert counts.redacted == LARGE
    assert waiting == {"Row 449"}


@awaited
async def test_a_scan_that_redacts_completes_what_waits_first(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as engine:
        await staged(engine, document(LARGE))
        async for _ in Scan(engine=engine, rules=default_rules).redact(OPERATOR):
            pass

    assert left(path) == (0, 0)


def said(path: Path, *texts: str) -> set[str]:
    """Which of the texts are stored."""
    return {text for _, text in remains(path.parent, *texts)}


def unaudited(*_: object, **__: object) -> None:
    """For who needs no audit."""


# Processes


def test_the_next_start_completes_what_was_accepted(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def left_behind() -> None:
        async with opened(path) as engine:
            await staged(engine, document(LARGE))

    asyncio.run(left_behind())
    with serving(path) as service:
        until(lambda: service.http.get("/stats").json()["total_observations"] == LARGE)


@pytest.mark.sqlite_files
def test_a_tenant_s_import_goes_on_once_its_database_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    other = tenant_file(path, TenantId("acme"))

    async def left_behind() -> None:
        async with opened(other) as engine:
            await staged(engine, document(LARGE))

    made_key(path)
    with serving(path) as service:
        asyncio.run(left_behind())
        with calling(service, made_key(path, tenant="acme")) as acme:
            until(lambda: acme.get("/stats").json()["total_observations"] == LARGE)


def test_an_answer_says_that_an_import_goes_on() -> None:
    whole, part = (imported(Imported(sessions=1, memories=2, goes_on=it)) for it in (False, True))

    assert json_bytes(whole) == b'{"imported_sessions":1,"imported_observations":2}'
    assert reading.imported(json_bytes(part), {}).goes_on
    assert not reading.imported(json_bytes(whole), {}).goes_on


def test_threads_take_turns_sooner_while_a_long_body_is_read(tmp_path: Path) -> None:
    before, long = sys.getswitchinterval(), b" " * (2 * IN_MEMORY)
    head = raw.request("POST", "/import", content_length=str(len(long) + 2))
    short = SWITCH_INTERVAL.total_seconds()
    with serving(tmp_path / "memory.db") as service, ExitStack() as open_:
        one, other = (open_.enter_context(raw.wire(service.url)) for _ in range(2))
        assert service.http.post("/import", content=b"{}").is_success
        assert sys.getswitchinterval() == before

        one.send(head, long)
        until(lambda: sys.getswitchinterval() == pytest.approx(short))
        other.send(head, long, b"{}")
        assert other.answer().status == 200
        assert sys.getswitchinterval() == pytest.approx(short)
        one.send(b"{}")
        assert one.answer().status == 200
        until(lambda: sys.getswitchinterval() == pytest.approx(before))


def test_threads_take_turns_as_before_once_a_long_body_breaks_off(tmp_path: Path) -> None:
    before, long = sys.getswitchinterval(), b" " * (2 * IN_MEMORY)
    head = raw.request("POST", "/import", content_length=str(2 * len(long)))
    with serving(tmp_path / "memory.db") as service:
        with raw.wire(service.url) as leaving:
            leaving.send(head, long)
            until(lambda: sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL.total_seconds()))

        until(lambda: sys.getswitchinterval() == pytest.approx(before))


def large_file(folder: Path, size: int) -> Path:
    file = folder / "large.json"
    file.write_text(json.dumps({"observations": [
        observation(f"Row {n}.", created_at="2029-01-01T00:00:00Z") for n in range(size)
    ]}))  # fmt: skip
    return file


def test_sigterm_ends_an_import_with_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    path, pipe = tmp_path / "memory.db", tmp_path / "pipe"
    os.mkfifo(pipe)
    variables, before = storage_at(path), {*tmp_path.iterdir()}
    with program("import", str(pipe), variables=variables) as process, pipe.open("w") as writer:
        writer.write("{" + " " * LONGER_THAN_A_PIPE)
        writer.flush()
        until(lambda: any(it.stat().st_size for it in tmp_path.glob(".import-*")))
        process.send(signal.SIGTERM)
        code = process.wait()

    assert code == TERMINATED
    assert process.errors.strip() == "agentops-memory: Stopped."
    assert {*tmp_path.iterdir()} == before


# A thread that takes the signals, so that none of them wakes a read of the main thread.
UNWOKEN = f"""
import signal, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
{PROGRAM}
"""


def test_sigterm_ends_an_import_whose_pipe_is_silent_though_nothing_wakes_it(
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
    assert {*tmp_path.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("is_accepted", [False, True])
def test_a_command_that_ends_in_an_import_stores_all_of_it_or_nothing(
    tmp_path: Path, number: signal.Signals, is_accepted: bool
) -> None:
    size, path = 6000, tmp_path / "memory.db"
    file, variables = large_file(tmp_path, size), {"MEMORY_DB_PATH": str(path)}
    assert run("import", str(empty_file(tmp_path)), variables=variables).returncode == 0
    accepted = "SELECT 1 FROM imports WHERE accepted_at IS NOT NULL"
    with program("import", str(file), variables=variables) as process:
        until(lambda: rows(path, accepted if is_accepted else "SELECT 1 FROM import_rows LIMIT 1"))
        process.send(number)
        code = process.wait()

    was_accepted = bool(rows(path, accepted))
    assert was_accepted >= is_accepted
    if number is signal.SIGTERM:
        assert code == TERMINATED
        assert process.errors.strip() == "agentops-memory: Stopped."
        assert was_accepted or left(path) == (0, 0)
    done = run("import", str(empty_file(tmp_path)), variables=variables)
    assert done.returncode == 0
    assert rows(path, "SELECT count(*) FROM memories") == [(size if was_accepted else 0,)]
    assert_sound(path, live=size if was_accepted else 0)


@pytest.mark.slow
def test_a_service_that_is_killed_in_an_import_goes_on_with_the_next_start(tmp_path: Path) -> None:
    size, path = 6000, tmp_path / "memory.db"
    body = large_file(tmp_path, size).read_bytes()
    with served(path) as (process, http), ThreadPoolExecutor(1) as apart:
        importing = apart.submit(http.post, "/import", content=body)
        until(lambda: http.get("/stats").json()["total_observations"])
        process.send(signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            importing.result()
    with served(path) as (_, http):
        until(lambda: http.get("/stats").json()["total_observations"] == size)
    assert_sound(path, live=size)


def empty_file(folder: Path) -> Path:
    file = folder / "empty.json"
    file.write_text("{}")
    return file
