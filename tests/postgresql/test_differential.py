"""Two services answer the same requests with the same bytes, whatever their storage."""

from pathlib import Path

import pytest

from ..differential.names import Names
from ..differential.pair import Pair, paired
from ..differential.play import play


def test_requests_of_all_protocols_are_answered_alike(tmp_path: Path, postgresql: str) -> None:
    with paired(tmp_path, postgresql) as pair:
        play(pair, 1, 60)
    assert told(pair) == []


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("seed", "requests"),
    [(4, 500), (1, 1_500), (2, 1_500), (3, 1_500)],
)
def test_many_requests_of_all_protocols_are_answered_alike(
    tmp_path: Path, postgresql: str, seed: int, requests: int
) -> None:
    with paired(tmp_path, postgresql) as pair:
        play(pair, seed, requests)
    assert told(pair) == []


@pytest.mark.heavy
def test_a_score_that_differs_a_little_is_seen(tmp_path: Path) -> None:
    with paired(tmp_path, MEMORY_RECALL_WITHOUT="following") as pair:
        play(pair, 1, 60)
    assert told(pair) != []


def test_ids_are_the_same_if_they_first_appeared_at_the_same_place() -> None:
    uids = [f"{number}" * 32 for number in range(1, 4)]
    first, second = Names(), Names()
    assert first.naming(1)(f"mem_{uids[0]} {uids[1]}") == second.naming(1)(
        f"mem_{uids[2]} {uids[0]}"
    )
    assert first.naming(2)(uids[0]) == second.naming(2)(uids[2])
    assert first.naming(3)(uids[0]) != second.naming(3)(uids[0])
    named = first.naming(4)('{"id":8,"supersedes":[9,8]}')
    assert second.naming(4)('{"id":1,"supersedes":[2,1]}') == named
    assert first.real(named) == '{"id":8,"supersedes":[9,8]}'


def told(pair: Pair) -> list[str]:
    """The differences, as they are shown."""
    return [str(it) for it in pair.differences]
