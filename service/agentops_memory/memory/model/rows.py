"""Values that columns hold, as the domain has them and back.

In a damaged file a column may hold what nobody has stored. Such a row is never read as something
weaker: the conversions here raise, and `reads` makes a DamagedRow of that.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache, wraps
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from ...errors import DamagedRow, Unreadable
from ...recall.text.instants import EPOCH, MICROSECOND
from ...recall.text.json_words import object_of
from ...recall.text.normalization import clean

T = TypeVar("T")

CACHED, LONGEST_CACHED = 1024, 128  # tags of memories that are remembered, and their characters
EARLIEST = -62_135_596_800_000_000  # the year 1 in microseconds; SQL compares with it
LAST = 253_402_300_799_999_999  # and with the last microsecond of the year 9999
MOST = 2**53 - 1  # that every reader of JSON can tell from its neighbours: RFC 8259 §6


UNREADABLE = ValueError, TypeError, ArithmeticError, RecursionError, Unreadable
"""What a conversion raises of a value that its column cannot hold."""


def reads(table: str) -> Callable[[Callable[..., T]], Callable[[Any], T]]:
    """Make a record of the columns of a row, whose first one names it in this table.

    The types of the arguments are what SQLite may have lost; of values, the function itself
    raises what is wrong. DamagedRow in either case.
    """

    def decorated(made: Callable[..., T]) -> Callable[[Any], T]:
        sound: set[tuple[type, ...]] = set()

        @wraps(made)
        def read(row: Any) -> T:
            try:
                if (types := tuple(map(type, row))) not in sound:
                    _require_types(made, types)
                    sound.add(types)
                return made(*row)
            except UNREADABLE as error:
                raise damaged_row(table, row, error) from error

        return read

    return decorated


def damaged_row(table: str, row: Any, error: Exception) -> DamagedRow:
    """What is wrong with a row, unless a conversion has said it of one that belongs to it."""
    if isinstance(error, DamagedRow):
        return error
    key = tuple.__getitem__(row, 0)
    return DamagedRow(table, key.hex() if isinstance(key, bytes) else key)


def _require_types(made: Callable[..., object], types: tuple[type, ...]) -> None:
    hints = [hint for name, hint in get_type_hints(made).items() if name != "return"]
    for hint, found in zip(hints, types, strict=True):
        if hint is not Any and found not in _TYPES.get(hint, ()):
            known = (it for of in get_args(hint) for it in _TYPES[of])
            if found not in known:
                raise TypeError


# SQLite has no type of its own for yes and no.
_TYPES: Mapping[Any, tuple[type, ...]] = {
    **{of: (of,) for of in (int, str, float, bytes, NoneType)},
    bool: (bool, int),
}


def micros(at: datetime) -> int:
    """An aware instant as whole microseconds since 1970."""
    return (at - EPOCH) // MICROSECOND


def instant(at: int) -> datetime:
    """The inverse of `micros`; Unreadable if there is none."""
    if type(at) is not int:
        raise Unreadable
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError as error:
        raise Unreadable from error


def optional_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def optional_instant(at: int | None) -> datetime | None:
    return None if at is None else instant(at)


def count(number: int) -> int:
    """A number of things; Unreadable for one that nothing counts to."""
    if type(number) is not int or not 0 <= number <= 2 * MOST:
        raise Unreadable
    return min(number, MOST)  # one at the limit may be counted further


def flag(value: int) -> bool:
    if value not in (0, 1):
        raise Unreadable
    return bool(value)


def tag_array(tags: Iterable[str]) -> str:
    """Tags as the JSON array that a row holds."""
    return json.dumps(every, ensure_ascii=False) if (every := list(tags)) else "[]"


def texts_of(array: str) -> tuple[str, ...]:
    """The texts of a JSON array, as `tag_array` writes it; ValueError if it is none."""
    if array == "[]":
        return ()
    return (_texts if len(array) <= LONGEST_CACHED else _parsed_texts)(array)


def _parsed_texts(array: str) -> tuple[str, ...]:
    found = json.loads(array)
    # Only what is escaped can be what no text may hold.
    are_texts = isinstance(found, list) and all(isinstance(it, str) for it in found)
    if not are_texts or ("\\" in array and any(clean(it) != it for it in found)):
        raise Unreadable
    return tuple(found)


_texts = lru_cache(CACHED)(_parsed_texts)  # memories of a project share them


def tag_tuple(array: str) -> tuple[str, ...]:
    """The tags that words are looked for in; of a damaged row none."""
    try:
        return texts_of(array)
    except UNREADABLE:
        return ()


def counts_of(text: str) -> Mapping[str, int]:
    """The positive counts in a JSON object; Unreadable if it is none."""
    found = object_of(text)
    if not all(type(it) is int and it > 0 for it in found.values()):
        raise Unreadable
    return found


def json_of(pairs: Mapping[str, str]) -> str:
    """Pairs of texts as the JSON object that a row holds."""
    return json.dumps(dict(pairs), ensure_ascii=False) if pairs else "{}"


def pairs_of(text: str) -> dict[str, str]:
    """The inverse of `json_of`; ValueError if it is none."""
    if text == "{}":
        return {}
    pairs = json.loads(text)
    if not isinstance(pairs, dict):
        raise Unreadable
    if any(not isinstance(it, str) or clean(it) != it for pair in pairs.items() for it in pair):
        raise Unreadable
    return pairs


def portion(items: Iterable[T], room: int, size: Callable[[T], int]) -> list[T]:
    """The first of the items, until their sizes pass the room; always one, if there is one."""
    some: list[T] = []
    for item in items:
        some.append(item)
        room -= size(item)
        if room < 0:
            break
    return some


MAX_LIST = 4 * 1024 * 1024  # characters of content in one list, whatever its limit
MAX_PAGE = 256 * 1024  # the same of a page of an export, which is kept while nobody reads it
