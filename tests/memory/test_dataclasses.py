"""Our dataclasses behave as the standard ones."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from agentops_memory import light as ours

Decorator = Callable[..., Any]


def made(decorator: Decorator, **options: bool) -> Any:
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
def test_objects_compare_and_hash_as_those_of_the_standard_decorator(
    options: dict[str, bool],
) -> None:
    def answers(decorator: Decorator) -> list[object]:
        point, other = made(decorator, **options), made(decorator, **options)
        one = point(x=1)
        are_hashable = point.__hash__ is not None
        return [
            one == point(x=1), one == point(x=1, beside=[2]), one == point(x=2), one == other(x=1),
            one == point(x=1, hidden="other"), one != point(x=1), one == 1, are_hashable,
            are_hashable and len({one, point(x=1, beside=[2]), point(x=2)}),
        ]  # fmt: skip

    assert answers(ours.dataclass) == answers(dataclasses.dataclass)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_are_shown_and_copied_as_those_of_the_standard_decorator(
    options: dict[str, bool],
) -> None:
    def answers(decorator: Decorator) -> list[object]:
        point = made(decorator, **options)
        copy = dataclasses.replace(point(x=1), x=2)
        circle = point(x=3)
        circle.beside.append(circle)
        return [
            repr(copy), repr(circle), dataclasses.asdict(copy), hasattr(copy, "__dict__"),
            [it.name for it in dataclasses.fields(point)], point.__match_args__,
        ]  # fmt: skip

    assert answers(ours.dataclass) == answers(dataclasses.dataclass)
