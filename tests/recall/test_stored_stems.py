"""Stems that the file has gathered: exact whatever changes, and gone with their memories."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from agentops_memory.recall import stems
from agentops_memory.recall.cache import DatabaseIndex
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.index import Index
from agentops_memory.sqlite.partitions import Partitions
from agentops_memory.sqlite.repair import is_exact

from ..support.callers import made_key
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


@pytest.mark.parametrize("column", ["stems", "counts", "head", "arrays", "memories", "last_id"])
def test_a_damaged_segment_is_not_believed_and_the_doctor_finds_it(path: Path, column: str) -> None:
    questions = ["/context?project=heron&query=rolback+workre", "/search?project=heron&q=queue"]
    gather_stems(path)
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        answers = [service.http.get(it).json() for it in questions]
    value = "1" if column in ("memories", "last_id") else f"substr({column}, 1, 3) || X'ff'"
    type_ = {"memories": "INTEGER", "last_id": "INTEGER", "head": "TEXT"}.get(column, "BLOB")
    changed(path, f"UPDATE area_stems SET {column} = CAST({value} AS {type_})")

    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        assert [service.http.get(it).json() for it in questions] == answers
    with closing(connect(path)) as database:
        assert not all(is_exact(path, it) for it in Partitions(database, is_alone=True).all())


@pytest.mark.parametrize(("tail", "known_chars"), [(0, 3_000_000), (3, 3_000_000), (0, 200)])
def test_a_cold_project_is_answered_from_its_segment_and_what_was_saved_since(
    path: Path, tail: int, known_chars: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stems, "MAX_CHUNK_CHARS", known_chars)
    gather_stems(path)
    with serving(path, MEMORY_SWEEP_EVERY="0", MEMORY_INDEX_CACHE="0") as service:
        for number in range(tail):
            service.save(f"rollback again {number}", project="heron", title=f"again{number}")
        service.save("rollback elsewhere", project="egret", title="egret")
        questions = [
            f"/{path}=rollback+qeue+{word}&project={project}"
            for path in ("context?query", "search?q")
            for word in ("worker", "again", "elsewhere")
            for project in ("heron", "egret")
        ]
        expected = [service.http.get(it).content for it in questions]
    for at in range(len(questions)):
        with serving(path, MEMORY_SWEEP_EVERY="0") as service:
            order = questions[at:] + questions[:at]
            assert [service.http.get(it).content for it in order] == expected[at:] + expected[:at]


def test_stems_that_begin_alike_are_told_apart(path: Path) -> None:
    """In a project, and where its stems only count: some share all bytes of their keys."""
    words = ["zqxwvut", "zqxwvutk", "zqxwvutkab", "zqxwvutkb", "жжжж", "жжжжб", "жжжжбв", "ж"]
    with serving(path, MEMORY_SWEEP_EVERY="0", MEMORY_INDEX_CACHE="0") as service:
        for at, word in enumerate(words[:-1]):
            for number in range(at + 1):
                service.save(f"{word} {number}", project="egret", title=f"{at}/{number}")
            service.save(f"{word} alone", project="heron", title=f"{at}")
        gather_stems(path)
        asked = [*words, *(f"{it}x" for it in words), *(it[:-1] for it in words)]
        questions = [f"/search?q={it}+{words[3]}&project=heron&limit=20" for it in asked]
        expected = [service.http.get(it).content for it in questions]
    for first in range(0, len(questions), 4):
        with serving(path, MEMORY_SWEEP_EVERY="0") as service:
            order = questions[first:] + questions[:first]
            assert [service.http.get(it).content for it in order] == (
                expected[first:] + expected[:first]
            )


def test_words_leave_the_segments_with_the_memory(path: Path) -> None:
    held = "SELECT count(*) FROM area_stems WHERE instr(stems, CAST('timeout' AS BLOB))"
    gather_stems(path)
    assert rows(path, held) == [(1,)]

    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        service.http.delete("/observations/3", params={"hard": "true"})
    assert rows(path, "SELECT stems FROM area_stems") == []
    gather_stems(path)
    assert rows(path, "SELECT last_id, memories FROM area_stems WHERE last_id > 0") == [(2, 2)]
    assert rows(path, held) == [(0,)]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memories SET created_at = created_at - 1 WHERE id = 2",
        "UPDATE memories SET session_id = NULL WHERE id = 1",
        "UPDATE spaces SET area = 99",
    ],
)
def test_a_change_beside_the_words_leaves_no_segment(path: Path, change: str) -> None:
    gather_stems(path)
    changed(path, change)
    assert rows(path, "SELECT area FROM area_stems WHERE last_id > 0") == []


def test_a_segment_that_was_read_before_a_change_is_not_stored(path: Path) -> None:
    gather_stems(path)
    with closing(connect(path)) as database:
        database.execute("DELETE FROM area_stems")
        index = Index(database)
        states = dict(index.areas.behind())
        read = {it: index.areas.area(it) for it in states}
        database.execute("UPDATE memories SET created_at = created_at - 1 WHERE id = 2")
        for again in (False, True):  # another sweep has begun meanwhile
            if again:
                index.areas.behind()
            for it, area in read.items():
                index.areas.store(area, states[it])
        assert database.execute("SELECT * FROM area_stems WHERE last_id > 0").fetchall() == []


def test_memories_without_words_have_a_segment_too(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        service.save("?!", project="heron", title="...")
        service.save("rollback", project="egret", title="t")
    gather_stems(path)
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        for project, found in (("heron", 0), ("egret", 1)):
            answer = service.http.get(f"/search?project={project}&q=rollback")
            assert (answer.status_code, len(answer.json())) == (200, found)
    assert_index_is_whole(path)


def test_the_statistics_of_other_projects_follow_every_save(path: Path) -> None:
    questions = [f"/search?q={it}&project=heron" for it in ("rollback+queue", "worker", "friday")]
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        for number in range(6):  # short memories borrow the words of the one before
            service.save("rollback the worker queue on friday", project="egret", title=f"e{number}")
            service.save(f"yes, number {number}", project="egret", title=f"yes{number}")
            service.save(f"rollback friday {number}", project="heron", title=f"h{number}")
    gather_stems(path)
    for number in range(2):  # each time cold, with memories that the other segment lacks
        with serving(path, MEMORY_SWEEP_EVERY="0") as service:
            for step in range(3):
                answers = [service.http.get(it).content for it in questions]
                copy = path.with_name(f"{number}-{step}.db")
                changed(path, f"VACUUM INTO '{copy}'")
                with serving(copy, MEMORY_SWEEP_EVERY="0", MEMORY_INDEX_CACHE="0") as stored:
                    assert answers == [stored.http.get(it).content for it in questions]
                service.save(f"friday again {number} {step}", project="egret", title="again")


def test_what_a_request_has_loaded_is_prepared_without_another_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(path) as service:
        service.save("rollback queue", project="egret")
    gather_stems(path)
    done, prepare = threading.Event(), DatabaseIndex.prepare_some

    def prepared(index: DatabaseIndex) -> bool:
        has_more = prepare(index)
        if not has_more and sum(len(it.areas) for it in index.parts.values()) == 2:
            done.set()
        return has_more

    monkeypatch.setattr(DatabaseIndex, "prepare_some", prepared)
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        for project in ("egret", "heron"):
            assert service.http.get(f"/search?project={project}&q=rollback").json()
        assert done.wait(10)
