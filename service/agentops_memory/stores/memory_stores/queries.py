"""What the parameters of a request say: pages, bounds, words."""

import re
from datetime import datetime

from starlette.requests import Request

from ...http.ids import ENTRY, uid_of
from ...http.paging import instant
from ...http.requests import exact_parameter, parameter, query_of
from ...memory.model import stores
from .wire import BadField

SHOWN, MOST_SHOWN = 20, 100  # items of a page
CREATED_FROM, CREATED_TO = "created_at[gte]", "created_at[lte]"

_DIGITS = re.compile(r"[0-9]+")


def page(request: Request, kind: str) -> stores.Page:
    """The page that is asked for; BadField for one that is none."""
    after, before = _id(request, "after_id", kind), _id(request, "before_id", kind)
    if after and before:
        raise BadField("Fields 'after_id' and 'before_id' exclude each other.", "before_id")
    return stores.Page(limit=limit(request), after=after, before=before)


def limit(request: Request) -> int:
    """How many are asked for, at most 100."""
    text = parameter(query_of(request), "limit")
    if text is None:
        return SHOWN
    digits = text.lstrip("0")
    if not _DIGITS.fullmatch(text) or not digits:
        raise BadField("Field 'limit' must be a whole number, 1 or more.", "limit")
    return min(int(digits[:4]), MOST_SHOWN)


def store_filter(request: Request) -> stores.StoreFilter:
    return stores.StoreFilter(
        name_prefix=_text(request, "name"),
        with_archived=_flag(request, "include_archived"),
        created=_created(request),
    )


def entry_filter(request: Request) -> stores.EntryFilter:
    return stores.EntryFilter(path_prefix=_text(request, "path_prefix"), created=_created(request))


def version_filter(request: Request) -> stores.VersionFilter:
    entry = _id(request, "entry_id", ENTRY)
    return stores.VersionFilter(entry=None if entry is None else stores.EntryId(entry))


def words(request: Request) -> str:
    """The text that is searched for."""
    text = _text(request, "q")
    if text is None:
        raise BadField("Missing required field: q", "q")
    return text


def _text(request: Request, name: str) -> str | None:
    """A parameter as it was meant; BadField for one that no stored text can be like."""
    try:
        return exact_parameter(request, name)
    except ValueError:
        raise BadField(f"Field '{name}' must be UTF-8 without NUL.", name) from None


def _id(request: Request, name: str, kind: str) -> str | None:
    """The stable id in a parameter; it need not be there any more."""
    shown = parameter(query_of(request), name)
    uid = None if shown is None else uid_of(kind, shown)
    if shown is not None and uid is None:
        raise BadField(f"Field '{name}' must be an id: {kind}_ and 32 hexadecimal digits.", name)
    return uid


def _flag(request: Request, name: str) -> bool:
    text = (parameter(query_of(request), name) or "false").lower()
    if text not in ("true", "false"):
        raise BadField(f"Field '{name}' must be true or false.", name)
    return text == "true"


def _created(request: Request) -> stores.Span:
    return stores.Span(first=_instant(request, CREATED_FROM), last=_instant(request, CREATED_TO))


def _instant(request: Request, name: str) -> datetime | None:
    text = parameter(query_of(request), name)
    if text is None:
        return None
    at = instant(text, needs_offset=True, rounds_up=name == CREATED_FROM)
    if at is None:
        raise BadField(f"Field '{name}' must be an RFC 3339 time.", name)
    return at
