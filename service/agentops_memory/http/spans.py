"""Which store, entry and version a span is about, by the ids that a client sees."""

from ..memory.model.space import StoreId
from ..memory.model.stores import Entry, EntryId, Version, VersionId
from ..telemetry import Cut
from .ids import ENTRY, STORE, VERSION, public_id

Attributes = dict[str, str | int | float | bool | Cut | None]


def within(
    store: StoreId, entry: EntryId | None = None, version: VersionId | None = None
) -> Attributes:
    return {
        "memory.store.id": public_id(STORE, store),
        "memory.entry.id": None if entry is None else public_id(ENTRY, entry),
        "memory.version.id": None if version is None else public_id(VERSION, version),
    }


def entry(of: Entry, version: VersionId | None = None) -> Attributes:
    return {**within(of.store, of.id, version), "memory.entry.size": of.size}


def version(of: Version) -> Attributes:
    return within(of.store, of.entry, of.id)
