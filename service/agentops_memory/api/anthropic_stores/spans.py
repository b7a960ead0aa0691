"""What a span of the Anthropic dialect says: the ids of what it is about, as they are shown."""

from ...domain.model.space import StoreId
from ...domain.model.stores import Entry, Store, Version
from ..kit.ids import ENTRY, STORE, VERSION, public_id

Attributes = dict[str, str | int | float | bool | None]


def store(of: Store) -> Attributes:
    return in_store(of.id)


def in_store(of: StoreId) -> Attributes:
    return {"memory.store.id": public_id(STORE, of)}


def entry(of: Entry) -> Attributes:
    return in_store(of.store) | {
        "memory.entry.id": public_id(ENTRY, of.id),
        "memory.version.id": public_id(VERSION, of.version),
        "memory.entry.size": of.size,
    }


def version(of: Version) -> Attributes:
    return in_store(of.store) | {
        "memory.entry.id": public_id(ENTRY, of.entry),
        "memory.version.id": public_id(VERSION, of.id),
    }


def listed(count: int) -> Attributes:
    return {"memory.result_count": count}
