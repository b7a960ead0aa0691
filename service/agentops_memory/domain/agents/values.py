"""Values of entries: JSON objects, stored as compact text, from which secrets are kept out."""

import json
from collections.abc import Mapping
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
    return _written(_screened(redactor, json.loads(value)))


def known(value: str) -> dict[str, Any] | None:
    """The object in a row; None if it is damaged."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and _is_sayable(found) else None


def _screened(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, dict):
        return dict(_member(redactor, name, item) for name, item in value.items())
    if isinstance(value, list):
        return [_screened(redactor, item) for item in value]
    return redactor.whole(value) if isinstance(value, str) else value


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


def _is_sayable(value: JsonObject) -> bool:
    """Whether it can be written again: a damaged one may hold what is no number, or no UTF-8."""
    try:
        _written(value).encode()
    except ValueError:
        return False
    return True


WITHHELD = "[REDACTED:labelled-secret]"
"""What stands for a string of which no part can be told from its secret."""
