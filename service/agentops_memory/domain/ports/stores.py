"""The ports of memory stores, their entries and versions."""

from collections.abc import Iterator
from typing import Protocol

from ..model.erasure import ErasureId
from ..model.memory import MemoryId
from ..model.space import StoreId
from ..model.stores import (
    Entry,
    EntryFilter,
    EntryId,
    Page,
    Past,
    Slice,
    Store,
    StoreFilter,
    Version,
    VersionFilter,
    VersionId,
)


class StoreTable(Protocol):
    """Stores; a deleted one is visible only to the methods that erase it."""

    def add(self, store: Store) -> None:
        """Insert a store, with its space."""

    def get(self, store: StoreId) -> Store | None:
        """The store, archived or not."""

    def replace(self, store: Store) -> None:
        """Update its name, description, metadata and instants."""

    def grow(self, store: StoreId, entries: int, size: int) -> None:
        """Add to the counts of live entries and their bytes; negative to subtract."""

    def page(self, filter_: StoreFilter, at: Page) -> Slice[Store]:
        """A page of stores, by descending id."""

    def delete(self, store: StoreId, erasure: ErasureId) -> None:
        """Hide the store; its rows stay until the erasure is complete."""

    def going(self) -> ErasureId | None:
        """An erasure whose rows are not all removed."""

    def erase_history(self, erasure: ErasureId, limit: int) -> int:
        """Remove at most `limit` revisions of a deleted store; returns the count."""

    def some(self, erasure: ErasureId, limit: int) -> list[MemoryId]:
        """A batch of memories of a deleted store; fewer than the limit if they are long."""

    def remove(self, erasure: ErasureId) -> None:
        """Remove a deleted store that has no memories left."""


class EntryTable(Protocol):
    """Entries: the live memories of stores, without contents except from `get`."""

    def get(self, store: StoreId, entry: EntryId) -> Entry | None:
        """The entry, with its content."""

    def at(self, store: StoreId, path: str) -> Entry | None:
        """The entry at a path."""

    def beside(self, store: StoreId, path: str) -> list[Entry]:
        """The entries at ancestors of a path, and at most two below it."""

    def page(self, store: StoreId, filter_: EntryFilter, at: Page) -> Slice[Entry]:
        """A page of entries, by descending id."""

    def from_path(self, store: StoreId, first: str, prefix: str, limit: int) -> Iterator[Entry]:
        """Entries below a prefix from path `first` on, streamed in code point order.

        The prefix is empty or ends with a slash.
        """


class VersionTable(Protocol):
    """Versions: the revisions of entries."""

    def add(self, version: Version) -> None:
        """Insert the version of the revision with this number."""

    def get(self, store: StoreId, version: VersionId) -> Version | None:
        """The version, with its content if it has one."""

    def page(self, store: StoreId, filter_: VersionFilter, at: Page) -> Slice[Version]:
        """A page of versions, by descending id."""

    def redact(self, version: Version) -> None:
        """Update a version, and remove its revision's text."""

    def past(self, after: tuple[MemoryId, int], limit: int) -> list[Past]:
        """Earlier versions with own texts, of all stores, in this order; fewer if long."""

    def measure(self, memory: MemoryId, number: int, size: int, sha256: str) -> None:
        """Update the size and the hash of a version."""

    def is_redacted(self, memory: MemoryId, number: int) -> bool:
        """Whether the version was redacted."""
