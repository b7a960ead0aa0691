"""A pod of the release before writes beside ours: it expects a row of each memory's revision."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.pods import Pods, pods
from ..support.service import observation


@pytest.fixture
def pod(tmp_path: Path, postgresql: str) -> Iterator[Pods]:
    with pods(tmp_path / "postgresql", postgresql, count=1) as one:
        one.services[0].save("The first text.")
        yield one


def history(pod: Pods) -> list[tuple[int, str, str | None]]:
    revisions = pod.http.get("/observations/1/history").json()
    return [(it["revision"], it["action"], it.get("content")) for it in revisions]


def test_the_first_text_is_kept_when_it_changes_a_memory_of_ours(pod: Pods) -> None:
    pod.rows("UPDATE revisions SET type = 'kept' WHERE memory_id = 1 AND type IS NULL")
    pod.rows("""UPDATE memories SET content = 'The second.', revision = 2,
                                    updated_at = updated_at + 1000000""")
    pod.rows("""INSERT INTO revisions (memory_id, number, deed, at)
                SELECT id, 2, 'updated', updated_at FROM memories""")

    assert history(pod) == [(2, "updated", "The second."), (1, "created", "The first text.")]


def test_an_older_state_that_it_imports_precedes_the_text_of_a_memory_of_ours(pod: Pods) -> None:
    pod.rows("UPDATE revisions SET number = number + 1 WHERE memory_id = 1 AND number = 1")
    pod.rows("UPDATE memories SET revision = revision + 1")
    pod.rows("""INSERT INTO revisions (memory_id, number, deed, at, type, title, content, tags)
                SELECT id, 1, 'updated', updated_at - 1000000, type, title, 'Older.', tags
                  FROM memories""")

    assert history(pod) == [(2, "created", "The first text."), (1, "updated", "Older.")]


def test_a_memory_that_we_change_has_each_revision_once(pod: Pods) -> None:
    pod.http.patch("/observations/1", json=observation("The second."))

    assert history(pod) == [(2, "updated", "The second."), (1, "created", "The first text.")]
    assert pod.rows("SELECT number FROM revisions ORDER BY number") == [(1,), (2,)]
