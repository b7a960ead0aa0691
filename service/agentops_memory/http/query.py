"""What a client sends, read: JSON, leniently decoded and strictly bounded, piece by piece if large;
the values of a query, public ids, cursors, and how much one answer may hold.
"""

import base64
import codecs
import encodings.utf_8_sig  # noqa: F401 - else the first body imports it, and may find no file left
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO, NoReturn

from ..errors import Invalid, NotFound
from ..memory.rows import dashed, exact
from ..recall.text import MAX_DEPTH, clean, depth_of

MAX_DIGITS = 20  # an INTEGER of SQLite has 19, and long ones take quadratic time to parse
MAX_ITEM = 4 * 1024 * 1024  # characters of one item of a streamed array
_CHUNK = 64 * 1024  # bytes; doubled while an item is longer

_ENCODING = "utf-8-sig"  # a byte order mark is passed over
_SPACE = re.compile(r"[ \t\n\r]*")
_DIGIT = re.compile(r"\d")
_LONGEST_SIGN = 16  # characters; more than `-Infinity` or an escaped character has
STORE, ENTRY, VERSION, EVENT = "memstore", "mem", "memver", "evt"
_HEX = re.compile("[0-9a-f]{32}", re.ASCII)
_MARK = 8  # bytes that tell of which list a cursor is


def parsed(body: bytes | bytearray, *, exact: bool = False) -> object:
    """The value in a body; anything wrong is Invalid.

    What is no UTF-8 becomes U+FFFD, unless the body is to be taken exactly.
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
    """The value as JSON that every reader takes: what is no UTF-8 is U+FFFD."""
    return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def entries(file: BinaryIO, names: Collection[str]) -> Iterator[tuple[str, int, object]]:
    """The items of the named arrays of the object in a file, each with its name and index.

    One item is held at a time. The whole file is checked on the way; a named
    member that is null is an empty array.
    """
    for name, index, value in members(file):
        if name not in names:
            continue
        if index is not None:
            yield name, index, value
        elif value is not None:
            raise Invalid(f"{name} must be a list.")


def members(file: BinaryIO) -> Iterator[tuple[str, int | None, object]]:
    """The members of the object in a file, in their order: the name and the value of each.

    An array yields null without an index, and then its items with theirs.
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
        self._at = self._passed = 0  # in the text; and the characters before it
        self._ended = False

    def peek(self) -> str:
        while True:
            self._at = _after_space(self._text, self._at)
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more(_CHUNK)

    def take(self, sign: str) -> bool:
        """Whether the sign comes next; if so, it is passed."""
        is_next = self.peek() == sign
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
        """The next value, whole; it stands inside so many brackets."""
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
            # A number that is cut inside may be one before the cut: `1` of `1.5`.
            if end + _LONGEST_SIGN < len(self._text) or self._ended:
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
    """It is no JSON, but what follows may make it so."""


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
        near_the_end = error.pos > len(error.doc) - _LONGEST_SIGN
        is_unfinished = near_the_end or error.msg.startswith("Unterminated string")
        fault = _Unfinished if is_unfinished else Invalid
        reason = error.msg.removesuffix(" starting at")
        raise fault(f"invalid JSON: {reason} at character {passed + error.pos}.") from error
    # Fewer brackets than levels: it cannot be too deep, and nothing need be walked.
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
"""The values of each parameter, in their order."""

NUMBER = re.compile(r"\d+", re.ASCII)
_SIGNED = re.compile(r"[-+]?\d{1,19}", re.ASCII)
_DIGITS = 18  # of an amount that are read: no longer one is less than these
_INT64 = range(-(1 << 63), 1 << 63)


def parameter(query: Query, name: str) -> str | None:
    """The first value of a query parameter; an empty one is an unset one."""
    values = query.get(name)
    return clean(values[0]) or None if values else None


def natural(text: str) -> int:
    """The number of a text of digits, or one as good if it is long; -1 for any other text."""
    return int(text.lstrip("0")[:_DIGITS] or 0) if NUMBER.fullmatch(text) else -1


def several(query: Query, name: str, most: int) -> tuple[str, ...]:
    """The different values of a repeatable parameter; empty ones are unset.

    Invalid for more than so many.
    """
    values = sorted({clean(value) for value in query.get(name, ())} - {""})
    if len(values) > most:
        raise Invalid(f"{name} takes at most {most} different values.")
    return tuple(values)


def row_count(query: Query, name: str, default: int) -> int:
    """A number of rows: the default unless it is a positive number, and at most 1,000."""
    return min(max(natural(parameter(query, name) or ""), 0), MAX_ROWS) or default


def whole_number(text: str | None, name: str) -> int:
    """A number of at most 64 bits; anything else is Invalid."""
    number = int(text) if text and _SIGNED.fullmatch(text) else None
    if number is None or number not in _INT64:
        raise Invalid(f"{name} must be a whole number.")
    return number


def amount(query: Query, name: str, least: int = 0) -> int | None:
    """A whole number, at least so large; none if it is unset, and anything else is Invalid."""
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
    """Whether a flag is set that must not be misread; Invalid unless it is true or false."""
    values = [value.lower() for value in query.get(name, ())]
    if any(value not in ("true", "false", "1", "0") for value in values):
        raise Invalid(f"{name} must be true or false.")
    return any(value in ("true", "1") for value in values)


def fitting(items: Iterable[bytes], *, beside: int = 0) -> list[bytes]:
    """The first of the items, as many as one answer can hold beside so many bytes."""
    room, fit = MAX_ANSWER - 1024 - beside, []
    for item in items:
        room -= len(item) + 1
        if room < 0:
            break
        fit.append(item)
    return fit


def public_id(kind: str, uid: str) -> str:
    """A stable id on the wire: `mem_` and 32 digits."""
    return f"{kind}_{uid.replace('-', '')}"


def uid_of(kind: str, id_: str) -> str | None:
    prefix, _, digits = id_.partition("_")
    is_one = prefix == kind and _HEX.fullmatch(digits)
    return dashed(digits) if is_one else None


def known_uid(kind: str, id_: str, sentence: str) -> str:
    uid = uid_of(kind, id_)
    if uid is None:
        raise NotFound(sentence)
    return uid


def cursor(listed: Sequence[object], after: str) -> str:
    """What tells a client where the next page of a list begins: after a position in it.

    `listed` is all that makes the list another one, as JSON can hold it.
    """
    mark = hashlib.sha256(json.dumps([*listed, after]).encode()).digest()[:_MARK]
    return base64.urlsafe_b64encode(mark + after.encode()).decode().rstrip("=")


def position(listed: Sequence[object], text: str) -> str | None:
    """The position after which a page begins; None for what is no cursor of this list."""
    try:
        padded = text + "=" * (-len(text) % 4)
        after = base64.b64decode(padded, altchars=b"-_", validate=True)[_MARK:].decode()
    except ValueError:
        return None
    return after if text == cursor(listed, after) else None


def instant(text: str, *, needs_offset: bool = False, rounds_up: bool = False) -> datetime | None:
    """The instant in RFC 3339 text, as `exact` reads it, in which a space may stand for a plus."""
    text = text[:-6] + text[-6:].replace(" ", "+")  # what a plus is in a query
    return exact(text, needs_offset=needs_offset, rounds_up=rounds_up)
