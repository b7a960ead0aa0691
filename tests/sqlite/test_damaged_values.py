"""Values that nobody has stored, as a damaged file holds them: all that is asked goes on."""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.engine.shared.columns import DERIVED, RESTRICTING, TABLES, Kind
from agentops_memory.engine.shared.known_values import MOST_TOLD
from agentops_memory.http.edge import health
from agentops_memory.jobs import schedule as jobs
from agentops_memory.memory.model.access import OPERATOR
from agentops_memory.memory.model.findings import Finding, Status
from agentops_memory.memory.model.kinds import SpaceKind
from agentops_memory.memory.sql.memories import MemoryTable
from agentops_memory.operations.doctor.doctor import DoctorContext, findings_of, fixed
from agentops_memory.sqlite.base.connection import connect
from agentops_memory.sqlite.maintenance import values
from agentops_memory.sqlite.schema.migrate import apply_migrations

from ..operations.test_doctor import patient
from ..support.agents import agent
from ..support.archives import at
from ..support.damaged_values import (
    BAD,
    COLUMNS,
    NO_TEXT,
    Known,
    asked,
    changed,
    damage,
    exported,
    failures,
    fill,
    questions,
)
from ..support.database import assert_index_is_whole
from ..support.engine import opened, save, saving, together
from ..support.engines import rows
from ..support.process import until
from ..support.samples import sampled
from ..support.service import START, Service, serving

Damage = tuple[str, str, str]  # of a table, a column, and what its values become

_ALL = [(table, column, value) for table, column, kind in COLUMNS for value in BAD[kind]]
# Two at a time, of tables that have little to do with each other: each start asks every route.
_HALF = (len(_ALL) + 1) // 2
CASES: list[tuple[Damage, ...]] = [
    tuple(filter(None, pair)) for pair in zip_longest(_ALL[:_HALF], _ALL[_HALF:])
]


def _name(damages: tuple[Damage, ...]) -> str:
    return " and ".join(f"{table}.{column} = {value}" for table, column, value in damages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A sound database, and how what it holds is addressed."""

    path: Path
    known: Known


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path = tmp_path_factory.mktemp("made") / "memory.db"
    return Made(known=fill(path), path=path)


@pytest.fixture
def path(made: Made, tmp_path: Path) -> Path:
    copy = tmp_path / "memory.db"
    shutil.copy(made.path, copy)
    shutil.copy(f"{made.path}.seal", f"{copy}.seal")
    return copy


@pytest.mark.slow
def test_no_more_rows_are_read_than_are_told_however_many_values_of_a_row_are_damaged(
    path: Path,
) -> None:
    statements: list[str] = []
    with closing(connect(path)) as database:
        database.execute(
            """WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT 99)
               INSERT INTO sessions (id, project, started_at, ended_at)
               SELECT 'damaged ' || n, 'p', 1 << 62, 1 << 62 FROM number"""
        )
        database.set_trace_callback(statements.append)
        found = values.damaged(database)

    limits = [int(it) for text in statements for it in re.findall(r"LIMIT (-?\d+)", text)]
    assert len(found) == MOST_TOLD
    assert min(limits) >= 0


def test_it_is_told_of_every_column_what_it_holds() -> None:
    with closing(connect(Path(":memory:"))) as database:
        apply_migrations(database)
        columns = database.execute(
            """SELECT t.name, c.name
                 FROM pragma_table_list t, pragma_table_info(t.name) c
                WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"""
        ).fetchall()
    there = {(table, column) for table, column in columns if table not in DERIVED}

    assert there == {(table, column) for table, of in TABLES.items() for column in of.columns}
    assert {table for table, _ in columns} >= DERIVED
    assert set(BAD) == {*Kind} - {Kind.KEY}


def test_every_route_that_reads_is_asked(path: Path, made: Made) -> None:
    with serving(path) as service:
        described = service.http.get("/openapi.json").json()["paths"]
        answers = [*asked(service, made.known)]

    reading = {path for path, methods in described.items() if "get" in methods}
    assert {path for path, _ in questions(made.known)} == reading
    deleted = made.known.memories[1]
    assert {str(it.url) for it in answers if it.status_code != 200} == {
        f"{service.url}/observations/{deleted}", f"{service.url}/timeline?observation_id={deleted}",
    }  # fmt: skip


@pytest.mark.parametrize("table", sampled(TABLES, 5))
def test_reads_go_on_when_every_value_of_a_table_is_damaged(
    table: str, path: Path, made: Made
) -> None:
    for _, column, kind in (it for it in COLUMNS if it[0] == table):
        assert damage(path, table, column, BAD[kind][0])

    with serving(path) as service:
        assert failures(asked(service, made.known)) == []


@pytest.mark.parametrize("damages", sampled(CASES, 16, kept=[pytest.mark.slow], id_=_name))
def test_all_goes_on_whatever_columns_hold(
    damages: tuple[Damage, ...], path: Path, made: Made
) -> None:
    for table, column, value in damages:
        assert damage(path, table, column, value)

    with serving(path) as service:
        found = failures(asked(service, made.known))
        found += failures(changed(service, made.known))
        found += failures(asked(service, made.known))
    assert found == []
    at(path).say("export")
    at(path).run("scan")
    at(path).run("index", "--check")


def test_what_is_no_utf8_is_shown_with_a_sign_in_its_place(path: Path, made: Made) -> None:
    damage(path, "memories", "content", NO_TEXT)
    (kept, *_) = made.known.memories

    with serving(path) as service:
        assert service.http.get(f"/observations/{kept}").json()["content"] == "apple two\ufffd"
        assert {row["content"][-1] for row in exported(service)["observations"]} == {"\ufffd"}
        with agent(f"{service.url}/mcp/demo") as host:
            assert "apple two\ufffd" in host.said("mem_search", query="apple")


def test_an_instant_out_of_range_is_shown_as_the_last_or_the_first(path: Path, made: Made) -> None:
    (kept, *_) = made.known.memories
    damage(path, "memories", "created_at", BAD[Kind.INSTANT][1])
    damage(path, "memories", "updated_at", BAD[Kind.INSTANT][0])

    with serving(path) as service:
        told = service.http.get(f"/observations/{kept}").json()
        assert told["created_at"] == "0001-01-01T00:00:00Z"
        assert told["updated_at"] == "9999-12-31T00:00:00Z"
        changed = service.http.patch(f"/observations/{kept}", json={"title": "another"})
        assert changed.json()["updated_at"] == "2030-01-01T12:00:00Z"  # not after the end of time


def test_a_row_that_is_damaged_is_changed_deleted_and_erased(path: Path, made: Made) -> None:
    damage(path, "memories", "content", NO_TEXT)
    damage(path, "memories", "tags", NO_TEXT)
    kept, _, other = made.known.memories

    with serving(path) as service:
        changed = service.http.patch(f"/observations/{kept}", json={"title": "another"})
        assert changed.json()["content"] == "apple two\ufffd"
        assert service.http.delete(f"/observations/{other}").status_code == 204
        erased = service.http.delete(f"/observations/{kept}?hard=true")
        receipt = service.http.get(f"/erasures/{erased.headers['x-erasure-id']}").json()

    assert receipt["observations"] == 1
    assert rows(path, f"SELECT count(*) FROM memories WHERE id = {kept}") == [(0,)]


def test_a_request_that_was_done_before_is_not_done_again_by_a_damaged_record(
    path: Path, made: Made
) -> None:
    damage(path, "done", "answer", "'{'")

    with serving(path) as service:
        again = next(changed(service, made.known))

    assert (again.status_code, again.json()["error"]) == (
        409, "This was done, and its answer is not known any more.",
    )  # fmt: skip
    assert rows(path, "SELECT count(*) FROM memories WHERE title = 'by key'") == [(1,)]


def test_writes_that_wait_together_are_all_made_when_one_meets_what_is_no_utf8(path: Path) -> None:
    damage(path, "memories", "content", NO_TEXT)

    def read(tx: Transaction) -> str:
        saving("half of it")(tx)
        return next(iter(tx[MemoryTable].every(after=0, limit=1))).text.content  # type: ignore[arg-type]

    async def test() -> list[object]:
        async with opened(path) as engine:
            return await together(engine, [saving("one"), read, saving("two"), read])

    assert asyncio.run(test()) == ["one", "apple two\ufffd", "two", "apple two\ufffd"]
    saved = [content for (content,) in rows(path, "SELECT content FROM memories ORDER BY id")]
    assert sorted(saved[-4:]) == ["half of it", "half of it", "one", "two"]


def test_reads_of_a_sound_file_decode_without_a_call_for_each_text(path: Path) -> None:
    async def factories() -> set[object]:
        async with opened(path) as engine:
            await save(engine, "pear")
            return {
                await engine.read(OPERATOR, _factory),
                await engine.write(OPERATOR, _factory),
            }

    assert asyncio.run(factories()) == {str}


def _factory(tx: Transaction) -> object:
    return tx[MemoryTable]._connection.text_factory  # type: ignore[attr-defined]  # noqa: SLF001


# What other rows name: they still do, by what it was.
NAMED = {
    ("sessions", "id"), ("memories", "session_id"), ("stores", "erasure_id"),
    ("namespaces", "name"), ("namespace_access", "namespace"), ("intents", "id"),
    ("tasks", "intent"), ("coordinators", "intent"), ("grants", "intent"),
}  # fmt: skip


@pytest.mark.parametrize("table", sampled(dict.fromkeys(its for its, _, _ in COLUMNS), 5, first=1))
def test_the_doctor_names_the_values_of_a_table_and_mends_them(table: str, path: Path) -> None:
    damaged = [(column, kind) for its, column, kind in COLUMNS if its == table]
    for column, kind in damaged:
        damage(path, table, column, BAD[kind][-1])

    (found,) = _of_values(path)
    assert found.status is Status.FAILED
    assert re.search(rf"this is damaged: {table} \S+: \w+ \(", found.sentence)
    (done,) = fixed([found])

    left = _left(path)
    assert left <= RESTRICTING & {(table, column) for column, _ in damaged}
    assert done.status is (Status.FAILED if left else Status.OK), done
    assert ("Not fixed, since nothing else says what was there: " in done.sentence) is bool(left)
    kept = path.with_name("memory.db.before-fix")
    assert str(kept) in done.sentence
    with closing(connect(kept)) as database:
        assert len(values.damaged(database)) >= len(damaged)
    assert_index_is_whole(path)


def test_a_space_becomes_of_the_kind_that_it_was(path: Path) -> None:
    before = rows(path, "SELECT id, kind FROM spaces ORDER BY id")
    assert {kind for _, kind in before} == set(SpaceKind)
    damage(path, "spaces", "kind", BAD[Kind.SPACE][0])

    assert [it.status for it in fixed(_of_values(path))] == [Status.OK]

    assert rows(path, "SELECT id, kind FROM spaces ORDER BY id") == before


BOUND = {"agent_spaces", "memories", "seals"}  # the place to which a confidential value is bound


@pytest.mark.parametrize("damages", sampled(CASES, 16, first=8, kept=[pytest.mark.slow], id_=_name))
def test_all_is_well_after_the_doctor_has_mended_columns(
    damages: tuple[Damage, ...], path: Path, made: Made
) -> None:
    for table, column, value in damages:
        damage(path, table, column, value)

    done = {it.status for it in fixed(findings_of(patient_of(path)))}
    left = _left(path)
    assert left <= RESTRICTING & {(table, column) for table, column, _ in damages}
    assert (done == {Status.OK}) is not bool(left)

    wrong = {it.code for it in findings_of(patient_of(path, thorough=True)) if _is_wrong(it)}
    lost = {"seals"} if any(table in BOUND for table, _, _ in damages) else set[str]()
    is_named = any((table, column) in NAMED for table, column, _ in damages)
    told = ({"references"} if is_named else set()) | ({"values"} if left else set())
    assert wrong - lost == told
    at(path).say("index", "--check")
    with serving(path) as service:
        assert failures(asked(service, made.known)) == []


def test_an_instant_is_mended_by_the_nearest_that_is_known_of_its_row(path: Path) -> None:
    with closing(connect(path)) as database:  # another instant is the newest of the file
        database.execute("UPDATE sessions SET started_at = started_at + 86400000000")
    kept = rows(path, "SELECT id, created_at, updated_at FROM memories ORDER BY id")
    damage(path, "memories", "updated_at", "1 << 62")
    (done,) = fixed(_of_values(path))

    assert "updated_at of memories 1 is now 2030-01-01T12:01:00Z" in done.sentence
    assert rows(path, "SELECT id, created_at, updated_at FROM memories ORDER BY id") == kept


def test_instants_are_mended_by_the_newest_that_is_none_of_the_damaged(path: Path) -> None:
    damage(path, "sessions", "started_at", "1 << 62")
    damage(path, "done", "at", "-(1 << 62)")
    ((newest,),) = rows(path, "SELECT max(updated_at) FROM memories")

    (done,) = fixed(_of_values(path))

    assert done.status is Status.OK
    assert rows(path, "SELECT at FROM done") == [(newest,)]


def test_a_memory_was_not_changed_by_its_deletion_as_far_as_that_is_mended(path: Path) -> None:
    with closing(connect(path)) as database:
        database.execute("UPDATE revisions SET at = at + 3600000000 WHERE deed = 'deleted'")
    deleted = "SELECT id, updated_at FROM memories WHERE deleted_at IS NOT NULL"
    kept = rows(path, deleted)
    damage(path, "memories", "updated_at", "1 << 62")

    (done,) = fixed(_of_values(path))

    assert kept
    assert done.status is Status.OK
    assert rows(path, deleted) == kept


def test_the_number_of_a_memory_s_state_is_mended_by_those_revisions_that_have_one(
    path: Path,
) -> None:
    damage(path, "memories", "revision", BAD[Kind.COUNT][0])
    damage(path, "revisions", "number", f"number + CASE id WHEN 1 THEN {1 << 62} ELSE 0 END")

    (done,) = fixed(_of_values(path))

    assert done.status is Status.OK
    assert rows(path, "SELECT revision FROM memories WHERE id = 1") == [(2,)]


def test_what_a_store_holds_is_counted_without_what_was_deleted(path: Path) -> None:
    counted = "SELECT entries, size FROM stores ORDER BY space_id"
    kept = rows(path, counted)
    for column in ("entries", "size"):
        damage(path, "stores", column, BAD[Kind.COUNT][0])

    (done,) = fixed(_of_values(path))

    assert done.status is Status.OK
    assert rows(path, counted) == kept


def test_what_was_mended_is_known_again_when_it_is_imported(path: Path) -> None:
    damage(path, "memories", "title", NO_TEXT)

    (done,) = fixed(_of_values(path))

    assert done.status is Status.OK
    with serving(path) as service:
        document = exported(service)
        for row in document["observations"]:
            del row["uid"]
        again = service.http.post("/import", json=document).json()
    assert document["observations"]
    assert again == {"imported_sessions": 0, "imported_observations": 0}


@pytest.mark.parametrize(("table", "column"), [("memories", "extras"), ("stores", "metadata")])
def test_the_names_of_pairs_are_looked_at_as_what_they_name(
    path: Path, table: str, column: str
) -> None:
    damage(path, table, column, '\'{"\\ud800": "a"}\'')

    (done,) = fixed(_of_values(path))

    assert done.status is Status.OK
    assert f"{column} of {table}" in done.sentence


def test_a_row_is_named_in_one_line_whatever_its_key_holds(path: Path) -> None:
    damage(path, "erasures", "id", "CAST(x'610a1b5b62' || CAST(id AS BLOB) || x'ff' AS TEXT)")

    (found,) = _of_values(path)

    assert re.search(r"erasures a\ufffd\ufffd\[b[0-9a-f-]+\ufffd: id", found.sentence)
    assert found.sentence.isprintable()


def test_two_texts_that_would_be_the_same_where_that_cannot_be_stay_apart(path: Path) -> None:
    with closing(connect(path)) as database:
        database.execute("UPDATE memories SET key = CAST(x'61ff' AS TEXT) WHERE id = 1")
        database.execute("UPDATE memories SET key = CAST(x'61fe' AS TEXT) WHERE id = 5")

    (done,) = fixed(_of_values(path))

    assert done.status is Status.OK
    assert rows(path, "SELECT key FROM memories WHERE id IN (1, 5) ORDER BY id") == [
        ("a\ufffd",), ("a\ufffd61FE",),
    ]  # fmt: skip


STRAYS = """
    INSERT INTO lifecycles (memory_id, space_id, pinned_at, expires_at, review_at)
    VALUES (98, 1, 7, 7, 7), (99, 999, 7, NULL, 7);
    UPDATE lifecycles SET space_id = 999;
    UPDATE lifecycles SET held_key = 'trees/apple';
    INSERT OR IGNORE INTO supersessions SELECT id, id + 1, 7 FROM memories;
    INSERT OR IGNORE INTO supersessions SELECT id + 2, id, 7 FROM memories;
    INSERT OR IGNORE INTO supersessions SELECT id, id, 7 FROM memories;
    INSERT OR IGNORE INTO lookalikes SELECT id + 3, id, 0.5, 7 FROM memories;
    INSERT OR IGNORE INTO lookalikes SELECT id, id, 0.5, 7 FROM memories;
"""
"""Lifecycles, supersessions and pairs that no request makes, circles among them."""


@pytest.mark.parametrize("answers_of", [asked, changed])
def test_strays_beside_the_memories_break_no_request(
    path: Path, made: Made, answers_of: Callable[[Service, Known], Iterator[httpx.Response]]
) -> None:
    with closing(connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.executescript(STRAYS)

    with serving(path) as service:
        assert failures(answers_of(service, made.known)) == []

    found = [it for it in findings_of(patient_of(path)) if it.code == "references"]
    assert [it.status for it in fixed(found)] == [Status.OK]
    left = [it.status for it in findings_of(patient_of(path)) if it.code == "references"]
    assert left == [Status.OK]


@pytest.mark.slow
def test_what_is_met_is_a_warning_of_readiness_until_it_is_mended(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "TOLD_FOR", timedelta(0))
    monkeypatch.setattr(jobs, "PAUSE", timedelta(milliseconds=5))
    with closing(connect(path)) as database:  # else the sweep would move a memory away
        database.execute("DELETE FROM pending_archives")
    damage(path, "memories", "content", NO_TEXT)
    every = [str(id_) for (id_,) in rows(path, "SELECT id FROM memories")]
    with serving(path, MEMORY_SWEEP_EVERY="5ms") as service:
        assert service.http.get("/context?project=demo&query=apple").status_code == 200
        until(lambda: _database(service)["status"] == "warning")
        assert _database(service)["detail"].endswith("`agentops-memory doctor` names them.")
        assert _database(service)["rows"] == len(every)
        assert service.http.get("/health/ready").status_code == 200
        assert service.save("goes on")["action"] == "created"

        (done,) = fixed(_of_values(path))
        assert done.status is Status.OK
        until(lambda: _database(service)["status"] == "ok")

    told = [it for it in caplog.records if it.message.startswith("a value in the database")]
    assert sorted(it.__dict__["row"] for it in told) == sorted(every)
    assert {(it.__dict__["table"], it.__dict__["column"]) for it in told} == {
        ("memories", "content")
    }
    assert "apple" not in "".join(str(it.__dict__) for it in told)


def test_what_nobody_meets_is_found_by_a_look_now_and_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "TOLD_FOR", timedelta(0))
    damage(path, "done", "at", "1 << 62")

    with serving(path, MEMORY_SWEEP_EVERY="5ms") as service:
        until(lambda: _database(service)["status"] == "warning")


def _database(service: Service) -> Any:
    return service.http.get("/health/ready").json()["checks"]["database"]


def _left(path: Path) -> set[tuple[str, str]]:
    """The columns in which the doctor finds damaged values."""
    with closing(connect(path)) as database:
        return {(it.table, it.column) for it in values.damaged(database)}


def _of_values(path: Path) -> list[Finding]:
    return [it for it in findings_of(patient_of(path)) if it.code == "values"]


def _is_wrong(finding: Finding) -> bool:
    return finding.status in (Status.WARNING, Status.FAILED)


def patient_of(path: Path, *, thorough: bool = False) -> DoctorContext:
    return replace(patient(path, thorough=thorough), now=START + timedelta(hours=1))
