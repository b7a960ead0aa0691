"""What a query may say. The first of repeated parameters counts, and an empty one is no default."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

from starlette.requests import Request

from ...errors import Invalid
from ...http import paging
from ...http.ids import ENTRY, uid_of
from ...memory.model import stores
from ...memory.model.access import KeyId
from ...memory.model.memory import ANY_STATE, ChangeKind, Expected
from ...recall.text.normalization import clean
from ..rules.listing import Branch
from .wire import OPERATION_NAMES, stored_prefix

T = TypeVar("T")
Item = TypeVar("Item", bound=stores.Store | stores.Version | stores.Entry | str)  # of a list

MAX_PAGE = 100
MAX_FULL_PAGE = 20  # of memories or versions with their contents
DEFAULT_PAGE = 20

VIEWS = {"basic": False, "full": True}  # whether contents are shown
DEPTHS = {"0": False, "1": True}  # whether what lies deeper is shown as its folder
FLAGS = {"false": False, "true": True}
OPERATIONS: Mapping[str, ChangeKind] = {name: kind for kind, name in OPERATION_NAMES.items()}
FROM, TO = "created_at[gte]", "created_at[lte]"
# What makes a list another one, so that a cursor of the one is none of the other.
FILTERS = (
    "api_key_id", "depth", "include_archived", "memory_id", "operation", "path_prefix",
    "service_account_id", "session_id", FROM, TO,
)  # fmt: skip

NOBODY = stores.EntryId("")  # an id of no memory
FOREIGN_AUTHORS = ("session_id", "service_account_id")  # who writes nothing here

_NUMBER = re.compile(r"\d{1,3}", re.ASCII)


def is_full(request: Request, *, unless_told: bool = False) -> bool:
    """Whether contents are to be shown."""
    return _choice("view", _given(request, "view"), VIEWS, "'basic' or 'full'", unless_told)


def store_filter(request: Request) -> stores.StoreFilter:
    name = "include_archived"
    text = _given(request, name)
    archived = _choice(name, text and text.lower(), FLAGS, "true or false", absent=False)
    return stores.StoreFilter(with_archived=archived, created=_created(request))


def branch(request: Request, *, full: bool) -> Branch:
    """The page of a list by path: of a folder, or of the whole store."""
    prefix = _given(request, "path_prefix")
    return Branch(
        prefix="" if prefix is None else stored_prefix(prefix),
        is_shallow=_choice("depth", _given(request, "depth"), DEPTHS, "0 or 1", absent=False),
        after=_after(request),
        limit=_limit(request, full=full),
        with_content=full,
    )


def version_filter(request: Request, *, full: bool) -> stores.VersionFilter:
    memory, key = _given(request, "memory_id"), _given(request, "api_key_id")
    entry = None if memory is None else stores.EntryId(uid_of(ENTRY, memory) or NOBODY)
    if any(_given(request, name) is not None for name in FOREIGN_AUTHORS):
        entry = NOBODY
    said, names = _given(request, "operation"), f"one of {', '.join(OPERATIONS)}"
    return stores.VersionFilter(
        entry=entry,
        deed=_choice("operation", said, OPERATIONS, names, absent=None),
        author=None if key is None else KeyId(key),
        created=_created(request),
        with_content=full,
    )


def expected(request: Request) -> Expected:
    """The state that a deletion wants the memory to be in."""
    sha256 = _given(request, "expected_content_sha256")
    return ANY_STATE if sha256 is None else Expected(sha256=sha256)


def page(request: Request, *, full: bool = False) -> stores.Page:
    """The page that is asked for, which has fewer items with contents."""
    return stores.Page(limit=_limit(request, full=full), after=_after(request))


def next_page(request: Request, found: stores.Slice[Item]) -> str | None:
    """A cursor to what comes after a page of the list that the request asks for."""
    if not found.has_more:
        return None
    return paging.cursor(_listed(request), _position(found.items[-1]))


def _given(request: Request, name: str) -> str | None:
    """The text of a parameter; None if it is absent."""
    values = request.query_params.getlist(name)
    return clean(values[0]) if values else None


def _choice(name: str, text: str | None, choices: Mapping[str, T], told: str, absent: T) -> T:
    """What the text of a parameter stands for; Invalid says what it must be."""
    if text is None:
        return absent
    if text not in choices:
        raise Invalid(f"{name}: it must be {told}.")
    return choices[text]


def _limit(request: Request, *, full: bool) -> int:
    text = _given(request, "limit")
    number = DEFAULT_PAGE if text is None else int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= number <= MAX_PAGE:
        raise Invalid(f"limit: it must be a whole number from 1 to {MAX_PAGE}.")
    return min(number, MAX_FULL_PAGE) if full else number


def _after(request: Request) -> str | None:
    """The position in the list after which the page begins; Invalid for one in another list."""
    given = _given(request, "page")
    position = None if given is None else paging.position(_listed(request), given)
    if given is not None and position is None:
        raise Invalid("page: it must be the next_page of an earlier page of the same list.")
    return position


def _position(item: Item) -> str:
    match item:
        case str():
            return item
        case stores.Entry():
            return item.path
        case _:
            return item.id


def _listed(request: Request) -> list[object]:
    return [request.scope["path"], [(name, _given(request, name)) for name in FILTERS]]


def _created(request: Request) -> stores.Span:
    return stores.Span(first=_instant(request, FROM), last=_instant(request, TO))


def _instant(request: Request, name: str) -> datetime | None:
    text = _given(request, name)
    at = None if text is None else paging.instant(text, rounds_up=name == FROM)
    if text is not None and at is None:
        raise Invalid(f"{name}: it must be an instant in RFC 3339.")
    return at
