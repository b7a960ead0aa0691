"""The JSON of AgentOps REST: what a body may hold, and what an answer holds."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel

from ...domain.memories.redactor import (
    MAX_CONTENT,
    MAX_KEY,
    MAX_PROJECT,
    MAX_SCOPE,
    MAX_SESSION_ID,
    MAX_SUMMARY,
    MAX_TAG,
    MAX_TAGS,
    MAX_TITLE,
    MAX_TYPE,
)
from ...domain.model.space import project_name
from .explain_models import AnswerExplanation, ItemExplanation

Given = ConfigDict(strict=True, extra="ignore")


def _folded(name: Any) -> Any:
    return project_name(name) if isinstance(name, str) else name


_VISIBLE = r"[^\s\x1c-\x1f]"  # not blank: what Python strips is nothing to see

_SEEN = "A new one has no invisible characters{}, unless it is imported."

SessionKey = Annotated[
    str, Field(min_length=1, max_length=MAX_SESSION_ID, description=_SEEN.format(""))
]
Type = Annotated[str, Field(pattern=_VISIBLE, max_length=MAX_TYPE)]
Title = Annotated[str, Field(pattern=_VISIBLE, max_length=MAX_TITLE)]
Content = Annotated[str, Field(pattern=_VISIBLE, max_length=MAX_CONTENT)]
ProjectName = Annotated[
    str,
    Field(pattern=_VISIBLE, max_length=MAX_PROJECT, description=_SEEN.format(" and no `*`")),
    BeforeValidator(_folded),
]  # the limit is that of the folded name, which is what an export holds
Scope = Annotated[str, Field(max_length=MAX_SCOPE)]
Summary = Annotated[str, Field(max_length=MAX_SUMMARY)]
Promotion = Annotated[str, Field(max_length=MAX_TITLE)]
TopicKey = Annotated[str, Field(max_length=MAX_KEY, description=_SEEN.format(""))]
Tag = Annotated[str, Field(max_length=MAX_TAG, description=_SEEN.format(""))]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
Count = Annotated[int, Field(ge=0, le=(1 << 53))]
Positive = Annotated[int, Field(ge=1, le=(1 << 53))]
Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class SessionBody(BaseModel):
    """POST /sessions."""

    model_config = Given
    id: SessionKey
    project: ProjectName


class NamedSession(BaseModel):
    """The session that a path names, and the project of one not known yet."""

    model_config = Given
    id: SessionKey
    project: ProjectName | None = None


class MessageBody(BaseModel):
    """One message of a transcript."""

    model_config = Given
    role: str | None = None
    content: str | None = None


class Messages(BaseModel):
    """The messages of a body, each of which is read alone."""

    model_config = Given
    messages: list[Any]


class AppendBody(BaseModel):
    """POST /sessions/{id}/messages; `Messages` reads it, so this is its description."""

    model_config = Given
    messages: list[MessageBody]


class EndBody(BaseModel):
    """POST /sessions/{id}/end; read piece by piece, so this is its description."""

    model_config = Given
    messages: list[MessageBody] | None = None


class ObservationBody(BaseModel):
    """POST /observations."""

    model_config = Given
    session_id: SessionKey
    type: Type
    title: Title
    content: Content
    project: ProjectName
    tags: Tags | None = None
    scope: Scope | None = None
    topic_key: TopicKey | None = None


class ChangeBody(BaseModel):
    """PATCH /observations/{id}."""

    model_config = Given
    type: Type | None = None
    title: Title | None = None
    content: Content | None = None
    tags: Tags | None = None


class RestoreBody(BaseModel):
    """POST /observations/{id}/restore."""

    model_config = Given
    revision: Positive


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
