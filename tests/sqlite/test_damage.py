"""A database of which a part cannot be read: what is mended, what is told, what is refused."""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.errors import Damaged, StartRefused
from agentops_memory.http import app as health
from agentops_memory.jobs import schedule as jobs
from agentops_memory.memory.access import OPERATOR
from agentops_memory.sqlite import SqliteEngine, transaction
from agentops_memory.sqlite.connection import drop_statements

from ..support.damages import harmed, page_of
from ..support.engine import opened, save
from ..support.engines import rows
from ..support.files import assert_index_is_whole, assert_sound, put_in_index
from ..support.losses import Losses
from ..support.process import stored, until
from ..support.recall import context, search, titles
from ..support.service import Service, observation, serving

DAMAGED = {"error": "The database file is damaged."}
REMEDY = "`agentops-memory doctor` shows the extent of the damage, and `agentops-memory restore`"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PAUSE", timedelta(milliseconds=5))
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))


def ready(service: Service) -> tuple[int, Any]:
    answer = service.http.get("/health/ready")
    return answer.status_code, answer.json()["checks"]["database"].get("detail")


def told(caplog: pytest.LogCaptureFixture, message: str) -> int:
    """How many log lines say so."""
    return sum(message in record.getMessage() for record in caplog.records)


@contextmanager
def serving_with_a_damaged_index(path: Path) -> Iterator[Service]:
    """Three memories, the newest last, and an index of which a page was lost."""
    with serving(path, MEMORY_INDEX_CACHE="0") as service:
        for number in range(3):
            service.save(f"apple {number}", title=f"n{number}")
            service.clock.advance(minutes=1)
        put_in_index(service.path)
        harmed(service.path, page_of(service.path, "memories_fts_0_idx"))
        yield service


@pytest.mark.slow
def test_a_damaged_index_is_made_anew_while_the_newest_stand_in_and_nothing_is_lost(
    path: Path, caplog: pytest.LogCaptureFixture, lost: Losses
) -> None:
    with serving_with_a_damaged_index(path) as service:
        assert context(service, "apple 0", limit=2) == ["n2", "n1"]
        answer = until(lambda: saved(service, "pear"))
        assert answer.json()["id"] == 4
        until(lambda: ready(service)[0] == 200)

        assert context(service, "apple 0", limit=1) == ["n0"]
        assert titles(search(service, "pear")) == ["pear"]
        assert_index_is_whole(service.path)
    assert told(caplog, "index was damaged and has been rebuilt") == 1
    assert told(caplog, "the database file is damaged") <= 1

    with serving(path) as service:  # which writes the file anew
        assert titles(search(service, "pear")) == ["pear"]
    assert rows(service.path, "SELECT * FROM remains") == []
    saves = {"pear": 4, **{f"apple {number}": number + 1 for number in range(3)}}
    lost(
        "a damaged page of the index", acknowledged=saves.items(), found=stored(path).items()
    )  # fmt: skip
    assert_sound(service.path, live=4)


@pytest.mark.slow
@pytest.mark.parametrize("saves", [0, 3], ids=["who only searches", "while no caller waits"])
def test_a_damaged_index_that_is_met_otherwise_is_mended_too(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, saves: int
) -> None:
    monkeypatch.setattr(transaction, "AT_ONCE", 3)
    with serving_with_a_damaged_index(path) as service:
        for number in range(saves):
            service.save(f"pear {number}")
        if not saves:
            assert titles(search(service, "apple 0", limit=2)) == ["n2", "n1"]
        until(lambda: told(caplog, "index was damaged and has been rebuilt"))
        assert titles(search(service, "apple 0", limit=1)) == ["n0"]
        assert_index_is_whole(service.path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "_data", "_idx", "_docsize", "_config"])
def test_an_index_of_which_a_table_was_dropped_is_made_anew(path: Path, name: str) -> None:
    with serving(path) as service:
        service.save("apple", title="best")
        service.clock.advance(minutes=1)
        service.save("pear", title="newest")
        put_in_index(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"DROP TABLE memories_fts_0{name}")
    with serving(path) as service:
        for route, text in (("/search", "q"), ("/context", "query")):
            asked = {text: "apple", "project": "demo", "explain": "true"}
            assert service.http.get(route, params=asked).status_code == 200
        until(lambda: titles(search(service, "apple", limit=1)) == ["best"])
        assert_index_is_whole(path)


def saved(service: Service, content: str) -> Any:
    """The answer to a save, unless it was refused for the damage."""
    answer = service.http.post("/observations", json=observation(content, title=content))
    if answer.status_code == 201:
        return answer
    assert (answer.status_code, answer.json()) == (503, DAMAGED)
    assert answer.headers["Retry-After"] == "1"
    return None


async def filled(path: Path) -> None:
    async with opened(path) as engine:
        for number in range(5):
            await save(engine, f"apple {number} " + "long " * 900)


async def is_intact(engine: SqliteEngine) -> bool:
    return (await engine.maintenance.check(OPERATOR, thorough=True)).is_intact


def test_damage_outside_the_index_is_told_to_probes_until_a_look_finds_none(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(path) as service:
        service.save("apple")
        page = page_of(service.path, "memories")
        before = harmed(service.path, page)

        assert [saved(service, "pear") for _ in range(3)] == [None] * 3
        status, detail = ready(service)
        assert (status, str(detail).startswith(f"{DAMAGED['error']} {REMEDY}")) == (503, True)
        assert service.http.get("/observations/1").json() == DAMAGED
        assert service.http.get("/health").status_code == 200
        assert told(caplog, "the database file is damaged") == 1
        assert told(caplog, "the database refused") == 0

        harmed(service.path, page, before)
        until(lambda: ready(service)[0] == 200)
        service.save("pear")
    assert told(caplog, "the database file is intact again") == 1
    assert told(caplog, "the repair failed") == 0
    assert rows(service.path, "SELECT count(*) FROM memory_text") == [(2,)]
    assert_index_is_whole(service.path)  # it may have been made anew, and left pages to nobody


def test_a_sweep_finds_damage_that_nobody_has_met(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="5ms") as service:
        service.save("apple")
        harmed(service.path, page_of(service.path, "memories_fts_0_config"))

        until(lambda: told(caplog, "index was damaged and has been rebuilt"))

    assert_index_is_whole(service.path)


def noise(path: Path) -> None:
    path.write_bytes(b"\xab" * 20000)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def bad_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"SQLite format 9\0")


def bad_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_schema SET sql = 'CREATE' WHERE name = 'memories'")
        database.commit()


HARMS = (noise, cut, bad_header, bad_schema)


def test_a_start_on_a_damaged_database_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        service.save("apple")
    for harm in HARMS:
        path = Path(shutil.copy(service.path, tmp_path / f"{harm.__name__}.db"))
        harm(path)
        before = path.read_bytes()

        with pytest.raises(StartRefused) as refused, serving(path):
            pass

        assert str(path) in str(refused.value)
        assert REMEDY in str(refused.value)
        assert path.read_bytes() == before


def test_an_index_that_cannot_be_made_anew_leaves_the_writer_as_it_was(path: Path) -> None:
    asyncio.run(filled(path))

    async def test() -> None:
        async with opened(path) as engine:
            page = page_of(path, "memories")
            before = harmed(path, page)
            words = harmed(path, page_of(path, "memories_fts_0_idx"))
            with pytest.raises(Damaged):
                await engine.maintenance.repair(OPERATOR)
            assert not await is_intact(engine)
            harmed(path, page, before)
            assert not await is_intact(engine)
            harmed(path, page_of(path, "memories_fts_0_idx"), words)
            assert await is_intact(engine)
            await save(engine, "pear")

    asyncio.run(test())
    assert_sound(path, live=6)


def test_what_leaves_the_schema_leaves_it_with_its_indexes_whatever_it_is_called() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("""CREATE TABLE "o'dd" (x UNIQUE, y)""")
        database.execute("CREATE TABLE other (x)")
        database.execute("""CREATE INDEX "it's" ON other (x)""")
        for statement in drop_statements(["o'dd", "it's"]):
            database.execute(statement)

        assert database.execute("SELECT name FROM sqlite_schema").fetchall() == [("other",)]
