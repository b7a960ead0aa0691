"""Records as rows: what is declared of each field is selected, read, and written."""

import dataclasses
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import agentops_memory
from agentops_memory import light as ours
from agentops_memory.memory.rows import RowMapper


def _declared() -> Iterator[RowMapper[Any]]:
    for module in walk_packages(agentops_memory.__path__, "agentops_memory."):
        if module.name.split(".")[1] in {"memory", "stores", "openintent", "openwop"}:
            found = vars(import_module(module.name)).values()
            yield from (it for it in found if isinstance(it, RowMapper))


def test_every_record_says_of_each_field_how_it_is_stored() -> None:
    declared = list(_declared())
    assert len(declared) > 10
    assert all(map(str, declared))  # which fails for a field of another type


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
