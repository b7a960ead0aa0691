"""An index that was made by other rules is made anew at the start, whole or not at all."""

from pathlib import Path

import pytest

from agentops_memory.errors import StartRefused
from agentops_memory.memory.space import MOST_PROJECTS
from agentops_memory.recall.stems import INDEX_RULES
from agentops_memory.sqlite.migrate import migrated

from ..support.engines import rows
from ..support.files import NOW, assert_index_is_whole, old_texts
from ..support.original import original
from ..support.service import Service, observation, serving

# Other rules


def told(service: Service) -> None:
    service.save("when comes the zebra", title="question")
    service.save("on Friday", title="answer")
    service.save("max_connections", title="name", session_id="s2", tags=["walrus"])
    service.save("数据库连接池", title="pairs", session_id="s3")
    service.save("gone fishing", title="irregular", session_id="s4")
    service.save("word " * 100, title="long", session_id="s1")


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
    assert rows(path, "SELECT rules FROM index_rules") == [(INDEX_RULES,)]


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


@pytest.mark.slow
def test_a_process_by_other_rules_is_refused_its_writes(path: Path) -> None:
    with serving(path) as old:
        old.save("secret plan", tags=["hidden"])
        rows(path, "UPDATE index_rules SET rules = 'others'")

        refused = [
            old.http.post("/observations", json=observation("another")),
            old.http.patch("/observations/1", json={"content": "other"}),
            old.http.delete("/observations/1"),
        ]

        assert [answer.status_code for answer in refused] == [503] * 3
        assert "other rules" in refused[0].json()["error"]
        assert [hit["id"] for hit in old.http.get("/search?q=secret").json()] == [1]
    with serving(path) as new:
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
