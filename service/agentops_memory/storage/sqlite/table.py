"""What the tables of one transaction share: executing, and instants as integers."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

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
    """The inverse of `micros`."""
    return EPOCH + timedelta(microseconds=at)


def tag_array(tags: Iterable[str]) -> str:
    """Tags as the JSON array that a row holds."""
    return json.dumps(list(tags), ensure_ascii=False)


def tag_tuple(array: str) -> tuple[str, ...]:
    """The inverse of `tag_array`."""
    return () if array == "[]" else tuple(json.loads(array))


def json_of(pairs: Mapping[str, str]) -> str:
    """Pairs of texts as the JSON object that a row holds."""
    return json.dumps(dict(pairs), ensure_ascii=False) if pairs else "{}"


def map_of(text: str) -> dict[str, str]:
    """The inverse of `json_of`."""
    return {} if text == "{}" else dict(json.loads(text))
