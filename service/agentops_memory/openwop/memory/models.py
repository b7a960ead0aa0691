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


class RunObject(BaseModel):
    """A run."""

    model_config = CAMEL
    run_id: str
    status: Literal["running", "completed", "failed", "cancelled"]
    started_at: Instant
    ended_at: Instant | None = None
    agent_id: str | None = None
    workflow_id: str | None = None
    kind: Literal["host", "pass", "replay", "branch"]
    source_run_id: str | None = None


class OpenedRun(BaseModel):
    """A run that was opened."""

    model_config = CAMEL
    run_id: str
    status: Literal["running"]
    started_at: Instant


class RegisteredSecret(BaseModel):
    """Whether a value is a secret from now on; a short one is not."""

    model_config = CAMEL
    secret_id: str
    registered: bool


class RunEventObject(BaseModel):
    """Something that happened in a run."""

    model_config = CAMEL
    event_id: str
    run_id: str
    type: str
    payload: dict[str, Any]
    timestamp: Instant
    sequence: int
    node_id: str | None = None


class RunEvents(BaseModel):
    """Events of a run, and whether these are all up to its end."""

    model_config = CAMEL
    events: list[RunEventObject]
    is_complete: bool


class AllRunEvents(BaseModel):
    """Events of all runs, and the cursor to go on with."""

    events: list[RunEventObject]
    next: str


class ForkedRun(BaseModel):
    """A run that was made of another one."""

    model_config = CAMEL
    run_id: str
    source_run_id: str
    from_seq: int
    mode: Literal["replay", "branch"]
    status: Literal["running", "completed", "failed", "cancelled"]


class ProtocolDescription(BaseModel):
    """This protocol, in OpenAPI 3.1."""

    openapi: str
    info: dict[str, Any]
    tags: list[dict[str, str]]
    paths: dict[str, Any]
    components: dict[str, Any]
