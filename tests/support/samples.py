"""Cases of a kind of which some run each time, and the others where there is time for all."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def sampled(
    cases: Iterable[Any],
    of: int,
    *,
    first: int = 0,
    kept: Collection[pytest.MarkDecorator] = (),
    id_: Callable[[Any], str] | None = None,
) -> list[ParameterSet]:
    """Every so many-th case, with these marks, and all between them as heavy.

    The cases of a kind that one in so many represents: neighbours are damaged, said or hidden by
    the same means.
    """
    return [
        pytest.param(
            case,
            marks=kept if number % of == first else pytest.mark.heavy,
            id=None if id_ is None else id_(case),
        )
        for number, case in enumerate(cases)
    ]
