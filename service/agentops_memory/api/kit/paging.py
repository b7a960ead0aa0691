"""Lists in pages: cursors that are of one list, and the instants that bound it, in RFC 3339."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from ...domain.text.instants import parsed

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
    r"(?P<offset>[Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?",
    re.ASCII,
)
_FINER = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)  # than a microsecond
_MICROSECOND = timedelta(microseconds=1)
_MARK = 8  # bytes that tell of which list a cursor is


def cursor(listed: Sequence[object], after: str) -> str:
    """What tells a client where the next page of a list begins: after a position in it.

    `listed` is all that makes the list another one, as JSON can hold it.
    """
    mark = hashlib.sha256(json.dumps([*listed, after]).encode()).digest()[:_MARK]
    return base64.urlsafe_b64encode(mark + after.encode()).decode().rstrip("=")


def position(listed: Sequence[object], given: str) -> str | None:
    """The position after which a page begins; None for what is no cursor of this list."""
    try:
        padded = given + "=" * (-len(given) % 4)
        after = base64.b64decode(padded, altchars=b"-_", validate=True)[_MARK:].decode()
    except ValueError:
        return None
    return after if given == cursor(listed, after) else None


def instant(text: str, *, needs_offset: bool = False, rounds_up: bool = False) -> datetime | None:
    """The instant in RFC 3339 text, in UTC; None if there is none, or outside of the years 1-9999.

    Without an offset it is UTC, unless it needs one. What is finer than a microsecond
    is rounded down, or up.
    """
    text = text[:-6] + text[-6:].replace(" ", "+")  # what a plus is in a query
    read = _RFC_3339.fullmatch(text)
    if read is None or (needs_offset and read["offset"] is None):
        return None
    at = parsed(text)
    if at is None or not (rounds_up and _FINER.search(text)):
        return at
    return None if at == datetime.max.replace(tzinfo=at.tzinfo) else at + _MICROSECOND


def rendered(at: datetime) -> str:
    """The instant in RFC 3339, in UTC, in microseconds: `2026-05-18T15:34:26.494349Z`."""
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
