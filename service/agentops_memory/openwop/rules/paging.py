"""Which of the entries in a list an answer gives: within a limit, a budget and its size. Pure."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

MAX_READ = 2 * 1024 * 1024  # bytes of the contents that are read for one answer, which has less


def fitting(
    listed: Iterable[T],
    *,
    limit: int,
    budget: int | None,
    size: Callable[[T], int],
    length: Callable[[T], int],
) -> tuple[list[T], bool]:
    """The first that fit, and whether there are more to go on with.

    One that alone exceeds the budget is left out; of the others the longest prefix whose
    lengths add up to no more than it (RFC 0113).
    """
    chosen: list[T] = []
    room, left = MAX_READ, budget
    for each in listed:
        if budget is not None and length(each) > budget:
            continue
        room -= size(each)
        left = None if left is None else left - length(each)
        if len(chosen) == limit or room < 0 or (left is not None and left < 0):
            return chosen, True
        chosen.append(each)
    return chosen, False
