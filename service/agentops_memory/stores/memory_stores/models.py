"""The JSON of the Memory Stores API: what a body may hold, and what an answer holds."""

import re
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from pydantic_core import PydanticCustomError

from ...errors import Invalid
from ...http.bodies import GIVEN, Instant
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
