"""The table of what faults have taken: one row for each, and a loss that fails its test."""

import pytest

from .losses import Loss, Losses, table


def test_what_is_not_found_again_is_lost_and_fails_the_test_that_tells_of_it() -> None:
    told: list[tuple[str, object]] = []

    with pytest.raises(AssertionError, match="'b'"):
        Losses(told)("a fault", acknowledged=["a", "b"], found={"a", "c"})

    assert told == [("loss", ("a fault", 2, 1, 1, ""))]


def test_each_fault_has_a_line_under_one_heading() -> None:
    losses = [
        Loss(fault="kill -9", acknowledged=1204, found=1204, lost=0, remark="in 3 rounds"),
        Loss(fault="a full disk", acknowledged=7, found=6, lost=1, remark=""),
    ]

    assert [*table(losses)] == [
        "fault        acknowledged  found again  lost",
        "kill -9             1,204        1,204     0  in 3 rounds",
        "a full disk             7            6     1",
    ]
