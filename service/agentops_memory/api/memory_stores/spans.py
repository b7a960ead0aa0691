"""What a span of the Memory Stores API says: attributes and events, from the domain's nouns."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ...domain.model.search import Found, Hit
from ...domain.model.space import StoreId
from ...domain.model.stores import Entry, EntryId, Slice, Store, Version
from ...telemetry import Cut
from ..kit.ids import ENTRY, STORE, VERSION, public_id

T = TypeVar("T")

Attributes = dict[str, str | int | float | bool | Cut | None]

SHOWN_QUERY = 200  # code points of a search
SHOWN_PATH = 100  # code points of the path of a memory that was found


def store(of: Store) -> Attributes:
    return {"memory.store.id": public_id(STORE, of.id), "memory.store.entry_count": of.entries}


def entry(of: Entry) -> Attributes:
    return {
        "memory.store.id": public_id(STORE, of.store),
        "memory.entry.id": public_id(ENTRY, of.id),
        "memory.entry.version": of.number,
        "memory.entry.size": of.size,
    }


def version(of: Version) -> Attributes:
    return {
        "memory.store.id": public_id(STORE, of.store),
        "memory.entry.id": public_id(ENTRY, of.entry),
        "memory.version.id": public_id(VERSION, of.id),
        "memory.version.action": of.deed.value,
    }


def within(store: StoreId, entry: EntryId | None = None) -> Attributes:
    return {
        "memory.store.id": public_id(STORE, store),
        "memory.entry.id": None if entry is None else public_id(ENTRY, entry),
    }


def page(found: Slice[T]) -> Attributes:
    return {"memory.page.result_count": len(found.items)}


def search(text: str, found: Found) -> Attributes:
    return {
        "memory.search.query": Cut(text, SHOWN_QUERY),
        "memory.search.result_count": len(found.hits),
        "memory.search.degraded": found.is_degraded or None,
    }


def hits(found: Sequence[Hit]) -> Iterator[Attributes]:
    """The attributes of one event a memory that was found."""
    for hit in found:
        yield {
            "memory.entry.id": public_id(ENTRY, hit.memory.uid),
            "memory.entry.path": Cut(hit.memory.key or "", SHOWN_PATH),
            "memory.injected.rank": hit.rank,
            "memory.injected.method": hit.method.value,
        }
