"""The JSON of answers and refusals, as OpenAPI describes it.

Most are nouns of the contract, of which `wire` makes JSON; those of erasures are made here.
"""

from typing import Literal

from pydantic import BaseModel, RootModel

from ...domain.lifecycle.receipts import Receipt
from ...domain.model.space import Project
from ...domain.model.totals import Extent
from ...domain.text.instants import rendered
from .explain import AnswerExplanation, ItemExplanation
from .models import Instant


class Problem(BaseModel):
    """Every refusal."""

    error: str


class Health(BaseModel):
    """GET /health."""

    status: str


class SessionOpened(BaseModel):
    """A session as POST /sessions answers it."""

    id: str
    project: str
    started_at: Instant
    message_count: int


class SessionRow(SessionOpened):
    """A session as lists and exports show it."""

    ended_at: Instant | None = None
    summary: str | None = None


class SessionEnded(BaseModel):
    """The answer to a session's end."""

    session_id: str
    summary: str
    message_count: int


class ObservationSaved(BaseModel):
    """The answer to a save."""

    id: int
    action: str
    revision_count: int
    duplicate_count: int


class Observation(BaseModel):
    """An observation in full."""

    id: int
    session_id: str
    type: str
    title: str
    content: str
    tags: list[str] | None = None
    project: str
    scope: str
    topic_key: str | None = None
    normalized_hash: str
    revision_count: int
    duplicate_count: int
    last_seen_at: Instant
    promoted_to: str | None = None
    created_at: Instant
    updated_at: Instant


class ErasureReceipt(BaseModel):
    """What was erased, and how far it is gone; at most a thousand ids are named."""

    id: str
    kind: str
    project: str
    observation_ids: list[int]
    observations: int
    revisions: int
    sessions: int
    erased_at: Instant
    bytes_gone_at: Instant | None = None
    goes_on: bool | None = None
    copies_not_reached: list[str]


class ErasurePlan(BaseModel):
    """What the erasure of a project would remove.

    `deleted` are those of the observations that are deleted already; `sessions_kept` stay,
    without a summary, for the observations of other projects in them.
    """

    project: str
    observations: int
    deleted: int
    revisions: int
    sessions: int
    sessions_kept: int


class ProjectErasure(RootModel[ErasureReceipt | ErasurePlan]):
    """The receipt of the erasure of a project, or with dry_run=true the plan of one."""


class RevisionRow(BaseModel):
    """One change of an observation; a deletion has no text."""

    revision: int
    action: str
    created_at: Instant
    type: str | None = None
    title: str | None = None
    content: str | None = None
    tags: list[str] | None = None


class SearchHit(BaseModel):
    """A found observation; the lower its rank, the better."""

    id: int
    type: str
    title: str
    content: str
    rank: float
    topic_key: str | None = None
    explain: ItemExplanation | None = None


class ExplainedSearch(BaseModel):
    """What a search found, and why."""

    results: list[SearchHit]
    explain: AnswerExplanation


class SearchAnswer(RootModel[list[SearchHit] | ExplainedSearch]):
    """A list; an object if it is to be explained."""


class SummaryLine(BaseModel):
    """A session in a context."""

    summary: str


class ObservationLine(BaseModel):
    """An observation in a context, its content cut."""

    type: str
    title: str
    content: str
    explain: ItemExplanation | None = None


class ContextAnswer(BaseModel):
    """What an agent is reminded of."""

    recent_sessions: list[SummaryLine]
    recent_observations: list[ObservationLine]
    explain: AnswerExplanation | None = None


class TimelineEntry(BaseModel):
    """An observation in a timeline."""

    id: int
    type: str
    title: str
    content: str
    created_at: Instant


class Stats(BaseModel):
    """How much is stored."""

    total_sessions: int
    total_observations: int
    projects: list[str]


class ExportedObservation(Observation):
    """An observation with the id by which an import knows it again."""

    uid: str


class Export(BaseModel):
    """GET /export; written piece by piece, so this is its description."""

    exported_at: Instant
    sessions: list[SessionRow]
    observations: list[ExportedObservation]


class ImportAnswer(BaseModel):
    """What an import added.

    One that goes on is accepted, has added so much by now, and adds the rest by itself.
    """

    imported_sessions: int
    imported_observations: int
    goes_on: Literal[True] | None = None


class ImportConflict(BaseModel):
    """An observation of a document that is not as the stored one, and which of them stays.

    Its place in the list counts from 0; the id is 0 if the stored one is an earlier
    row of the document.
    """

    place: int
    id: int
    reason: str
    kept: str
    project: str
    title: str


class ImportPlan(BaseModel):
    """What an import would do; the first hundred conflicts are named."""

    new_sessions: int
    same_sessions: int
    conflicting_sessions: int
    new_observations: int
    restored_observations: int
    same_observations: int
    conflicting_observations: int
    conflicts: list[ImportConflict]


class ImportOutcome(RootModel[ImportAnswer | ImportPlan]):
    """What an import added, or with dry_run=true the plan of one."""


def erasure(receipt: Receipt) -> ErasureReceipt:
    of = receipt.erasure
    return ErasureReceipt(
        id=of.id,
        kind=of.kind.value,
        project=of.project,
        observation_ids=list(of.memories),
        observations=of.observations,
        revisions=of.revisions,
        sessions=of.sessions,
        erased_at=rendered(of.erased_at),
        bytes_gone_at=None if of.bytes_gone_at is None else rendered(of.bytes_gone_at),
        goes_on=of.goes_on or None,
        copies_not_reached=list(receipt.copies_not_reached),
    )


def erasure_plan(project: Project, extent: Extent) -> ErasurePlan:
    return ErasurePlan(
        project=project,
        observations=extent.memories,
        deleted=extent.deleted,
        revisions=extent.revisions,
        sessions=extent.sessions - extent.shared_sessions,
        sessions_kept=extent.shared_sessions,
    )
