"""Stems that the file has gathered: exact whatever changes, and gone with their memories."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import MemoryId
from agentops_memory.recall.stems import Entry
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.sqlite.connection import connect, token_of
from agentops_memory.sqlite.index import Index

from ..support.callers import made_key
from ..support.engine import run, statement
from ..support.engines import rows
from ..support.files import assert_index_is_whole, gather_stems
from ..support.histories import KEYS, History, Question
from ..support.service import Service, serving


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with three memories of a project."""
    file = tmp_path / "memory.db"
    with serving(file) as service:
        for number, text in enumerate(("rollback worker", "rollback queue", "retry timeout")):
            service.save(text, project="heron", title=f"t{number}")
    return file


def changed(path: Path, statement: str) -> None:
    with closing(connect(path)) as database:
        database.execute(statement)


@pytest.mark.slow
def test_gathered_stems_are_exact_and_answer_as_the_index_does_whatever_changes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    keys = {name: made_key(path, *of) for name, of in KEYS.items()}
    with serving(path, MEMORY_SWEEP_EVERY="0", MEMORY_INDEX_CACHE="0") as service:
        history = History(keys, 1)
        history.service = service
        for step in range(40):
            (history.change_rarely if step % 13 == 12 else history.change)()
            if step % 3 == 0 or step > 35:
                gather_stems(path)
            assert_index_is_whole(path)

        questions = [history.question() for _ in range(40)]
        answers = [asked(service, history, it) for it in questions]
        assert rows(path, "SELECT count(*) FROM area_stems") > [(2,)]
        changed(path, "DELETE FROM area_stems")
        assert [asked(service, history, it) for it in questions] == answers


def asked(service: Service, history: History, question: Question) -> bytes:
    key, path = question
    return service.http.get(path, headers=history.headers(key)).content


def test_a_typo_of_a_cold_project_is_looked_for_in_its_gathered_stems_alone(path: Path) -> None:
    misspelt = "/search?project=heron&q=rolback+workre"
    gather_stems(path)
    with serving(path, MEMORY_SWEEP_EVERY="0", MEMORY_INDEX_CACHE="0") as service:
        assert {1, 2} <= {it["id"] for it in service.http.get(misspelt).json()}
        changed(path, "UPDATE area_stems SET stems = ' queue '")  # which no answer is to show
        assert service.http.get(misspelt).json() == []

        service.save("an otter", project="heron")  # so that they are not all of the project's
        assert {1, 2} <= {it["id"] for it in service.http.get(misspelt).json()}


def test_words_leave_the_gathered_stems_with_the_memory(path: Path) -> None:
    gather_stems(path)
    assert rows(path, "SELECT stems FROM area_stems WHERE stems LIKE '%timeout%'") != []

    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        service.http.delete("/observations/3", params={"hard": "true"})
    assert rows(path, "SELECT stems FROM area_stems") == []
    gather_stems(path)
    assert rows(path, "SELECT last_id, stems FROM area_stems") == [
        (2, " queue \n rollback \n t0 t1 \n worker ")
    ]


@pytest.mark.sqlite_files
def test_stems_of_before_a_change_are_not_stored_in_the_batch_that_changes_it(path: Path) -> None:
    with closing(connect(path)) as database:
        token = token_of(database)

    def store(tx: Transaction) -> None:
        cast(Index, tx.index).store_entries(token, {MemoryId(1): Entry.loaded("1 zebra")})

    async def changed_and_stored(engine: SqliteEngine) -> None:
        change = "UPDATE memories SET content = 'an otter' WHERE id = 1"
        await asyncio.gather(
            engine.write(OPERATOR, statement, change), engine.write(OPERATOR, store)
        )

    run(path, changed_and_stored)

    assert rows(path, "SELECT stems FROM memory_stems WHERE stems LIKE '%zebra%'") == []
