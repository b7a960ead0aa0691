"""The JSON of exports and imports, and of what an import would do."""

from typing import Literal

from pydantic import BaseModel, RootModel

from .models import (
    Count,
    Given,
    Instant,
    Observation,
    ObservationBody,
    ProjectName,
    Promotion,
    SessionKey,
    SessionRow,
    Summary,
)


class ImportedSession(BaseModel):
    """A session in an import."""

    model_config = Given
    id: SessionKey
    project: ProjectName
    started_at: Instant | None = None
    ended_at: Instant | None = None
    summary: Summary | None = None
    message_count: Count | None = None


class ImportedObservation(ObservationBody):
    """An observation in an import."""

    uid: str | None = None
    revision_count: Count | None = None
    duplicate_count: Count | None = None
    last_seen_at: Instant | None = None
    promoted_to: Promotion | None = None
    created_at: Instant | None = None
    updated_at: Instant | None = None


class ImportBody(BaseModel):
    """POST /import; read piece by piece, so this is its description."""

    model_config = Given
    sessions: list[ImportedSession] | None = None
    observations: list[ImportedObservation] | None = None


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
