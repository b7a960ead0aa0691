"""An index that was made by other rules is made anew at the start, whole or not at all."""

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agentops_memory.errors import StartRefused
from agentops_memory.memory.space import MOST_PROJECTS
from agentops_memory.recall.features import ALL, INDEXED, Feature
from agentops_memory.recall.stems import rules
from agentops_memory.recall.text import borrowed, borrows
from agentops_memory.sqlite.connection import APPLICATION_ID, connect
from agentops_memory.sqlite.migrate import migrated, statements

from ..support.another import another
from ..support.engines import rows
from ..support.files import NOW, assert_index_is_whole, assert_sound, beside, old_texts
from ..support.original import original
from ..support.process import run
from ..support.recall import search, titles
from ..support.service import Service, observation, serving

# Other techniques


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("without", sorted(INDEXED - {Feature.PRIOR}))
def test_a_file_made_without_a_technique_is_indexed_anew_with_it(path: Path, without: str) -> None:
    with serving(path, MEMORY_RECALL_WITHOUT=without) as service:
        told(service)
        plain = found_by_all(service)

    with serving(path) as service:
        assert found_by_all(service) == WITH_ALL != plain
    assert_index_is_whole(path)

    with serving(path, MEMORY_RECALL_WITHOUT=without) as service:
        assert found_by_all(service) == plain


@pytest.mark.slow
def test_a_technique_of_reading_leaves_the_index_as_it_is(path: Path) -> None:
    with serving(path) as service:
        told(service)
    before = rows(path, "SELECT * FROM memories_fts_0_data")

    without = "typos,sentences,sentence-length,questions,stopwords,any-word"
    with serving(path, MEMORY_RECALL_WITHOUT=without) as service:
        assert titles(search(service, "zebra")) == ["question"]

    assert rows(path, "SELECT * FROM memories_fts_0_data") == before


def told(service: Service) -> None:
    service.save("when comes the zebra", title="question")
    service.save("on Friday", title="answer")
    service.save("max_connections", title="name", session_id="s2", tags=["walrus"])
    service.save("数据库连接池", title="pairs", session_id="s3")
    service.save("gone fishing", title="irregular", session_id="s4")
    service.save("word " * 100, title="long", session_id="s1")


# What finds which, when nothing is left out.
WITH_ALL = {
    "zebra": {"question", "answer"}, "walrus": {"name"}, "maxconnections": {"name"},
    "据库": {"pairs"}, "friday": {"answer"}, "went": {"irregular"},
}  # fmt: skip


def found_by_all(service: Service) -> dict[str, set[str]]:
    return {text: set(titles(search(service, text, project="demo"))) for text in WITH_ALL}


def test_the_rules_of_neighbours_can_be_left_out() -> None:
    long = "word " * 81

    assert [borrows(long), borrows("word " * 80)] == [False, True]
    assert borrows(long, ALL - {Feature.CONTEXT_GUARD})
    assert not borrows("short", ALL - {Feature.CONTEXT})
    assert not borrows(long, ALL - {Feature.CONTEXT, Feature.CONTEXT_GUARD})
    assert borrowed(["one", "", "two"]) == "one\n\ntwo"


# Other rules


@pytest.mark.slow
@pytest.mark.parametrize(
    "mark",
    [
        "DELETE FROM index_rules",
        "UPDATE index_rules SET rules = replace(rules, 'Unicode 1', 'Unicode 0')",
        "UPDATE index_rules SET rules = replace(rules, 'prior 1500', 'prior 999')",
    ],
)
def test_an_index_without_a_mark_or_with_another_is_made_anew(path: Path, mark: str) -> None:
    with serving(path) as service:
        told(service)
    rows(path, "DELETE FROM memories_fts_0_docsize")
    migrated(path, NOW)
    with pytest.raises(AssertionError):
        assert_index_is_whole(path)

    rows(path, mark)
    migrated(path, NOW)

    assert_index_is_whole(path)
    assert rows(path, "SELECT rules FROM index_rules") == [(rules(),)]


@pytest.mark.slow
def test_projects_lie_in_as_few_partitions_as_there_need_be_when_all_are_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentops_memory.recall.visibility.MOST_PROJECTS", 1)
    with serving(path) as service:
        for number in range(20):
            service.save("apple", project=f"p{number}")
            service.save("apple for all", project=f"p{number}", scope="global")
    monkeypatch.undo()
    rows(path, "DELETE FROM index_rules")

    migrated(path, NOW)

    places = "SELECT partition, count(*) FROM spaces WHERE area <> 0 GROUP BY partition"
    assert rows(path, places) == [
        (0, MOST_PROJECTS), (1, MOST_PROJECTS), (2, 20 - 2 * MOST_PROJECTS),
    ]  # fmt: skip
    assert rows(path, "SELECT number FROM partitions") == [(0,), (1,), (2,)]
    assert_index_is_whole(path)


# The first format


@pytest.mark.heavy
def test_a_file_of_the_first_format_is_brought_to_the_second(path: Path) -> None:
    first_format(path)

    migrated(path, NOW)

    assert_sound(path, live=39)
    assert rows(path, "SELECT number FROM partitions") == [(0,), (1,)]
    assert beside(path) == []
    with serving(path) as service:
        everywhere = {"g0", "g1", "g2"}
        for text in ("apple", "appel", "zebra", "walrus"):
            found = set(titles(search(service, text, project="p3")))
            assert found == everywhere | {"p3", "p3 team", "p3 own"}
            assert set(titles(search(service, text, project="never"))) == everywhere
        assert search(service, "mulberry") == []
        service.http.delete("/observations/1", params={"hard": "true"})
        service.save("apple of a new one", title="new", project="p12")
    assert_index_is_whole(path)


@pytest.mark.slow
def test_a_file_of_the_first_format_may_be_empty(path: Path) -> None:
    with at_first_format(path):
        pass

    migrated(path, NOW)

    assert_sound(path, live=0)
    with serving(path) as service:
        service.save("apple")
    assert_sound(path, live=1)


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("point", ["make_all", "drop_all", "rebuild", "COMMIT"])
def test_an_index_whose_making_is_killed_is_used_as_it_was(path: Path, point: str) -> None:
    with serving(path, MEMORY_RECALL_WITHOUT="context") as service:
        told(service)

    killed_at(path, point)

    before = rows(path, "SELECT * FROM memories_fts_0_data")
    with serving(path, MEMORY_RECALL_WITHOUT="context") as service:
        assert found_by_all(service) == WITH_ALL | {"zebra": {"question"}}
    assert rows(path, "SELECT * FROM memories_fts_0_data") == before
    with serving(path) as service:
        assert found_by_all(service) == WITH_ALL
    assert_index_is_whole(path)


# Helpers


@contextmanager
def at_first_format(path: Path) -> Iterator[sqlite3.Connection]:
    """A new file as the first migration leaves it, to write into."""
    with closing(connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        for statement in statements(1):
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute("PRAGMA user_version = 1")
        yield database


def first_format(path: Path) -> None:
    """A file of the first format: twelve projects, a team in each, global and deleted memories."""
    with at_first_format(path) as database:
        for space, (project, scope, title) in enumerate(spaces(), 1):
            database.execute("INSERT INTO spaces VALUES (?, ?, ?)", (space, project, scope))
            database.execute(
                "INSERT OR IGNORE INTO sessions (id, project, started_at) VALUES (?, ?, 0)",
                (f"s-{project}", project),
            )
            for at, content in enumerate((f"apple {title} zebra", "the mulberry")):
                database.execute(
                    """INSERT INTO memories (uid, space_id, session_id, type, title, content, tags,
                                             content_hash, last_seen_at, created_at, updated_at,
                                             deleted_at)
                       VALUES (?, ?, ?, 't', ?, ?, '["walrus"]', '', 0, 0, 0, ?)""",
                    (f"{title} {at}", space, f"s-{project}", title, content, 0 if at else None),
                )
        database.execute("INSERT INTO memories_fts (memories_fts) VALUES ('rebuild')")


def spaces() -> Iterator[tuple[str, str, str]]:
    """The spaces of that file, and the title of the memories in each."""
    for number in range(3):
        yield f"p{number}", "global", f"g{number}"
    for number in range(12):
        for scope, title in (("project", ""), ("team", " team"), ("personal", " own")):
            yield f"p{number}", scope, f"p{number}{title}"


KILLED = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from agentops_memory.sqlite import partitions
from agentops_memory.sqlite import migrate

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

point = sys.argv[2]
if point == "COMMIT":
    connect = migrate.connect
    def traced(*args, **options):
        database = connect(*args, **options)
        database.set_trace_callback(lambda text: kill() if text == "COMMIT" else None)
        return database
    migrate.connect = traced
else:
    setattr(partitions.Partitions, point, kill)
migrate.migrated(Path(sys.argv[1]), datetime.now(UTC))
"""


def killed_at(path: Path, point: str) -> None:
    """A start in a process that is killed when it comes to the point."""
    assert run(str(path), point, code=KILLED).returncode == -signal.SIGKILL


@pytest.mark.heavy
def test_a_process_by_other_rules_is_refused_its_writes(path: Path) -> None:
    with serving(path) as old:
        old.save("secret plan", tags=["hidden"])
        with another(path, MEMORY_RECALL_WITHOUT="context,tags"):
            pass

        refused = [
            old.http.post("/observations", json=observation("another")),
            old.http.patch("/observations/1", json={"content": "other"}),
            old.http.delete("/observations/1"),
        ]

        assert [answer.status_code for answer in refused] == [503] * 3
        assert "other rules" in refused[0].json()["error"]
        assert [hit["id"] for hit in old.http.get("/search?q=secret").json()] == [1]
    with serving(path, MEMORY_RECALL_WITHOUT="context,tags") as new:
        assert new.http.delete("/observations/1").status_code == 204
        assert new.http.get("/search?q=secret").json() == []


@pytest.mark.parametrize("used", [1 << 40, (1 << 40) + 5, 1 << 62])
def test_a_file_whose_ids_are_too_large_for_the_index_is_refused(path: Path, used: int) -> None:
    with original(path) as old:
        old.observation("zebra")
        old.database.execute("UPDATE observations SET id = ?", (used,))
    before = old_texts(path)

    with pytest.raises(StartRefused, match="ids must be below 1,099,511,627,776"):
        migrated(path, NOW)

    assert old_texts(path) == before
