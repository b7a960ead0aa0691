"""When words take too long the newest memories stand in for the best, and nothing fails."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import TimedOut
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.search import Filter
from agentops_memory.postgresql import search as postgresql_search
from agentops_memory.recall.query import parse_query
from agentops_memory.sqlite import SqliteEngine, search as sqlite_search

from ..support.engine import run, save, slow_words
from ..support.recall import context, explained, search, titles
from ..support.service import Service, serving

OVER = timedelta(seconds=-1)
PROMPT = "Where do the apples grow? And the pears?"


@pytest.fixture(params=["0", "1ns"])
def hasty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Service]:
    """A service that never has time for words, with five memories of which the first fits best."""
    slow_words(tmp_path / "memory.db", monkeypatch)
    held = {"MEMORY_RECALL_LIMIT": request.param, "MEMORY_INDEX_CACHE": "0"}
    with serving(tmp_path / "memory.db", **held) as service:
        service.save("apples and pears grow here", title="best", session_id="s0")
        for number in range(1, 5):
            service.clock.advance(minutes=1)
            service.save(f"number {number}", title=f"n{number}", session_id=f"s{number}")
        yield service


@pytest.mark.slow
def test_the_newest_stand_in_for_the_best_and_no_read_fails(hasty: Service) -> None:
    hits = search(hasty, PROMPT, project="demo", limit=3)

    assert titles(hits) == ["n4", "n3", "n2"]
    assert context(hasty, PROMPT, limit=3) == ["n4", "n3", "n2"]
    for path, name in (("/search", "q"), ("/context", "query")):
        answer = explained(hasty, path, **{name: PROMPT, "project": "demo"})
        assert answer["explain"]["degraded"] is True
    # A text without words is answered as ever.
    assert (search(hasty, "?!"), context(hasty, "?!", limit=2)) == ([], ["n4", "n3"])
    assert explained(hasty, "/context", query="?!", project="demo")["explain"]["degraded"] is False

    hasty.save("secret", title="theirs", project="other")
    hasty.save("apples", title="all", project="other", scope="global")
    hasty.save("fix", title="fix", type="bugfix", tags=["core"])
    assert "theirs" not in titles(search(hasty, PROMPT, project="demo"))
    assert "theirs" not in context(hasty, PROMPT, limit=50)
    assert titles(search(hasty, PROMPT, project="demo", type="bugfix")) == ["fix"]
    assert context(hasty, PROMPT, tag="core") == ["fix"]
    assert titles(search(hasty, PROMPT, scope="global")) == ["all"]
    for text, narrowed in product(
        (PROMPT, "applez", "a/b", "数据库", "the"), ({}, {"tag": "none"})
    ):
        for path, name in (("/search", "q"), ("/context", "query"), ("/stats", "x")):
            asked = {name: text, "why_not": "1", **narrowed}
            assert hasty.http.get(path, params=asked).status_code == 200, (path, asked)


def test_words_leave_time_for_what_stands_in_for_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_words(path, monkeypatch)
    for module in (sqlite_search, postgresql_search):
        monkeypatch.setattr(module, "READ_LIMIT", module.RESERVED)
    with serving(path, MEMORY_RECALL_LIMIT="1h", MEMORY_INDEX_CACHE="0") as service:
        service.save("apples grow here", title="best", session_id="s0")
        service.save("newest", title="newest", session_id="s1")

        assert context(service, PROMPT, limit=1) == ["newest"]


def test_only_what_is_inside_is_limited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_words(path, monkeypatch)
    query = parse_query("apple")

    def within(tx: Transaction) -> int:
        with pytest.raises(TimedOut), tx.search.within(OVER):
            tx.search.best(query, Filter(), 5)
        with tx.search.within(OVER):
            pass
        return len(tx.search.best(query, Filter(), 5))

    async def test(database: SqliteEngine) -> None:
        await save(database, "apple")
        for _ in range(3):
            assert await database.read(OPERATOR, within) == 1

    run(path, test)
