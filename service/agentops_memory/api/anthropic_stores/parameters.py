"""What a query may say. The first of repeated parameters counts, and an empty one is no default."""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from starlette.requests import Request

from ...domain.errors import Invalid
from ...domain.model.memory import ChangeKind
from ...domain.model.stores import Span
from ...domain.text.normalization import clean
from ..kit import paging
from .wire import OPERATION_NAMES, stored_prefix

MAX_PAGE = 100
MAX_FULL_PAGE = 20  # of memories or versions with their contents
DEFAULT_PAGE = 20

OPERATIONS: Mapping[str, ChangeKind] = {name: kind for kind, name in OPERATION_NAMES.items()}
FROM, TO = "created_at[gte]", "created_at[lte]"
# What makes a list another one, so that a cursor of the one is none of the other.
FILTERS = (
    "api_key_id", "depth", "include_archived", "memory_id", "operation", "path_prefix",
    "service_account_id", "session_id", FROM, TO,
)  # fmt: skip

_NUMBER = re.compile(r"\d{1,3}", re.ASCII)


class View(StrEnum):
    """Whether contents are shown."""

    BASIC = "basic"
    FULL = "full"


def given(request: Request, name: str) -> str | None:
    """The text of a parameter; None if it is absent."""
    values = request.query_params.getlist(name)
    return clean(values[0]) if values else None


def is_full(request: Request, default: View = View.BASIC) -> bool:
    """Whether contents are to be shown."""
    text = given(request, "view")
    if text is None:
        return default is View.FULL
    if text not in list(View):
        raise Invalid("view: it must be 'basic' or 'full'.")
    return text == View.FULL


def with_archived(request: Request) -> bool:
    """Whether archived stores are listed too."""
    text = given(request, "include_archived")
    if text is not None and text.lower() not in ("true", "false"):
        raise Invalid("include_archived: it must be true or false.")
    return text is not None and text.lower() == "true"


def limit(request: Request, *, full: bool = False) -> int:
    """How many items a page has; those with contents are fewer."""
    text = given(request, "limit")
    number = DEFAULT_PAGE if text is None else int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= number <= MAX_PAGE:
        raise Invalid(f"limit: it must be a whole number from 1 to {MAX_PAGE}.")
    return min(number, MAX_FULL_PAGE) if full else number


def prefix(request: Request) -> str:
    """The folder that is listed, as paths are stored: none for the whole store."""
    text = given(request, "path_prefix")
    return "" if text is None else stored_prefix(text)


def is_shallow(request: Request) -> bool:
    """Whether what lies deeper is shown as its folder."""
    text = given(request, "depth")
    if text not in (None, "0", "1"):
        raise Invalid("depth: it must be 0 or 1.")
    return text == "1"


def operation(request: Request) -> ChangeKind | None:
    """The kind of change that an operation names."""
    text = given(request, "operation")
    if text is None:
        return None
    if text not in OPERATIONS:
        raise Invalid(f"operation: it must be one of {', '.join(OPERATIONS)}.")
    return OPERATIONS[text]


def created(request: Request) -> Span:
    """The instants between which it was created."""
    return Span(first=_instant(request, FROM), last=_instant(request, TO))


def after(request: Request) -> str | None:
    """The position in the list after which the page begins; Invalid for one in another list."""
    page = given(request, "page")
    if page is None:
        return None
    position = paging.position(_listed(request), page)
    if position is None:
        raise Invalid("page: it must be the next_page of an earlier page of the same list.")
    return position


def next_page(request: Request, after: str) -> str:
    """A cursor to what comes after a position in the list that the request asks for."""
    return paging.cursor(_listed(request), after)


def _listed(request: Request) -> list[object]:
    return [request.scope["path"], [(name, given(request, name)) for name in FILTERS]]


def _instant(request: Request, name: str) -> datetime | None:
    text = given(request, name)
    if text is None:
        return None
    at = paging.instant(text, rounds_up=name == FROM)
    if at is None:
        raise Invalid(f"{name}: it must be an instant in RFC 3339.")
    return at
