"""Cases of a kind of which some run each time, and the others where there is time for all."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, settings

NIGHTLY = "nightly"  # the profile of Hypothesis: --hypothesis-profile=nightly


def sampled(
    cases: Iterable[Any], of: int, *, first: int = 0, kept: Collection[pytest.MarkDecorator] = (),
    id_: Callable[[Any], str] | None = None,
) -> list[ParameterSet]:  # fmt: skip
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


Test = Callable[..., None]


def for_each(names: str, cases: Iterable[Any]) -> Callable[[Test], Test]:
    """As `parametrize`, but one test of all cases, which share its fixtures.

    So no case may hinder another. A failure has the case as a note.
    """

    def looping(test: Test) -> Test:
        given = [name.strip() for name in names.split(",")]
        whole, rest = [*cases], inspect.signature(test)

        @functools.wraps(test)
        def loop(**fixtures: Any) -> None:
            for case in whole:
                values = case if len(given) > 1 else [case]
                values = case.values if isinstance(case, ParameterSet) else values
                try:
                    test(**fixtures, **dict(zip(given, values, strict=True)))
                except BaseException as failure:
                    failure.add_note(f"with {names} = {case!r}")
                    raise

        fixtures = [it for name, it in rest.parameters.items() if name not in given]
        loop.__signature__ = rest.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return loop

    return looping


def represent(items: Sequence[pytest.Item]) -> None:
    """Of a test that is marked so, the cases that `representative(number)` does not take are heavy.

    It takes cases that differ from each other in every parameter, as on the diagonal of a grid.
    """
    for _, of_test in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        cases = [item for item in of_test if isinstance(item, pytest.Function)]
        if mark := cases and cases[0].get_closest_marker("representative"):
            taken = {*diagonal([it.callspec.indices for it in cases], *mark.args)}
            for number, case in enumerate(cases):
                if number not in taken:
                    case.add_marker(pytest.mark.heavy)


def diagonal(cells: Sequence[Mapping[str, int]], number: int) -> Iterator[int]:
    """So many places in the sequence, of cells that have as few values in common as can be."""
    left, seen = {*range(len(cells))}, set[tuple[str, int]]()
    for turn in range(min(number, len(cells))):
        evenly = turn * len(cells) // number
        best = max(
            left, key=lambda at: (len(cells[at].items() - seen), -((at - evenly) % len(cells)))
        )
        left.remove(best)
        seen |= cells[best].items()
        yield best


def examples(number: int) -> settings:
    """So many examples of a property at night, other ones each time; else the same few of them."""
    nightly = settings.get_current_profile_name() == NIGHTLY
    return settings(
        max_examples=number if nightly else max(3, number // 5), derandomize=not nightly,
        deadline=None, database=None, suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def budgets() -> None:
    """The same for properties that name no number."""
    settings.register_profile(NIGHTLY, examples(100), max_examples=500, derandomize=False)
    settings.register_profile("each time", examples(100))
    settings.load_profile("each time")
