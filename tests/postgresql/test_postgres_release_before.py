"""A pod of the release before writes beside ours: it expects a row of each memory's revision."""

import pytest

from ..support.pods import Pods, one
from ..support.service import observation

__all__ = ["one"]


@pytest.fixture
def pod(one: Pods) -> Pods:
    one.services[0].save("The first text.")
    return one


def history(pod: Pods) -> list[tuple[int, str, str | None]]:
    revisions = pod.http.get("/observations/1/history").json()
    return [(it["revision"], it["action"], it.get("content")) for it in revisions]


# What it does to the only memory: with a row of its revision, which it takes for there.
OTHERS: dict[str, tuple[str, list[tuple[int, str, str | None]]]] = {
    "amends it": (
        """UPDATE revisions SET type = 'kept' WHERE memory_id = 1 AND type IS NULL;
           UPDATE memories SET content = 'The second.', revision = 2,
                               updated_at = updated_at + 1000000;
           INSERT INTO revisions (memory_id, number, deed, at)
           SELECT id, 2, 'updated', updated_at FROM memories""",
        [(2, "updated", "The second."), (1, "created", "The first text.")],
    ),
    "deletes it": (
        """UPDATE memories SET revision = 2, deleted_at = updated_at;
           INSERT INTO revisions (memory_id, number, deed, at)
           SELECT id, 2, 'deleted', deleted_at FROM memories""",
        [(2, "deleted", None), (1, "created", "The first text.")],
    ),
    "imports an older state": (
        """UPDATE revisions SET number = number + 1 WHERE memory_id = 1 AND number = 1;
           UPDATE memories SET revision = revision + 1;
           INSERT INTO revisions (memory_id, number, deed, at, type, title, content, tags)
           SELECT id, 1, 'updated', updated_at - 1000000, type, title, 'Older.', tags
             FROM memories""",
        [(2, "created", "The first text."), (1, "updated", "Older.")],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("change", "told"), OTHERS.values(), ids=OTHERS)
def test_no_text_is_lost_when_it_changes_a_memory_of_ours(
    pod: Pods, change: str, told: list[tuple[int, str, str | None]]
) -> None:
    assert pod.rows("SELECT count(*) FROM revisions") == [(0,)]

    for statement in change.split(";"):
        pod.rows(statement)

    assert history(pod) == told


@pytest.mark.slow
def test_a_memory_that_we_change_has_each_revision_once(pod: Pods) -> None:
    pod.http.patch("/observations/1", json=observation("The second."))

    assert history(pod) == [(2, "updated", "The second."), (1, "created", "The first text.")]
    assert pod.rows("SELECT number FROM revisions ORDER BY number") == [(1,), (2,)]
