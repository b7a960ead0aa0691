"""JSON as clients send it: leniently decoded, strictly bounded, read piece by piece if large."""

import codecs
import encodings.utf_8_sig  # noqa: F401 - else the first body imports it, and may find no file left
import json
import re
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, NoReturn

from ..errors import Invalid
from ..recall.text import MAX_DEPTH, clean, depth_of

MAX_DIGITS = 20  # an INTEGER of SQLite has 19, and long ones take quadratic time to parse
MAX_ITEM = 4 * 1024 * 1024  # characters of one item of a streamed array
_CHUNK = 64 * 1024  # bytes; doubled while an item is longer

_ENCODING = "utf-8-sig"  # a byte order mark is passed over
_SPACE = re.compile(r"[ \t\n\r]*")
_DIGIT = re.compile(r"\d")
_LONGEST_SIGN = 16  # characters; more than `-Infinity` or an escaped character has


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
