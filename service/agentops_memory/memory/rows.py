"""Values as texts and columns: instants in RFC 3339, stable ids, and conversions between columns
and the values of the domain.

Stable ids are UUIDv7, which sort by the instant of their creation. In a damaged file a column may
have a value that was never stored. Such a row is never read as a weaker one: the conversions here
raise, and a `RowMapper` turns that into a DamagedRow.
"""

import json
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, cached_property, lru_cache
from operator import attrgetter
from threading import Lock
from types import MappingProxyType, NoneType
from typing import Any, Generic, Literal, TypeVar, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from ..errors import DamagedRow, Unreadable
from ..light import dataclass, is_dataclass
from ..recall.text import clean, object_of

LATEST = datetime(9999, 12, 31, tzinfo=UTC)  # the latest instant of a change; leaves a day

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND, SECOND = timedelta(microseconds=1), timedelta(seconds=1)
INSTANTS_CACHED = 256  # parsed texts and columns; a row repeats its instant

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
    r"(?P<offset>[Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?",
    re.ASCII,
)
_SUBMICROSECOND = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)


@lru_cache(INSTANTS_CACHED)
def parsed(text: str, *, needs_zone: bool = False) -> datetime | None:
    """Parse an RFC 3339 text to an instant in UTC; return None if it is invalid.

    Unless `needs_zone`, a text without a zone, such as `YYYY-MM-DD HH:MM:SS`, is in UTC.
    """
    try:
        at = datetime.fromisoformat(text.strip().upper())  # RFC 3339 allows t and z
        if at.tzinfo is None:
            return None if needs_zone else at.replace(tzinfo=UTC)
        return at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def exact(text: str, *, needs_offset: bool = False, rounds_up: bool = False) -> datetime | None:
    """Parse strict RFC 3339 to an instant in UTC; None if invalid or outside the years 1-9999.

    Unless `needs_offset`, a text without an offset is in UTC. Fractions of a microsecond are
    rounded down, or up with `rounds_up`.
    """
    read = _RFC_3339.fullmatch(text)
    if read is None or (needs_offset and read["offset"] is None):
        return None
    at = parsed(text)
    if at is None or not (rounds_up and _SUBMICROSECOND.search(text)):
        return at
    return None if at == datetime.max.replace(tzinfo=at.tzinfo) else at + MICROSECOND


def whole_seconds(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def whole_milliseconds(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def changed_at(last: datetime, now: datetime) -> datetime:
    """Return the instant of a change: now, or a second after the last if the clock went back.

    A second, because states are compared by the whole seconds of exports. Now is also used
    after an instant at the end of time, which is damage and has no successor.
    """
    return last + SECOND if now < last < LATEST else now


def rendered(at: datetime) -> str:
    """Format the instant in RFC 3339, in UTC, in whole seconds: `2026-04-12T10:00:00Z`."""
    return at.isoformat(timespec="seconds")[:19] + "Z"


ENTROPY = 74  # random bits of an id
DIGITS = 32  # hexadecimal digits of an id
STEP = 32  # bits of the random increment within one millisecond


class Uids:
    """A monotonic UUIDv7 generator: each id sorts after the previous one, whatever the clock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._milliseconds = -1
        self._tail = 0

    def make(self, at: datetime) -> str:
        """Return a new UUIDv7 of the instant, or of the latest instant so far if that is later.

        RFC 9562 §5.7; the random part is a monotonic counter (§6.2, method 2). Thread-safe.
        """
        with self._lock:
            milliseconds = max(_milliseconds(at), self._milliseconds)
            if milliseconds == self._milliseconds:
                self._tail += 1 + secrets.randbits(STEP)
            else:
                # One bit is left for later increments.
                self._milliseconds, self._tail = milliseconds, secrets.randbits(ENTROPY - 1)
            tail = self._tail
        return _uuid7(milliseconds, tail)

    @staticmethod
    def lowest(at: datetime) -> str:
        """Return the lower bound of the UUIDv7s of the instant's millisecond."""
        return _uuid7(_milliseconds(at), 0)


def uid_of(at: datetime) -> str:
    """Return a new UUIDv7 of an instant, independent of earlier ids."""
    return _uuid7(_milliseconds(at), secrets.randbits(ENTROPY))


def dashed(digits: str) -> str:
    """Return the id of 32 hexadecimal digits; a `UUID` checks them and takes four times as long."""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def uid_after(uid: str) -> str:
    """Return a new UUIDv7 that sorts just after `uid`; corrupt digits of `uid` count as 0."""
    digits = re.sub("[^0-9a-f]", "0", uid.replace("-", ""))[:DIGITS].ljust(DIGITS, "0")
    return str(UUID(int=int(digits, 16) + 1 + secrets.randbits(STEP)))


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000) & (1 << 48) - 1


def _uuid7(milliseconds: int, tail: int) -> str:
    upper, lower = tail >> 62, tail & (1 << 62) - 1
    return dashed(f"{milliseconds << 80 | 0x7 << 76 | upper << 64 | 0b10 << 62 | lower:032x}")


T = TypeVar("T")

TAGS_CACHED, LONGEST_CACHED = 1024, 128  # parsed tag arrays in the cache, and their characters
EARLIEST = -62_135_596_800_000_000  # the start of the year 1 in microseconds, for SQL
LAST = 253_402_300_799_999_999  # the end of the year 9999 in microseconds, for SQL
MOST = 2**53 - 1  # the greatest integer that every JSON reader keeps exact: RFC 8259 §6

UNREADABLE = ValueError, TypeError, ArithmeticError, RecursionError, Unreadable
"""The exceptions of a conversion for a value that its column must not have."""


def micros(at: datetime) -> int:
    """Return an aware instant as whole microseconds since 1970."""
    return (at - EPOCH) // MICROSECOND


def instant(at: int) -> datetime:
    """Return the instant of whole microseconds since 1970; Unreadable if out of range."""
    if type(at) is not int:
        raise Unreadable
    return _instant(at)


@lru_cache(INSTANTS_CACHED)  # most memories were never changed, so their instants are equal
def _instant(at: int) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError as error:
        raise Unreadable from error


def optional_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def count(number: int) -> int:
    """Check and return a count; Unreadable if it is negative or impossibly large."""
    if type(number) is not int or not 0 <= number <= 2 * MOST:
        raise Unreadable
    return min(number, MOST)  # a stored count may have been increased beyond the limit


def flag(value: int) -> bool:
    if type(value) not in (int, bool) or value not in (0, 1):
        raise Unreadable
    return bool(value)


def tag_array(tags: Iterable[str]) -> str:
    """Return tags as the JSON array in a row."""
    return f"[{', '.join(map(_encoded, tags))}]"


_encoded = json.encoder.encode_basestring


def texts_of(array: str) -> tuple[str, ...]:
    """Parse a JSON array as written by `tag_array`; ValueError or Unreadable if it is invalid."""
    if array == "[]":
        return ()
    return (_texts if len(array) <= LONGEST_CACHED else _parsed_texts)(array)


def _parsed_texts(array: str) -> tuple[str, ...]:
    texts = json.loads(array)
    # Only an escape can produce characters that must not be in a text.
    are_texts = isinstance(texts, list) and all(isinstance(it, str) for it in texts)
    if not are_texts or ("\\" in array and any(clean(it) != it for it in texts)):
        raise Unreadable
    return tuple(texts)


_texts = lru_cache(TAGS_CACHED)(_parsed_texts)  # memories of a project share tags


def tag_tuple(array: str) -> tuple[str, ...]:
    """Return the tags to index or search; none if the row is damaged."""
    try:
        return texts_of(array)
    except UNREADABLE:
        return ()


def counts_of(text: str) -> Mapping[str, int]:
    """Parse a JSON object of positive counts; Unreadable if it is none."""
    counts = object_of(text)
    if not all(type(it) is int and it > 0 for it in counts.values()):
        raise Unreadable
    return counts


def json_of(pairs: Mapping[str, str]) -> str:
    """Return pairs of texts as the JSON object in a row."""
    return json.dumps(dict(pairs), ensure_ascii=False) if pairs else "{}"


def pairs_of(text: str) -> dict[str, str]:
    """Parse a JSON object as written by `json_of`; ValueError or Unreadable if it is invalid."""
    if text == "{}":
        return {}
    pairs = object_of(text)
    if any(not isinstance(it, str) or clean(it) != it for pair in pairs.items() for it in pair):
        raise Unreadable
    return pairs


Conversion = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Column:
    """Where a field of a record is stored, if not in a column of its own name; `sql` selects it.

    If the field is itself a record, `sql` is the alias of its columns. `read` converts the stored
    text and `write` the field, in place of the conversions of the field's type; `read` may
    take the column `second` too, a text or None.
    """

    sql: str
    read: Conversion | None = None
    write: Conversion = str
    second: str = ""


UNSTORED = Column("")
"""Marks a field that is not stored: it always has its default."""


class RowMapper(Generic[T]):
    """Maps a record to rows: the columns to select, the reader of a row, the columns to write.

    The mapping follows the names and types of the record's fields, except where a `Column`
    overrides it. A row begins with the column that identifies it: the key, or the first column of
    the statement. `joins` are the tables of other columns. DamagedRow for a value that its field or
    another column (`also`) must not have, or that `check` refuses.
    """

    def __init__(
        self, record: Callable[..., T], table: str, key: str = "", *, alias: str = "",
        joins: str = "", check: Callable[[T], object] = bool,
        also: Mapping[Column, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._table, self.joins = table, joins
        self._declared = record, key, alias, check, also

    def __str__(self) -> str:
        return self._reading.selected

    @cache  # noqa: B019 - mappers are constants
    def selecting(self, row: str = "") -> str:
        """Return a SELECT up to its condition; without a key, `row` selects the row's name."""
        _, key, alias, *_ = self._declared
        leading = "" if key else f"{alias}{row}, "
        return f"SELECT {leading}{self} FROM {self._table} {alias[:-1]} {self.joins} WHERE "

    def but(self, *names: str) -> str:
        """Return the columns of a SELECT, with NULL for the fields of these names."""
        columns = self._reading.columns
        return ", ".join("NULL" if it and it in names else sql for it, sql in columns if sql)

    def __call__(self, row: Any) -> T:
        try:
            return cast("T", self._reading.read(row))
        except UNREADABLE as error:
            key = tuple.__getitem__(row, 0)
            named = key.hex() if isinstance(key, bytes) else key
            raise DamagedRow(self._table, named) from error

    def values(self, record: T, alias: str = "", before: T | None = None) -> dict[str, object]:
        """Return the values of the columns under an alias; with `before`, only changed ones."""
        values: dict[str, object] = {}
        for column, get, write in self._reading.written[alias]:
            it = get(record)
            if before is None or it != get(before):
                values[column] = None if it is None else write(it)
        return values

    # Built at first use, complete when assigned: since Python 3.12 two threads may do so at once.
    @cached_property
    def _reading(self) -> "_Reading":
        return _Reading(*self._declared)


def reads(table: str) -> Callable[[Callable[..., T]], RowMapper[T]]:
    """Decorate a function of the columns of a row, the first of them its key in `table`.

    The columns are converted to the types of the parameters, as to those of a record's fields.
    """
    return lambda made: RowMapper(made, table, next(iter(made.__annotations__)))


def columns(table: str, *types: Any) -> RowMapper[Any]:
    """Map the columns of a row to these types, as a tuple; the first is its key in `table`."""

    def made(**values: object) -> tuple[object, ...]:
        return tuple(values.values())

    made.__annotations__ = {f"c{position}": it for position, it in enumerate(types)}
    return reads(table)(made)


class _Reading:
    """How a record is read and written: the selected columns, and the reader of a row.

    The reader is compiled from one expression, as the `__init__` of a dataclass is: a list of
    memories takes half as long as with a call for each field.
    """

    def __init__(
        self, record: Any, key: str, alias: str, check: Conversion, also: Mapping[Column, Any]
    ) -> None:
        self.columns = [("", key)]
        # By the alias of their table: the columns to write, each with its field and conversion.
        self.written = defaultdict[str, list[tuple[str, Conversion, Conversion]]](list)
        self._types: dict[int, tuple[type, ...]] = {}  # unless the conversion checks the type
        self._sound: set[tuple[type, ...]] = set()
        self._globals: dict[str, object] = {}  # what the expression calls
        whole = self._part(record, alias, "")
        others = [self._field("", hint, column) for column, hint in also.items()]
        names = ", ".join(f"v{at}" for at in range(len(self.columns)))
        expression = f"lambda {names}, *_: ({', '.join([whole, *others])},)[0]"
        self._made: Conversion = eval(expression, self._globals)  # noqa: S307 - our own names only
        self._check = check
        self.selected = ", ".join(sql for _, sql in self.columns if sql)

    def read(self, row: Any) -> Any:
        if (types := tuple(map(type, row))) not in self._sound:
            if any(types[at] not in known for at, known in self._types.items()):
                raise Unreadable
            self._sound.add(types)
        made = self._made(*row)
        self._check(made)
        return made

    def _call(self, function: Conversion, arguments: str) -> str:
        """Return the expression of a call."""
        name = f"f{len(self._globals)}"
        self._globals[name] = function
        return f"{name}({arguments})"

    def _part(self, record: Any, alias: str, path: str) -> str:
        """Return the expression of a record."""
        its: dict[str, str] = {}
        for name, hint, notes in _fields_of(record):
            texts = (Column(it) if isinstance(it, str) else it for it in notes)
            column = next((it for it in texts if isinstance(it, Column)), None)
            if column is UNSTORED or get_origin(hint) is Literal:
                continue
            column = column or Column(alias if _is_part(hint) else alias + name)
            if _is_part(hint) and column.read is None:
                its[name] = self._part(hint, column.sql, f"{path}{name}.")
            else:
                its[name] = self._field(path + name, hint, column)
        make = getattr(record, "whole", record)
        return self._call(make, ", ".join(f"{name}={value}" for name, value in its.items()))

    def _field(self, path: str, hint: Any, column: Column) -> str:
        """Return the expression of a field, whose column is selected."""
        hint, is_optional = _required(hint)
        own = column.read and (str, column.read, column.write)
        stored, convert, write = own or _conversion(hint)
        at = self._column(path, column.sql)
        if path and (own_name := re.fullmatch(r"(\w+\.)?(\w+)", column.sql)):
            under, name = own_name.groups("")
            self.written[under].append((name, attrgetter(path), write))
        if stored is not None:
            self._types[at] = (stored, NoneType) if is_optional else (stored,)
        arguments = value = f"v{at}"
        if column.second:
            other = self._column("", column.second)
            self._types[other] = str, NoneType
            arguments += f", v{other}"
        if convert is None:
            return value
        converted = self._call(convert, arguments)
        return f"None if {value} is None else {converted}" if is_optional else converted

    def _column(self, path: str, sql: str) -> int:
        if sql == self.columns[0][1]:
            return 0
        self.columns.append((path, sql))
        return len(self.columns) - 1


def _is_part(hint: Any) -> bool:
    return is_dataclass(hint) or hasattr(hint, "whole")


def _fields_of(record: Any) -> Iterator[tuple[str, Any, Sequence[object]]]:
    """Yield the fields of a record, or a function's parameters, with types and annotations."""
    if hasattr(record, "whole"):  # pydantic stores its annotations apart
        for name, it in record.__pydantic_fields__.items():
            if name not in getattr(record, "members", ()):  # members are stored in the details
                yield name, it.annotation, it.metadata
        return
    hints = get_type_hints(record, include_extras=True)
    hints.pop("return", None)
    for name, hint in hints.items():
        notes = getattr(hint, "__metadata__", ())
        yield name, hint.__origin__ if notes else hint, notes


def _required(hint: Any) -> tuple[Any, bool]:
    """Return the type without annotations and None, and whether None is allowed."""
    if hasattr(hint, "__metadata__"):
        hint = hint.__origin__
    if NoneType in get_args(hint):
        (some,) = (it for it in get_args(hint) if it is not NoneType)
        return _required(some)[0], True
    return getattr(hint, "__supertype__", hint), False


def _conversion(hint: Any) -> tuple[type | None, Conversion | None, Conversion]:
    """Return a column's stored type, unless its reader checks it; its reader and its writer."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return (int if issubclass(hint, int) else None), cache(hint), attrgetter("value")
    if get_origin(hint) in (Mapping, dict):
        return str, *_OBJECTS[get_args(hint)[1]]
    return _CONVERSIONS[get_origin(hint) or hint]


_CONVERSIONS: Mapping[Any, tuple[type | None, Conversion | None, Conversion]] = {
    **{type_: (type_, None, type_) for type_ in (str, bytes, float)},
    Any: (None, None, str),
    int: (None, count, int),
    bool: (None, flag, bool),
    datetime: (int, _instant, micros),
    tuple: (str, texts_of, tag_array),
}
_OBJECTS: Mapping[Any, tuple[Conversion, Conversion]] = {
    str: (pairs_of, json_of), int: (counts_of, json_of), Any: (object_of, json_of),
}  # fmt: skip


def portion(items: Iterable[T], room: int, size: Callable[[T], int]) -> list[T]:
    """Return the first items, including the one that exceeds `room`, so at least one if any."""
    some: list[T] = []
    for item in items:
        some.append(item)
        room -= size(item)
        if room < 0:
            break
    return some


MAX_LIST = 4 * 1024 * 1024  # most characters of content in one list, whatever its limit
MAX_PAGE = 256 * 1024  # the same for a page of an export, which stays in memory until it is read
