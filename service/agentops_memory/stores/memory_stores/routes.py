"""The Memory Stores API over HTTP: queries, handlers and routes, and its refusals."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ...errors import Refusal
from ...http import spans
from ...http.bodies import WRITTEN, json
from ...http.endpoint import current_caller
from ...http.ids import ENTRY, STORE, VERSION, entry_id, public_id, store_id, uid_of, version_id
from ...http.paging import instant
from ...http.protocol import REDACTED, Operation, Parameter, Protocol
from ...http.refusals import Refusals
from ...http.request_ids import REQUEST_ID, Refused, request_id
from ...http.requests import exact_parameter, parameter, query_of
from ...http.spans import Attributes
from ...memory.model import stores
from ...memory.model.access import Role
from ...memory.model.search import Found, Hit
from ...memory.model.space import StoreId
from ...memory.model.stores import Entry, EntryId, Slice, Store, Version, VersionId
from ...recall.lists import whole_memory
from ...recall.recall import Recall
from ...telemetry import Cut, annotate, events
from ..rules.entries import Entries
from ..rules.rules import Policy
from ..rules.stores import Stores
from ..rules.versions import Versions
from . import wire
from .wire import BODIES, BadField

SHOWN, MOST_SHOWN = 20, 100  # items of a page
CREATED_FROM, CREATED_TO = "created_at[gte]", "created_at[lte]"

_DIGITS = re.compile(r"[0-9]+")


def page_of(request: Request, kind: str) -> stores.Page:
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


T = TypeVar("T")

SHOWN_QUERY = 200  # code points of a search
SHOWN_PATH = 100  # code points of the path of a memory that was found


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStores:
    """The handlers of the protocol over the domain."""

    stores: Stores
    entries: Entries
    versions: Versions
    recall: Recall

    async def create_store(self, request: Request) -> Response:
        draft = wire.store_draft(await BODIES.read(request, wire.StoreBody))
        caller = await BODIES.caller(request)
        made = await self.stores.create(caller, draft)
        annotate(_store_span(made.value))
        return _answered(request, wire.store(made.value), 201, redacted=made.redacted)

    async def list_stores(self, request: Request) -> Response:
        filter_, page = store_filter(request), page_of(request, STORE)
        found = await self.stores.list(current_caller(request), filter_, page)
        annotate(_page_span(found))
        return _answered(request, wire.listed(wire.StoreList, wire.store, found))

    async def get_store(self, request: Request) -> Response:
        store = await self.stores.get(current_caller(request), _store(request))
        annotate(_store_span(store))
        return _answered(request, wire.store(store))

    async def archive_store(self, request: Request) -> Response:
        caller = await BODIES.caller(request)
        store = await self.stores.archive(caller, _store(request))
        annotate(_store_span(store))
        return _answered(request, wire.store(store))

    async def delete_store(self, request: Request) -> Response:
        store = _store(request)
        annotate(spans.within(store))
        caller = await BODIES.caller(request)
        await self.stores.delete(caller, store)
        return _nothing(request)

    async def create_entry(self, request: Request) -> Response:
        store = _store(request)
        draft = wire.entry_draft(await BODIES.read(request, wire.EntryBody))
        caller = await BODIES.caller(request)
        made = await self.entries.create(caller, store, draft)
        annotate(_entry_span(made.value))
        return _answered(request, wire.entry(made.value), 201, redacted=made.redacted)

    async def list_entries(self, request: Request) -> Response:
        store = _store(request)
        filter_, page = entry_filter(request), page_of(request, ENTRY)
        found = await self.entries.list(current_caller(request), store, filter_, page)
        annotate(spans.within(store) | _page_span(found))
        return _answered(request, wire.listed(wire.EntryList, wire.entry, found))

    async def get_entry(self, request: Request) -> Response:
        store, entry = _store(request), _entry(request)
        found = await self.entries.get(current_caller(request), store, entry)
        annotate(_entry_span(found))
        return _answered(request, wire.entry(found))

    async def update_entry(self, request: Request) -> Response:
        store, entry = _store(request), _entry(request)
        given = await BODIES.read(request, wire.EntryChangeBody)
        change, expected = wire.entry_change(given), wire.expected(given)
        caller = await BODIES.caller(request)
        amended = await self.entries.amend(caller, store, entry, change, expected)
        annotate(_entry_span(amended.value))
        return _answered(request, wire.entry(amended.value), redacted=amended.redacted)

    async def delete_entry(self, request: Request) -> Response:
        store, entry = _store(request), _entry(request)
        annotate(spans.within(store, entry))
        caller = await BODIES.caller(request)
        await self.entries.delete(caller, store, entry)
        return _nothing(request)

    async def search_store(self, request: Request) -> Response:
        store, text = _store(request), words(request)
        found = await self.recall.search_store(current_caller(request), store, text, limit(request))
        annotate(spans.within(store) | _search_span(text, found))
        events("search.result", map(_hit_span, found.hits))
        return _answered(request, await wire.entry_hits(store, found))

    async def list_versions(self, request: Request) -> Response:
        store = _store(request)
        filter_, page = version_filter(request), page_of(request, VERSION)
        found = await self.versions.list(current_caller(request), store, filter_, page)
        annotate(spans.within(store) | _page_span(found))
        return _answered(request, wire.listed(wire.VersionList, wire.version, found))

    async def get_version(self, request: Request) -> Response:
        store, version = _store(request), _version(request)
        found = await self.versions.get(current_caller(request), store, version)
        annotate(_version_span(found))
        return _answered(request, wire.version(found))

    async def redact_version(self, request: Request) -> Response:
        store, version = _store(request), _version(request)
        caller = await BODIES.caller(request)
        redacted = await self.versions.redact(caller, store, version)
        annotate(_version_span(redacted))
        return _answered(request, wire.version(redacted))


def _answered(
    request: Request, model: BaseModel, status: int = 200, *, redacted: int = 0
) -> Response:
    answer = json(model, status, redacted=redacted)
    answer.headers[REQUEST_ID] = request_id(request.headers)
    return answer


def _nothing(request: Request) -> Response:
    return Response(status_code=204, headers={REQUEST_ID: request_id(request.headers)})


def _store(request: Request) -> StoreId:
    return store_id(request.path_params["store_id"])


def _entry(request: Request) -> EntryId:
    return entry_id(request.path_params["entry_id"])


def _version(request: Request) -> VersionId:
    return version_id(request.path_params["version_id"])


def _store_span(of: Store) -> Attributes:
    return {**spans.within(of.id), "memory.store.entry_count": of.entries}


def _entry_span(of: Entry) -> Attributes:
    return {**spans.entry(of), "memory.entry.version": of.number}


def _version_span(of: Version) -> Attributes:
    return {**spans.version(of), "memory.version.action": of.deed.value}


def _page_span(found: Slice[T]) -> Attributes:
    return {"memory.page.result_count": len(found.items)}


def _search_span(text: str, found: Found) -> Attributes:
    return {
        "memory.search.query": Cut(text, SHOWN_QUERY),
        "memory.search.result_count": len(found.hits),
        "memory.search.degraded": found.is_degraded or None,
    }


def _hit_span(hit: Hit) -> Attributes:
    return {
        "memory.entry.id": public_id(ENTRY, whole_memory(hit).uid),
        "memory.entry.path": Cut(hit.memory.key or "", SHOWN_PATH),
        "memory.injected.rank": hit.rank,
        "memory.injected.method": hit.method.value,
    }


POLICY = Policy(
    paths_nest=True,
    unchanged_is_change=True,
    done_is_done=False,
    repeats_are_refused=True,
    archived_keeps_entries=True,
    current_is_redacted=True,
    redaction_takes_all=False,
    longest_name=wire.MAX_NAME,
)
REFUSALS = Refusals(statuses={"too_large": 400})

PREFIX = "/api/v1/cloud"
STORES = f"{PREFIX}/memory_stores"
STORE_PATH = f"{STORES}/{{store_id}}"
ENTRIES, VERSIONS = f"{STORE_PATH}/memories", f"{STORE_PATH}/versions"
ENTRY_PATH, VERSION_PATH = f"{ENTRIES}/{{entry_id}}", f"{VERSIONS}/{{version_id}}"

LIMIT = Parameter(
    name="limit",
    help="How many, 20 unless told; at most 100, also for more.",
    kind="count",
    is_row_count=True,
)
PAGE = (
    LIMIT,
    Parameter(name="after_id", help="Only what is older than what has this id."),
    Parameter(name="before_id", help="Only what is newer than what has this id, next to it."),
)
CREATED = (
    Parameter(name=CREATED_FROM, help="Created at this RFC 3339 time or later.", kind="instant"),
    Parameter(name=CREATED_TO, help="Created at this RFC 3339 time or earlier.", kind="instant"),
)


def operations(api: MemoryStores) -> tuple[Operation, ...]:
    """Every operation of the protocol."""
    return (
        Operation(
            method="POST", path=STORES, name="create_store", status=201, role=Role.WRITER,
            summary="Make a memory store; names need not differ.",
            handler=api.create_store, body=wire.StoreBody, answer=wire.StoreObject,
            takes_key=True, headers=WRITTEN,
        ),
        Operation(
            method="GET", path=STORES, name="list_stores", role=Role.READER,
            summary="Memory stores, newest first.",
            handler=api.list_stores, answer=wire.StoreList,
            query=(*PAGE, *CREATED,
                   Parameter(name="name", help="Its beginning, whatever its case."),
                   Parameter(name="include_archived", help="`true` lists archived ones too.",
                             kind="boolean")),
        ),
        Operation(
            method="GET", path=STORE_PATH, name="get_store", role=Role.READER,
            summary="One memory store.",
            handler=api.get_store, answer=wire.StoreObject, refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{STORE_PATH}/archive", name="archive_store", role=Role.WRITER,
            summary="Close a memory store for good: it is read from then on.",
            handler=api.archive_store, answer=wire.StoreObject, takes_key=True, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=STORE_PATH, name="delete_store", status=204, role=Role.ADMIN,
            summary="Delete a memory store with everything in it.",
            handler=api.delete_store, takes_key=True, refusals=(404,),
        ),
        Operation(
            method="GET", path=f"{STORE_PATH}/search", name="search_store", role=Role.READER,
            summary="Memories of a store by their words and paths, best first.",
            handler=api.search_store, answer=wire.EntryHits, refusals=(404,),
            query=(Parameter(name="q", help="Any text.", kind="words", required=True), LIMIT),
        ),
        Operation(
            method="POST", path=ENTRIES, name="create_entry", status=201, role=Role.WRITER,
            summary="Write a memory at a path that is free.",
            handler=api.create_entry, body=wire.EntryBody, answer=wire.EntryObject,
            takes_key=True, headers=WRITTEN, refusals=(404,),
        ),
        Operation(
            method="GET", path=ENTRIES, name="list_entries", role=Role.READER,
            summary="Memories of a store without their contents, newest first.",
            handler=api.list_entries, answer=wire.EntryList, refusals=(404,),
            query=(*PAGE, *CREATED,
                   Parameter(name="path_prefix", help="How the path begins, letter by letter.")),
        ),
        Operation(
            method="GET", path=ENTRY_PATH, name="get_entry", role=Role.READER,
            summary="One memory, with its content.",
            handler=api.get_entry, answer=wire.EntryObject, refusals=(404,),
        ),
        Operation(
            method="PUT", path=ENTRY_PATH, name="update_entry", role=Role.WRITER,
            summary="Replace the content of a memory, if it is in the state that is expected.",
            handler=api.update_entry, body=wire.EntryChangeBody, answer=wire.EntryObject,
            takes_key=True, headers=WRITTEN, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=ENTRY_PATH, name="delete_entry", status=204, role=Role.WRITER,
            summary="Delete a memory; its versions stay.",
            handler=api.delete_entry, takes_key=True, refusals=(404,),
        ),
        Operation(
            method="GET", path=VERSIONS, name="list_versions", role=Role.READER,
            summary="Versions of a store's memories without their contents, newest first.",
            handler=api.list_versions, answer=wire.VersionList, refusals=(404,),
            query=(*PAGE, Parameter(name="entry_id", help="Only those of this memory.")),
        ),
        Operation(
            method="GET", path=VERSION_PATH, name="get_version", role=Role.READER,
            summary="One version, with its content unless it is redacted.",
            handler=api.get_version, answer=wire.VersionObject, refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{VERSION_PATH}/redact", name="redact_version", role=Role.ADMIN,
            summary="Take the content out of a version for good.",
            handler=api.redact_version, answer=wire.VersionObject, takes_key=True, refusals=(404,),
        ),
    )  # fmt: skip


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request, which names the ids in its path."""

    def content(scope: Scope, id_: str) -> bytes:
        type_ = REFUSALS.type(refusal.code)
        problem = wire.problem(refusal, type_, scope.get("path_params", {}), id_)
        return problem.model_dump_json().encode()

    return Refused(refusal, REFUSALS, content)


PROTOCOL = Protocol(
    title="Memory Stores",
    summary="Documents at paths, with immutable versions.",
    prefix=PREFIX,
    refusals=REFUSALS,
    refused=refused,
    problem=wire.StoreProblem,
    headers={REQUEST_ID: "The id that the client gave the request, or a new one."},
    sent=(REQUEST_ID,),
    read=(REDACTED, REQUEST_ID),
    is_authorization_only=True,
    require=lambda _, caller: caller.require_stores(),
)
