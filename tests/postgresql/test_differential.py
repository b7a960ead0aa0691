"""Two services answer the same requests with the same bytes, whatever their storage."""

from pathlib import Path

import pytest

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


def told(pair: Pair) -> list[str]:
    """The differences, as they are shown."""
    return [str(it) for it in pair.differences]
