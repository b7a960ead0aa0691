"""Values of entries: JSON objects, stored as compact text, from which secrets are kept out."""

import json
from collections.abc import Mapping
from itertools import chain, count
from typing import Any

from ..errors import Invalid
from ..memories.redactor import Redactor

MAX_VALUE = 65_536  # bytes of compact JSON in UTF-8 (RFC-0015 §1.3)

JsonObject = Mapping[str, Any]


def compact(value: JsonObject) -> str:
    """The object as it is stored; Invalid for what JSON or UTF-8 cannot say, and beyond 64 KB."""
    try:
        text = _written(value)
        size = len(text.encode())
    except ValueError as error:  # no number of JSON; or a lone surrogate
        raise Invalid("value must be JSON that can be written in UTF-8.") from error
    if size > MAX_VALUE:
        raise Invalid(
            f"value must be at most {MAX_VALUE:,} bytes of compact JSON; "
            "store what is larger elsewhere, and a reference to it here."
        )
    return text


def screened(redactor: Redactor, value: str) -> str:
    """The stored object without secrets, each string read together with its member's name.

    What has none is told from the whole text, unless escapes may hide one.
    """
    if "\\" not in value and not redactor.rules.redacted(value).count:
        return value
    return compact(_screened(redactor, json.loads(value)))


def _screened(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, dict):
        return _members(redactor, value)
    if isinstance(value, list):
        return [_screened(redactor, item) for item in value]
    return redactor.whole(value) if isinstance(value, str) else value


def _members(redactor: Redactor, value: JsonObject) -> dict[str, Any]:
    """The members; of names that are the same without their secrets, the later have a number."""
    clean: dict[str, Any] = {}
    for name, item in value.items():
        said, kept = _member(redactor, name, item)
        numbered = (f"{said} ({number})" for number in count(2))
        clean[next(it for it in chain([said], numbered) if it not in clean)] = kept
    return clean


def _member(redactor: Redactor, name: str, value: Any) -> tuple[str, Any]:
    if not isinstance(value, str):
        return redactor.whole(name), _screened(redactor, value)
    clean = redactor.whole(value)
    if clean != value:
        return redactor.whole(name), clean
    beside = redactor.rules.redacted(_written({name: value}))
    if not beside.count:
        return name, value
    redactor.kinds.update(beside.kinds)
    try:
        ((name, value),) = json.loads(beside.text).items()
    except (ValueError, AttributeError):  # it went beyond the quotes: none of it is kept
        return redactor.whole(name), WITHHELD
    return name, value


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


WITHHELD = "[REDACTED:labelled-secret]"
"""What stands for a string of which no part can be told from its secret."""
