"""New memories enter the index at the end of their batch, and nobody can tell the difference."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, strategies as st

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import NotFound, Refusal
from agentops_memory.memory import projects, saves, saves as memories
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import Change, Draft, MemoryId, SessionId, Text
from agentops_memory.memory.search import Filter
from agentops_memory.memory.space import Project, Space
from agentops_memory.recall import visibility as document
from agentops_memory.recall.query import parse_query
from agentops_memory.recall.text import End, columns
from agentops_memory.sqlite import SqliteEngine, index, transaction
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.partitions import table
from agentops_memory.sqlite.transaction import SqliteTransaction

from ..support.engine import Seen, Work, raising, run, save, saving, together
from ..support.engines import rows
from ..support.files import NOW, assert_index_is_whole
from ..support.samples import examples, for_each
from ..support.service import Clock

FEW = examples(8)


def draft(project: str, content: str, session: str = "s", scope: str = "project") -> Draft:
    text = Text(type="note", title=content[:20], content=content, tags=("x",))
    space = Space(project=Project(project), scope=scope)
    return Draft(session=SessionId(session), space=space, text=text)


def found(word: str, project: str = "demo") -> Callable[[Transaction], list[int]]:
    """Work that searches."""

    def work(tx: Transaction) -> list[int]:
        best = tx.search.best(parse_query(word), Filter(project=Project(project)), 9)
        return sorted(id_ for _, id_ in best)

    return work


def amending(memory: int, content: str) -> Work:
    return lambda tx: saves.amend(tx, MemoryId(memory), Change(content=content))


def both(*works: Work) -> Work:
    """Works one after the other, in one change."""
    return lambda tx: [work(tx) for work in works]


FAIL = raising(ValueError("no"))


def saving_in(project: str) -> Work:
    return lambda tx: memories.save(tx, draft(project, "apple"), timedelta())


# What waits together behind one save, and what is found of a word in a project then.
BATCHES: list[tuple[list[Work], dict[tuple[str, str], list[int]]]] = [
    (
        [saving("apple"), found("apple"), saving("apple pie"), found("apple")],
        {("apple", "demo"): [2, 3]},
    ),
    (
        [
            saving("one apple"), saving("guilty", FAIL),
            saving("guilty", both(found("apple"), FAIL)),  # which puts in what waits
            saving("guilty", both(amending(1, "nothing left"), FAIL)), saving("two apples"),
        ],
        {("apple", "demo"): [2, 3], ("guilty", "demo"): []},
    ),
    (
        [
            *(saving(word) for word in ("apple", "banana", "cherry", "date")),
            amending(5, "an elderberry"), lambda tx: saves.forget(tx, MemoryId(3)),
            saving("fig"),  # which borrows from the one that was amended
            lambda tx: saves.erase(tx, MemoryId(4)), saving("grape"),
        ],
        {("elderberry", "demo"): [5, 6, 7], ("banana", "demo"): []},
    ),
    (
        [
            saving_in("a"), lambda tx: projects.rename(tx, Project("a"), Project("b")),
            saving_in("b"), saving_in("a"),
        ],
        {("apple", "b"): [2, 3], ("apple", "a"): [4]},
    ),
]  # fmt: skip


@for_each("works, finds", BATCHES)
def test_what_waits_is_found_changed_and_taken_back_as_if_it_were_in_the_index(
    tmp_path_factory: pytest.TempPathFactory, works: list[Work],
    finds: dict[tuple[str, str], list[int]],
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("batch") / "memory.db"

    async def test(database: SqliteEngine) -> None:
        await save(database, "before")
        answers = await together(database, works)
        if works == BATCHES[0][0]:
            assert answers == ["apple", [2], "apple pie", [2, 3]]
        for (word, project), ids in finds.items():
            assert await database.read(OPERATOR, found(word, project)) == ids, word

    run(path, test)
    assert_index_is_whole(path)


def test_a_project_whose_move_is_undone_is_saved_where_it_lies(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 2)
    monkeypatch.setattr(document, "OVERSIZED", 1)

    def moving(tx: Transaction) -> None:
        assert tx.index.rebalance()  # type: ignore[attr-defined]

    async def test(database: SqliteEngine) -> None:
        for project in ("a", "b", "b", "c"):
            await database.write(OPERATOR, saving_in(project))
        answers = await together(
            database, [saving_in("b"), both(moving, saving_in("a"), FAIL), saving_in("a")]
        )
        assert [isinstance(it, ValueError) for it in answers] == [False, True, False]

    run(path, test)
    assert_index_is_whole(path)
    assert rows(path, "SELECT DISTINCT project FROM spaces WHERE partition = 0") == [("a",), ("b",)]


def test_when_the_index_cannot_take_a_batch_each_change_is_run_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    monkeypatch.setattr(transaction, "MOST_WAITING", 0)
    other = Seen("other")

    def guilty(tx: Transaction) -> None:
        memories.save(tx, draft("broken", "apple"), timedelta())

    async def test(database: SqliteEngine) -> None:
        await save(database, "before")
        await database.write(OPERATOR, guilty)
        with closing(connect(path)) as damaging:
            damaging.execute(f"UPDATE {table(1)}_data SET block = x'00' WHERE id = 10")
        (error, answer) = await together(database, [guilty, other])
        assert isinstance(error, Refusal)
        assert answer == "other"

    run(path, test)
    assert other.alone == [False, True]
    assert rows(path, "SELECT content FROM memories ORDER BY id") == [
        ("before",), ("apple",), ("other",),
    ]  # fmt: skip


async def test_the_quota_counts_what_those_before_in_the_batch_put_in(path: Path) -> None:
    words = " ".join(f"word{n}" for n in range(6000))

    async def filled(database: SqliteEngine) -> None:
        await save(database, "before")
        sizes = await together(
            database,
            [
                lambda tx: tx.room,
                lambda tx: memories.save(tx, draft("demo", words), timedelta()),
                lambda tx: tx.room,
            ],
        )
        left = await database.write(OPERATOR, lambda tx: tx.room)
        assert isinstance(sizes[0], int)
        assert isinstance(left, int)
        assert sizes[2] == left
        assert sizes[0] - left > 2 * len(words)  # the text, and its words in the index

    async with SqliteEngine.opened(path, clock=Clock(), quota=50_000_000) as database:
        await filled(database)


SAID = st.tuples(
    st.just("save"), st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["yes", "on Friday", "went by HTTPServer", "数据库 café", "long " * 90, ""]),
    st.sampled_from(["s1", "s2"]), st.sampled_from(["project", "team", "global"]),
)  # fmt: skip
CHANGED = st.tuples(st.sampled_from(["amend", "forget", "erase", "search"]), st.integers(1, 12))
DEEDS = st.tuples(st.one_of(SAID, SAID, SAID, CHANGED), st.integers(0, 4).map(lambda it: it == 0))


@pytest.mark.slow
@FEW
@given(batches=st.lists(st.lists(DEEDS, min_size=1, max_size=8), min_size=1, max_size=4))
def test_the_index_is_whole_after_any_batches(batches: list[list[Any]]) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(document, "MOST_PROJECTS", 2)
        path = Path(folder) / "memory.db"

        async def test(database: SqliteEngine) -> None:
            for batch in batches:
                answers = await together(database, [work(deed, fails) for deed, fails in batch])
                refused = [it for it in answers if isinstance(it, BaseException)]
                assert {type(it) for it in refused} <= {ValueError, NotFound}

        run(path, test)
        assert_index_is_whole(path)


def work(deed: tuple[Any, ...], fails: bool) -> Work:
    """The deed, and then perhaps an error."""
    what, first, *rest = deed
    done: Work = {
        "save": lambda tx: memories.save(
            tx, draft(first, f"{first} {rest[0]}", f"{first}{rest[1]}", rest[2]), timedelta()
        ),
        "amend": lambda tx: saves.amend(tx, MemoryId(first), Change(content="amended")),
        "forget": lambda tx: saves.forget(tx, MemoryId(first)),
        "erase": lambda tx: saves.erase(tx, MemoryId(first)),
        "search": found("friday", "a"),
    }[what]
    return both(done, FAIL) if fails else done


TEXTS = st.text(st.sampled_from("abé数据_. -\nHTTPServer went\u0301"), max_size=60)


@FEW
@given(
    title=TEXTS, content=st.one_of(TEXTS, st.text("ab \n", min_size=200, max_size=400)),
    tags=st.lists(TEXTS, max_size=3), before=st.lists(TEXTS, max_size=2),
)  # fmt: skip
def test_columns_are_those_that_the_view_reads(
    title: str, content: str, tags: list[str], before: list[str]
) -> None:
    with closing(connect(Path(":memory:"))) as database:
        older, newer = ([None, None] + [it.encode() for it in before])[-2:]
        read = database.execute(
            """SELECT indexed_text(:title), indexed_text(:content),
                      CASE WHEN borrows(:content) THEN borrowed(:older, :newer) ELSE '' END,
                      indexed_tags(:tags)""",
            {
                "title": title.encode(), "content": content.encode(), "older": older,
                "newer": newer, "tags": _array(tags),
            },
        ).fetchone()  # fmt: skip

    assert columns(title, content, tags, map(End, before)) == read


def _array(tags: list[str]) -> bytes:
    return json.dumps(tags, ensure_ascii=False).encode()


def test_what_a_large_transaction_ends_with_is_known_to_the_next_that_borrows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MOST_NEW", 1)  # so that it is large
    reads: list[str] = []

    async def test(database: SqliteEngine) -> None:
        await save(database, "yes")
        await save(database, "no")
        await database.write(OPERATOR, tracing)
        for content in ("yes", "no"):
            await save(database, content)

    def tracing(tx: SqliteTransaction) -> None:
        tx._connection.set_trace_callback(reads.append)  # noqa: SLF001

    run(path, test)
    assert not [it for it in reads if "INDEXED BY memories_in_session" in it]
    assert_index_is_whole(path)


def test_what_another_process_changes_between_two_saves_is_what_the_next_borrows(
    path: Path,
) -> None:
    async def test(database: SqliteEngine) -> None:
        for content in ("apple one", "apple two"):
            await save(database, content)
        with closing(connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            tx = SqliteTransaction(other, NOW, OPERATOR)
            saves.amend(tx, MemoryId(2), Change(content="pear two"))
            other.execute("COMMIT")
        await save(database, "yes")
        assert await database.write(OPERATOR, found("pear")) == [2, 3]

    run(path, test)
    assert_index_is_whole(path)


def test_a_session_that_another_process_gave_to_another_project_is_warned_of(path: Path) -> None:
    def saving_one(tx: Transaction) -> str | None:
        return memories.save(tx, draft("demo", "apple"), timedelta()).warning

    async def test(database: SqliteEngine) -> None:
        assert await database.write(OPERATOR, saving_one) is None
        assert await database.write(OPERATOR, saving_one) is None
        rows(path, "UPDATE sessions SET project = 'other'")
        assert "other" in str(await database.write(OPERATOR, saving_one))

    run(path, test)
