"""The rules of memory stores: limits, paths, access, and where the dialects differ."""

from dataclasses import dataclass

from ...engine.engine import Transaction
from ...errors import Archived, Invalid, NotFound
from ...memory.model.space import StoreId
from ...memory.model.stores import (
    Entry,
    EntryChange,
    EntryDraft,
    EntryId,
    Metadata,
    Store,
    StoreChange,
    StoreDraft,
    Version,
    VersionId,
)
from ...memory.redactor import Redactor
from ...memory.sql.revisions import VersionTable
from ...memory.sql.stores import EntryTable, StoreTable
from ...recall.text.visible import has_controls

MAX_NAME = 255  # characters; a policy may allow fewer
MAX_DESCRIPTION = 1024
MAX_PAIRS = 16
MAX_PAIR_KEY = 64
MAX_PAIR_VALUE = 512
MAX_CONTENT = 102_400  # bytes of a content in UTF-8
MAX_PATH = 1024  # bytes
MAX_SEGMENTS = 20

NO_STORE = "No such memory store."
NO_ENTRY = "No such memory in this store."
NO_VERSION = "No such version in this store."
KEY, VALUE = "A key of metadata", "A value of metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Where the dialects differ."""

    paths_nest: bool  # an entry may lie below another one
    unchanged_is_change: bool  # an update with what is there already makes a version
    done_is_done: bool  # an unmet expectation is forgiven when the entry is as wanted
    repeats_are_refused: bool  # to archive or to redact a second time
    archived_keeps_entries: bool  # an entry of an archived store cannot be deleted
    current_is_redacted: bool  # the version that a live entry has now can be redacted
    redaction_takes_all: bool  # also the path, size and hash
    longest_name: int = MAX_NAME  # characters of a store's name


def require_path(path: str) -> None:
    """Raise Invalid unless the path is relative, of 1 to 20 plain segments."""
    if len(path.encode()) > MAX_PATH:
        raise Invalid(f"path has at most {MAX_PATH:,} bytes.")
    segments = path.split("/")
    if len(segments) > MAX_SEGMENTS:
        raise Invalid(f"path has at most {MAX_SEGMENTS} segments.")
    if any(segment in ("", ".", "..") for segment in segments):
        raise Invalid("No segment of path may be empty, '.' or '..'.")
    if has_controls(path):
        raise Invalid("path has no control characters.")


def size_of(content: str) -> int:
    """The bytes of a content in UTF-8."""
    return len(content.encode())


def known_store(tx: Transaction, store: StoreId) -> Store:
    """The store, archived or not; Denied for callers who may not read stores."""
    tx.caller.require_stores()
    found = tx[StoreTable].get(store)
    if found is None:
        raise NotFound(NO_STORE)
    return found


def open_store(tx: Transaction, store: StoreId) -> Store:
    """The store, if it can be written to."""
    found = known_store(tx, store)
    if found.archived_at is not None:
        raise Archived("The memory store is archived; what is in it stays as it is.")
    return found


def require_known(tx: Transaction, store: StoreId, *_: object) -> None:
    """Refuse a caller to whom the store is not known any more."""
    known_store(tx, store)


def known_entry(tx: Transaction, store: StoreId, entry: EntryId) -> Entry:
    """The live entry, with its content."""
    known_store(tx, store)
    found = tx[EntryTable].get(store, entry)
    if found is None:
        raise NotFound(NO_ENTRY)
    return found


def known_version(tx: Transaction, store: StoreId, version: VersionId) -> Version:
    """The version, with its content unless it was redacted; also of a deleted entry."""
    known_store(tx, store)
    found = tx[VersionTable].get(store, version)
    if found is None:
        raise NotFound(NO_VERSION)
    return found


def clean_draft(redactor: Redactor, draft: EntryDraft) -> EntryDraft:
    """The draft redacted; Invalid when it exceeds a limit."""
    return EntryDraft(
        path=_path(redactor, draft.path),
        content=_content(redactor, draft.content),
        metadata=clean_pairs(redactor, draft.metadata),
    )


def clean_change(redactor: Redactor, change: EntryChange) -> EntryChange:
    """The change redacted; Invalid when it exceeds a limit."""
    return EntryChange(
        path=None if change.path is None else _path(redactor, change.path),
        content=None if change.content is None else _content(redactor, change.content),
        metadata=None if change.metadata is None else clean_pairs(redactor, change.metadata),
    )


def clean_store(redactor: Redactor, draft: StoreDraft, policy: Policy) -> StoreDraft:
    """The store redacted; Invalid when it exceeds a limit."""
    return StoreDraft(
        name=_short(redactor, draft.name, "name", policy.longest_name),
        description=_short(redactor, draft.description, "description", MAX_DESCRIPTION),
        metadata=clean_pairs(redactor, draft.metadata),
    )


def clean_store_change(redactor: Redactor, change: StoreChange, policy: Policy) -> StoreChange:
    """The change redacted; Invalid when it exceeds a limit."""
    name, about, patch = change.name, change.description, change.metadata or {}
    gone = {_short(redactor, key, KEY, MAX_PAIR_KEY): None for key in patch if patch[key] is None}
    kept = {key: value for key, value in patch.items() if value is not None}
    return StoreChange(
        name=name and _short(redactor, name, "name", policy.longest_name),
        description=about and _short(redactor, about, "description", MAX_DESCRIPTION),
        metadata={**gone, **clean_pairs(redactor, kept)},
    )


def require_few(metadata: Metadata) -> None:
    """Raise Invalid for too many pairs."""
    if len(metadata) > MAX_PAIRS:
        raise Invalid(f"metadata has at most {MAX_PAIRS} pairs.")


def clean_pairs(redactor: Redactor, metadata: Metadata) -> Metadata:
    """Metadata redacted; Invalid for too many or too long pairs."""
    require_few(metadata)
    return {
        _short(redactor, key, KEY, MAX_PAIR_KEY): _short(redactor, value, VALUE, MAX_PAIR_VALUE)
        for key, value in metadata.items()
    }


def _short(redactor: Redactor, text: str, name: str, most: int) -> str:
    if len(text) > most:
        raise Invalid(f"{name} has at most {most:,} characters.")
    return redactor.text(text, most)


def _path(redactor: Redactor, path: str) -> str:
    require_path(path)
    clean = redactor.text(path, len(path) * MAX_PATH)
    require_path(clean)  # what stands for a secret may be longer than it
    return clean


def _content(redactor: Redactor, content: str) -> str:
    if len(content) > MAX_CONTENT or size_of(content) > MAX_CONTENT:
        raise Invalid(f"content has at most {MAX_CONTENT:,} bytes.")
    return redactor.text_of_bytes(content, MAX_CONTENT)
