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
    return "\n".join(_said(found))


def object_of(text: str) -> dict[str, Any]:
    """The object in a row; ValueError if it is damaged, or could not be written again."""
    found = _DECODER.decode(text)
    if not isinstance(found, dict):
        raise ValueError
    if "\\u" in text:  # which may say half of a character
        json.dumps(found, ensure_ascii=False).encode()
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(found) > MAX_DEPTH:
        raise ValueError
    return found


def _finite(said: str) -> float:
    number = float(said)
    if not isfinite(number):
        raise ValueError
    return number


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, list | dict)]:
        depth += 1
        level = [
            inner for item in level for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _said(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _said(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _said(inner)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
