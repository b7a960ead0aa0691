"""A word is judged alike in a project alone and in company: by a prior in each partition."""

from pathlib import Path

import pytest

from agentops_memory.recall.query import understood
from agentops_memory.recall.text import indexed
from agentops_memory.recall.visibility import PRIOR
from agentops_memory.sqlite.dialect import PRIOR_TEXT

from ..support.engines import rows
from ..support.files import assert_index_is_whole
from ..support.recall import search
from ..support.service import Service, serving
from ..support.stores import entry, store

TEXTS = (
    "Ada likes apples and the sea", "Ada walks with Ben by the sea", "Ben writes to Ada",
    "Ada and Ben plan a trip to the lake", "Ada sold the boat", "Ben asks Ada about apples",
)  # fmt: skip


def best_rank(service: Service, text: str) -> float:
    return float(search(service, text, project="demo", limit=20)[0]["rank"])


def test_a_word_that_each_memory_of_a_lone_project_has_still_counts(service: Service) -> None:
    for text in TEXTS:
        service.save(text, session_id=text)

    assert best_rank(service, "Ada") < -1


def test_no_search_finds_the_prior(service: Service) -> None:
    service.save("one \ufe00 two")

    for text in ("\ufe00", "\ufe00 two", " ".join(["\ufe00"] * 9), "*", '""'):
        assert len(search(service, text)) <= 1
    assert search(service, "two")[0]["id"] == 1
    assert len(search(service, "two", limit=1000)) == 1


def test_the_word_of_the_prior_is_in_no_text_and_in_no_query() -> None:
    assert indexed(PRIOR_TEXT).split() == []
    assert not understood(PRIOR_TEXT)


@pytest.mark.sqlite_files
@pytest.mark.parametrize(("without", "count"), [("prior", 0), ("typos", 1500)])
def test_partitions_of_projects_and_of_stores_have_it(path: Path, without: str, count: int) -> None:
    with serving(path, MEMORY_RECALL_WITHOUT=without) as service:
        service.save("one")
        assert path.stat().st_size < 1_000_000
        entry(service.http, store(service.http), "a.md", "one")

        for number in (0, 1024):
            behind = f"SELECT count(*) FROM memories_fts_{number}_docsize WHERE id >= {PRIOR}"
            assert rows(service.path, behind) == [(count,)]


@pytest.mark.slow
def test_the_prior_can_be_left_out(path: Path) -> None:
    with serving(path, MEMORY_RECALL_WITHOUT="prior") as service:
        for text in TEXTS:
            service.save(text, session_id=text)
        assert best_rank(service, "Ada") > -1e-5
    with serving(path) as service:  # the index is rebuilt
        assert best_rank(service, "Ada") < -1
        assert_index_is_whole(service.path)
