"""The query of a request, read: its values, public ids, cursors; how much one answer may hold."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from ..errors import Invalid, NotFound
from ..recall.instants import dashed, exact
from ..recall.text import clean

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
    text = parameter(query, name) or ""
    if not NUMBER.fullmatch(text):
        return default
    digits = text.lstrip("0")
    return min(int(digits[:5] or 0), MAX_ROWS) or default


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


STORE, ENTRY, VERSION, EVENT = "memstore", "mem", "memver", "evt"

_HEX = re.compile("[0-9a-f]{32}", re.ASCII)


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


_MARK = 8  # bytes that tell of which list a cursor is


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
