"""Documents that are read item by item, many at a time where that is possible."""

import io
import json
from typing import Any

import pytest

from agentops_memory.errors import Invalid
from agentops_memory.http.query import MAX_ITEM, entries

from ..support.samples import for_each

LONG = [{"n": it, "text": "},{ ]} " * (it % 3), "in": [{"a": it}, {}]} for it in range(5_000)]
SEPARATORS = [(",", ":"), (", ", ": "), (",\n  ", ": ")]


def read(text: str) -> list[tuple[str, int, object]]:
    return list(entries(io.BytesIO(text.encode()), ("a", "b")))


@for_each("comma, colon", SEPARATORS)
def test_items_are_the_same_however_the_document_is_spaced(comma: str, colon: str) -> None:
    lists: dict[str, list[Any]] = {"a": LONG, "other": LONG, "b": [*LONG[:9], None, 1.5, "},{"]}

    items = read(json.dumps(lists, separators=(comma, colon)))

    assert items == [(name, at, it) for name in "ab" for at, it in enumerate(lists[name])]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@for_each(
    "wrong, reason",
    [
        ('{"a":', "invalid JSON: "),
        (f'{{"a": {nested(98)}}}', "invalid JSON: it is nested deeper than 100 levels."),
        (f'{{"a": {"1" * 21}}}', "invalid JSON: a number has more than 20 digits."),
        ('{"a": NaN}', "invalid JSON: NaN is not a number."),
        (f'{{"a": "{"x" * MAX_ITEM}"}}', "invalid JSON: one value is longer than "),
    ],
)
def test_a_wrong_item_among_many_is_refused_as_if_alone(wrong: str, reason: str) -> None:
    first = ",".join(['{"n":1}'] * 100)

    with pytest.raises(Invalid) as refused:
        read(f'{{"a":[{first},{wrong},{first}]}}')

    assert str(refused.value).startswith(reason)


def test_an_item_may_be_as_deep_among_many_as_alone() -> None:
    item = f'{{"a": {nested(97)}}}'
    ((_, _, alone),) = read(f'{{"a":[{item}]}}')

    items = read('{"a":[' + ",".join([item] * 100) + "]}")

    assert [it for _, _, it in items] == [alone] * 100
