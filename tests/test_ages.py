"""Ages in words, rounded down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentops_memory_client.contract.ages import UNITS, age_suffix, age_words

from .requirements import requirement

DAY = 86_400
AGES = {
    -5: "just now", 0: "just now", 59.9: "just now", 60: "1 minute", 5 * 60: "5 minutes",
    3599: "59 minutes", 3600: "1 hour", 3 * 3600: "3 hours", DAY - 1: "23 hours", DAY: "1 day",
    2 * DAY: "2 days", 7 * DAY - 1: "6 days", 7 * DAY: "1 week", 21 * DAY: "3 weeks",
    30 * DAY - 1: "4 weeks", 30 * DAY: "1 month", 150 * DAY: "5 months",
    365 * DAY - 1: "12 months", 365 * DAY: "1 year", 730 * DAY: "2 years",
}  # fmt: skip


@requirement("life:12:words")
@pytest.mark.parametrize(("seconds", "words"), AGES.items())
def test_an_age_is_told_in_its_largest_whole_unit(seconds: float, words: str) -> None:
    assert age_words(seconds) == words


def test_an_age_stands_behind_a_title() -> None:
    assert age_suffix(21 * DAY) == " (3 weeks old)"
    assert age_suffix(0) == " (just now)"


@given(st.floats(60, 1e11))
def test_an_age_is_never_rounded_up_and_by_less_than_a_unit(seconds: float) -> None:
    count, unit = age_words(seconds).split()
    length = next(length for length, name in UNITS if name == unit.removesuffix("s"))

    assert int(count) * length <= seconds < (int(count) + 1) * length
