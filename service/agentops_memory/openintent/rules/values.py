"""Values of entries: JSON objects, stored as compact text, from which secrets are kept out."""

import json
from collections.abc import Mapping
from typing import Any

from ...errors import Invalid
from ...memory.json_redaction import JsonRedactor, is_plain, written
from ...memory.redactor import Redactor

MAX_VALUE = 65_536  # bytes of compact JSON in UTF-8 (RFC-0015 §1.3)

JsonObject = Mapping[str, Any]


def compact(value: JsonObject) -> str:
    """The object as it is stored; Invalid for what JSON or UTF-8 cannot say, and beyond 64 KB."""
    try:
        text = written(value)
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
    """The stored object without secrets, each string read together with its member's name."""
    held = json.loads(value)
    if is_plain(value, held, lambda said: not redactor.rules.redacted(said).count):
        return value
    return compact(JsonRedactor(redactor, redactor.whole).document(held))
