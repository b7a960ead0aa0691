"""The JSON of the Memory Stores API: bodies and answers. Pure: no storage, no clock, no request."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from pydantic_core import ErrorDetails, PydanticCustomError

from ...errors import Invalid, Refusal
from ...http.bodies import GIVEN, Bodies, Instant
from ...http.ids import ENTRY, STORE, VERSION, public_id
from ...http.large_answers import paced
from ...http.paging import rendered
from ...memory.model import stores
from ...memory.model.memory import Expected
from ...memory.model.search import Found, Hit
from ...memory.model.space import StoreId
from ...recall.recall import whole_memory
from ...recall.text.normalization import clean, cut, sha256_of
from ..rules import rules

MAX_NAME = 64  # characters of a store's name, trimmed

UNSTORABLE = "cannot contain NUL or a lone surrogate"
_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")


def _storable(text: str) -> str:
    if _UNSTORABLE.search(text):
        raise _fault(UNSTORABLE)
    return text


def _written(content: str) -> str:
    if not content.strip():
        raise _fault("cannot be blank")
    if rules.size_of(content) > rules.MAX_CONTENT:
        raise _fault(f"must be at most {rules.MAX_CONTENT:,} bytes")
    return content


def _relative(path: str) -> str:
    if path.startswith("/"):
        raise _fault("must be a relative path (cannot start with '/')")
    if ".." in path:
        raise _fault("cannot contain '..'")
    try:
        rules.require_path(path)
    except Invalid as error:
        raise PydanticCustomError("sentence", "{said}", {"said": str(error)}) from error
    return path


def _fault(phrase: str) -> PydanticCustomError:
    """A fault as a sentence tells it after the name of the field."""
    return PydanticCustomError("fault", "{said}", {"said": phrase})


Plain = AfterValidator(_storable)
Name = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME), Plain
]
Description = Annotated[
    str, StringConstraints(strip_whitespace=True, max_length=rules.MAX_DESCRIPTION), Plain
]
PairKey = Annotated[str, Field(max_length=rules.MAX_PAIR_KEY), Plain]
PairValue = Annotated[str, Field(max_length=rules.MAX_PAIR_VALUE), Plain]
Pairs = Annotated[dict[PairKey, PairValue], Field(max_length=rules.MAX_PAIRS)]
Path = Annotated[
    str,
    Plain,
    AfterValidator(_relative),
    Field(json_schema_extra={"minLength": 1, "maxLength": rules.MAX_PATH}),
]
Content = Annotated[
    str,
    Plain,
    AfterValidator(_written),
    Field(json_schema_extra={"minLength": 1, "maxLength": rules.MAX_CONTENT}),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{64}$")]

# Of what is left out when there is nothing.
ABSENT = Field(default=None, exclude_if=lambda value: value is None)


class StoreBody(BaseModel):
    """POST /memory_stores."""

    model_config = GIVEN
    name: Name
    description: Description = ""
    metadata: Pairs = {}


class EntryBody(BaseModel):
    """POST /memory_stores/{store_id}/memories."""

    model_config = GIVEN
    path: Path
    content: Content
    metadata: Pairs = {}


class EntryChangeBody(BaseModel):
    """PUT /memory_stores/{store_id}/memories/{entry_id}.

    `version` and `content_sha256` are what the entry must have to be changed.
    """

    model_config = GIVEN
    content: Content
    metadata: Pairs | None = None
    version: int | None = None
    content_sha256: Sha256 | None = None


class StoreObject(BaseModel):
    """A memory store."""

    id: str
    type: Literal["memory_store"] = "memory_store"
    name: str
    description: str
    status: Literal["active", "archived"]
    entry_count: int
    total_size: int
    metadata: dict[str, str]
    archived_at: Instant | None = ABSENT
    created_at: Instant
    updated_at: Instant


class EntryObject(BaseModel):
    """A memory in a store; its content is absent in lists."""

    id: str
    type: Literal["memory"] = "memory"
    store_id: str
    path: str
    size: int
    content_sha256: str
    version: int
    metadata: dict[str, str]
    content: str | None = ABSENT
    created_at: Instant
    updated_at: Instant


class EntryHit(EntryObject):
    """A memory that a search found: the beginning of its content, and its rank."""

    snippet: str
    rank: float


class VersionObject(BaseModel):
    """One change of a memory."""

    id: str
    type: Literal["memory_version"] = "memory_version"
    store_id: str
    entry_id: str
    entry_path: str
    size: int
    content_sha256: str
    action: Literal["created", "updated", "deleted"]
    redacted: bool
    redacted_at: Instant | None = ABSENT
    content: str | None = ABSENT
    created_at: Instant


Shown = TypeVar("Shown", StoreObject, EntryObject, VersionObject)


class Listed(BaseModel, Generic[Shown]):
    data: list[Shown]
    first_id: str | None
    last_id: str | None
    has_more: bool


class StoreList(Listed[StoreObject]):
    """Memory stores, newest first."""


class EntryList(Listed[EntryObject]):
    """Memories of a store without their contents, newest first."""


class VersionList(Listed[VersionObject]):
    """Versions of a store's memories without their contents, newest first."""


class EntryHits(BaseModel):
    """What a search found, best first."""

    data: list[EntryHit]


class StoreError(BaseModel):
    """What was wrong, and with which field or parameter."""

    type: str
    message: str
    param: str | None = ABSENT


class StoreProblem(BaseModel):
    """A refusal: what was wrong, and the id of the request."""

    type: Literal["error"] = "error"
    error: StoreError
    request_id: str


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


def store_draft(given: StoreBody) -> stores.StoreDraft:
    return stores.StoreDraft(
        name=given.name, description=given.description, metadata=given.metadata
    )


def entry_draft(given: EntryBody) -> stores.EntryDraft:
    return stores.EntryDraft(path=given.path, content=given.content, metadata=given.metadata)


def entry_change(given: EntryChangeBody) -> stores.EntryChange:
    return stores.EntryChange(content=given.content, metadata=given.metadata)


def expected(given: EntryChangeBody) -> Expected:
    sha256 = given.content_sha256
    return Expected(revision=given.version, sha256=None if sha256 is None else sha256.lower())


def store(of: stores.Store) -> StoreObject:
    return StoreObject(
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


def entry(of: stores.Entry) -> EntryObject:
    return EntryObject(
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


def version(of: stores.Version) -> VersionObject:
    """The version; what it has not, or has lost, is empty where the contract has no absence."""
    return VersionObject(
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


async def entry_hits(store: StoreId, found: Found) -> EntryHits:
    hits = paced((_entry_hit(store, hit) for hit in found.hits), lambda hit: hit.size)
    return EntryHits(data=[hit async for hit in hits])


def problem(refusal: Refusal, type_: str, ids: Mapping[str, str], request_id: str) -> StoreProblem:
    """A refusal; what was not found is named by its id in the path."""
    field = refusal.field if isinstance(refusal, BadField) else None
    error = StoreError(type=type_, message=_sentence(refusal, ids), param=field)
    return StoreProblem(error=error, request_id=request_id)


def _sentence(refusal: Refusal, ids: Mapping[str, str]) -> str:
    said = BY_CODE.get(refusal.code, str(refusal))
    kind, name = NOT_FOUND.get(said, ("", ""))
    if name not in ids:  # or what is answered again is gone, and the path never named it
        return said
    return f"{kind} '{cut(clean(ids[name]), SHOWN_ID)}' was not found."


def _entry_hit(store: StoreId, hit: Hit) -> EntryHit:
    memory = whole_memory(hit)
    return EntryHit(
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
    "string_unicode": f"Field '{{name}}' {UNSTORABLE}.",
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
