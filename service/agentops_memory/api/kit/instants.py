"""Instants as RFC 3339 and nothing else: read from a query, shown with microseconds."""

import re
from datetime import datetime, timedelta

from ...domain.text.instants import parsed

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
    r"(?P<offset>[Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?",
    re.ASCII,
)
_FINER = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)  # than a microsecond
_MICROSECOND = timedelta(microseconds=1)


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
