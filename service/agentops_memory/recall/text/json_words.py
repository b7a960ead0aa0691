"""JSON that is stored: the words in it, and an object read from a row. Pure."""

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

MAX_DEPTH = 100  # of what is taken


def words_of(value: str) -> str:
    """A line for each of them, in their order; what is no JSON is taken as it is."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return "\n".join(
        str(it)
        for it in leaves(found)
        if isinstance(it, str | int | float) and type(it) is not bool
    )


def object_of(text: str) -> dict[str, Any]:
    """The object in a row; ValueError if it is damaged, or could not be written again."""
    found = _DECODER.decode(text)
    if not isinstance(found, dict):
        raise ValueError
    if "\\u" in text:  # which may say half of a character
        json.dumps(found, ensure_ascii=False).encode()
    if text.count("{") + text.count("[") > MAX_DEPTH and depth_of(found) > MAX_DEPTH:
        raise ValueError
    return found


def _finite(said: str) -> float:
    number = float(said)
    if not isfinite(number):
        raise ValueError
    return number


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def depth_of(value: object) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, list | dict)]:
        depth += 1
        level = [
            inner for item in level for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def leaves(value: object) -> Iterator[object]:
    """Every name in a value of JSON, and every value that holds no other, in their order."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value
