"""The JSON of the Anthropic dialect: what a body may hold, and what an answer holds."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ...http.bodies import GIVEN, Instant
from ...recall.text.visible import has_controls
from ..rules import rules

MAX_PATCH = 2 * rules.MAX_PAIRS  # as many to set as there may be, and as many to take out


def _storable(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("nul", "String should have no NUL")
    return text


def _printable(name: str) -> str:
    if not name.strip() or has_controls(name):
        raise PydanticCustomError(
            "printable", "String should have more than white space and no control characters"
        )
    return name


def _few(most: int) -> BeforeValidator:
    """Refuses what has too many members, before any of them is looked at."""

    def few(pairs: Any) -> Any:
        if isinstance(pairs, dict) and len(pairs) > most:
            raise PydanticCustomError(
                "too_many", "Object should have at most {most} members", {"most": most}
            )
        return pairs

    return BeforeValidator(few)


def _most(members: int) -> Any:
    """What the description says of that limit."""
    return Field(json_schema_extra={"maxProperties": members})


STORABLE = AfterValidator(_storable)

Name = Annotated[str, Field(min_length=1, max_length=rules.MAX_NAME), AfterValidator(_printable)]
Description = Annotated[str, Field(max_length=rules.MAX_DESCRIPTION), STORABLE]
Path = Annotated[str, Field(pattern="^/", max_length=rules.MAX_PATH)]
Content = Annotated[str, Field(max_length=rules.MAX_CONTENT), STORABLE]
PairKey = Annotated[str, Field(min_length=1, max_length=rules.MAX_PAIR_KEY), STORABLE]
PairValue = Annotated[str, Field(max_length=rules.MAX_PAIR_VALUE), STORABLE]
Pairs = Annotated[dict[PairKey, PairValue], _few(rules.MAX_PAIRS), _most(rules.MAX_PAIRS)]
Patch = Annotated[dict[PairKey, PairValue | None], _few(MAX_PATCH), _most(MAX_PATCH)]
OperationName = Literal["created", "modified", "deleted"]


class AnthropicStoreBody(BaseModel):
    """A store to create."""

    model_config = GIVEN
    name: Name
    description: Description | None = None
    metadata: Pairs | None = None


class AnthropicStoreChange(BaseModel):
    """Parts of a store to change; of the metadata, null takes a pair out."""

    model_config = GIVEN
    name: Name | None = None
    description: Description | None = None
    metadata: Patch | None = None


class AnthropicMemoryBody(BaseModel):
    """A memory to create."""

    model_config = GIVEN
    path: Path
    content: Content


class AnthropicPrecondition(BaseModel):
    """The hash that the content of a memory must have for a change."""

    model_config = GIVEN
    type: Literal["content_sha256"]
    content_sha256: str


class AnthropicMemoryChange(BaseModel):
    """Parts of a memory to change; a new path renames it."""

    model_config = GIVEN
    content: Content | None = None
    path: Path | None = None
    precondition: AnthropicPrecondition | None = None


class AnthropicStore(BaseModel):
    """A memory store."""

    id: str
    type: Literal["memory_store"] = "memory_store"
    name: str
    description: str
    metadata: dict[str, str]
    created_at: Instant
    updated_at: Instant
    archived_at: Instant | None


class AnthropicStoreList(BaseModel):
    """A page of stores, newest first."""

    data: list[AnthropicStore]
    next_page: str | None


class AnthropicStoreDeleted(BaseModel):
    """What is left of a store."""

    id: str
    type: Literal["memory_store_deleted"] = "memory_store_deleted"


class AnthropicMemory(BaseModel):
    """A memory; its content is null where the view is basic."""

    id: str
    type: Literal["memory"] = "memory"
    memory_store_id: str
    memory_version_id: str
    path: str
    content: str | None
    content_sha256: str
    content_size_bytes: int
    created_at: Instant
    updated_at: Instant


class AnthropicPrefix(BaseModel):
    """A folder, in the place of the memories in it."""

    type: Literal["memory_prefix"] = "memory_prefix"
    path: str


class AnthropicMemoryList(BaseModel):
    """A page of memories and folders, in the order of their paths."""

    data: list[AnthropicMemory | AnthropicPrefix]
    next_page: str | None


class AnthropicMemoryDeleted(BaseModel):
    """What is left of a memory; its versions stay."""

    id: str
    type: Literal["memory_deleted"] = "memory_deleted"


class AnthropicActor(BaseModel):
    """The key of whoever did it."""

    type: Literal["api_actor"] = "api_actor"
    api_key_id: str


class AnthropicVersion(BaseModel):
    """One change of a memory; what a deletion has not, or a redaction took, is null."""

    id: str
    type: Literal["memory_version"] = "memory_version"
    memory_store_id: str
    memory_id: str
    operation: OperationName
    path: str | None
    content: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: Instant
    created_by: AnthropicActor | None
    redacted_at: Instant | None
    redacted_by: AnthropicActor | None


class AnthropicVersionList(BaseModel):
    """A page of versions, newest first."""

    data: list[AnthropicVersion]
    next_page: str | None


class AnthropicError(BaseModel):
    """What is wrong; of a path that is taken, also by which memory."""

    type: str
    message: str
    conflicting_memory_id: str | None = None
    conflicting_path: str | None = None


class AnthropicProblem(BaseModel):
    """Every refusal."""

    type: Literal["error"] = "error"
    error: AnthropicError
    request_id: str
