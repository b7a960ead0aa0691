"""The JSON of responses and refusals, as OpenAPI describes it.

`wire` writes most of it, from nouns of the contract; the models of erasures are filled here.
"""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model

from agentops_memory_client.contract import models as c

from ..http.query import ENTRY, STORE, public_id
from ..memory import search
from ..memory.erasure import Erasure
from ..memory.memory import NO_LINKS
from ..memory.rows import rendered
from ..recall.explanation import MAX_EXPLAINED
from ..recall.query import Term
from ..recall.recall import whole_memory
from . import transfer, wire
from .models import Instant


class MatchedTerm(BaseModel):
    """A term in a memory, its part of a sentence's score, and each field's share of that."""

    sentence: int
    term: str = Field(description="The term as searched; a trailing `*` means any ending.")
    instead_of: str | None = Field(
        default=None,
        description="The word of the query that occurs in no memory, if this term "
        "was searched instead.",
    )
    score: float
    fields: dict[str, float]


class ItemExplanation(BaseModel):
    """Why a memory is in a response; it has no score if found only by age or topic key."""

    id: int
    place: int
    store_id: str | None = Field(default=None, description="The memory store that contains it.")
    memory_id: str | None = Field(default=None, description="Its id in that store.")
    entry_id: str | None = Field(default=None, description="Its id in the agents' memory.")
    namespace: str | None = Field(default=None, description="Its namespace in the agents' memory.")
    source_place: int | None = Field(
        default=None,
        description="Its rank within its project or store, before the results were merged.",
    )
    rank: float
    method: str
    tier: str | None = None
    score: float | None = None
    matched: list[MatchedTerm]
    fields: dict[str, float] | None = None
    sentences: list[search.SentencePart] | None = None
    following: list[search.FollowingPart] | None = None
    content_cut: bool | None = None
    superseded: list[int] | None = Field(default=None, description="The ids that it supersedes.")


class BudgetUse(BaseModel):
    """How much of a prompt a context takes, and what was left out."""

    max_tokens: int | None = None
    max_chars: int | None = None
    tokens: int
    chars: int
    summaries_left_out: int
    left_out: list[search.LeftOutEntry]


class AnswerExplanation(BaseModel):
    """How a query was interpreted and answered."""

    method: str
    terms: list[list[str]]
    dropped: list[str]
    corrected: dict[str, list[str]]
    degraded: bool
    timed_out: bool
    explained: int
    budget: BudgetUse | None = None
    why_not: search.WhyNotAnswer | None = None


def explained_item(
    hit: search.Hit, position: int, result: search.SearchResult, *, is_cut: bool | None = None
) -> c.Explanation:
    """Return why the memory at a position is in an explained result."""
    assert result.explanation is not None
    memory = whole_memory(hit)
    why, traits = result.explanation, memory.space.kind.traits
    explained, links = why.items.get(memory.id), why.links.get(memory.id, NO_LINKS)
    plain = ItemExplanation(
        id=memory.id, place=position, source_place=hit.place, rank=hit.rank,
        method=hit.method.value,
        store_id=public_id(STORE, memory.space.scope) if traits.has_entries else None,
        memory_id=public_id(ENTRY, memory.uid) if traits.has_entries else None,
        entry_id=public_id(ENTRY, memory.uid) if traits.is_json else None,
        # The title of an entry of agents' memory is its namespace and its key.
        namespace=memory.text.title.removesuffix(f"/{memory.key}") if traits.is_json else None,
        tier=hit.tier and hit.tier.value, matched=[], content_cut=is_cut,
        superseded=list(links.supersedes) or None,
    )  # fmt: skip
    if explained is None:
        return _as_json(plain)
    corrections = next(
        (it for it in result.sources if any(memory.id == one.memory.id for one in it.hits)), result
    ).query.corrections
    # The words that occur in no memory, by the terms that are searched instead of them.
    replaced = {
        term: word
        for word, terms in corrections.items()
        for term in map(Term, terms)
        if term not in why.queried
    }
    scored = {
        "score": explained.score,
        "matched": [
            MatchedTerm(
                sentence=one.sentence + 1, term=_term(one.term), score=one.score,
                instead_of=replaced.get(one.term),
                fields={name.value: share for name, share in one.fields.items() if share},
            )
            for one in explained.matched
        ],
        "fields": {name.value: share for name, share in explained.fields.items()},
        "sentences": explained.sentences, "following": explained.following or None,
    }  # fmt: skip
    return _as_json(plain.model_copy(update=scored))


def explained_answer(
    result: search.SearchResult, is_explained: bool, *, budget: search.Budget | None = None,
    packed: search.Packed | None = None,
) -> c.Explanation:  # fmt: skip
    """Return how the query was interpreted, and why the `why_not` memory is missing."""
    why = result.explanation
    assert why is not None
    use = None
    if budget is not None and packed is not None:
        use = BudgetUse(
            max_tokens=budget.max_tokens, max_chars=budget.max_chars, tokens=packed.tokens,
            chars=packed.chars, summaries_left_out=packed.summaries_left_out,
            left_out=list(packed.left_out),
        )  # fmt: skip
    return _as_json(AnswerExplanation(
        method=result.method.value, dropped=list(why.dropped), degraded=result.is_degraded,
        terms=[list(map(_term, sentence.terms)) for sentence in result.query.sentences],
        corrected={word: list(terms) for word, terms in result.query.corrections.items()},
        timed_out=why.is_timed_out, budget=use, why_not=why.why_not,
        explained=min(len(result.hits), MAX_EXPLAINED) if is_explained else 0,
    ))  # fmt: skip


def explanation_of_kept(explanation: c.Explanation, hits: Sequence[search.Hit]) -> c.Explanation:
    """Return the explanation of a response that has room for these hits only."""
    kept, why = {it.memory.id for it in hits}, explanation.get("why_not")
    if why and why["reason"] == search.Reason.NONE and why["id"] not in kept:
        return {**explanation, "why_not": {**why, "reason": search.Reason.SIZE.value}}
    return explanation


def _as_json(explanation: BaseModel) -> c.Explanation:
    return explanation.model_dump(exclude_none=True)


def _term(term: Term) -> str:
    return f"{term.text}*" if term.starts else term.text


def _noun(noun: type[Any], **overrides: Any) -> Any:
    """Create the model of a noun of the contract, without the fields that are sent in headers."""
    members = {it.name: _field(it, noun) for it in fields(noun) if it.name not in wire.IN_HEADERS}
    return create_model(
        noun.__name__, __doc__=noun.__doc__, __config__=_LATER, **{**members, **overrides}
    )


def _field(field: Any, noun: type[Any]) -> tuple[Any, Any]:
    """Return the type and default. Empty lists are omitted, except those of some nouns."""
    kind: Any = field.type
    if field.default is MISSING or (field.default == () and noun in wire.WITH_EMPTY_LISTS):
        return kind, ...
    return (kind | None, None) if field.default == () else (kind, field.default)


_LATER = ConfigDict(defer_build=True)
_EXPLAINED = (ItemExplanation | None, None)

Session: Any = _noun(c.Session)
SessionEnd = _noun(c.SessionEnd)
Saved = _noun(c.Saved)
Observation: Any = _noun(c.Observation)
ExportedObservation: Any = _noun(transfer.ExportedObservation)
Revision = _noun(c.Revision)
Hit: Any = _noun(c.Hit, explain=_EXPLAINED)
SummaryLine: Any = _noun(wire.SummaryLine)
Line: Any = _noun(c.Line, explain=_EXPLAINED)
ReviewItem: Any = _noun(
    c.ReviewItem, observation=(Observation, ...), other=(Observation | None, None)
)
ReviewList = _noun(c.ReviewList, items=(list[ReviewItem], ...))
TimelineEntry = _noun(c.TimelineEntry)
Stats = _noun(c.Stats)
Imported: Any = _noun(c.Imported)
ImportPlan: Any = _noun(c.ImportPlan)


class Problem(BaseModel):
    """The body of every refusal."""

    error: str


class ExplainedSearch(BaseModel):
    """The results of a search, with explanations."""

    results: list[Hit]
    explain: AnswerExplanation


class SearchAnswer(RootModel[list[Hit] | ExplainedSearch]):
    """A list of results, or an object if an explanation was requested."""


class ContextAnswer(BaseModel):
    """The sessions and observations of a context."""

    recent_sessions: list[SummaryLine]
    recent_observations: list[Line]
    explain: AnswerExplanation | None = None


class Export(BaseModel):
    """GET /export, which is streamed; this model only describes it."""

    exported_at: Instant
    sessions: list[Session]
    observations: list[ExportedObservation]


class ImportOutcome(RootModel[Imported | ImportPlan]):
    """What an import added, or with dry_run=true the plan of one."""


class Deleted(BaseModel):
    """The response to a deletion, if the service is set to send a body."""

    id: int
    status: Literal["deleted"] = "deleted"


class ErasureReceipt(BaseModel):
    """What was erased, and whether its bytes are gone; at most a thousand ids are listed."""

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

    `deleted` counts the observations that are deleted already; `sessions_kept` counts sessions
    that stay, without a summary, because they have observations of other projects.
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
        goes_on=of.is_in_progress or None, copies_not_reached=list(of.copies_not_reached),
    )  # fmt: skip
