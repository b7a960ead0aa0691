"""The index is exact: whatever was saved, changed or deleted, it equals one built afresh."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.memory import projects
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import Memory, MemoryId
from agentops_memory.memory.search import Filter
from agentops_memory.memory.space import Space, project_name
from agentops_memory.recall import visibility as document
from agentops_memory.recall.query import parse_query
from agentops_memory.recall.visibility import PRIOR
from agentops_memory.sqlite import index, transaction
from agentops_memory.sqlite.connection import Database, connect
from agentops_memory.sqlite.partitions import Partitions, table
from agentops_memory.sqlite.transaction import SqliteTransaction

from ..memory.test_expiry_swept import index_swept
from ..support.callers import made_key
from ..support.files import assert_index_is_whole
from ..support.histories import KEYS, History
from ..support.requirements import requirement
from ..support.service import START, Service, serving

TEXTS = (
    "apple banana", "apple", "The pool's max_connections", "数据库连接池", "HTTPServer v1.2.3",
    "Café ﬁne ❤️python", "हिन्दी ก่อน", "x", "apple apple apple cherry", "\ufffd", "é" * 40,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.sqlite_files
@pytest.mark.representative(1)
@pytest.mark.parametrize("seed", range(6))
@requirement("agentops:observations:delete-keeps-index", "agentops:fault:repeated-deletes")
def test_the_index_equals_one_built_afresh(path: Path, seed: int) -> None:
    with small_partitions(), serving(path, MEMORY_DEDUPE_WINDOW="0") as service:
        keys = {name: made_key(path, *of) for name, of in KEYS.items()}
        history = History(keys, seed)
        history.service = service
        for _ in range(60):
            history.change()
        service.clock.advance(hours=1)
        index_swept(service, service.clock.now)
        assert_index_is_whole(path)
        relieve(path)
    assert_index_is_exact(path)


def relieve(path: Path) -> None:
    """Move projects apart, as a sweep does."""
    with closing(connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        while SqliteTransaction(database, START, OPERATOR).index.rebalance():
            pass
        database.execute("COMMIT")


@pytest.mark.sqlite_files
@requirement("agentops:observations:delete-keeps-index", "agentops:fault:repeated-deletes")
def test_repeated_deletes_of_every_kind_leave_the_index_exact(service: Service) -> None:
    for content in TEXTS:
        service.save(content)
    for hard in ("false", "true", "false", "true"):
        for memory in (1, 2, 4, 99):
            assert service.http.delete(f"/observations/{memory}?hard={hard}").status_code == 204
        assert_index_is_exact(service.path)

    service.save("apple once more")
    assert [hit["id"] for hit in service.http.get("/search?q=apple&limit=2").json()] == [9, 12]


@contextmanager
def small_partitions() -> Iterator[None]:
    """Inside, a few projects and memories fill a partition, and bulks of new ones are small."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transaction, "MOST_WAITING", 3)
        patched.setattr(index, "MOVED", 3)
        patched.setattr(index, "MAX_STEP", 40)
        for name, value in {"MOST_PROJECTS": 3, "MOST_MEMORIES": 4, "OVERSIZED": 2}.items():
            patched.setattr(document, name, value)
        yield


def assert_index_is_exact(path: Path) -> None:
    """The index passes its own check, and is word for word, and in its scores, a new one."""
    assert_index_is_whole(path)
    with copy(path) as database:
        made = Partitions(database, is_alone=True)
        for number in made.all():
            before = contents(database, number)
            made.rebuild(number)
            assert contents(database, number) == before


@contextmanager
def copy(path: Path) -> Iterator[Database]:
    """A copy of the file, in memory."""
    with closing(connect(path)) as original, closing(connect(Path(":memory:"))) as database:
        original.backup(database)
        yield database


def contents(database: sqlite3.Connection, number: int) -> list[list[Any]]:
    """Every word of a partition's memories at its place, the sizes, and some words' scores."""
    name = table(number)
    database.execute(
        f"CREATE VIRTUAL TABLE temp.words_{number} USING fts5vocab (main, {name}, instance)"
    )
    statements = [
        f"SELECT * FROM temp.words_{number} WHERE doc < {PRIOR} ORDER BY term, doc, col, offset",
        f"SELECT id, sz FROM {name}_docsize ORDER BY id",
        f"""SELECT rowid, bm25({name}, 2.0, 1.0, 0.4, 2.0) FROM {name}
            WHERE {name} MATCH 'apple OR banana OR x OR "数据" OR max' ORDER BY rowid""",
    ]
    found = [database.execute(statement).fetchall() for statement in statements]
    database.execute(f"DROP TABLE temp.words_{number}")
    return found


PROJECT = project_name("demo")
OWN = Filter(project=PROJECT, global_too=True)
ASKED = parse_query("one. two a/b")


def recent_duplicate(tx: SqliteTransaction, memory: Memory) -> object:
    return tx[MemoryTable].recent_duplicate(memory, START)


# A read, and the indexes that it must go by; none reads all rows.
READS: dict[str, tuple[Callable[[SqliteTransaction, Memory], object], set[str]]] = {
    "at_key": (
        lambda tx, _: tx[MemoryTable].at_key(Space(project=PROJECT), "k"),
        {"memories_at_key"},
    ),
    "duplicate": (recent_duplicate, {"memories_by_hash"}),
    "import": (lambda tx, m: tx[MemoryTable].imported_duplicate(m), {"memories_by_hash"}),
    "newest": (lambda tx, _: tx[MemoryTable].newest(OWN, 5), {"memories_by_time"}),
    "newest of all": (lambda tx, _: tx[MemoryTable].newest(Filter(), 5), {"memories_in_time"}),
    "older": (
        lambda tx, _: tx[MemoryTable].newest(OWN, 5, before=MemoryId(1)),
        {"memories_by_time"},
    ),
    "around": (lambda tx, m: tx[MemoryTable].around(m, 3, 3), {"memories_by_time"}),
    "count": (lambda tx, _: tx[MemoryTable].count(PROJECT), {"memories_by_time"}),
    "count of all": (lambda tx, _: tx[MemoryTable].count(None), {"memories_by_time"}),
    "projects": (lambda tx, _: projects.names(tx, with_deleted=False), {"memories_by_time"}),
    "keyed": (lambda tx, _: tx.search.keyed("a/b", OWN, 5), {"memories_at_key"}),
    "best": (lambda tx, _: tx.search.best(ASKED, OWN, 5), {"0:M4><", "spaces_by_area"}),
    "every": (lambda tx, _: tx.search.every(ASKED, OWN, 5), {"0:M4><"}),
    "backfill": (lambda tx, _: tx.search.backfill(OWN, 5, ()), {"memories_by_time"}),
}


@pytest.mark.sqlite_files
def test_a_read_goes_by_an_index(service: Service) -> None:
    service.save("one", title="first")
    with closing(connect(service.path)) as database:
        index.Index(database).flush()
        tx = SqliteTransaction(database, START, OPERATOR)
        memory = tx[MemoryTable].get(MemoryId(1))
        assert memory is not None
        for name, (read, indexes) in READS.items():
            statements: list[str] = []
            database.set_trace_callback(statements.append)
            read(tx, memory)
            database.set_trace_callback(None)
            steps = [
                step
                for statement in statements
                if statement.startswith(("SELECT", " "))
                for *_, step in database.execute(f"EXPLAIN QUERY PLAN {statement}")
            ]
            plan = "\n".join([name, *steps])
            assert all(f"INDEX {it}" in plan for it in indexes), plan
            assert not {"SCAN m", "SCAN n", "SCAN memories"}.intersection(steps), plan
