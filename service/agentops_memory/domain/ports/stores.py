"""What the domain asks of storage for memory stores."""

from collections.abc import Iterator
from typing import Protocol

from ..model.erasure import ErasureId
from ..model.memory import MemoryId
from ..model.space import StoreId
from ..model.stores import (
    EntriesSeen,
    Entry,
    EntryId,
    Page,
    Past,
    Slice,
    Store,
    StoresSeen,
    Version,
    VersionId,
    VersionsSeen,
)


class StoreTable(Protocol):
    """Stores. One that is deleted is as one that never was, but for what erases it."""

    def add(self, store: Store) -> None:
        """Store a new store, and make its space."""

    def get(self, store: StoreId) -> Store | None:
        """The store, archived or not."""

    def replace(self, store: Store) -> None:
        """Store its name, description, metadata and instants."""

    def grow(self, store: StoreId, entries: int, size: int) -> None:
        """Count so many more live entries, and so many more bytes in them; or fewer."""

    def page(self, filter_: StoresSeen, at: Page) -> Slice[Store]:
        """Stores, from high ids to low ones."""

    def delete(self, store: StoreId, erasure: ErasureId) -> None:
        """Let nobody see the store any more; its rows stay until the erasure is done."""

    def going(self) -> ErasureId | None:
        """The erasure of a deleted store whose rows are still there."""

    def erase_history(self, erasure: ErasureId, limit: int) -> int:
        """Remove so many revisions of a deleted store; how many there were."""

    def some(self, erasure: ErasureId, limit: int) -> list[MemoryId]:
        """Some memories of a deleted store to erase together. Fewer than the limit if long."""

    def remove(self, erasure: ErasureId) -> None:
        """Remove what is left of a deleted store without memories."""


class EntryTable(Protocol):
    """Entries: the live memories of stores, with what their newest versions tell."""

    def get(self, store: StoreId, entry: EntryId) -> Entry | None:
        """The entry, with its content."""

    def at(self, store: StoreId, path: str) -> Entry | None:
        """The entry at a path, without its content."""

    def beside(self, store: StoreId, path: str) -> list[Entry]:
        """Those that lie above a path, and two of those below it, without their contents."""

    def page(self, store: StoreId, filter_: EntriesSeen, at: Page) -> Slice[Entry]:
        """Entries from high ids to low ones, without their contents."""

    def from_path(self, store: StoreId, first: str, prefix: str, limit: int) -> Iterator[Entry]:
        """Entries whose paths are `first` or come after it and lie below a prefix.

        That is empty or ends with a slash. In the order of their paths, by code
        points, without their contents, and read one by one.
        """


class VersionTable(Protocol):
    """Versions: what a store tells of its memories' revisions."""

    def add(self, version: Version) -> None:
        """Store what is told of the revision with this number."""

    def get(self, store: StoreId, version: VersionId) -> Version | None:
        """The version, with its content if it has any left."""

    def page(self, store: StoreId, filter_: VersionsSeen, at: Page) -> Slice[Version]:
        """Versions from high ids to low ones."""

    def redact(self, version: Version) -> None:
        """Store a version as it is now, and take its text out of the revision for good."""

    def past(self, after: tuple[MemoryId, int], limit: int) -> list[Past]:
        """Earlier versions with texts of their own, by entry and number, after one of them.

        Of every store; fewer than the limit if they are long.
        """

    def measure(self, memory: MemoryId, number: int, size: int, sha256: str) -> None:
        """Store the size and the hash that the text of a revision has now."""

    def is_redacted(self, memory: MemoryId, number: int) -> bool:
        """Whether the version of a revision was redacted."""
