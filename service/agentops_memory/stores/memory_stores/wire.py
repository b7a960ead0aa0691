"""JSON in, JSON out for the Memory Stores API. Pure: no storage, no clock, no request."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pydantic_core import ErrorDetails

from ...errors import Invalid, Refusal
from ...http.bodies import Bodies
from ...http.ids import ENTRY, STORE, VERSION, public_id
from ...http.large_answers import paced
from ...http.paging import rendered
from ...memory.model import stores
from ...memory.model.memory import Expected
from ...memory.model.search import Found, Hit
from ...memory.model.space import StoreId
from ...recall.text.normalization import clean, cut, sha256_of
from ...recall.whole import whole_memory
from ..rules import rules
from . import models as m
from .models import Listed, Shown

T = TypeVar("T")

SNIPPET = 300  # characters
SHOWN_ID = 100  # characters of an id that was not found

# The contract's sentences, by the code of a refusal or by the domain's own sentence.
BY_CODE = dict.fromkeys(("stale", "path_taken"), "Version or state conflict.")
NOT_FOUND = {
    rules.NO_STORE: ("MemoryStore", "store_id"),
    rules.NO_ENTRY: ("Memory", "entry_id"),
    rules.NO_VERSION: ("MemoryVersion", "version_id"),
}


class BadField(Invalid):
    """A field of the body, or a parameter, is not what it should be."""

    def __init__(self, sentence: str, field: str) -> None:
        super().__init__(sentence)
        self.field = field


def store_draft(given: m.StoreBody) -> stores.StoreDraft:
    return stores.StoreDraft(
        name=given.name, description=given.description, metadata=given.metadata
    )


def entry_draft(given: m.EntryBody) -> stores.EntryDraft:
    return stores.EntryDraft(path=given.path, content=given.content, metadata=given.metadata)


def entry_change(given: m.EntryChangeBody) -> stores.EntryChange:
    return stores.EntryChange(content=given.content, metadata=given.metadata)


def expected(given: m.EntryChangeBody) -> Expected:
    sha256 = given.content_sha256
    return Expected(revision=given.version, sha256=None if sha256 is None else sha256.lower())


def store(of: stores.Store) -> m.StoreObject:
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


def entry(of: stores.Entry) -> m.EntryObject:
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


def version(of: stores.Version) -> m.VersionObject:
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


def listed(
    model: type[Listed[Shown]], shown: Callable[[T], Shown], found: stores.Slice[T]
) -> Listed[Shown]:
    data = [shown(each) for each in found.items]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    return model(data=data, first_id=first, last_id=last, has_more=found.has_more)


async def entry_hits(store: StoreId, found: Found) -> m.EntryHits:
    hits = paced((_entry_hit(store, hit) for hit in found.hits), lambda hit: hit.size)
    return m.EntryHits(data=[hit async for hit in hits])


def problem(
    refusal: Refusal, type_: str, ids: Mapping[str, str], request_id: str
) -> m.StoreProblem:
    """A refusal; what was not found is named by its id in the path."""
    field = refusal.field if isinstance(refusal, BadField) else None
    error = m.StoreError(type=type_, message=_sentence(refusal, ids), param=field)
    return m.StoreProblem(error=error, request_id=request_id)


def _sentence(refusal: Refusal, ids: Mapping[str, str]) -> str:
    said = BY_CODE.get(refusal.code, str(refusal))
    kind, name = NOT_FOUND.get(said, ("", ""))
    if name not in ids:  # or what is answered again is gone, and the path never named it
        return said
    return f"{kind} '{cut(clean(ids[name]), SHOWN_ID)}' was not found."


def _entry_hit(store: StoreId, hit: Hit) -> m.EntryHit:
    memory = whole_memory(hit)
    return m.EntryHit(
        id=public_id(ENTRY, memory.uid),
        store_id=public_id(STORE, store),
        path=memory.key or "",
        size=rules.size_of(memory.text.content),
        content_sha256=sha256_of(memory.text.content),
        version=memory.revision,
        metadata=dict(memory.extras),
        created_at=rendered(memory.created_at),
        updated_at=rendered(memory.updated_at),
        snippet=cut(memory.text.content, SNIPPET),
        rank=hit.rank,
    )


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
    f"Field '{{name}}' must be at most {rules.MAX_PAIRS} pairs of strings, with keys of at most "
    f"{rules.MAX_PAIR_KEY} characters, values of at most {rules.MAX_PAIR_VALUE}, and no NUL."
)


def _bad_field(faults: Sequence[ErrorDetails]) -> BadField:
    """The first fault of a body as a sentence about its field."""
    path, kind, details = faults[0]["loc"], faults[0]["type"], faults[0].get("ctx", {})
    is_inside = len(path) > 1 or kind == "too_long"
    sentence = _PAIRS if is_inside else _FAULTS[kind]
    return BadField(sentence.format(name=path[0], **details), str(path[0]))


BODIES = Bodies(refusal=_bad_field)
