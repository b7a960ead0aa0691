"""Parts of lists that run from high ids to low ones."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from ...domain.model.stores import Page, Slice, Span
from .rows import micros

T = TypeVar("T")


def window(page: Page, column: str) -> str:
    """The condition that the ids in a column are those of a page, with its AND, and their order."""
    if page.before is not None:
        return f" AND {column} > :before ORDER BY {column}"
    after = "" if page.after is None else f" AND {column} < :after"
    return f"{after} ORDER BY {column} DESC"


def within(span: Span, column: str) -> str:
    """The condition that instants in a column lie in a span, if it has ends; with its AND."""
    condition = ""
    if span.first is not None:
        condition += f" AND {column} >= :created_first"
    if span.last is not None:
        condition += f" AND {column} <= :created_last"
    return condition


def bounds(page: Page, span: Span) -> dict[str, object]:
    """The values that `window` and `within` name."""
    ends = {"created_first": span.first, "created_last": span.last}
    return {
        "after": page.after,
        "before": page.before,
        **{name: micros(at) for name, at in ends.items() if at is not None},
    }


def sliced(rows: Iterable[Any], page: Page, made: Callable[[Any], T]) -> Slice[T]:
    """The page of the rows that follow, in its own order; one row more shows that there is more."""
    found = list(islice(rows, page.limit + 1))
    items = [made(row) for row in found[: page.limit]]
    if page.before is not None:
        items.reverse()
    return Slice(tuple(items), len(found) > page.limit)
