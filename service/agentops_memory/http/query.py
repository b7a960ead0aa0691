"""Parses client input: JSON, decoded leniently, bounded strictly, and streamed if large; query
parameters, public ids and cursors. Also limits the size of a response.
"""

import base64
import codecs
import encodings.utf_8_sig  # noqa: F401 - not first imported when no file may be left to open
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO, NoReturn

from ..errors import Invalid, NotFound
from ..memory.rows import dashed, exact
from ..recall.text import MAX_DEPTH, clean, depth_of

MAX_DIGITS = 20  # SQLite's INTEGER has 19, and long numbers take quadratic time to parse
MAX_ITEM = 4 * 1024 * 1024  # characters of one item of a streamed array
_CHUNK = 64 * 1024  # bytes; doubled while an item is longer

_ENCODING = "utf-8-sig"  # skips a byte order mark
_SPACE = re.compile(r"[ \t\n\r]*")
_DIGIT = re.compile(r"\d")
_LONGEST_TOKEN = 16  # characters; more than `-Infinity` or an escaped character has
STORE, ENTRY, VERSION, EVENT = "memstore", "mem", "memver", "evt"
_HEX = re.compile("[0-9a-f]{32}", re.ASCII)
_MARK = 8  # bytes of a cursor that identify its list


def parsed(body: bytes | bytearray, *, exact: bool = False) -> object:
    """Parse a body; Invalid if it is not JSON.

    Bytes that are not UTF-8 become U+FFFD, or are Invalid if the body must be `exact`.
    """
    try:
        text = body.decode(_ENCODING, "strict" if exact else "replace")
    except UnicodeDecodeError as error:
        raise Invalid(f"invalid JSON: no UTF-8 at byte {error.start}.") from error
    value, end = _value(text, _after_space(text, 0))
    if _after_space(text, end) != len(text):
        raise Invalid("invalid JSON: more follows after the end.")
    return value


def written(value: object) -> bytes:
    """Render the value as JSON; text that UTF-8 cannot encode becomes U+FFFD."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def entries(file: BinaryIO, names: Collection[str]) -> Iterator[tuple[str, int, object]]:
    """Yield the items of the named arrays of the object in a file, each with its name and index.

    Only one item, or a chunk of the text, is in memory at a time, and the whole file is checked. A
    named member that is null counts as an empty array.
    """
    for name, index, value in members(file):
        if name not in names:
            continue
        if index is not None:
            yield name, index, value
        elif value is not None:
            raise Invalid(f"{name} must be a list.")


def members(file: BinaryIO) -> Iterator[tuple[str, int | None, object]]:
    """Yield the members of the object in a file in their order: (name, index, value).

    The index is None, except for the items of an array, which follow a None value for the array.
    """
    file.seek(0)
    reader = _Reader(file)
    if not reader.take("{"):
        reader.fail("an object is expected")
    while not reader.take("}"):
        name = reader.name()
        if reader.take("["):
            yield name, None, None
            for index, item in enumerate(reader.items()):
                yield name, index, item
        else:
            yield name, None, reader.value(inside=1)
        if reader.take(",") == (reader.peek() == "}"):
            reader.fail("a comma and a member, or a closing brace, are expected")
    if reader.peek():
        reader.fail("more follows after the end")


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(_ENCODING)("replace")
        self._text = ""
        self._at = self._passed = 0  # the position in the text; the characters before the text
        self._ended = False

    def peek(self) -> str:
        while True:
            self._at = _after_space(self._text, self._at)
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more(_CHUNK)

    def take(self, char: str) -> bool:
        """Consume the character if it is next; return whether it was."""
        is_next = self.peek() == char
        self._at += is_next
        return is_next

    def name(self) -> str:
        name = self.value(inside=1) if self.peek() == '"' else None
        if not isinstance(name, str) or not self.take(":"):
            self.fail("a name and a colon are expected")
        return name

    def items(self) -> Iterator[object]:
        if self.take("]"):
            return
        while True:
            yield self.value(inside=2)
            if self.take("]"):
                return
            if not self.take(","):
                self.fail("a comma or a closing bracket is expected")

    def value(self, *, inside: int) -> object:
        """Read the next whole value; `inside` is its depth of brackets."""
        self.peek()
        chunk = _CHUNK
        while True:
            try:
                value, end = _value(self._text, self._at, inside, self._passed)
            except _Unfinished:
                if self._ended:
                    raise
                end = len(self._text)
            if end - self._at > MAX_ITEM:
                self.fail(f"one value is longer than {MAX_ITEM:,} characters, or does not end")
            # The part before a cut may also be a number: `1` of `1.5`.
            if end + _LONGEST_TOKEN < len(self._text) or self._ended:
                self._at = end
                return value
            self._more(chunk)
            chunk *= 2

    def fail(self, reason: str) -> NoReturn:
        raise Invalid(f"invalid JSON: {reason}.")

    def _more(self, size: int) -> None:
        block = self._file.read(size)
        self._ended = not block
        self._text = self._text[self._at :] + self._decoder.decode(block, final=self._ended)
        self._at, self._passed = 0, self._passed + self._at


class _Unfinished(Invalid):
    """The text is not JSON, but more text may complete it."""


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # it may be empty
    return match.end()


def _value(text: str, at: int, inside: int = 0, passed: int = 0) -> tuple[Any, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError as error:
        raise Invalid(_TOO_DEEP) from error
    except json.JSONDecodeError as error:
        near_the_end = error.pos > len(error.doc) - _LONGEST_TOKEN
        is_unfinished = near_the_end or error.msg.startswith("Unterminated string")
        fault = _Unfinished if is_unfinished else Invalid
        reason = error.msg.removesuffix(" starting at")
        raise fault(f"invalid JSON: {reason} at character {passed + error.pos}.") from error
    # With fewer brackets than levels, the value cannot be too deep and need not be walked.
    brackets = text.count("[", at, end) + text.count("{", at, end)
    if inside + brackets > MAX_DEPTH and inside + depth_of(value) > MAX_DEPTH:
        raise Invalid(_TOO_DEEP)
    return value, end


def _bounded(number: str) -> str:
    if len(number) > MAX_DIGITS and len(_DIGIT.findall(number)) > MAX_DIGITS:
        raise Invalid(f"invalid JSON: a number has more than {MAX_DIGITS} digits.")
    return number


def _constant(name: str) -> NoReturn:
    raise Invalid(f"invalid JSON: {name} is not a number.")


_TOO_DEEP = f"invalid JSON: it is nested deeper than {MAX_DEPTH} levels."
_DECODER = json.JSONDecoder(
    parse_int=lambda text: int(_bounded(text)),
    parse_float=lambda text: float(_bounded(text)),
    parse_constant=_constant,
)

MAX_ANSWER = 2 * 1024 * 1024  # bytes; the agent runtime reads no more
MAX_ROWS = 1000

Query = Mapping[str, Sequence[str]]
"""The values of each parameter, in order."""

NUMBER = re.compile(r"\d+", re.ASCII)
_SIGNED = re.compile(r"[-+]?\d{1,19}", re.ASCII)
_DIGITS = 18  # digits of an amount that are read; a longer amount is at least as large
_INT64 = range(-(1 << 63), 1 << 63)


def parameter(query: Query, name: str) -> str | None:
    """Return the first value of a query parameter; None if it is empty or missing."""
    values = query.get(name)
    return clean(values[0]) or None if values else None


def natural(text: str) -> int:
    """Parse a text of digits, by its first 18 digits if it is longer; -1 for any other text."""
    return int(text.lstrip("0")[:_DIGITS] or 0) if NUMBER.fullmatch(text) else -1


def several(query: Query, name: str, most: int) -> tuple[str, ...]:
    """Return the different non-empty values of a repeatable parameter; Invalid beyond `most`."""
    values = sorted({clean(value) for value in query.get(name, ())} - {""})
    if len(values) > most:
        raise Invalid(f"{name} takes at most {most} different values.")
    return tuple(values)


def row_count(query: Query, name: str, default: int) -> int:
    """Parse a number of rows, at most 1,000; the default unless it is a positive number."""
    return min(max(natural(parameter(query, name) or ""), 0), MAX_ROWS) or default


def whole_number(text: str | None, name: str) -> int:
    """Parse a signed number of at most 64 bits; anything else is Invalid."""
    number = int(text) if text and _SIGNED.fullmatch(text) else None
    if number is None or number not in _INT64:
        raise Invalid(f"{name} must be a whole number.")
    return number


def amount(query: Query, name: str, least: int = 0) -> int | None:
    """Parse a whole number of at least `least`; None if unset, Invalid for anything else."""
    text = parameter(query, name)
    if text is None:
        return None
    number = natural(text)
    if number < least:
        raise Invalid(f"{name} must be a whole number, {least} or more.")
    return number


def is_true(query: Query, name: str) -> bool:
    return (parameter(query, name) or "").lower() in ("1", "t", "true", "yes")


def asks_for(query: Query, name: str) -> bool:
    """Parse a flag that must not be misread; Invalid unless it is true or false."""
    values = [value.lower() for value in query.get(name, ())]
    if any(value not in ("true", "false", "1", "0") for value in values):
        raise Invalid(f"{name} must be true or false.")
    return any(value in ("true", "1") for value in values)


def fitting(items: Iterable[bytes]) -> list[bytes]:
    """Return as many of the first items as fit into a response."""
    room, fit = MAX_ANSWER - 1024, []
    for item in items:
        room -= len(item) + 1
        if room < 0:
            break
        fit.append(item)
    return fit


def public_id(kind: str, uid: str) -> str:
    """Return the stable id of clients, such as `mem_` and 32 digits."""
    return f"{kind}_{uid.replace('-', '')}"


def uid_of(kind: str, id_: str) -> str | None:
    prefix, _, digits = id_.partition("_")
    is_valid = prefix == kind and _HEX.fullmatch(digits)
    return dashed(digits) if is_valid else None


def known_uid(kind: str, id_: str, sentence: str) -> str:
    uid = uid_of(kind, id_)
    if uid is None:
        raise NotFound(sentence)
    return uid


def cursor(listed: Sequence[object], after: str) -> str:
    """Return the cursor of the page after a position in a list.

    `listed` identifies the list by values that JSON can represent.
    """
    mark = hashlib.sha256(json.dumps([*listed, after]).encode()).digest()[:_MARK]
    return base64.urlsafe_b64encode(mark + after.encode()).decode().rstrip("=")


def position(listed: Sequence[object], text: str) -> str | None:
    """Return the position in a cursor; None if the text is not a cursor of this list."""
    try:
        padded = text + "=" * (-len(text) % 4)
        after = base64.b64decode(padded, altchars=b"-_", validate=True)[_MARK:].decode()
    except ValueError:
        return None
    return after if text == cursor(listed, after) else None


def instant(text: str, *, needs_offset: bool = False, rounds_up: bool = False) -> datetime | None:
    """Parse an RFC 3339 instant like `exact`; a space may stand for the plus of the offset."""
    text = text[:-6] + text[-6:].replace(" ", "+")  # an unencoded plus in a query means a space
    return exact(text, needs_offset=needs_offset, rounds_up=rounds_up)
