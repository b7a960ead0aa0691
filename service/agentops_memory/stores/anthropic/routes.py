"""The Anthropic dialect over HTTP: queries, handlers and routes, below /v1/memory_stores."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ...errors import Invalid, Refusal
from ...http import paging, spans
from ...http.bodies import JSON, WRITTEN, json
from ...http.endpoint import current_caller
from ...http.ids import ENTRY, STORE, entry_id, public_id, store_id, uid_of, version_id
from ...http.protocol import REDACTED, Operation, Parameter, Protocol
from ...http.refusals import Refusals
from ...http.spans import Attributes
from ...memory.model import stores
from ...memory.model.access import KeyId, Role
from ...memory.model.memory import ANY_STATE, ChangeKind, Expected
from ...memory.model.space import StoreId
from ...memory.model.stores import EntryId, VersionId
from ...recall.text.normalization import clean
from ...telemetry import annotate
from ..rules.entries import Branch, Entries
from ..rules.rules import Policy
from ..rules.stores import Stores
from ..rules.versions import Versions
from . import wire
from .wire import BODIES, OPERATION_NAMES, REQUEST_ID, new_request_id, stored_prefix

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


def branch_of(request: Request, *, full: bool) -> Branch:
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


def expected_of(request: Request) -> Expected:
    """The state that a deletion wants the memory to be in."""
    sha256 = _given(request, "expected_content_sha256")
    return ANY_STATE if sha256 is None else Expected(sha256=sha256)


def page_of(request: Request, *, full: bool = False) -> stores.Page:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicStores:
    """The handlers of the protocol over the domain."""

    stores: Stores
    entries: Entries
    versions: Versions

    async def create_store(self, request: Request) -> Response:
        given = await BODIES.read(request, wire.AnthropicStoreBody)
        caller = await BODIES.caller(request)
        made = await self.stores.create(caller, wire.store_draft(given))
        annotate(spans.within(made.value.id))
        return _answered(wire.store(made.value), redacted=made.redacted)

    async def get_store(self, request: Request) -> Response:
        store = await self.stores.get(current_caller(request), _store(request))
        annotate(spans.within(store.id))
        return _answered(wire.store(store))

    async def update_store(self, request: Request) -> Response:
        id_ = _store(request)
        given = await BODIES.read(request, wire.AnthropicStoreChange, empty=True)
        caller = await BODIES.caller(request)
        amended = await self.stores.amend(caller, id_, wire.store_change(given))
        annotate(spans.within(amended.value.id))
        return _answered(wire.store(amended.value), redacted=amended.redacted)

    async def list_stores(self, request: Request) -> Response:
        filter_, page = store_filter(request), page_of(request)
        found = await self.stores.list(current_caller(request), filter_, page)
        annotate(_counted(found.items))
        data = [wire.store(store) for store in found.items]
        return _answered(wire.AnthropicStoreList(data=data, next_page=next_page(request, found)))

    async def archive_store(self, request: Request) -> Response:
        id_ = _store(request)
        caller = await BODIES.caller(request)
        store = await self.stores.archive(caller, id_)
        annotate(spans.within(store.id))
        return _answered(wire.store(store))

    async def delete_store(self, request: Request) -> Response:
        store = _store(request)
        annotate(spans.within(store))
        caller = await BODIES.caller(request)
        await self.stores.delete(caller, store)
        return _answered(wire.AnthropicStoreDeleted(id=public_id(STORE, store)))

    async def create_memory(self, request: Request) -> Response:
        store, full = _store(request), is_full(request)
        given = await BODIES.read(request, wire.AnthropicMemoryBody)
        caller = await BODIES.caller(request)
        made = await self.entries.create(caller, store, wire.entry_draft(given))
        annotate(spans.entry(made.value, made.value.version))
        return _answered(wire.memory(made.value, full=full), redacted=made.redacted)

    async def get_memory(self, request: Request) -> Response:
        full = is_full(request, unless_told=True)
        entry = await self.entries.get(current_caller(request), _store(request), _memory(request))
        annotate(spans.entry(entry, entry.version))
        return _answered(wire.memory(entry, full=full))

    async def update_memory(self, request: Request) -> Response:
        store, entry, full = _store(request), _memory(request), is_full(request)
        given = await BODIES.read(request, wire.AnthropicMemoryChange, empty=True)
        change, expected = wire.entry_change(given), wire.expected(given)
        caller = await BODIES.caller(request)
        amended = await self.entries.amend(caller, store, entry, change, expected)
        annotate(spans.entry(amended.value, amended.value.version))
        return _answered(wire.memory(amended.value, full=full), redacted=amended.redacted)

    async def list_memories(self, request: Request) -> Response:
        store, full = _store(request), is_full(request)
        branch = branch_of(request, full=full)
        found = await self.entries.tree(current_caller(request), store, branch)
        annotate(spans.within(store) | _counted(found.items))
        data = [wire.item(item, full=full) for item in found.items]
        return _answered(wire.AnthropicMemoryList(data=data, next_page=next_page(request, found)))

    async def delete_memory(self, request: Request) -> Response:
        store, entry = _store(request), _memory(request)
        expected = expected_of(request)
        caller = await BODIES.caller(request)
        await self.entries.delete(caller, store, entry, expected)
        annotate(spans.within(store, entry))
        return _answered(wire.AnthropicMemoryDeleted(id=public_id(ENTRY, entry)))

    async def list_versions(self, request: Request) -> Response:
        store, full = _store(request), is_full(request)
        page = page_of(request, full=full)
        filter_ = version_filter(request, full=full)
        found = await self.versions.list(current_caller(request), store, filter_, page)
        annotate(spans.within(store) | _counted(found.items))
        data = [wire.version(version, full=full) for version in found.items]
        return _answered(wire.AnthropicVersionList(data=data, next_page=next_page(request, found)))

    async def get_version(self, request: Request) -> Response:
        full = is_full(request, unless_told=True)
        version = await self.versions.get(
            current_caller(request), _store(request), _version(request)
        )
        annotate(spans.version(version))
        return _answered(wire.version(version, full=full))

    async def redact_version(self, request: Request) -> Response:
        store, id_ = _store(request), _version(request)
        caller = await BODIES.caller(request)
        version = await self.versions.redact(caller, store, id_)
        annotate(spans.version(version))
        return _answered(wire.version(version, full=False))


def _answered(model: BaseModel, *, redacted: int = 0) -> Response:
    return json(model, redacted=redacted, headers={REQUEST_ID: wire.new_request_id()})


def _counted(items: Sequence[object]) -> Attributes:
    return {"memory.result_count": len(items)}


def _store(request: Request) -> StoreId:
    return store_id(request.path_params["memory_store_id"])


def _memory(request: Request) -> EntryId:
    return entry_id(request.path_params["memory_id"])


def _version(request: Request) -> VersionId:
    return version_id(request.path_params["memory_version_id"])


POLICY = Policy(
    paths_nest=False,
    unchanged_is_change=False,
    done_is_done=True,
    repeats_are_refused=False,
    archived_keeps_entries=False,
    current_is_redacted=False,
    redaction_takes_all=True,
)

PREFIX = "/anthropic"
STORES = f"{PREFIX}/v1/memory_stores"
STORE_PATH = f"{STORES}/{{memory_store_id}}"
MEMORIES = f"{STORE_PATH}/memories"
MEMORY = f"{MEMORIES}/{{memory_id}}"
VERSIONS = f"{STORE_PATH}/memory_versions"
VERSION_PATH = f"{VERSIONS}/{{memory_version_id}}"

BUSY = "overloaded_error"
NOT_AGAIN = {"x-should-retry": "false"}  # the client asks three times otherwise
REFUSALS = Refusals(
    statuses={"too_large": 400, "archived": 400, "still_current": 400},
    types={
        "too_slow": "timeout_error",
        "stale": "memory_precondition_failed_error",
        "path_taken": "memory_path_conflict_error",
        "db_locked": BUSY,
        "timed_out": BUSY,
    },
    headers={409: NOT_AGAIN, 507: NOT_AGAIN},
)

VIEW = Parameter(
    name="view",
    help="Whether contents are shown: `full`, or `basic` without.",
    choices=tuple(VIEWS),
)
LIMIT = Parameter(
    name="limit", kind="count", most=MAX_PAGE, is_row_count=True,
    help="How many items, from 1 to 100; 20 if absent, and at most 20 with `view=full`.",
)  # fmt: skip
PAGE = Parameter(name="page", help="The `next_page` of the page before.")
CREATED = (
    Parameter(name=FROM, help="Created at this instant or later.", kind="instant"),
    Parameter(name=TO, help="Created at this instant or earlier.", kind="instant"),
)


def operations(api: AnthropicStores) -> tuple[Operation, ...]:
    """Every operation of the protocol."""
    return (
        Operation(
            method="POST", path=STORES, name="anthropic_create_store", role=Role.WRITER,
            summary="Create a memory store.",
            handler=api.create_store, body=wire.AnthropicStoreBody, answer=wire.AnthropicStore,
            headers=WRITTEN, takes_key=True,
        ),
        Operation(
            method="GET", path=STORES, name="anthropic_list_stores", role=Role.READER,
            summary="Memory stores, newest first.",
            handler=api.list_stores, answer=wire.AnthropicStoreList,
            query=(Parameter(name="include_archived", help="`true` shows archived ones too.",
                             kind="boolean"), *CREATED, LIMIT, PAGE),
        ),
        Operation(
            method="GET", path=STORE_PATH, name="anthropic_get_store", role=Role.READER,
            summary="One memory store, archived or not.",
            handler=api.get_store, answer=wire.AnthropicStore, refusals=(404,),
        ),
        Operation(
            method="POST", path=STORE_PATH, name="anthropic_update_store", role=Role.WRITER,
            summary="Change parts of a memory store.",
            handler=api.update_store, body=wire.AnthropicStoreChange, body_required=False,
            answer=wire.AnthropicStore, headers=WRITTEN, refusals=(404,), takes_key=True,
        ),
        Operation(
            method="POST", path=f"{STORE_PATH}/archive", name="anthropic_archive_store",
            role=Role.WRITER, takes_key=True,
            summary="Close a memory store for good; a second time changes nothing.",
            handler=api.archive_store, answer=wire.AnthropicStore, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=STORE_PATH, name="anthropic_delete_store", role=Role.ADMIN,
            summary="Delete a memory store with all that is in it.",
            handler=api.delete_store, answer=wire.AnthropicStoreDeleted, refusals=(404,),
            takes_key=True,
        ),
        Operation(
            method="POST", path=MEMORIES, name="anthropic_create_memory", role=Role.WRITER,
            summary="Create a memory at a path.",
            handler=api.create_memory, body=wire.AnthropicMemoryBody, answer=wire.AnthropicMemory,
            query=(VIEW,), headers=WRITTEN, refusals=(404,), takes_key=True,
        ),
        Operation(
            method="GET", path=MEMORIES, name="anthropic_list_memories", role=Role.READER,
            summary="Memories in the order of their paths.",
            handler=api.list_memories, answer=wire.AnthropicMemoryList, refusals=(404,),
            query=(Parameter(name="path_prefix", help="A folder: `/notes/`."),
                   Parameter(name="depth", help="`1` shows folders for what lies deeper.",
                             choices=tuple(DEPTHS)), VIEW, LIMIT, PAGE),
        ),
        Operation(
            method="GET", path=MEMORY, name="anthropic_get_memory", role=Role.READER,
            summary="One memory, with its content unless the view is basic.",
            handler=api.get_memory, answer=wire.AnthropicMemory, query=(VIEW,), refusals=(404,),
        ),
        Operation(
            method="POST", path=MEMORY, name="anthropic_update_memory", role=Role.WRITER,
            summary="Change the content of a memory, or its path.",
            handler=api.update_memory, body=wire.AnthropicMemoryChange, body_required=False,
            answer=wire.AnthropicMemory, query=(VIEW,), headers=WRITTEN,
            refusals=(404,), takes_key=True,
        ),
        Operation(
            method="DELETE", path=MEMORY, name="anthropic_delete_memory", role=Role.WRITER,
            summary="Delete a memory; its versions stay.",
            handler=api.delete_memory, answer=wire.AnthropicMemoryDeleted,
            query=(Parameter(name="expected_content_sha256",
                             help="The hash that its content must have."),),
            refusals=(404,), takes_key=True,
        ),
        Operation(
            method="GET", path=VERSIONS, name="anthropic_list_versions", role=Role.READER,
            summary="Versions of the memories of a store, newest first.",
            handler=api.list_versions, answer=wire.AnthropicVersionList, refusals=(404,),
            query=(Parameter(name="memory_id", help="Of this memory, which may be deleted."),
                   Parameter(name="operation", help="Of this kind.", choices=tuple(OPERATIONS)),
                   Parameter(name="api_key_id", help="Written with this key."),
                   Parameter(name="session_id", help="Matches nothing."),
                   Parameter(name="service_account_id", help="Matches nothing."),
                   *CREATED, VIEW, LIMIT, PAGE),
        ),
        Operation(
            method="GET", path=VERSION_PATH, name="anthropic_get_version", role=Role.READER,
            summary="One version, with its content unless the view is basic.",
            handler=api.get_version, answer=wire.AnthropicVersion, query=(VIEW,), refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{VERSION_PATH}/redact", name="anthropic_redact_version",
            role=Role.ADMIN, takes_key=True,
            summary="Take what a version says out for good.",
            handler=api.redact_version, answer=wire.AnthropicVersion, refusals=(404,),
        ),
    )  # fmt: skip


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request."""
    request_id, type_ = new_request_id(), REFUSALS.type(refusal.code)
    content = wire.problem(refusal, type_, request_id).model_dump_json(exclude_none=True)
    headers = {REQUEST_ID: request_id, **REFUSALS.headers_of(refusal)}
    return Response(content, REFUSALS.status(refusal.code), headers, media_type=JSON)


PROTOCOL = Protocol(
    title="Anthropic dialect",
    summary="The same stores, as the Python package `anthropic` asks for them.",
    prefix=PREFIX,
    refusals=REFUSALS,
    refused=refused,
    problem=wire.AnthropicProblem,
    headers={REQUEST_ID: "An id of the answer, which the log names too."},
    sent=(
        # What the packages of this dialect send of their own accord.
        "anthropic-version", "anthropic-beta", "anthropic-workspace-id",
        "anthropic-dangerous-direct-browser-access",
        "X-Stainless-Arch", "X-Stainless-Async", "X-Stainless-Helper", "X-Stainless-Helper-Method",
        "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version",
        "X-Stainless-Read-Timeout", "X-Stainless-Retry-Count", "X-Stainless-Runtime",
        "X-Stainless-Runtime-Version", "X-Stainless-Stream-Helper", "X-Stainless-Timeout",
    ),
    read=(REDACTED, REQUEST_ID),
)  # fmt: skip
