"""The words of a JSON value: names of members, texts and numbers. Pure."""

import json
from collections.abc import Iterator
from typing import Any


def words_of(value: str) -> str:
    """A line for each of them, in their order; what is no JSON is taken as it is."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return "\n".join(_said(found))


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
