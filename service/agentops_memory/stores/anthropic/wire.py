"""The JSON of the Anthropic dialect: bodies and answers. Pure: no storage, no clock, no request."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import ErrorDetails, PydanticCustomError

from ...errors import Invalid, InvalidFields, PathTaken, Refusal
from ...http.bodies import GIVEN, Bodies, Instant
from ...http.ids import ENTRY, STORE, VERSION, public_id
from ...http.paging import rendered
from ...memory.model import stores
from ...memory.model.access import KeyId
from ...memory.model.memory import ANY_STATE, ChangeKind, Expected
from ...recall.text.visible import has_controls
from ..rules import rules
from ..rules.rules import MAX_PATH

MAX_PATCH = 2 * rules.MAX_PAIRS  # as many to set as there may be, and as many to take out


def _storable(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "String should have no NUL")
    return text


def _printable(name: str) -> str:
    if not name.strip() or has_controls(name):
        raise PydanticCustomError(
            "printable", "String should have more than white space and no control characters"
        )
    return name


def _few(most: int) -> BeforeValidator:
    """Refuses what has too many members, before any of them is looked at."""

    def few(pairs: Any) -> Any:
        if isinstance(pairs, dict) and len(pairs) > most:
            raise PydanticCustomError(
                "too_many", "Object should have at most {most} members", {"most": most}
            )
        return pairs

    return BeforeValidator(few)


def _most(members: int) -> Any:
    """What the description says of that limit."""
    return Field(json_schema_extra={"maxProperties": members})


STORABLE = AfterValidator(_storable)

Name = Annotated[str, Field(min_length=1, max_length=rules.MAX_NAME), AfterValidator(_printable)]
Description = Annotated[str, Field(max_length=rules.MAX_DESCRIPTION), STORABLE]
Path = Annotated[str, Field(pattern="^/", max_length=rules.MAX_PATH)]
Content = Annotated[str, Field(max_length=rules.MAX_CONTENT), STORABLE]
PairKey = Annotated[str, Field(min_length=1, max_length=rules.MAX_PAIR_KEY), STORABLE]
PairValue = Annotated[str, Field(max_length=rules.MAX_PAIR_VALUE), STORABLE]
Pairs = Annotated[dict[PairKey, PairValue], _few(rules.MAX_PAIRS), _most(rules.MAX_PAIRS)]
Patch = Annotated[dict[PairKey, PairValue | None], _few(MAX_PATCH), _most(MAX_PATCH)]
OperationName = Literal["created", "modified", "deleted"]


class AnthropicStoreBody(BaseModel):
    """A store to create."""

    model_config = GIVEN
    name: Name
    description: Description | None = None
    metadata: Pairs | None = None


class AnthropicStoreChange(BaseModel):
    """Parts of a store to change; of the metadata, null takes a pair out."""

    model_config = GIVEN
    name: Name | None = None
    description: Description | None = None
    metadata: Patch | None = None


class AnthropicMemoryBody(BaseModel):
    """A memory to create."""

    model_config = GIVEN
    path: Path
    content: Content


class AnthropicPrecondition(BaseModel):
    """The hash that the content of a memory must have for a change."""

    model_config = GIVEN
    type: Literal["content_sha256"]
    content_sha256: str


class AnthropicMemoryChange(BaseModel):
    """Parts of a memory to change; a new path renames it."""

    model_config = GIVEN
    content: Content | None = None
    path: Path | None = None
    precondition: AnthropicPrecondition | None = None


class AnthropicStore(BaseModel):
    """A memory store."""

    id: str
    type: Literal["memory_store"] = "memory_store"
    name: str
    description: str
    metadata: dict[str, str]
    created_at: Instant
    updated_at: Instant
    archived_at: Instant | None


class AnthropicStoreList(BaseModel):
    """A page of stores, newest first."""

    data: list[AnthropicStore]
    next_page: str | None


class AnthropicStoreDeleted(BaseModel):
    """What is left of a store."""

    id: str
    type: Literal["memory_store_deleted"] = "memory_store_deleted"


class AnthropicMemory(BaseModel):
    """A memory; its content is null where the view is basic."""

    id: str
    type: Literal["memory"] = "memory"
    memory_store_id: str
    memory_version_id: str
    path: str
    content: str | None
    content_sha256: str
    content_size_bytes: int
    created_at: Instant
    updated_at: Instant


class AnthropicPrefix(BaseModel):
    """A folder, in the place of the memories in it."""

    type: Literal["memory_prefix"] = "memory_prefix"
    path: str


class AnthropicMemoryList(BaseModel):
    """A page of memories and folders, in the order of their paths."""

    data: list[AnthropicMemory | AnthropicPrefix]
    next_page: str | None


class AnthropicMemoryDeleted(BaseModel):
    """What is left of a memory; its versions stay."""

    id: str
    type: Literal["memory_deleted"] = "memory_deleted"


class AnthropicActor(BaseModel):
    """The key of whoever did it."""

    type: Literal["api_actor"] = "api_actor"
    api_key_id: str


class AnthropicVersion(BaseModel):
    """One change of a memory; what a deletion has not, or a redaction took, is null."""

    id: str
    type: Literal["memory_version"] = "memory_version"
    memory_store_id: str
    memory_id: str
    operation: OperationName
    path: str | None
    content: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: Instant
    created_by: AnthropicActor | None
    redacted_at: Instant | None
    redacted_by: AnthropicActor | None


class AnthropicVersionList(BaseModel):
    """A page of versions, newest first."""

    data: list[AnthropicVersion]
    next_page: str | None


class AnthropicError(BaseModel):
    """What is wrong; of a path that is taken, also by which memory."""

    type: str
    message: str
    conflicting_memory_id: str | None = None
    conflicting_path: str | None = None


class AnthropicProblem(BaseModel):
    """Every refusal."""

    type: Literal["error"] = "error"
    error: AnthropicError
    request_id: str


REQUEST_ID = "request-id"

OPERATION_NAMES: Mapping[ChangeKind, OperationName] = {
    ChangeKind.CREATED: "created",
    ChangeKind.UPDATED: "modified",
    ChangeKind.DELETED: "deleted",
}


def store_draft(given: AnthropicStoreBody) -> stores.StoreDraft:
    return stores.StoreDraft(
        name=given.name, description=given.description or "", metadata=given.metadata or {}
    )


def store_change(given: AnthropicStoreChange) -> stores.StoreChange:
    return stores.StoreChange(
        name=given.name, description=given.description, metadata=given.metadata
    )


def entry_draft(given: AnthropicMemoryBody) -> stores.EntryDraft:
    return stores.EntryDraft(path=stored_path(given.path), content=given.content)


def entry_change(given: AnthropicMemoryChange) -> stores.EntryChange:
    path = None if given.path is None else stored_path(given.path)
    return stores.EntryChange(path=path, content=given.content)


def expected(given: AnthropicMemoryChange) -> Expected:
    """The state that a change wants the memory to be in."""
    if given.precondition is None:
        return ANY_STATE
    return Expected(sha256=given.precondition.content_sha256)


def store(of: stores.Store) -> AnthropicStore:
    return AnthropicStore(
        id=public_id(STORE, of.id),
        name=of.name,
        description=of.description,
        metadata=dict(of.metadata),
        created_at=rendered(of.created_at),
        updated_at=rendered(of.updated_at),
        archived_at=None if of.archived_at is None else rendered(of.archived_at),
    )


def memory(of: stores.Entry, *, full: bool) -> AnthropicMemory:
    return AnthropicMemory(
        id=public_id(ENTRY, of.id),
        memory_store_id=public_id(STORE, of.store),
        memory_version_id=public_id(VERSION, of.version),
        path=shown_path(of.path),
        content=of.content if full else None,
        content_sha256=of.sha256,
        content_size_bytes=of.size,
        created_at=rendered(of.created_at),
        updated_at=rendered(of.updated_at),
    )


def item(of: stores.Entry | str, *, full: bool) -> AnthropicMemory | AnthropicPrefix:
    """A memory of a list, or a folder that stands for some."""
    if isinstance(of, str):
        return AnthropicPrefix(path=shown_path(of))
    return memory(of, full=full)


def version(of: stores.Version, *, full: bool) -> AnthropicVersion:
    """A version; of a redacted one nothing is shown, also of what another dialect keeps of it."""
    if of.redacted_at is not None:
        of = replace(of, path=None, content=None, size=None, sha256=None)
    return AnthropicVersion(
        id=public_id(VERSION, of.id),
        memory_store_id=public_id(STORE, of.store),
        memory_id=public_id(ENTRY, of.entry),
        operation=OPERATION_NAMES[of.deed],
        path=None if of.path is None else shown_path(of.path),
        content=of.content if full else None,
        content_sha256=of.sha256,
        content_size_bytes=of.size,
        created_at=rendered(of.at),
        created_by=_actor(of.author),
        redacted_at=None if of.redacted_at is None else rendered(of.redacted_at),
        redacted_by=_actor(of.redacted_by),
    )


def problem(refusal: Refusal, type_: str, request_id: str) -> AnthropicProblem:
    error = AnthropicError(type=type_, message=str(refusal))
    if isinstance(refusal, PathTaken):
        error.conflicting_memory_id = public_id(ENTRY, refusal.entry)
        error.conflicting_path = shown_path(refusal.path)
    return AnthropicProblem(error=error, request_id=request_id)


def new_request_id() -> str:
    """An id that no other request has."""
    return f"req_{uuid4().hex}"


def stored_path(path: str) -> str:
    """A path as it is stored, without its slash; Invalid for one that the dialect refuses.

    Segments and control characters are the domain's to refuse.
    """
    if len(path.encode()) > MAX_PATH:
        raise Invalid(f"path: it has at most {MAX_PATH:,} bytes, the leading '/' included.")
    if not unicodedata.is_normalized("NFC", path):
        raise Invalid("path: it must be in Unicode's normalization form C.")
    if any(unicodedata.category(sign) in _INVISIBLE for sign in path):
        raise Invalid("path: it has no format characters, U+2028 or U+2029.")
    return path.removeprefix("/")


def stored_prefix(prefix: str) -> str:
    """The beginning of stored paths that a prefix means: a folder, or the whole store."""
    if not (prefix.startswith("/") and prefix.endswith("/")):
        raise Invalid("path_prefix: it must begin and end with '/'.")
    return prefix.removeprefix("/")


def shown_path(path: str) -> str:
    """A stored path, or the beginning of some, as this dialect shows it."""
    return f"/{path}"


def _actor(key: KeyId | None) -> AnthropicActor | None:
    return None if key is None else AnthropicActor(api_key_id=key)


_INVISIBLE = ("Cf", "Zl", "Zp")  # format characters, U+2028 and U+2029

# What pydantic says in words of Python.
_SENTENCES = dict.fromkeys(("dict_type", "model_type"), "Input should be an object")

# Of a fault's path only the names of fields are shown: a key of metadata may be a secret.
_FIELDS = {
    name
    for model in (
        AnthropicStoreBody,
        AnthropicStoreChange,
        AnthropicMemoryBody,
        AnthropicMemoryChange,
        AnthropicPrecondition,
    )
    for name in model.model_fields
}


def _path(steps: tuple[int | str, ...]) -> str:
    """Where in a body a fault is."""
    return ".".join(str(step) for step in steps if step in _FIELDS)


def _bad_fields(faults: Sequence[ErrorDetails]) -> InvalidFields:
    """Every fault of a body, each with its path."""
    sentences = (
        f"{_path(fault['loc'])}: {_SENTENCES.get(fault['type'], fault['msg'])}" for fault in faults
    )
    return InvalidFields("; ".join(dict.fromkeys(sentences)))


BODIES = Bodies(refusal=_bad_fields)
