"""The JSON of answers and refusals, as OpenAPI describes it.

Most are nouns of the contract, of which `wire` makes JSON; those of erasures are made here.
"""

from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, RootModel, create_model

from agentops_memory_client.contract import models as c

from ..memory.erasure import Erasure
from ..memory.model.space import Project
from ..memory.projects import Extent
from ..recall.text.instants import rendered
from . import transfer, wire
from .explain import AnswerExplanation, ItemExplanation
from .models import Instant


def _noun(
    name: str, says: str, noun: type[Any], *, without: Sequence[str] = (), **instead: Any
) -> Any:
    """The JSON of a noun of the contract: its fields, of which headers tell some."""
    left_out = {*wire.IN_HEADERS, *without}
    told = {each.name: _field(each, noun) for each in fields(noun) if each.name not in left_out}
    return create_model(name, __doc__=says, __config__=_LATER, **{**told, **instead})


def _field(field: Field[Any], noun: type[Any]) -> tuple[Any, Any]:
    """Its type and default. A list without entries is absent, unless the noun tells of it."""
    kind: Any = field.type
    if field.default is MISSING or (field.default == () and noun in wire.EMPTY_IS_TOLD):
        return kind, ...
    return (kind | None, None) if field.default == () else (kind, field.default)


_TEXT = (str, ...)
_LATER = ConfigDict(defer_build=True)
_EXPLAINED = (ItemExplanation | None, None)

SessionOpened = _noun(
    "SessionOpened", "A session as POST /sessions answers it.", c.Session,
    without=("ended_at", "summary"),
)  # fmt: skip
SessionRow: Any = _noun("SessionRow", "A session as lists and exports show it.", c.Session)
SessionEnded = _noun("SessionEnded", "The answer to a session's end.", c.SessionEnd)
ObservationSaved = _noun("ObservationSaved", "The answer to a save.", c.Saved, action=_TEXT)
Observation = _noun("Observation", "An observation in full.", c.Observation)
ExportedObservation: Any = _noun(
    "ExportedObservation",
    "An observation with the id by which an import knows it again.",
    transfer.ExportedObservation,
)
RevisionRow = _noun(
    "RevisionRow", "One change of an observation; a deletion has no text.", c.Revision
)
SearchHit: Any = _noun(
    "SearchHit", "A found observation; the lower its rank, the better.", c.Hit, explain=_EXPLAINED
)
SummaryLine: Any = _noun("SummaryLine", "A session in a context.", wire.SummaryLine)
ObservationLine: Any = _noun(
    "ObservationLine", "An observation in a context, its content cut.", c.Line, explain=_EXPLAINED
)
ReviewItem: Any = _noun(
    "ReviewItem", "An observation to be looked at; two that look alike come together.",
    c.ReviewItem, observation=(Observation, ...), other=(Observation | None, None),
)  # fmt: skip
ReviewList = _noun(
    "ReviewList", "What somebody should look at; `before` takes `next`.", c.ReviewList,
    items=(list[ReviewItem], ...),
)  # fmt: skip
TimelineEntry = _noun("TimelineEntry", "An observation in a timeline.", c.TimelineEntry)
Stats = _noun("Stats", "How much is stored.", c.Stats)
ImportAnswer: Any = _noun(
    "ImportAnswer", "What an import added.", c.Imported,
)  # fmt: skip
ImportConflict: Any = _noun(
    "ImportConflict",
    "An observation of a document that is not as the stored one, and which of them stays.\n\n"
    "Its place in the list counts from 0; the id is 0 if the stored one is an earlier\n"
    "row of the document.",
    c.ImportConflict, reason=_TEXT, kept=_TEXT,
)  # fmt: skip
ImportPlan: Any = _noun(
    "ImportPlan", "What an import would do; the first hundred conflicts are named.", c.ImportPlan,
    conflicts=(list[ImportConflict], ...),
)  # fmt: skip


class Problem(BaseModel):
    """Every refusal."""

    error: str


class Health(BaseModel):
    """GET /health."""

    status: str


class ExplainedSearch(BaseModel):
    """What a search found, and why."""

    results: list[SearchHit]
    explain: AnswerExplanation


class SearchAnswer(RootModel[list[SearchHit] | ExplainedSearch]):
    """A list; an object if it is to be explained."""


class ContextAnswer(BaseModel):
    """What an agent is reminded of."""

    recent_sessions: list[SummaryLine]
    recent_observations: list[ObservationLine]
    explain: AnswerExplanation | None = None


class Export(BaseModel):
    """GET /export; written piece by piece, so this is its description."""

    exported_at: Instant
    sessions: list[SessionRow]
    observations: list[ExportedObservation]


class ImportOutcome(RootModel[ImportAnswer | ImportPlan]):
    """What an import added, or with dry_run=true the plan of one."""


class Deleted(BaseModel):
    """The answer to a deletion, where the service is set to have one."""

    id: int
    status: Literal["deleted"] = "deleted"


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


def erasure(of: Erasure) -> ErasureReceipt:
    return ErasureReceipt(
        id=of.id, kind=of.kind.value, project=of.project, observation_ids=list(of.memories),
        observations=of.observations, revisions=of.revisions, sessions=of.sessions,
        erased_at=rendered(of.erased_at),
        bytes_gone_at=None if of.bytes_gone_at is None else rendered(of.bytes_gone_at),
        goes_on=of.goes_on or None, copies_not_reached=list(of.copies_not_reached),
    )  # fmt: skip


def erasure_plan(project: Project, extent: Extent) -> ErasurePlan:
    return ErasurePlan(
        project=project, observations=extent.memories, deleted=extent.deleted,
        revisions=extent.revisions, sessions=extent.sessions - extent.shared_sessions,
        sessions_kept=extent.shared_sessions,
    )  # fmt: skip
