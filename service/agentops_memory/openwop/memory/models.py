"""The shapes of OpenWOP's answers, as OpenAPI describes them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from ...http.bodies import Instant

CAMEL = ConfigDict(alias_generator=to_camel)


class Fault(BaseModel):
    """A field, and what is wrong with it."""

    field: str
    problem: str


class ProblemDetails(BaseModel):
    """More of a refusal, by its kind."""

    model_config = CAMEL
    fields: list[Fault] = []
    correlation_id: str | None = None
    scope_required: str | None = None
    retry_after_ms: int | None = None
    scope: str | None = None
    from_seq: int | None = None
    source_run_id: str | None = None
    reason: str | None = None
    budget: int | None = None
    minimum_required: int | None = None


class OpenWopProblem(BaseModel):
    """A refusal."""

    error: str
    message: str
    details: ProblemDetails | None = None


class HostDiscovery(BaseModel):
    """What is served of OpenWOP."""

    model_config = CAMEL
    protocol_version: str
    supported_envelopes: list[str]
    schema_versions: dict[str, int]
    limits: dict[str, int]
    implementation: dict[str, str]
    supported_transports: list[str]
    memory: dict[str, Any]
    agents: dict[str, Any]
    capabilities: dict[str, Any]
    fixtures: list[str] | None = None


class RefEntryObject(BaseModel):
    """An entry of a ref."""

    model_config = CAMEL
    id: str
    content: str
    tags: list[str]
    created_at: Instant
    expires_at: Instant | None = None


class ListedRefEntries(BaseModel):
    """Entries of a ref; `next` is the id to go on with."""

    model_config = CAMEL
    memory_ref: str
    entries: list[RefEntryObject]
    next: str | None = None


class OneRefEntry(BaseModel):
    """An entry, and the ref that it is in."""

    model_config = CAMEL
    memory_ref: str
    entry: RefEntryObject


class DeletedRefEntry(BaseModel):
    """What was deleted."""

    model_config = CAMEL
    memory_ref: str
    memory_id: str
    removed: Literal[True]


class FoundRefEntries(BaseModel):
    """Entries by their words, with the rank of each; a lower one is better."""

    model_config = CAMEL
    memory_ref: str
    entries: list[RefEntryObject]
    ranks: list[float]


class WrittenBy(BaseModel):
    """Who put an entry."""

    model_config = CAMEL
    run_id: str | None = None
    node_id: str | None = None
    agent_id: str | None = None


class ProvenanceObject(BaseModel):
    """Where an entry comes from, and what replaces it."""

    model_config = CAMEL
    memory_ref: str
    memory_id: str
    written_by: WrittenBy
    method: Literal["put", "extract-1", "host"]
    derived_from: list[str]
    superseded_by: list[str] | None = None
    seen: int
    last_seen_at: Instant


class RefObject(BaseModel):
    """A ref, with how much it holds."""

    model_config = CAMEL
    memory_ref: str
    entries: int
    bytes: int


class ListedRefs(BaseModel):
    """Refs; `next` is the one to go on with."""

    refs: list[RefObject]
    next: str | None = None


class ProtocolDescription(BaseModel):
    """This protocol, in OpenAPI 3.1."""

    openapi: str
    info: dict[str, Any]
    tags: list[dict[str, str]]
    paths: dict[str, Any]
    components: dict[str, Any]
