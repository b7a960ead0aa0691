"""JSON without secrets: each string is read by itself, and together with its member's name."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from .redactor import Redactor

WITHHELD = "[REDACTED:labelled-secret]"
"""What stands for a string of which no part can be told from its secret."""


@dataclass(frozen=True, slots=True)
class JsonRedactor:
    """Takes secrets out of values of JSON; the names of members are texts as all others are."""

    redactor: Redactor
    whole: Callable[[str], str]  # a text without secrets; what it counts, the redactor has counted

    def document(self, value: dict[str, Any]) -> dict[str, Any]:
        """An object without secrets, also those that its text tells of several strings.

        Such are a variable beside its name, an option before its argument, a key of JSON.
        """
        clean = self._members(value)
        found = self.redactor.rules.redacted(written(clean))
        if not found.count:
            return clean
        try:
            rid = json.loads(found.text)
        except ValueError:  # it went beyond the quotes
            return clean
        if not isinstance(rid, dict):
            return clean
        self.redactor.kinds.update(found.kinds)
        return rid

    def value(self, value: Any) -> Any:
        """The value with its strings, and the names in it, without secrets."""
        if isinstance(value, dict):
            return self._members(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return self.whole(value) if isinstance(value, str) else value

    def _members(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """The members; of names that are the same without their secrets, later ones have a
        number."""
        clean: dict[str, Any] = {}
        for name, item in value.items():
            said, kept = self._member(name, item)
            numbered = (f"{said} ({number})" for number in count(2))
            clean[next(it for it in chain([said], numbered) if it not in clean)] = kept
        return clean

    def _member(self, name: str, value: Any) -> tuple[str, Any]:
        if not isinstance(value, str):
            return self.whole(name), self.value(value)
        clean = self.whole(value)
        if clean != value:
            return self.whole(name), clean
        beside = self.redactor.rules.redacted(written({name: value}))
        if not beside.count:
            return self.whole(name), value
        self.redactor.kinds.update(beside.kinds)
        try:
            ((name, value),) = json.loads(beside.text).items()
        except (ValueError, AttributeError):  # it went beyond the quotes: none of it is kept
            return self.whole(name), WITHHELD
        return self.whole(name), value


def is_plain(text: str, value: object, has_none: Callable[[str], bool]) -> bool:
    """Whether no string of JSON has a secret, told from its text and its value as a whole.

    The text tells of names and what stands beside them, unless escapes may hide it. In a line
    each, strings begin and end as they do by themselves, which some secrets are known by.
    """
    return "\\" not in text and has_none(text) and has_none("\n".join(texts(value)))


def texts(value: object) -> Iterator[str]:
    """Every string in a value of JSON, and every name."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def written(value: object) -> str:
    """Compact JSON; a ValueError for a number that JSON has not."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
