"""What the tables of one transaction share: executing, and the nouns that a column holds.

In a damaged file a column may hold what nobody has stored. It is read as the nearest that can
be shown, for what else is in its row is worth more than an error: `values` finds such.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from ....domain.text.instants import LATEST
from ....domain.text.normalization import clean

E = TypeVar("E", bound=StrEnum)
J = TypeVar("J", list[object], dict[str, object])

FIRST = datetime(1, 1, 1, tzinfo=UTC)
MOST = 2**53 - 1  # that every reader of JSON can tell from its neighbours: RFC 8259 §6
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Table:
    """A table of a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _execute(self, statement: str, **parameters: object) -> sqlite3.Cursor:
        return self._connection.execute(statement, parameters)


def micros(at: datetime) -> int:
    """An aware instant as whole microseconds since 1970."""
    return (at - EPOCH) // _MICROSECOND


def instant(at: int) -> datetime:
    """The inverse of `micros`; the nearest that can be shown."""
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return FIRST if at < 0 else LATEST


def count(number: int) -> int:
    """A number of things, the nearest that there can be."""
    return number if 0 <= number <= MOST else min(max(number, 0), MOST)


def member(of: type[E], value: str, otherwise: E) -> E:
    """The member of a closed set with that value, if it has one."""
    try:
        return of(value)
    except ValueError:
        return otherwise


def tag_array(tags: Iterable[str]) -> str:
    """Tags as the JSON array that a row holds."""
    return json.dumps(list(tags), ensure_ascii=False)


def tag_tuple(array: str) -> tuple[str, ...]:
    """The inverse of `tag_array`; what is no tag is left out."""
    if array == "[]":
        return ()
    tags = [tag for tag in parsed(array, list) if isinstance(tag, str)]
    # Only what is escaped can be what no text may hold.
    return tuple(map(clean, tags) if "\\" in array else tags)


def json_of(pairs: Mapping[str, str]) -> str:
    """Pairs of texts as the JSON object that a row holds."""
    return json.dumps(dict(pairs), ensure_ascii=False) if pairs else "{}"


def map_of(text: str) -> dict[str, str]:
    """The inverse of `json_of`; what is no pair of texts is left out."""
    if text == "{}":
        return {}
    pairs = parsed(text, dict).items()
    return {clean(name): clean(value) for name, value in pairs if isinstance(value, str)}


def parsed(text: str, kind: type[J]) -> J:
    """The array or the object that a text is as JSON; an empty one if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    return found if isinstance(found, kind) else kind()
