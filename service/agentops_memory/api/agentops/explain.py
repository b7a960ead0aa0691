"""What was found and what a context holds, as much as one answer can, and why it is there."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from agentops_memory_client.contract import models as c
from agentops_memory_client.contract.models import Explanation

from ...domain.model.memory import MemoryId
from ...domain.model.search import Context, Found, Hit, Matched, Packed, Reason, Wanted, WhyNot
from ...domain.model.search import Explanation as Why
from ...domain.recall.budget import Budget
from ...domain.recall.explain import MOST_EXPLAINED
from ...domain.text.normalization import cut
from ...domain.text.query import Corrections, Term
from ..kit.ids import ENTRY, STORE, public_id
from .wire import SummaryLine, held, json_bytes


class MatchedTerm(BaseModel):
    """A term in a memory, what it adds to the score of a sentence, and the fields' shares."""

    sentence: int
    term: str = Field(description="As it was looked for; `*` at its end means any ending.")
    instead_of: str | None = Field(
        default=None, description="The word that nobody wrote, if this one stands for it."
    )
    score: float
    fields: dict[str, float]


class SentencePart(BaseModel):
    """A sentence's part of a score; one in which the memory was not among the best has none."""

    sentence: int
    score: float
    share: float
    counted: bool


class ItemExplanation(BaseModel):
    """Why a memory is in an answer. One found by its age or topic key alone has no score."""

    id: int
    place: int
    store_id: str | None = Field(default=None, description="The memory store that it lies in.")
    memory_id: str | None = Field(default=None, description="Its id in that store.")
    source_place: int | None = Field(
        default=None, description="Its place in its project or store, before these were merged."
    )
    rank: float
    method: str
    tier: str | None = None
    score: float | None = None
    matched: list[MatchedTerm]
    fields: dict[str, float] | None = None
    sentences: list[SentencePart] | None = None
    content_cut: bool | None = None


class WhyNotAnswer(BaseModel):
    """What kept a memory out of an answer; with the reason `none` it is in."""

    id: int
    reason: str
    filters: list[str] | None = None
    tier: str | None = None
    place: int | None = None
    score: float | None = None
    last_score: float | None = None
    older: bool | None = None
    beyond_depth: bool | None = None


class LeftOutEntry(BaseModel):
    """A candidate that a budget had no room for."""

    id: int
    place: int
    tokens: int
    chars: int


class BudgetUse(BaseModel):
    """What a context takes of a prompt, and what had no room."""

    max_tokens: int | None = None
    max_chars: int | None = None
    tokens: int
    chars: int
    summaries_left_out: int
    left_out: list[LeftOutEntry]


class AnswerExplanation(BaseModel):
    """How a text was understood, and what became of it."""

    method: str
    terms: list[list[str]]
    dropped: list[str]
    corrected: dict[str, list[str]]
    degraded: bool
    timed_out: bool
    explained: int
    budget: BudgetUse | None = None
    why_not: WhyNotAnswer | None = None


def found(of: Found, wanted: Wanted) -> c.Found:
    """The hits; and their explanation, if one is wanted."""
    hits = [
        c.Hit(
            id=hit.memory.id,
            type=hit.memory.text.type,
            title=hit.memory.text.title,
            content=hit.memory.text.content,
            rank=hit.rank,
            topic_key=hit.memory.key,
            explain=_told(_item(hit, place, of)) if wanted.explain else None,
        )
        for place, hit in enumerate(of.hits, start=1)
    ]
    why = _told(_answer(of, wanted)) if wanted else None
    fit = held(hits, beside=len(json_bytes(why)) if why else 0)
    return c.Found(
        hits=tuple(fit.rows),
        omitted=fit.omitted,
        explanation=why and _shown(why, of.hits[: len(fit.rows)]),
    )


def context(of: Context, budget: Budget, wanted: Wanted) -> c.Context:
    """Summaries, then memories; and their explanation, if one is wanted."""
    summaries = list(map(SummaryLine, of.summaries))
    lines = [_line(of, place, budget, wanted) for place in range(len(of.found.hits))]
    why = _told(_answer(of.found, wanted, budget=budget, packed=of.packed)) if wanted else None
    fit = held([*summaries, *lines], beside=len(json_bytes(why)) if why else 0)
    kept = fit.rows[len(summaries) :]
    return c.Context(
        summaries=tuple(each.summary for each in fit.rows if isinstance(each, SummaryLine)),
        observations=tuple(each for each in kept if isinstance(each, c.Line)),
        omitted=fit.omitted,
        explanation=why and _shown(why, of.found.hits[: len(kept)]),
    )


def _line(of: Context, place: int, budget: Budget, wanted: Wanted) -> c.Line:
    hit, explain = of.found.hits[place], None
    text = hit.memory.text
    if wanted.explain and of.packed:
        is_cut = len(text.content) > budget.content_chars
        explain = _told(_item(hit, of.packed.places[place], of.found, is_cut=is_cut))
    content = cut(text.content, budget.content_chars)
    return c.Line(type=text.type, title=text.title, content=content, explain=explain)


def _item(hit: Hit, place: int, found: Found, *, is_cut: bool | None = None) -> ItemExplanation:
    """Why the memory at a place is in the answer, which has an explanation."""
    assert found.explanation is not None
    explained = found.explanation.items.get(hit.memory.id)
    space = hit.memory.space
    plain = ItemExplanation(
        id=hit.memory.id,
        place=place,
        store_id=public_id(STORE, space.scope) if space.is_store else None,
        memory_id=public_id(ENTRY, hit.memory.uid) if space.is_store else None,
        source_place=hit.place,
        rank=hit.rank,
        method=hit.method.value,
        tier=hit.tier and hit.tier.value,
        matched=[],
        content_cut=is_cut,
    )
    if explained is None:
        return plain
    stands_for = _stands_for(_corrections(hit, found), found.explanation)
    return plain.model_copy(
        update={
            "score": explained.score,
            "matched": [_matched(one, stands_for) for one in explained.matched],
            "fields": {name.value: share for name, share in explained.fields.items()},
            "sentences": [
                SentencePart(
                    sentence=part.sentence + 1,
                    score=part.score,
                    share=part.share,
                    counted=part.is_counted,
                )
                for part in explained.sentences
            ],
        }
    )


def _answer(
    found: Found, wanted: Wanted, *, budget: Budget | None = None, packed: Packed | None = None
) -> AnswerExplanation:
    """How the text was understood, and why the wanted memory is not in the answer."""
    why = found.explanation
    assert why is not None
    return AnswerExplanation(
        method=found.method.value,
        terms=[list(map(_term, sentence)) for sentence in found.query.sentences],
        dropped=list(why.dropped),
        corrected={word: list(terms) for word, terms in found.query.corrections.items()},
        degraded=found.is_degraded,
        timed_out=why.is_timed_out,
        explained=min(len(found.hits), MOST_EXPLAINED) if wanted.explain else 0,
        budget=None if budget is None or packed is None else _budget(budget, packed),
        why_not=_why_not(wanted.why_not, why.why_not),
    )


def _shown(explanation: Explanation, hits: Sequence[Hit]) -> Explanation:
    """The same, when one answer could hold these alone."""
    why = explanation.get("why_not")
    if why is None or why["reason"] != Reason.NONE.value:
        return explanation
    if any(hit.memory.id == why["id"] for hit in hits):
        return explanation
    return {**explanation, "why_not": {**why, "reason": Reason.SIZE.value}}


def _told(explanation: BaseModel) -> Explanation:
    """An explanation as a caller reads it; parts without a value are absent."""
    return explanation.model_dump(exclude_none=True)


def _budget(budget: Budget, packed: Packed) -> BudgetUse:
    return BudgetUse(
        max_tokens=budget.max_tokens,
        max_chars=budget.max_chars,
        tokens=packed.tokens,
        chars=packed.chars,
        summaries_left_out=packed.summaries_left_out,
        left_out=[
            LeftOutEntry(id=one.memory, place=one.place, tokens=one.tokens, chars=one.chars)
            for one in packed.left_out
        ],
    )


def _why_not(memory: MemoryId | None, why: WhyNot | None) -> WhyNotAnswer | None:
    if memory is None or why is None:
        return None
    return WhyNotAnswer(
        id=memory,
        reason=why.reason.value,
        filters=list(why.filters) or None,
        tier=why.tier and why.tier.value,
        place=why.place,
        score=why.score,
        last_score=why.last_score,
        older=why.is_older or None,
        beyond_depth=why.is_beyond_depth or None,
    )


def _corrections(hit: Hit, found: Found) -> Corrections:
    """What misspelt words were taken for in the place where the memory was found."""
    for source in found.sources:
        if any(hit.memory.id == one.memory.id for one in source.hits):
            return source.query.corrections
    return found.query.corrections


def _stands_for(corrections: Corrections, why: Why) -> dict[Term, str]:
    """The words that nobody wrote, by the terms that are looked for in their place."""
    return {
        term: word
        for word, terms in corrections.items()
        for term in (Term(text=text) for text in terms)
        if term not in why.asked
    }


def _matched(one: Matched, stands_for: Mapping[Term, str]) -> MatchedTerm:
    return MatchedTerm(
        sentence=one.sentence + 1,
        term=_term(one.term),
        instead_of=stands_for.get(one.term),
        score=one.score,
        fields={name.value: share for name, share in one.fields.items() if share},
    )


def _term(term: Term) -> str:
    return f"{term.text}*" if term.starts else term.text
