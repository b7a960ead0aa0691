"""The shapes of the seams' answers, as OpenAPI describes them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from agentops_memory.http.bodies import Instant
from agentops_memory.openwop.entries import RefEntry
from agentops_memory.record import CamelRecord

CAMEL = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class SeamRunFault(BaseModel):
    """Why a run of a fixture has failed."""

    code: str
    message: str


class StartedSeamRun(BaseModel):
    """A run of a fixture, which is over, and where it is told of."""

    model_config = CAMEL
    run_id: str
    status: Literal["running", "completed", "failed"]
    events_url: str
    status_url: str
    error: SeamRunFault | None = None


class SeamRunObject(BaseModel):
    """A run, and what its fixture has found, as long as this process knows it."""

    model_config = CAMEL
    run_id: str
    status: Literal["running", "completed", "failed", "cancelled"]
    started_at: Instant
    ended_at: Instant | None = None
    agent_id: str | None = None
    workflow_id: str
    kind: Literal["host", "pass", "replay", "branch"]
    source_run_id: str | None = None
    completed_at: Instant | None = None
    event_log_schema_version: Literal[2]
    variables: dict[str, Any] | None = None
    error: SeamRunFault | None = None


class ForkedSeamRun(BaseModel):
    """A run that was made of another one, and where it is told of."""

    model_config = CAMEL
    run_id: str
    source_run_id: str
    from_seq: int
    mode: Literal["replay", "branch"]
    status: Literal["running", "completed", "failed", "cancelled"]
    events_url: str


class SeededEntries(BaseModel):
    """How many entries were put."""

    seeded: int


class SeamEntries(CamelRecord):
    """Entries of a ref; `next` is the id to go on with."""

    entries: list[RefEntry]
    next: str | None = None


class SeamCompacted(BaseModel):
    """The event of a compaction, and what the archive says."""

    model_config = CAMEL
    type: Literal["memory.compacted"]
    payload: dict[str, Any]
    output_content: str


class SeamDistilled(BaseModel):
    """What the event of a distillation tells, and the SHA-256 of the archive."""

    model_config = CAMEL
    event: dict[str, Any]
    archive_checksum: str
    index_updated: Literal[False]


class ConsolidatedCounts(BaseModel):
    """How many entries a consolidation has found, and how many it has left."""

    model_config = CAMEL
    input_count: int
    output_count: int


class SeamConsolidated(BaseModel):
    """What a consolidation has done; and of a secret, whether it can still be read."""

    model_config = CAMEL
    event: ConsolidatedCounts
    secret_leaked: bool | None = None


class FiredCommitment(BaseModel):
    """What was told of a commitment that was satisfied twice, and how often."""

    model_config = CAMEL
    event: dict[str, Any] | None = None
    fire_count: int
    intention_canary: str | None = None
