"""JSON in, JSON out for the Anthropic dialect. Pure: no storage, no clock, no request."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from pydantic_core import ErrorDetails

from ...errors import Invalid, InvalidFields, PathTaken, Refusal
from ...http.bodies import Bodies
from ...http.ids import ENTRY, STORE, VERSION, public_id
from ...http.paging import rendered
from ...memory.model import stores
from ...memory.model.access import KeyId
from ...memory.model.memory import ANY_STATE, ChangeKind, Expected
from ..rules.rules import MAX_PATH
from . import models as m

REQUEST_ID = "request-id"

OPERATION_NAMES: Mapping[ChangeKind, m.OperationName] = {
    ChangeKind.CREATED: "created",
    ChangeKind.UPDATED: "modified",
    ChangeKind.DELETED: "deleted",
}


def store_draft(given: m.AnthropicStoreBody) -> stores.StoreDraft:
    return stores.StoreDraft(
        name=given.name, description=given.description or "", metadata=given.metadata or {}
    )


def store_change(given: m.AnthropicStoreChange) -> stores.StoreChange:
    return stores.StoreChange(
        name=given.name, description=given.description, metadata=given.metadata
    )


def entry_draft(given: m.AnthropicMemoryBody) -> stores.EntryDraft:
    return stores.EntryDraft(path=stored_path(given.path), content=given.content)


def entry_change(given: m.AnthropicMemoryChange) -> stores.EntryChange:
    path = None if given.path is None else stored_path(given.path)
    return stores.EntryChange(path=path, content=given.content)


def expected(given: m.AnthropicMemoryChange) -> Expected:
    """The state that a change wants the memory to be in."""
    if given.precondition is None:
        return ANY_STATE
    return Expected(sha256=given.precondition.content_sha256)


def store(of: stores.Store) -> m.AnthropicStore:
    return m.AnthropicStore(
        id=public_id(STORE, of.id),
        name=of.name,
        description=of.description,
        metadata=dict(of.metadata),
        created_at=rendered(of.created_at),
        updated_at=rendered(of.updated_at),
        archived_at=None if of.archived_at is None else rendered(of.archived_at),
    )


def memory(of: stores.Entry, *, full: bool) -> m.AnthropicMemory:
    return m.AnthropicMemory(
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


def item(of: stores.Entry | str, *, full: bool) -> m.AnthropicMemory | m.AnthropicPrefix:
    """A memory of a list, or a folder that stands for some."""
    if isinstance(of, str):
        return m.AnthropicPrefix(path=shown_path(of))
    return memory(of, full=full)


def version(of: stores.Version, *, full: bool) -> m.AnthropicVersion:
    """A version; of a redacted one nothing is shown, also of what another dialect keeps of it."""
    if of.redacted_at is not None:
        of = replace(of, path=None, content=None, size=None, sha256=None)
    return m.AnthropicVersion(
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


def problem(refusal: Refusal, type_: str, request_id: str) -> m.AnthropicProblem:
    error = m.AnthropicError(type=type_, message=str(refusal))
    if isinstance(refusal, PathTaken):
        error.conflicting_memory_id = public_id(ENTRY, refusal.entry)
        error.conflicting_path = shown_path(refusal.path)
    return m.AnthropicProblem(error=error, request_id=request_id)


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


def _actor(key: KeyId | None) -> m.AnthropicActor | None:
    return None if key is None else m.AnthropicActor(api_key_id=key)


_INVISIBLE = ("Cf", "Zl", "Zp")  # format characters, U+2028 and U+2029

# What pydantic says in words of Python.
_SENTENCES = dict.fromkeys(("dict_type", "model_type"), "Input should be an object")

# Of a fault's path only the names of fields are shown: a key of metadata may be a secret.
_FIELDS = {
    name
    for model in (
        m.AnthropicStoreBody,
        m.AnthropicStoreChange,
        m.AnthropicMemoryBody,
        m.AnthropicMemoryChange,
        m.AnthropicPrecondition,
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
