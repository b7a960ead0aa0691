"""Why an answer of a search or a context is as it is."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from agentops_memory_client.contract.models import Explanation

from ..http.ids import ENTRY, STORE, public_id
from ..memory.model.memory import NO_LINKS, MemoryId
from ..memory.model.search import Budget, Found, Hit, Matched, Packed, Reason, Wanted, WhyNot
from ..memory.model.search import Explanation as Why
from ..recall.explanation import MAX_EXPLAINED
from ..recall.recall import whole_memory
from ..recall.text.query import Corrections, Term


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
    weight: float = Field(
        description="What it weighs beside the others: less the more words it has, more if it asks."
    )
    score: float
    share: float
    counted: bool


class FollowingPart(BaseModel):
    """A memory that follows in the session and is among the best itself: its part of a score."""

    id: int
    weight: float
    score: float
    share: float


class ItemExplanation(BaseModel):
    """Why a memory is in an answer. One found by its age or topic key alone has no score."""

    id: int
    place: int
    store_id: str | None = Field(default=None, description="The memory store that it lies in.")
    memory_id: str | None = Field(default=None, description="Its id in that store.")
    entry_id: str | None = Field(default=None, description="Its id in agents' memory.")
    namespace: str | None = Field(default=None, description="Its namespace there.")
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
    following: list[FollowingPart] | None = None
    content_cut: bool | None = None
    superseded: list[int] | None = Field(default=None, description="What it supersedes.")


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
    superseded_by: list[int] | None = None


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


def _namespace(hit: Hit) -> str:
    """Of an entry of agents' memory, whose title is its namespace and its key."""
    return hit.memory.text.title.removesuffix(f"/{hit.memory.key}")


def item(hit: Hit, place: int, found: Found, *, is_cut: bool | None = None) -> Explanation:
    """Why the memory at a place is in the answer, which has an explanation."""
    assert found.explanation is not None
    explained = found.explanation.items.get(hit.memory.id)
    space, links = whole_memory(hit).space, found.explanation.links.get(hit.memory.id, NO_LINKS)
    plain = ItemExplanation(
        id=hit.memory.id,
        place=place,
        store_id=public_id(STORE, space.scope) if space.traits.has_entries else None,
        memory_id=public_id(ENTRY, whole_memory(hit).uid) if space.traits.has_entries else None,
        entry_id=public_id(ENTRY, whole_memory(hit).uid) if space.traits.is_json else None,
        namespace=_namespace(hit) if space.traits.is_json else None,
        source_place=hit.place,
        rank=hit.rank,
        method=hit.method.value,
        tier=hit.tier and hit.tier.value,
        matched=[],
        content_cut=is_cut,
        superseded=list(links.supersedes) or None,
    )
    if explained is None:
        return _told(plain)
    stands_for = _stands_for(_corrections(hit, found), found.explanation)
    scored = {
        "score": explained.score,
        "matched": [_matched(one, stands_for) for one in explained.matched],
        "fields": {name.value: share for name, share in explained.fields.items()},
        "sentences": [
            SentencePart(
                sentence=part.sentence + 1,
                weight=part.weight,
                score=part.score,
                share=part.share,
                counted=part.is_counted,
            )
            for part in explained.sentences
        ],
        "following": [
            FollowingPart(
                id=part.memory,
                weight=part.weight,
                score=part.score,
                share=part.weight * part.score / explained.score,
            )
            for part in explained.followers
        ]
        or None,
    }
    return _told(plain.model_copy(update=scored))


def answer(
    found: Found, wanted: Wanted, *, budget: Budget | None = None, packed: Packed | None = None
) -> Explanation:
    """How the text was understood, and why the wanted memory is not in the answer."""
    why = found.explanation
    assert why is not None
    told = AnswerExplanation(
        method=found.method.value,
        terms=[list(map(_term, sentence.terms)) for sentence in found.query.sentences],
        dropped=list(why.dropped),
        corrected={word: list(terms) for word, terms in found.query.corrections.items()},
        degraded=found.is_degraded,
        timed_out=why.is_timed_out,
        explained=min(len(found.hits), MAX_EXPLAINED) if wanted.explain else 0,
        budget=None if budget is None or packed is None else _budget(budget, packed),
        why_not=_why_not(wanted.why_not, why.why_not),
    )
    return _told(told)


def of_shown(explanation: Explanation, hits: Sequence[Hit]) -> Explanation:
    """The explanation, when one answer could hold these hits alone."""
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
        superseded_by=list(why.superseded_by) or None,
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
