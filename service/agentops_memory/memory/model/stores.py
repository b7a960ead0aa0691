"""The nouns of memory stores: a store is a space, an entry its memory, a version its revision."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Generic, NewType, TypeVar

from .access import KeyId
from .memory import ChangeKind, MemoryId, Text
from .space import StoreId

EntryId = NewType("EntryId", str)
VersionId = NewType("VersionId", str)

T = TypeVar("T")

ENTRY_TYPE = "memory"  # of each memory in a store

Metadata = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A memory store; `entries` counts the live ones, `size` their bytes."""

    id: StoreId
    name: str
    description: str = ""
    metadata: Metadata = field(default_factory=dict)
    entries: int = 0
    size: int = 0
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDraft:
    """A store to be created."""

    name: str
    description: str = ""
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChange:
    """A partial change: a part that is None stays as it is.

    Of the metadata, what has a value is set, what has None goes, and the rest stays.
    """

    name: str | None = None
    description: str | None = None
    metadata: Mapping[str, str | None] | None = None

    def applied_to(self, store: Store) -> Store:
        """The store with the parts of the change."""
        patch = self.metadata or {}
        kept = {key: value for key, value in store.metadata.items() if key not in patch}
        return replace(
            store,
            name=store.name if self.name is None else self.name,
            description=store.description if self.description is None else self.description,
            metadata=kept | {key: value for key, value in patch.items() if value is not None},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A live memory of a store, at its path; content is None where it was not read.

    `size` counts the bytes of the content in UTF-8, and `sha256` is their hash in
    hexadecimal; `number` counts its versions from 1, and `version` is the newest.
    """

    id: EntryId
    memory: MemoryId
    store: StoreId
    path: str
    content: str | None
    size: int
    sha256: str
    number: int
    version: VersionId
    metadata: Metadata
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """An entry to be created."""

    path: str
    content: str
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryChange:
    """A partial change; None leaves a part unchanged, and metadata is replaced as a whole."""

    path: str | None = None
    content: str | None = None
    metadata: Metadata | None = None

    def applied_to(self, entry: Entry) -> Entry:
        """The entry with the parts of the change."""
        return replace(
            entry,
            path=entry.path if self.path is None else self.path,
            content=entry.content if self.content is None else self.content,
            metadata=entry.metadata if self.metadata is None else self.metadata,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One revision of an entry, immutable but for redaction.

    A deletion has no size, hash or content. A redacted version has no content; its
    path, size and hash are None if they were taken out as well.
    """

    id: VersionId
    store: StoreId
    entry: EntryId
    memory: MemoryId
    number: int
    deed: ChangeKind
    path: str | None
    size: int | None
    sha256: str | None
    content: str | None = None
    at: datetime
    author: KeyId | None = None
    redacted_at: datetime | None = None
    redacted_by: KeyId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The text of an earlier version of an entry, live or deleted."""

    memory: MemoryId
    store: StoreId
    entry: EntryId
    number: int
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time range, both ends included; None is open."""

    first: datetime | None = None
    last: datetime | None = None


ALWAYS = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFilter:
    """A filter of stores; the name matches as a prefix, in any case."""

    name_prefix: str | None = None
    with_archived: bool = False
    created: Span = ALWAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """A filter of entries."""

    path_prefix: str | None = None
    created: Span = ALWAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFilter:
    """A filter of versions."""

    entry: EntryId | None = None
    deed: ChangeKind | None = None
    author: KeyId | None = None
    created: Span = ALWAYS
    with_content: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list in descending order of ids.

    It begins after an id, or ends before one, which need not be there any more.
    """

    limit: int
    after: str | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True)
class Slice(Generic[T]):
    """The items of a page, and whether there are more."""

    items: tuple[T, ...]
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[T]):
    """The outcome of a write: what is stored now, and how many secrets were removed."""

    value: T
    redacted: int = 0
    evicted: int = 0  # entries of agents' memory that made room
    archived: int = 0  # those of a task that has ended
    fired: int = 0  # commitments to whose conditions it came
    is_new: bool = False  # whether a write that makes or changes has made it
