"""Which cases of a test run each time, and how those of one test fail."""

from itertools import product

import pytest

from ..support.samples import diagonal, for_each


def test_a_case_that_fails_is_told_and_those_before_it_have_run() -> None:
    ran = list[object]()

    @for_each("one, other", [(1, 1), (1, 2), (1, 3)])
    @for_each("third", iter("ab"))
    def test(one: int, other: int, third: str, fixture: list[object]) -> None:
        fixture.append((one, other, third))
        assert one == other

    with pytest.raises(AssertionError) as failure:
        test(fixture=ran)

    assert failure.value.__notes__ == ["with third = 'a'", "with one, other = (1, 2)"]
    assert ran == [(1, 1, "a"), (1, 1, "b"), (1, 2, "a")]


def test_few_cells_of_a_grid_have_each_value_once() -> None:
    cells = [{"row": row, "column": column} for row, column in product(range(4), range(4))]

    taken = [cells[at] for at in diagonal(cells, 4)]

    assert {it["row"] for it in taken} == {it["column"] for it in taken} == {0, 1, 2, 3}


def test_few_cases_of_a_list_are_taken_from_all_of_it() -> None:
    assert [*diagonal([{"name": at} for at in range(90)], 3)] == [0, 30, 60]
