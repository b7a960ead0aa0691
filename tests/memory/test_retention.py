"""What is over its time goes, all of it and nothing else, as if it had been erased by hand."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from agentops_memory.errors import NotFound
from agentops_memory.jobs.jobs import (
    RECORDS,
    STEPS,
    Removed,
    RetentionJob,
    TrustedClock,
    WorkSignal,
    background,
    scrub_all,
    sweep,
)
from agentops_memory.memory import erasure as past_retention, saves
from agentops_memory.memory.access import OPERATOR, Caller
from agentops_memory.memory.memory import MemoryId
from agentops_memory.memory.space import FOR_EVER, Kind, Retentions, StoreId
from agentops_memory.settings import VARIABLES
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.stores.store import delete_store
from agentops_memory.telemetry import Telemetry

from ..support.engine import impatient, locked, opened, save, stats
from ..support.engines import is_postgresql, rows
from ..support.erasing import erased, gone, receipt, remains
from ..support.files import assert_index_is_whole
from ..support.process import until
from ..support.service import START, Clock, Service, observation, serving
from ..support.stores import delete, entry, entry_at, store, update

T = TypeVar("T")

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"
MONTH = timedelta(days=30)
LATER = START + timedelta(hours=1)
KEPT = Retentions(deleted=MONTH, revisions=3, idempotency=MONTH, receipts=MONTH)
FOREVER = Retentions(deleted=FOR_EVER, revisions=0, idempotency=FOR_EVER, receipts=MONTH)
NOTHING = dict.fromkeys(set(Kind) - {Kind.AUDIT}, 0)
MICROSECOND = timedelta(microseconds=1)
KEY = "Idempotency-Key"


def test_the_document_has_the_table_of_the_code() -> None:
    defaults = {it.name: it.default for it in VARIABLES}
    section = DOCUMENT.read_text("utf-8").partition("\n## Retention\n")[2]

    table = [line for line in section.partition("\n## ")[0].splitlines() if line[:2] == "| "]

    names = {kind: f"MEMORY_KEEP_{kind.upper()}" for kind in Kind}
    assert [line.partition(" | ")[2] for line in table[1:]] == [
        f"`{names[kind]}` | `{defaults[names[kind]]}` |" for kind in Kind
    ]


@pytest.mark.slow
def test_what_is_over_its_time_goes_as_it_is_shown_and_nothing_that_is_younger(
    service: Service,
) -> None:
    fill(service)
    live = service.http.get("/export").content
    early = START + MONTH - MICROSECOND
    receipts = 0 if is_postgresql() else 1 + 1  # whose bytes are known to be gone

    assert swept(service, START + 900 * MONTH, FOREVER) == NOTHING
    assert run(service, lambda it: it.read(OPERATOR, STEPS[0].due), early) == []
    for at, expected in [
        (early, {Kind.REVISIONS: 3}),
        (
            START + MONTH,
            {Kind.DELETED: (1 + 2) + (1 + 3), Kind.IDEMPOTENCY: 1, Kind.RECEIPTS: receipts},
        ),
        (START + MONTH, {}),
        (LATER + MONTH - MICROSECOND, {}),
        (LATER + MONTH, {Kind.DELETED: 1 + 2, Kind.IDEMPOTENCY: 1}),
    ]:
        shown = {it.kind: it.past_retention for it in stats(service.path, KEPT, at).held}
        assert swept(service, at) == shown == NOTHING | expected

    assert service.http.get("/export").content == live
    assert_index_is_whole(service.path)
    assert rows(service.path, "SELECT count(*) FROM done") == [(0,)]
    history = service.http.get("/observations/1/history").json()
    assert [revision["revision"] for revision in history] == [6, 5, 4]


@pytest.mark.slow
def test_a_request_is_answered_as_after_a_hard_deletion(service: Service) -> None:
    saving = partial(service.http.post, "/observations", json=observation("A pear."))
    kept = Retentions(deleted=MONTH, idempotency=FOR_EVER)
    answers = []
    for number, hard in ((1, True), (2, False)):
        keys = [{KEY: f"{name}-{number}"} for name in ("save", "delete")]
        removing = partial(service.http.delete, f"/observations/{number}", headers=keys[1])
        assert saving(headers=keys[0]).status_code == 201
        assert removing().status_code == 204
        if hard:
            erased(service.http, number)
        else:
            assert swept(service, START + MONTH, kept)[Kind.DELETED] == 3
        again = [saving(headers=keys[0]), removing()]
        answers.append([(it.status_code, it.content) for it in again])

    assert answers[0] == answers[1] == [
        (404, b'{"error":"This was done, but its response has been erased."}'), (204, b""),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bound", "most", "steps"),
    [  # each text is there twice; a long history goes two texts, or four, at a time
        ("MAX_STEP", 1000, [(0, 2), (0, 2), *[(1, 2)] * 7]),
        ("MAX_ROWS", 4, [(0, 4), *[(1, 2)] * 7]),
    ],
)
def test_no_step_takes_more_than_saves_may_wait_for(
    service: Service, monkeypatch: pytest.MonkeyPatch, bound: str, most: int,
    steps: list[tuple[int, int]],
) -> None:  # fmt: skip
    for module in (past_retention, saves):
        monkeypatch.setattr(module, bound, most)
    for number in range(6):
        saved = service.save(f"{number}" * 400)
        service.http.delete(f"/observations/{saved['id']}")
    for number in range(5):
        service.save(f"{number}" * 800, topic_key="long")
    service.http.delete("/observations/7")

    swept(service, START + MONTH)

    assert sorted(rows(service.path, "SELECT observations, revisions FROM erasures")) == steps
    assert [rows(service.path, f"SELECT * FROM {it}") for it in ("memories", "revisions")] == [
        []
    ] * 2
    assert_index_is_whole(service.path)


def test_what_was_restored_meanwhile_stays(service: Service) -> None:
    for content in ("A pear.", "A plum."):
        saved = service.save(content)
        service.http.delete(f"/observations/{saved['id']}")

    async def late(engine: SqliteEngine) -> None:
        due = sorted(await engine.read(OPERATOR, STEPS[0].due))
        assert due == [1, 2]
        await asyncio.to_thread(service.http.post, "/observations/1/restore", json={"revision": 1})
        counts = [await engine.write(OPERATOR, STEPS[0].removed, some) for some in (due, [], due)]
        assert counts == [3, 0, 0]

    run(service, late, START + MONTH)

    assert service.http.get("/observations/1").json()["content"] == "A pear."
    assert service.http.get("/observations/2/history").status_code == 404


def test_a_key_that_was_used_anew_meanwhile_stays(service: Service) -> None:
    saving = partial(
        service.http.post, "/observations", json=observation("A pear."), headers={KEY: "one"}
    )
    saving()
    service.clock.advance(days=30)

    async def late(engine: SqliteEngine) -> None:
        due = await engine.read(OPERATOR, RECORDS.due)
        await asyncio.to_thread(saving)
        assert await engine.write(OPERATOR, RECORDS.removed, due) == 0

    run(service, late, service.clock.now)

    assert saving().headers["Idempotent-Replayed"] == "true"


@pytest.mark.slow
def test_a_store_that_is_going_is_left_to_its_own_erasure(path: Path) -> None:
    with serving(path) as service:
        home = store(service.http)
        delete(service.http, entry_at(home, entry(service.http, home, "a")))
        ((uid,),) = rows(service.path, "SELECT uid FROM stores")

    async def both(engine: SqliteEngine) -> None:
        assert len(await engine.read(OPERATOR, STEPS[0].due)) == 1
        await engine.write(OPERATOR, delete_store, StoreId(uid))
        assert await engine.read(OPERATOR, STEPS[0].due) == []
        assert await engine.write(OPERATOR, STEPS[0].removed, [MemoryId(1)]) == 0
        await scrub_all(engine, OPERATOR)

    run(service, both, START + MONTH)

    assert rows(service.path, "SELECT observations, revisions FROM erasures") == [(1, 2)]


@pytest.mark.sqlite_files
def test_a_receipt_stays_as_long_as_a_request_that_may_name_it(service: Service) -> None:
    service.save("A pear.")
    removing = partial(service.http.delete, "/observations/1?hard=true", headers={KEY: "one"})
    named = removing().headers["X-Erasure-Id"]
    gone(service.http, named)
    kept = Retentions(receipts=timedelta(hours=1), idempotency=timedelta(hours=24))

    assert swept(service, START + timedelta(hours=23), kept)[Kind.RECEIPTS] == 0
    assert removing().headers["X-Erasure-Id"] == named
    assert swept(service, START + timedelta(hours=24), kept)[Kind.RECEIPTS] == 2
    assert service.http.get(f"/erasures/{named}").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.DELETED, Kind.EXPIRED])
def test_a_service_sweeps_by_itself_and_tells(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: Kind
) -> None:
    variables: dict[str, Any] = {f"MEMORY_KEEP_{kind.upper()}": "30d"}
    end = None if kind is Kind.DELETED else (START + timedelta(hours=1)).isoformat()
    with (
        caplog.at_level(logging.INFO),
        serving(tmp_path / "memory.db", MEMORY_SWEEP_EVERY="5ms", **variables) as service,
    ):
        service.save("A xylographer.", expires_at=end)
        service.save("A pear.", supersedes=[1] if end else [])
        if end is None:
            service.http.delete("/observations/1")
        else:
            assert "memory_superseded_total 1" in service.http.get("/metrics").text
            service.clock.advance(hours=1)
            marked = "SELECT memory_id FROM lifecycles WHERE is_swept"
            until(lambda: rows(service.path, marked) == [(1,)])
            until(lambda: "memory_expired_total 1" in service.http.get("/metrics").text)
        service.clock.advance(days=30)
        until(lambda: rows(service.path, "SELECT id FROM memories") == [(2,)])
        ((erasure,),) = rows(service.path, "SELECT id FROM erasures")
        assert gone(service.http, erasure)["observations"] == 1
        assert remains(tmp_path, "xylograph") == set()
        assert receipt(service.http, erasure)["project"] == "demo"
        removed = 3 if kind is Kind.DELETED else 2
        counted = f'memory_swept_rows_total{{kind="{kind}"}} {removed}'
        until(lambda: counted in service.http.get("/metrics").text)

    told = [it for it in caplog.records if it.message == "expired data removed"]
    assert [(vars(it)[kind], vars(it)["tenant"]) for it in told] == [(removed, "default")]


STEADY, AHEAD, BACK = timedelta(minutes=5), timedelta(days=365), timedelta(days=-365)
LITTLE = timedelta(seconds=59)


@pytest.mark.parametrize(
    ("moves", "proven"),
    [
        ([(STEADY, STEADY), (timedelta(0), AHEAD), (timedelta(0), BACK)], [True, False, False]),
        ([(STEADY, STEADY), (timedelta(0), BACK)], [True, False]),
        ([(STEADY / 5, STEADY / 5 + LITTLE)] * 8, [False] * 4 + [True] * 4),
    ],
)  # fmt: skip
def test_a_clock_is_believed_once_it_is_steady(
    moves: list[tuple[timedelta, timedelta]], proven: list[bool]
) -> None:
    """Of time that passes, and by how much the clock goes on: it may be put right by and by."""
    clock = Clock()
    steady = TrustedClock(clock=clock, elapsed=clock.elapsed)
    steady.proven()
    looks = []
    for elapsed, by in moves:
        clock.advance(seconds=elapsed.total_seconds())
        clock.now += by - elapsed
        looks.append(steady.proven() == clock.now)

    assert looks == proven


@pytest.mark.slow
def test_a_locked_database_has_its_turn_later_and_others_theirs_now(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(path) as service:
        fill(service)
    clock, audited = Clock(LATER + MONTH), list[Any]()

    async def sweep_twice(engine: SqliteEngine) -> None:
        keep = keeper(engine, clock, Telemetry.started(None), audited)
        clock.advance(minutes=5)
        with locked(path), pytest.MonkeyPatch.context() as patch:
            impatient(patch, timedelta(milliseconds=10))
            await keep.sweep([OPERATOR])
            await keep.sweep_audit()
        told = [it.message for it in caplog.records]
        assert "expired data could not be removed; retrying later" in told
        assert (len(rows(path, DELETED)), len(audited)) == (3, 1)
        await keep.sweep([OPERATOR])

    asyncio.run(with_engine(path, clock, KEPT, sweep_twice))

    assert rows(path, DELETED) == []


def test_a_database_that_was_opened_is_swept_when_the_bell_rings(path: Path) -> None:
    clock = Clock()
    telemetry = Telemetry.started(None)

    async def rung(engine: SqliteEngine) -> None:
        await save(engine, "A pear.")
        await engine.write(OPERATOR, saves.forget, MemoryId(1))
        bell, keep = WorkSignal(), keeper(engine, clock, telemetry, [])
        clock.advance(days=30)
        async with background(keep.sweep_opened(bell)):
            bell.set(OPERATOR)
            while await engine.read(OPERATOR, STEPS[0].due):  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    asyncio.run(with_engine(path, clock, KEPT, rung))


DELETED = "SELECT id FROM memories WHERE deleted_at IS NOT NULL"


def fill(service: Service) -> None:
    """Some of each kind: most of it at the start, one of each an hour later."""
    for number in range(6):
        service.save(f"pear {number}", topic_key="pears")  # 1: six revisions
    service.save("A plum.")  # 2
    service.save("An apple.", title="is erased")  # 3
    gone(service.http, erased(service.http, 3))
    key = {KEY: "at-the-start"}
    service.http.post("/observations", json=observation("A fig."), headers=key)  # 4
    service.http.delete("/observations/2")
    home = store(service.http)
    made = entry(service.http, home, "a", "Quokkas.")
    update(service.http, home, made, "Wombats.")
    kept_whole = entry(service.http, home, "b")
    for number in range(5):
        update(service.http, home, kept_whole, f"Wombats {number}.")
    delete(service.http, entry_at(home, made))
    service.clock.advance(hours=1)
    key = {KEY: "later"}
    service.http.post("/observations", json=observation("A quince."), headers=key)
    ((quince,),) = rows(service.path, "SELECT id FROM memories WHERE content = 'A quince.'")
    service.http.delete(f"/observations/{quince}")


def swept(service: Service, at: Any, retentions: Retentions = KEPT) -> Removed:
    """What a sweep removes at that instant, beside the running service."""
    return run(service, lambda it: sweep(it, OPERATOR), at, retentions)


def run(
    service: Service, work: Callable[[SqliteEngine], Awaitable[T]], at: Any = START,
    retentions: Retentions = KEPT,
) -> T:  # fmt: skip
    return asyncio.run(with_engine(service.path, Clock(at), retentions, work))


async def with_engine(
    path: Path, clock: Clock, retentions: Retentions, work: Callable[[SqliteEngine], Awaitable[T]]
) -> T:
    async with asyncio.timeout(60), opened(path, clock=clock, retention=retentions) as engine:
        return await work(engine)


def test_a_tenant_that_was_erased_meanwhile_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    swept = []

    class Gone:
        async def read(self, caller: Caller, *_: object) -> int:
            swept.append(caller)
            raise NotFound("No such tenant.")

    keep = keeper(cast("SqliteEngine", Gone()), Clock(), Telemetry.started(None), [])
    asyncio.run(keep.sweep([OPERATOR, OPERATOR]))

    assert (len(swept), caplog.records) == (2, [])


def keeper(
    engine: SqliteEngine, clock: Clock, telemetry: Telemetry, audited: list[Any]
) -> RetentionJob:
    def trim(at: Any) -> int:
        audited.append(at)
        return 0

    return RetentionJob(
        engine=engine, retention=KEPT, trim_audit=trim,
        clock=TrustedClock(clock=clock, elapsed=clock.elapsed), metrics=telemetry.metrics,
    )  # fmt: skip
