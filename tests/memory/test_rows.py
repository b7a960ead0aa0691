"""Records as rows: what is declared of each field is selected, read, and written."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from agentops_memory import light as ours

Decorator = Callable[..., Any]


def point_class(decorator: Decorator, **options: bool) -> Any:
    """A class of the same fields, by either decorator."""

    @decorator(**options)
    class Point:
        x: int
        hidden: str = dataclasses.field(default="secret", repr=False)
        beside: list[int] = dataclasses.field(default_factory=list, compare=False)

    return Point


OPTIONS = [
    {"frozen": True, "slots": True, "kw_only": True}, {"frozen": True}, {"slots": True}, {},
    {"eq": False}, {"frozen": True, "eq": False},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_compare_hash_copy_and_show_as_those_of_the_standard_decorator(
    options: dict[str, bool],
) -> None:
    def answers(decorator: Decorator) -> list[object]:
        point, other = (point_class(decorator, **options) for _ in range(2))
        one, circle = point(x=1), point(x=3)
        copy = dataclasses.replace(one, x=2)
        circle.beside.append(circle)
        are_hashable = point.__hash__ is not None
        return [
            one == point(x=1), one == point(x=1, beside=[2]), one == point(x=2), one == other(x=1),
            one == point(x=1, hidden="other"), one != point(x=1), one == 1, are_hashable,
            are_hashable and len({one, point(x=1, beside=[2]), point(x=2)}),
            repr(copy), repr(circle), dataclasses.asdict(copy), hasattr(copy, "__dict__"),
            [it.name for it in dataclasses.fields(point)], point.__match_args__,
        ]  # fmt: skip

    assert answers(ours.dataclass) == answers(dataclasses.dataclass)
