"""Our dialect, the Memory Stores API: stores of documents at paths, below /api/v1/cloud."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field, StringConstraints
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ..errors import Invalid, Refusal
from ..http import bodies
from ..http.bodies import parsing
from ..http.gate import paced
from ..http.protocol import REDACTED, Operation, Protocol, Refusals
from ..http.query import ENTRY, STORE, VERSION, natural, public_id, uid_of
from ..memory.access import Caller, Role
from ..memory.memory import Expected
from ..memory.redactor import NO_STORE
from ..memory.search import Hit
from ..memory.space import StoreId
from ..recall.recall import Recall, whole_memory
from ..recall.text import clean, cut, sha256_of
from ..record import Record, shape
from ..telemetry import Attributes, Cut, annotate, events
from . import entry as entries, store as rules
from .entry import Entry, Version
from .store import Param, in_path, in_query

POLICY = rules.Policy(
    paths_nest=True, noop_creates_version=True, ignores_conflict_if_equal=False,
    rejects_repeats=True, archived_forbids_deletes=True, may_redact_current=True,
    redaction_clears_all=False, longest_name=64,
)  # fmt: skip
REFUSALS = Refusals(statuses={"too_large": 400})

DEFAULT_PAGE, MAX_PAGE = 20, 100  # items of a page
QUERY_LENGTH = 200  # code points of a query that a span quotes
PATH_LENGTH = 100  # code points of a hit's path that a span quotes
ID_LENGTH = 100  # characters of an unknown id that a message quotes
SNIPPET = 300  # characters of a hit's content

_KINDS = {"memory_store": STORE, "memory": ENTRY, "memory_version": VERSION}


class BadField(Invalid):
    """A field of the body, or a parameter, is invalid."""

    def __init__(self, sentence: str, field: str) -> None:
        super().__init__(sentence)
        self.field = field


Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=POLICY.longest_name),
    rules.STORABLE,
]
Description = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=rules.MAX_DESCRIPTION), rules.STORABLE
]
MetadataKey = Annotated[str, Field(max_length=rules.MAX_PAIR_KEY), rules.STORABLE]
MetadataValue = Annotated[str, Field(max_length=rules.MAX_PAIR_VALUE), rules.STORABLE]
Metadata = Annotated[
    dict[MetadataKey, MetadataValue], Field(max_length=rules.MAX_PAIRS), rules.few(rules.MAX_PAIRS)
]
Path = Annotated[
    str, rules.STORABLE,
    bodies.must(lambda it: it[:1] != "/", "must be a relative path (cannot start with '/')"),
    bodies.must(lambda it: ".." not in it, "cannot contain '..'"),
    Field(json_schema_extra={"minLength": 1, "maxLength": rules.MAX_PATH}),
]  # fmt: skip
Content = Annotated[
    str, rules.STORABLE, bodies.must(str.strip, "cannot be blank"),
    bodies.must(
        lambda content: rules.size_of(content) <= rules.MAX_CONTENT,
        f"must be at most {rules.MAX_CONTENT:,} bytes",
    ),
    Field(json_schema_extra={"minLength": 1, "maxLength": rules.MAX_CONTENT}),
]  # fmt: skip


class StoreBody(rules.Body):
    """POST /memory_stores."""

    name: Name
    description: Description = ""
    metadata: Metadata = Field(default={})


class EntryBody(rules.Body):
    """POST /memory_stores/{store_id}/memories."""

    path: Path
    content: Content
    metadata: Metadata = Field(default={})


class EntryChangeBody(rules.Body):
    """PUT /memory_stores/{store_id}/memories/{entry_id}.

    `version` and `content_sha256` are preconditions: the state that the entry must be in.
    """

    content: Content
    metadata: Metadata | None = None
    version: int | None = None
    content_sha256: Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{64}$")] | None = None

    @property
    def expected(self) -> Expected:
        sha256 = self.content_sha256
        return Expected(revision=self.version, sha256=sha256 and sha256.lower())


class EntryHit(Entry):
    """A search hit: a memory with the beginning of its content and its rank."""

    snippet: str
    rank: float


class EntryHits(Record):
    """The hits of a search, best first."""

    data: list[EntryHit]


_ENDS: dict[str, Any] = {"first_id": str | None, "last_id": str | None, "has_more": bool}
StoreList = shape("StoreList", "Memory stores, newest first.", data=[rules.Store], **_ENDS)
EntryList = shape(
    "EntryList", "Memories of a store without their contents, newest first.", data=[Entry], **_ENDS
)
VersionList = shape(
    "VersionList", "Versions of a store's memories without their contents, newest first.",
    data=[Version], **_ENDS,
)  # fmt: skip


StoreProblem = rules.problem("Store", "The error, and the invalid field or parameter.", param=str)


def _bad_field(faults: Sequence[ErrorDetails]) -> BadField:
    """Return the first fault of a body as an error about its field."""
    fault, field = faults[0], str(faults[0]["loc"][0])
    if fault["type"] in ("missing", "string_too_short"):
        return BadField(f"Missing required field: {field}", field)
    # The key of a pair is not named: it may be a secret.
    inside = "has a key or value that " if len(fault["loc"]) > 1 else ""
    return BadField(f"Field '{field}' {inside}{bodies.said_of(fault)}.", field)


class Arguments(bodies.Arguments):
    """Parses parameters; raises BadField for the first fault."""

    def fault(self, name: str, problem: str) -> None:
        raise BadField(f"Field '{name}' {problem}.", name)


def _text(arguments: Arguments, name: str) -> str | None:
    """Return the exact text of a parameter."""
    try:
        return bodies.exact_parameter(arguments.request, name)
    except ValueError:
        raise BadField(f"Field '{name}' must be UTF-8 without NUL.", name) from None


def _required_text(arguments: Arguments, name: str) -> str:
    if (text := _text(arguments, name)) is None:
        raise BadField(f"Missing required field: {name}", name)
    return text


def _id(kind: str) -> bodies.Reading:
    """Return a reader of stable ids; the object may have been deleted."""
    return parsing(partial(uid_of, kind), f"must be an id: {kind}_ and 32 hexadecimal digits")


def _before(kind: str, arguments: Arguments, name: str) -> Any:
    before = _id(kind)(arguments, name)
    if before and arguments.text("after_id"):
        raise BadField("Fields 'after_id' and 'before_id' must not be used together.", name)
    return before


LIMIT = in_query(
    "limit", "limit",
    parsing(lambda it: min(natural(it), MAX_PAGE) if natural(it) > 0 else None,
            "must be a whole number, 1 or more", DEFAULT_PAGE),
    "Maximum number of items (default 20); more than 100 counts as 100.",
    kind="count", is_row_count=True,
)  # fmt: skip
FROM, TO = rules.created("must be an RFC 3339 time", "RFC 3339 time", needs_offset=True)
NAME = in_query("name", "name", _text, "Prefix of the name, ignoring case.")
PATH_PREFIX = in_query("path_prefix", "path_prefix", _text, "Exact prefix of the path.")
ENTRY_ID = in_query("entry_id", "entry", _id(ENTRY), "Only versions of this memory.")
WORDS = in_query("q", "text", _required_text, "Any text.", kind="words", required=True)


def _page(kind: str) -> Sequence[Param]:
    older = "Only items older than this id."
    newer = "Only items newer than this id, beginning with the next newer one."
    return (
        in_query("after_id", "after", _id(kind), older),
        in_query("before_id", "before", partial(_before, kind), newer),
        LIMIT,
    )


PREFIX = "/api/v1/cloud"
STORES = f"{PREFIX}/memory_stores"
STORE_PATH = f"{STORES}/{{store_id}}"
ENTRIES, VERSIONS = f"{STORE_PATH}/memories", f"{STORE_PATH}/versions"
ENTRY_PATH, VERSION_PATH = f"{ENTRIES}/{{entry_id}}", f"{VERSIONS}/{{version_id}}"


def operations(serving: rules.Serving, recall: Recall) -> Sequence[Operation]:
    async def search(
        _: rules.Serving, caller: Caller, store: StoreId, text: str, limit: int
    ) -> EntryHits:
        matches = await recall.search_store(caller, store, text, limit)
        annotate({
            "memory.search.query": Cut(text, QUERY_LENGTH),
            "memory.search.result_count": len(matches.hits),
            "memory.search.degraded": matches.is_degraded or None,
        })  # fmt: skip
        events("search.result", map(_hit_span, matches.hits))
        hits = paced((_hit(store, hit) for hit in matches.hits), lambda hit: hit.size)
        return EntryHits(data=[hit async for hit in hits])

    op = partial(rules.op, serving, BODIES, Arguments, _answer)
    store = (in_path("store_id", "store"),)
    entry = (*store, in_path("entry_id", "entry"))
    version = (*store, in_path("version_id", "version"))
    return (
        op("POST", STORES, "create_store", "Create a memory store; names need not be unique.",
           Role.WRITER, rules.CREATE, body=StoreBody, answer=rules.Store, status=201),
        op("GET", STORES, "list_stores", "Memory stores, newest first.",
           Role.READER, rules.list_stores, (NAME, rules.ARCHIVED, FROM, TO, *_page(STORE)),
           answer=StoreList),
        op("GET", STORE_PATH, "get_store", "One memory store.",
           Role.READER, rules.known_store, store, answer=rules.Store),
        op("POST", f"{STORE_PATH}/archive", "archive_store",
           "Archive a memory store: from then on it is read-only.",
           Role.WRITER, rules.ARCHIVE, store, answer=rules.Store),
        op("DELETE", STORE_PATH, "delete_store", "Delete a memory store with everything in it.",
           Role.ADMIN, rules.delete, store, status=204),
        op("GET", f"{STORE_PATH}/search", "search_store",
           "Memories of a store by their words and paths, best first.",
           Role.READER, search, (*store, WORDS, LIMIT), answer=EntryHits),
        op("POST", ENTRIES, "create_entry", "Create a memory at an unused path.",
           Role.WRITER, entries.CREATE, store, body=EntryBody, answer=Entry, status=201),
        op("GET", ENTRIES, "list_entries",
           "Memories of a store without their contents, newest first.",
           Role.READER, entries.list_entries, (*store, PATH_PREFIX, FROM, TO, *_page(ENTRY)),
           answer=EntryList),
        op("GET", ENTRY_PATH, "get_entry", "One memory, with its content.",
           Role.READER, entries.known_entry, entry, answer=Entry),
        op("PUT", ENTRY_PATH, "update_entry",
           "Replace the content of a memory, if it is in the expected state.",
           Role.WRITER, entries.AMEND, entry, body=EntryChangeBody, answer=Entry),
        op("DELETE", ENTRY_PATH, "delete_entry", "Delete a memory; its versions stay.",
           Role.WRITER, entries.DELETE, entry, status=204),
        op("GET", VERSIONS, "list_versions",
           "Versions of a store's memories without their contents, newest first.",
           Role.READER, entries.list_versions, (*store, ENTRY_ID, *_page(VERSION)),
           answer=VersionList),
        op("GET", VERSION_PATH, "get_version",
           "One version, with its content unless it is redacted.",
           Role.READER, entries.known_version, version, answer=Version),
        op("POST", f"{VERSION_PATH}/redact", "redact_version",
           "Redact a version's content permanently.",
           Role.ADMIN, entries.redact, version, answer=Version),
    )  # fmt: skip


def _answer(request: Request, value: Any, status: int, headers: dict[str, str]) -> Response:
    headers[bodies.REQUEST_ID] = bodies.request_id(request.scope)
    if value is None:
        return Response(status_code=status, headers=headers)
    if isinstance(value, rules.Slice):
        ends = (*value.items[:1], *value.items[-1:])
        first, last = [public_id(_KINDS[it.type], it.id) for it in ends] or (None, None)
        items = (it.json_bytes() for it in value.items)
        content = rules.page_json(items, first_id=first, last_id=last, has_more=value.has_more)
    else:
        content = value.json_bytes()
    return Response(content, status, headers, media_type=bodies.JSON)


def _hit(store: StoreId, hit: Hit) -> EntryHit:
    memory = whole_memory(hit)
    content = memory.text.content
    return EntryHit(
        id=rules.EntryId(memory.uid), memory=memory.id, store=store, path=memory.key or "",
        size=rules.size_of(content), sha256=sha256_of(content), number=memory.revision,
        version=rules.VersionId(""), metadata=memory.extras, created_at=memory.created_at,
        updated_at=memory.updated_at, snippet=cut(content, SNIPPET), rank=hit.rank,
    )  # fmt: skip


def _hit_span(hit: Hit) -> Attributes:
    return {
        "memory.entry.id": public_id(ENTRY, whole_memory(hit).uid),
        "memory.entry.path": Cut(hit.memory.key or "", PATH_LENGTH),
        "memory.injected.rank": hit.rank,
        "memory.injected.method": hit.method.value,
    }


# Messages that the contract prescribes, by refusal code or by our own message.
_BY_CODE = dict.fromkeys(("stale", "path_taken"), "Version or state conflict.")
_BY_MISSING = {
    NO_STORE: ("MemoryStore", "store_id"),
    rules.NO_ENTRY: ("Memory", "entry_id"),
    rules.NO_VERSION: ("MemoryVersion", "version_id"),
}


def refused(refusal: Refusal, scope: Scope) -> Response:
    """Return the response to a refused request; for NotFound it names the id in the path."""
    ids, message = scope.get("path_params", {}), _BY_CODE.get(refusal.code, str(refusal))
    kind, name = _BY_MISSING.get(message, ("", ""))
    if name in ids:  # a replay may refer to a deleted object that the path does not name
        message = f"{kind} '{cut(clean(ids[name]), ID_LENGTH)}' was not found."
    id_ = bodies.request_id(scope)
    param = {"param": refusal.field} if isinstance(refusal, BadField) else {}
    content = rules.problem_json(REFUSALS.type(refusal.code), message, id_, **param)
    return REFUSALS.response(refusal, content, {bodies.REQUEST_ID: id_})


BODIES = bodies.Bodies(refusal=_bad_field)
PROTOCOL = Protocol(
    title="Memory Stores", summary="Documents at paths, with immutable versions.", prefix=PREFIX,
    refusals=REFUSALS, refused=refused, problem=StoreProblem,
    headers={bodies.REQUEST_ID: "The id that the client gave the request, or a new one."},
    sent=(bodies.REQUEST_ID,), read=(REDACTED, bodies.REQUEST_ID), is_authorization_only=True,
    require=lambda _, caller: caller.require_stores(),
)  # fmt: skip
