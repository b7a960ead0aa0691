"""JSON in, JSON out for the Memory Stores API. Pure: no storage, no clock, no request."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ...domain.errors import Invalid
from ...domain.model.search import Found, Hit
from ...domain.model.space import StoreId
from ...domain.model.stores import (
    Entry,
    EntryChange,
    EntryDraft,
    Expected,
    Slice,
    Store,
    StoreDraft,
    Version,
)
from ...domain.stores.rules import MAX_PAIR_KEY, MAX_PAIR_VALUE, MAX_PAIRS, sha256_of, size_of
from ...domain.text.normalization import cut
from ..kit.ids import ENTRY, STORE, VERSION, public_id
from ..kit.instants import rendered
from . import models as m
from .policy import SNIPPET

Model = TypeVar("Model", bound=BaseModel)


class BadField(Invalid):
    """A field of the body, or a parameter, is not what it should be."""

    def __init__(self, sentence: str, field: str) -> None:
        super().__init__(sentence)
        self.field = field


def body(model: type[Model], given: Mapping[str, object]) -> Model:
    """The body as the model has it; BadField names the first fault. `null` is absent."""
    try:
        return model.model_validate({k: value for k, value in given.items() if value is not None})
    except ValidationError as error:
        raise _bad_field(error.errors(include_url=False)[0]) from None


def store_draft(given: m.StoreBody) -> StoreDraft:
    return StoreDraft(name=given.name, description=given.description, metadata=given.metadata)


def entry_draft(given: m.EntryBody) -> EntryDraft:
    return EntryDraft(path=given.path, content=given.content, metadata=given.metadata)


def entry_change(given: m.EntryChangeBody) -> EntryChange:
    return EntryChange(content=given.content, metadata=given.metadata)


def expected(given: m.EntryChangeBody) -> Expected:
    sha256 = given.content_sha256
    return Expected(number=given.version, sha256=None if sha256 is None else sha256.lower())


def store(of: Store) -> m.StoreObject:
    return m.StoreObject(
        id=public_id(STORE, of.id),
        name=of.name,
        description=of.description,
        status="active" if of.archived_at is None else "archived",
        entry_count=of.entries,
        total_size=of.size,
        metadata=dict(of.metadata),
        archived_at=None if of.archived_at is None else rendered(of.archived_at),
        created_at=rendered(of.created_at),
        updated_at=rendered(of.updated_at),
    )


def entry(of: Entry) -> m.EntryObject:
    return m.EntryObject(
        id=public_id(ENTRY, of.id),
        store_id=public_id(STORE, of.store),
        path=of.path,
        size=of.size,
        content_sha256=of.sha256,
        version=of.number,
        metadata=dict(of.metadata),
        content=of.content,
        created_at=rendered(of.created_at),
        updated_at=rendered(of.updated_at),
    )


def version(of: Version) -> m.VersionObject:
    """The version; what it has not, or has lost, is empty where the contract has no absence."""
    return m.VersionObject(
        id=public_id(VERSION, of.id),
        store_id=public_id(STORE, of.store),
        entry_id=public_id(ENTRY, of.entry),
        entry_path=of.path or "",
        size=of.size or 0,
        content_sha256=of.sha256 or "",
        action=of.deed.value,
        redacted=of.redacted_at is not None,
        redacted_at=None if of.redacted_at is None else rendered(of.redacted_at),
        content=of.content,
        created_at=rendered(of.at),
    )


def store_list(found: Slice[Store]) -> m.StoreList:
    data = [store(each) for each in found.items]
    first, last = _ends([each.id for each in data])
    return m.StoreList(data=data, first_id=first, last_id=last, has_more=found.has_more)


def entry_list(found: Slice[Entry]) -> m.EntryList:
    data = [entry(each) for each in found.items]
    first, last = _ends([each.id for each in data])
    return m.EntryList(data=data, first_id=first, last_id=last, has_more=found.has_more)


def version_list(found: Slice[Version]) -> m.VersionList:
    data = [version(each) for each in found.items]
    first, last = _ends([each.id for each in data])
    return m.VersionList(data=data, first_id=first, last_id=last, has_more=found.has_more)


def entry_hits(store: StoreId, found: Found) -> m.EntryHits:
    return m.EntryHits(data=[_entry_hit(store, hit) for hit in found.hits])


def _entry_hit(store: StoreId, hit: Hit) -> m.EntryHit:
    memory = hit.memory
    return m.EntryHit(
        id=public_id(ENTRY, memory.uid),
        store_id=public_id(STORE, store),
        path=memory.key or "",
        size=size_of(memory.text.content),
        content_sha256=sha256_of(memory.text.content),
        version=memory.revision,
        metadata=dict(memory.extras),
        created_at=rendered(memory.created_at),
        updated_at=rendered(memory.updated_at),
        snippet=cut(memory.text.content, SNIPPET),
        rank=hit.rank,
    )


def _ends(ids: Sequence[str]) -> tuple[str | None, str | None]:
    return (ids[0], ids[-1]) if ids else (None, None)


_FAULTS = {
    "missing": "Missing required field: {name}",
    "string_too_short": "Missing required field: {name}",
    "string_too_long": "Field '{name}' must be at most {max_length:,} characters.",
    "string_type": "Field '{name}' must be a string.",
    "string_unicode": f"Field '{{name}}' {m.UNSTORABLE}.",
    "string_pattern_mismatch": "Field '{name}' must be 64 hexadecimal digits.",
    "int_type": "Field '{name}' must be an integer.",
    "dict_type": "Field '{name}' must be an object.",
    "fault": "Field '{name}' {said}.",
    "sentence": "{said}",
}
_PAIRS = (
    f"Field '{{name}}' must be at most {MAX_PAIRS} pairs of strings, with keys of "
    f"at most {MAX_PAIR_KEY} characters, values of at most {MAX_PAIR_VALUE}, and no NUL."
)


def _bad_field(fault: Mapping[str, object]) -> BadField:
    """A fault of a body as a sentence about its field."""
    place, kind, details = fault["loc"], str(fault["type"]), fault.get("ctx", {})
    assert isinstance(place, tuple)
    assert isinstance(details, dict)
    is_inside = len(place) > 1 or kind == "too_long"
    sentence = _PAIRS if is_inside else _FAULTS[kind]
    return BadField(sentence.format(name=place[0], **details), str(place[0]))
