"""An import of four times as many rows takes four times as long, whatever they have in common.

Measured in steps of SQLite's machine and in calls of Python functions, which are the same
on every machine.
"""

import io
import json
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from uuid import UUID

import pytest

from agentops_memory.agentops.transfer import Document, chunks_of
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.imports import Planned, Row, import_whole, plan_rows
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import UNSAVED
from agentops_memory.memory.redactor import Redactor
from agentops_memory.memory.rows import rendered
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.migrate import migrated
from agentops_memory.sqlite.transaction import SqliteTransaction

from ..support.files import NOW
from ..support.service import observation

SMALL, LARGE = 100, 400  # rows
SLACK = 1.3  # deeper trees, fuller pages
STEPS = 10  # of the machine, that count as much as a call
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

Work = Callable[[SqliteTransaction, Document], None]

# What each row of a document has otherwise than the others.
SHAPES: dict[str, Callable[[int], dict[str, object]]] = {
    "titles and sessions": lambda number: {"title": f"title {number}", "session_id": f"s{number}"},
    "keys, scopes and types": lambda number: {
        "topic_key": f"key/{number}", "scope": f"scope {number}", "type": f"type {number}",
    },
    "ids, every second": lambda number: {"uid": str(UUID(int=number + 1))} if number % 2 else {},
    "later states": lambda number: {
        "topic_key": "key", "content": f"state {number}", "updated_at": _at(number)
    },
    "earlier states": lambda number: {
        "topic_key": "key", "content": f"state {number}", "updated_at": _at(9_999 - number)
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_an_import_and_its_plan_take_four_times_as_long_for_four_times_as_many_rows(
    tmp_path: Path, shape: str
) -> None:
    def plan(tx: SqliteTransaction, document: Document) -> None:
        with pytest.raises(Planned):
            plan_rows(tx, _rows(document), 0)

    for number, work in enumerate((plan, _import, plan)):  # of what is new, then of what is there
        small, large = (
            _steps(tmp_path / f"{size}.db", work, shape, size) for size in (SMALL, LARGE)
        )
        assert large < LARGE / SMALL * SLACK * small, (number, small, large)


@pytest.mark.slow
def test_a_save_looks_for_its_twin_past_any_number_of_deleted_ones(tmp_path: Path) -> None:
    def look(tx: SqliteTransaction, _: Document) -> None:
        memory = tx[MemoryTable].page(None, UNSAVED, 1)[0]
        for _again in range(SMALL):
            assert tx[MemoryTable].recent_duplicate(memory, LONG_AGO) == memory

    steps = []
    for size in (SMALL, LARGE):
        path = tmp_path / f"{size}.db"
        _steps(path, _import, "titles and sessions", size)
        with closing(connect(path)) as database:
            database.execute("UPDATE memories SET deleted_at = 1 WHERE id > 1")
        steps.append(_steps(path, look, "titles and sessions", size))

    assert steps[1] < SLACK * steps[0], steps


def _at(second: int) -> str:
    return rendered(NOW + timedelta(seconds=second))


def _import(tx: SqliteTransaction, document: Document) -> None:
    import_whole(tx, _rows(document))


def _rows(document: Document) -> list[Row]:
    return list(chain.from_iterable(chunks_of(Redactor(DEFAULT_RULES), document)))


def _document(shape: str, size: int) -> Document:
    row = observation("The same words.", created_at="2029-01-01T00:00:00Z")
    body = {"observations": [row | SHAPES[shape](number) for number in range(size)]}
    document = Document(io.BytesIO(json.dumps(body).encode()), NOW)
    document.check()
    return document


def _steps(path: Path, work: Work, shape: str, size: int) -> int:
    """How many steps work takes with a document, in one transaction."""
    migrated(path, NOW)
    document, steps = _document(shape, size), 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    with closing(connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.set_progress_handler(count, STEPS)
        sys.setprofile(count)
        try:
            work(SqliteTransaction(database, NOW, OPERATOR), document)
        finally:
            sys.setprofile(None)
        database.set_progress_handler(None, 0)
        database.execute("COMMIT")
    return steps
