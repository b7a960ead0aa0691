"""Anthropic's dialect: memory stores for the package `anthropic`, below /anthropic."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ..errors import Invalid, InvalidFields, PathTaken, Refusal
from ..http import bodies, query
from ..http.bodies import JSON, Bodies, Body, must, parsing
from ..http.protocol import REDACTED, Operation, Protocol, Refusals
from ..http.query import ENTRY, public_id, uid_of
from ..memory.access import Role
from ..memory.memory import ANY_STATE, ChangeKind, Expected
from ..recall.text import clean, has_controls
from ..record import Microseconds, Record, shape
from . import entry as entries, store as rules
from .entry import Entry, Version
from .store import in_path, in_query

POLICY = rules.Policy(
    paths_nest=False, noop_creates_version=False, ignores_conflict_if_equal=True,
    rejects_repeats=False, archived_forbids_deletes=False, may_redact_current=False,
    redaction_clears_all=True,
)  # fmt: skip
BUSY = "overloaded_error"
NO_RETRY = {"x-should-retry": "false"}  # otherwise the client sends it three times
REFUSALS = Refusals(
    statuses={"too_large": 400, "archived": 400, "still_current": 400},
    types={
        "too_slow": "timeout_error", "stale": "memory_precondition_failed_error",
        "path_taken": "memory_path_conflict_error", "db_locked": BUSY, "timed_out": BUSY,
    },
    headers={409: NO_RETRY, 507: NO_RETRY},
)  # fmt: skip
REQUEST_ID = "request-id"

MAX_PAGE, DEFAULT_PAGE = 100, 20  # items of a page
MAX_PATCH = 2 * rules.MAX_PAIRS  # a full set to add and a full set to remove
NO_MEMORY = rules.EntryId("")  # an id of no memory

VIEWS = {"basic": False, "full": True}  # whether contents are included
DEPTHS = {"0": False, "1": True}  # whether deeper memories appear as their folder
OPERATIONS = {
    "created": ChangeKind.CREATED, "modified": ChangeKind.UPDATED, "deleted": ChangeKind.DELETED,
}  # fmt: skip
OPERATION_NAMES = {kind: name for name, kind in OPERATIONS.items()}

_INVISIBLE = ("Cf", "Zl", "Zp")  # format characters, U+2028 and U+2029


PRINTABLE = must(
    lambda name: bool(name.strip()) and not has_controls(name),
    "String should have more than white space and no control characters",
)

Name = Annotated[str, Field(min_length=1, max_length=rules.MAX_NAME), PRINTABLE]
Description = Annotated[str, Field(max_length=rules.MAX_DESCRIPTION), rules.STORABLE]
# Besides the rules of all paths, those of this dialect alone.
Path = Annotated[
    str, Field(pattern="^/", max_length=rules.MAX_PATH),
    must(lambda path: len(path.encode()) <= rules.MAX_PATH,
         f"it must have at most {rules.MAX_PATH:,} bytes, including the leading '/'"),
    must(lambda path: unicodedata.is_normalized("NFC", path),
         "it must be in Unicode's normalization form C"),
    must(lambda path: not any(unicodedata.category(char) in _INVISIBLE for char in path),
         "it must not contain format characters, U+2028 or U+2029"),
]  # fmt: skip
Content = Annotated[str, Field(max_length=rules.MAX_CONTENT), rules.STORABLE]
Key = Annotated[str, Field(min_length=1, max_length=rules.MAX_PAIR_KEY), rules.STORABLE]
Value = Annotated[str, Field(max_length=rules.MAX_PAIR_VALUE), rules.STORABLE]
Metadata = Annotated[
    dict[Key, Value], Field(max_length=rules.MAX_PAIRS), rules.few(rules.MAX_PAIRS)
]
Patch = Annotated[dict[Key, Value | None], Field(max_length=MAX_PATCH), rules.few(MAX_PATCH)]


class AnthropicStoreBody(rules.Body):
    """A store to create."""

    name: Name
    description: Description | None = None
    metadata: Metadata | None = None


class AnthropicStoreChange(rules.Body):
    """Fields of a store to change; null removes a pair from the metadata."""

    name: Name | None = None
    description: Description | None = None
    metadata: Patch | None = None


class _AtPath(rules.Body):
    @property
    def parts(self) -> rules.Parts:
        """The fields, with the path as it is stored: without its leading slash."""
        parts = super().parts
        return {**parts, "path": parts["path"][1:]} if "path" in parts else parts


class AnthropicMemoryBody(_AtPath):
    """A memory to create."""

    path: Path
    content: Content


class AnthropicPrecondition(Body):
    """The hash that the content of a memory must have for a change."""

    type: Literal["content_sha256"]
    content_sha256: str


class AnthropicMemoryChange(_AtPath):
    """Fields of a memory to change; a new path renames it."""

    content: Content | None = None
    path: Path | None = None
    precondition: AnthropicPrecondition | None = None

    @property
    def expected(self) -> Expected:
        precondition = self.precondition
        return Expected(sha256=precondition.content_sha256) if precondition else ANY_STATE


Slashed = BeforeValidator(lambda path: path and f"/{path}")


class AnthropicRecord(Record):
    """The base of responses, made from core records; missing values are null."""

    model_config = ConfigDict(from_attributes=True)

    def json_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self)


class AnthropicStore(AnthropicRecord):
    """A memory store."""

    id: rules.ShownStore
    type: Literal["memory_store"] = "memory_store"
    name: str
    description: str
    metadata: Mapping[str, str]
    created_at: Microseconds
    updated_at: Microseconds
    archived_at: Microseconds | None


class AnthropicStoreDeleted(AnthropicRecord):
    """The id of a deleted store."""

    id: str
    type: Literal["memory_store_deleted"] = "memory_store_deleted"


class AnthropicMemory(AnthropicRecord):
    """A memory; its content is null in the basic view."""

    id: rules.ShownEntry
    type: Literal["memory"] = "memory"
    memory_store_id: rules.ShownStore = Field(validation_alias="store")
    memory_version_id: rules.ShownVersion = Field(validation_alias="version")
    path: Annotated[str, Slashed]
    content: str | None
    content_sha256: str = Field(validation_alias="sha256")
    content_size_bytes: int = Field(validation_alias="size")
    created_at: Microseconds
    updated_at: Microseconds


class AnthropicPrefix(AnthropicRecord):
    """A folder, listed instead of the memories in it."""

    type: Literal["memory_prefix"] = "memory_prefix"
    path: Annotated[str, Slashed]


class AnthropicMemoryDeleted(AnthropicRecord):
    """The id of a deleted memory; its versions stay."""

    id: str
    type: Literal["memory_deleted"] = "memory_deleted"


class AnthropicActor(AnthropicRecord):
    """The API key that made a change."""

    type: Literal["api_actor"] = "api_actor"
    api_key_id: str


Actor = Annotated[
    AnthropicActor | None, BeforeValidator(lambda key: key and AnthropicActor(api_key_id=key))
]


class AnthropicVersion(AnthropicRecord):
    """One change of a memory; fields that a deletion lacks or a redaction removed are null."""

    id: rules.ShownVersion
    type: Literal["memory_version"] = "memory_version"
    memory_store_id: rules.ShownStore = Field(validation_alias="store")
    memory_id: rules.ShownEntry = Field(validation_alias="entry")
    operation: Annotated[
        Literal["created", "modified", "deleted"], BeforeValidator(OPERATION_NAMES.get)
    ] = Field(validation_alias="kind")
    path: Annotated[str | None, Slashed]
    content: str | None
    content_sha256: str | None = Field(validation_alias="sha256")
    content_size_bytes: int | None = Field(validation_alias="size")
    created_at: Microseconds = Field(validation_alias="at")
    created_by: Actor = Field(validation_alias="author")
    redacted_at: Microseconds | None
    redacted_by: Actor


_NEXT: dict[str, Any] = {"next_page": str | None}
AnthropicStoreList = shape(
    "AnthropicStoreList", "A page of stores, newest first.", data=[AnthropicStore], **_NEXT
)
AnthropicMemoryList = shape(
    "AnthropicMemoryList", "A page of memories and folders, in the order of their paths.",
    data=[AnthropicMemory | AnthropicPrefix], **_NEXT,
)  # fmt: skip
AnthropicVersionList = shape(
    "AnthropicVersionList", "A page of versions, newest first.", data=[AnthropicVersion], **_NEXT
)


AnthropicProblem = rules.problem(
    "Anthropic", "The error; for a path that is taken, also the memory that has it.",
    conflicting_memory_id=str, conflicting_path=str,
)  # fmt: skip


def _in_dialect(item: Any, *, full: bool = True) -> AnthropicRecord:
    """Convert a store, a memory, a folder or a version to a record of this dialect."""
    match item:
        case AnthropicRecord():
            return item
        case str():
            return AnthropicPrefix(path=item)
        case rules.Store():
            return AnthropicStore.model_validate(item)
    hidden = [] if full else ["content"]
    if isinstance(item, Version) and item.redacted_at is not None:
        hidden += ["path", "content", "size", "sha256"]  # even if the other dialect redacted it
    elif not item.sha256:
        hidden += ["size", "sha256"]
    visible = item.model_copy(update=dict.fromkeys(hidden)) if hidden else item
    shape = AnthropicMemory if isinstance(item, Entry) else AnthropicVersion
    return shape.model_validate(visible)


# Replacements for pydantic's messages that use Python terms.
_SENTENCES = dict.fromkeys(("dict_type", "model_type"), "Input should be an object")


def _bad_fields(faults: Sequence[ErrorDetails]) -> InvalidFields:
    paths = (".".join(map(str, fault["loc"])) for fault in faults)
    # The key of a pair is not quoted: it may be a secret.
    names = ("metadata" if it.startswith("metadata.") else it for it in paths)
    sentences = (
        f"{name}: {_SENTENCES.get(fault['type'], fault['msg'])}"
        for name, fault in zip(names, faults, strict=True)
    )
    return InvalidFields("; ".join(dict.fromkeys(sentences)))


class Arguments(bodies.Arguments):
    """Parses parameters, which may be empty; raises Invalid for the first fault."""

    def text(self, name: str) -> str | None:
        values = self.request.query_params.getlist(name)
        return clean(values[0]) if values else None

    def fault(self, name: str, problem: str) -> None:
        raise Invalid(f"{name}: it {problem}.")


def _list_identity(request: Request) -> list[object]:
    """Return what identifies a list; a cursor is valid for the same list only."""
    others = request.query_params.keys() - {PAGE.name, LIMIT.name, VIEW.name, "beta"}
    filters = [(name, Arguments(request).text(name)) for name in sorted(others)]
    return [request.scope["path"], filters]


def _position(arguments: Arguments, name: str) -> Any:
    """Return where a page begins: after the previous page of the same list."""
    parse = partial(query.position, _list_identity(arguments.request))
    read = parsing(parse, "must be the next_page of an earlier page of the same list")
    return read(arguments, name)


def _memory(arguments: Arguments, name: str) -> rules.EntryId | None:
    """Return the memory to list versions of; NO_MEMORY if the query names another author."""
    if any(arguments.text(it.name) is not None for it in (SESSION, SERVICE_ACCOUNT)):
        return NO_MEMORY
    memory = arguments.text(name)
    return None if memory is None else rules.EntryId(uid_of(ENTRY, memory) or NO_MEMORY)


VIEW_OF_LIST = in_query(
    "view", "with_content", parsing(VIEWS.get, "must be 'basic' or 'full'", False),
    "`full` with contents, or `basic` without.", choices=tuple(VIEWS),
)  # fmt: skip
VIEW = replace(VIEW_OF_LIST, into="full", shapes_response=True)
FULL_VIEW = replace(VIEW, read=parsing(VIEWS.get, "must be 'basic' or 'full'", True))
LIMIT = in_query(
    "limit", "limit",
    parsing(lambda it: number if 1 <= (number := query.natural(it)) <= MAX_PAGE else None,
            f"must be a whole number from 1 to {MAX_PAGE}", DEFAULT_PAGE),
    "Maximum number of items, from 1 to 100 (default 20); at most 20 with `view=full`.",
    kind="count", most=MAX_PAGE, is_row_count=True,
)  # fmt: skip
PAGE = in_query("page", "after", _position, "The `next_page` of the previous page.")
FROM, TO = rules.created("must be an instant in RFC 3339", "instant")
PATH_PREFIX = in_query(
    "path_prefix", "prefix",
    parsing(lambda it: it[1:] if it[:1] == it[-1:] == "/" else None,
            "must begin and end with '/'", absent=""),
    "A folder, such as `/notes/`.",
)  # fmt: skip
DEPTH = in_query(
    "depth", "is_shallow", parsing(DEPTHS.get, "must be 0 or 1", False),
    "`1` shows deeper levels as folders.", choices=tuple(DEPTHS),
)  # fmt: skip
EXPECTED = in_query(
    "expected_content_sha256", "expected",
    lambda arguments, name: Expected(sha256=arguments.text(name)),
    "The hash that the current content must have.",
)  # fmt: skip
MEMORY_ID = in_query(
    "memory_id", "entry", _memory, "Only versions of this memory, which may be deleted."
)
OPERATION = in_query(
    "operation", "kind", parsing(OPERATIONS.get, f"must be one of {', '.join(OPERATIONS)}"),
    "Only versions of this operation.", choices=tuple(OPERATIONS),
)  # fmt: skip
AUTHOR = in_query("api_key_id", "author", Arguments.text, "Only versions written with this key.")
# Kinds of authors that never write here.
SESSION = in_query(
    "session_id", "session", Arguments.text, "Matches nothing.", shapes_response=True
)
SERVICE_ACCOUNT = replace(SESSION, name="service_account_id", into="account")
PREFIX = "/anthropic"
STORES = f"{PREFIX}/v1/memory_stores"
STORE_PATH = f"{STORES}/{{memory_store_id}}"
MEMORIES = f"{STORE_PATH}/memories"
MEMORY = f"{MEMORIES}/{{memory_id}}"
VERSIONS = f"{STORE_PATH}/memory_versions"
VERSION_PATH = f"{VERSIONS}/{{memory_version_id}}"


def operations(serving: rules.Serving) -> Sequence[Operation]:
    op = partial(rules.op, serving, BODIES, Arguments, _answer)
    store = (in_path("memory_store_id", "store"),)
    memory = (*store, in_path("memory_id", "entry"))
    version = (*store, in_path("memory_version_id", "version"))
    return (
        op("POST", STORES, "anthropic_create_store", "Create a memory store.",
           Role.WRITER, rules.CREATE, body=AnthropicStoreBody, answer=AnthropicStore),
        op("GET", STORES, "anthropic_list_stores", "Memory stores, newest first.",
           Role.READER, rules.list_stores, (rules.ARCHIVED, FROM, TO, LIMIT, PAGE),
           answer=AnthropicStoreList),
        op("GET", STORE_PATH, "anthropic_get_store", "One memory store, archived or not.",
           Role.READER, rules.known_store, store, answer=AnthropicStore),
        op("POST", STORE_PATH, "anthropic_update_store", "Change parts of a memory store.",
           Role.WRITER, rules.AMEND, store, body=AnthropicStoreChange, body_required=False,
           answer=AnthropicStore),
        op("POST", f"{STORE_PATH}/archive", "anthropic_archive_store",
           "Archive a memory store permanently; repeating it changes nothing.",
           Role.WRITER, rules.ARCHIVE, store, answer=AnthropicStore),
        op("DELETE", STORE_PATH, "anthropic_delete_store",
           "Delete a memory store with everything in it.",
           Role.ADMIN, rules.delete, store, answer=AnthropicStoreDeleted),
        op("POST", MEMORIES, "anthropic_create_memory", "Create a memory at a path.",
           Role.WRITER, entries.CREATE, (*store, VIEW), body=AnthropicMemoryBody,
           answer=AnthropicMemory),
        op("GET", MEMORIES, "anthropic_list_memories", "Memories in the order of their paths.",
           Role.READER, entries.tree, (*store, VIEW_OF_LIST, PATH_PREFIX, DEPTH, PAGE, LIMIT),
           answer=AnthropicMemoryList),
        op("GET", MEMORY, "anthropic_get_memory",
           "One memory, with its content unless the view is basic.",
           Role.READER, entries.known_entry, (FULL_VIEW, *memory), answer=AnthropicMemory),
        op("POST", MEMORY, "anthropic_update_memory",
           "Change the content of a memory, or its path.",
           Role.WRITER, entries.AMEND, (*memory, VIEW), body=AnthropicMemoryChange,
           body_required=False, answer=AnthropicMemory),
        op("DELETE", MEMORY, "anthropic_delete_memory", "Delete a memory; its versions stay.",
           Role.WRITER, entries.DELETE, (*memory, EXPECTED), answer=AnthropicMemoryDeleted),
        op("GET", VERSIONS, "anthropic_list_versions",
           "Versions of the memories of a store, newest first.",
           Role.READER, entries.list_versions,
           (*store, VIEW_OF_LIST, LIMIT, PAGE, MEMORY_ID, SESSION, SERVICE_ACCOUNT, AUTHOR,
            OPERATION, FROM, TO),
           answer=AnthropicVersionList),
        op("GET", VERSION_PATH, "anthropic_get_version",
           "Get a version, with its content unless the view is basic.",
           Role.READER, entries.known_version, (FULL_VIEW, *version), answer=AnthropicVersion),
        op("POST", f"{VERSION_PATH}/redact", "anthropic_redact_version",
           "Redact a version's content permanently.",
           Role.ADMIN, entries.redact, version, answer=AnthropicVersion),
    )  # fmt: skip


def _answer(
    request: Request, value: Any, status: int, headers: dict[str, str], *, full: bool = True,
    **_: object,
) -> Response:  # fmt: skip
    headers[REQUEST_ID] = f"req_{uuid4().hex}"
    if value is None:
        store, *entry = request.path_params.values()
        value = AnthropicMemoryDeleted(id=entry[0]) if entry else AnthropicStoreDeleted(id=store)
    if not isinstance(value, rules.Slice):
        content = _in_dialect(value, full=full).json_bytes()
        return Response(content, status, headers, media_type=JSON)
    cursor = None
    if value.has_more:
        last: Any = value.items[-1]  # a folder, a memory, or an item of a list in id order
        after = last.path if isinstance(last, Entry) else getattr(last, "id", last)
        cursor = query.cursor(_list_identity(request), after)
    items = (_in_dialect(it).json_bytes() for it in value.items)
    return Response(rules.page_json(items, next_page=cursor), status, headers, media_type=JSON)


def refused(refusal: Refusal, _: Scope) -> Response:
    id_, taken = f"req_{uuid4().hex}", {}
    if isinstance(refusal, PathTaken):
        memory, path = public_id(ENTRY, refusal.entry), f"/{refusal.path}"
        taken = {"conflicting_memory_id": memory, "conflicting_path": path}
    content = rules.problem_json(REFUSALS.type(refusal.code), str(refusal), id_, **taken)
    return REFUSALS.response(refusal, content, {REQUEST_ID: id_})


BODIES = Bodies(refusal=_bad_fields)
PROTOCOL = Protocol(
    title="Anthropic dialect",
    summary="The same stores, in the protocol of the Python package `anthropic`.",
    prefix=PREFIX,
    refusals=REFUSALS,
    refused=refused,
    problem=AnthropicProblem,
    headers={REQUEST_ID: "An id of the response, which the log names too."},
    sent=(
        # Headers that the client packages of this dialect send by themselves.
        "anthropic-version", "anthropic-beta", "anthropic-workspace-id",
        "anthropic-dangerous-direct-browser-access",
        "X-Stainless-Arch", "X-Stainless-Async", "X-Stainless-Helper", "X-Stainless-Helper-Method",
        "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version",
        "X-Stainless-Read-Timeout", "X-Stainless-Retry-Count", "X-Stainless-Runtime",
        "X-Stainless-Runtime-Version", "X-Stainless-Stream-Helper", "X-Stainless-Timeout",
    ),
    read=(REDACTED, REQUEST_ID),
)  # fmt: skip
