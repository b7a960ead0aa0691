"""Explanations as JSON. Pure, like all that renders."""

from collections.abc import Mapping, Sequence

from ...domain.model.memory import MemoryId
from ...domain.model.search import Explanation, Found, Hit, Matched, Packed, Reason, Wanted, WhyNot
from ...domain.recall.budget import Budget
from ...domain.recall.explain import MOST_EXPLAINED
from ...domain.text.query import Corrections, Term
from ..kit.ids import ENTRY, STORE, public_id
from . import explain_models as m


def item(hit: Hit, place: int, found: Found, *, is_cut: bool | None = None) -> m.ItemExplanation:
    """Why the memory at a place is in the answer, which has an explanation."""
    assert found.explanation is not None
    explained = found.explanation.items.get(hit.memory.id)
    space = hit.memory.space
    plain = m.ItemExplanation(
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
                m.SentencePart(
                    sentence=part.sentence + 1,
                    score=part.score,
                    share=part.share,
                    counted=part.is_counted,
                )
                for part in explained.sentences
            ],
        }
    )


def answer(
    found: Found, wanted: Wanted, *, budget: Budget | None = None, packed: Packed | None = None
) -> m.AnswerExplanation:
    """How the text was understood, and why the wanted memory is not in the answer."""
    why = found.explanation
    assert why is not None
    return m.AnswerExplanation(
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


def shown(explanation: m.AnswerExplanation, hits: Sequence[Hit]) -> m.AnswerExplanation:
    """The same, when one answer could hold these alone."""
    why = explanation.why_not
    if why is None or why.reason != Reason.NONE.value:
        return explanation
    if any(hit.memory.id == why.id for hit in hits):
        return explanation
    return explanation.model_copy(
        update={"why_not": why.model_copy(update={"reason": Reason.SIZE.value})}
    )


def _budget(budget: Budget, packed: Packed) -> m.BudgetUse:
    return m.BudgetUse(
        max_tokens=budget.max_tokens,
        max_chars=budget.max_chars,
        tokens=packed.tokens,
        chars=packed.chars,
        summaries_left_out=packed.summaries_left_out,
        left_out=[
            m.LeftOutEntry(id=one.memory, place=one.place, tokens=one.tokens, chars=one.chars)
            for one in packed.left_out
        ],
    )


def _why_not(memory: MemoryId | None, why: WhyNot | None) -> m.WhyNotAnswer | None:
    if memory is None or why is None:
        return None
    return m.WhyNotAnswer(
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


def _stands_for(corrections: Corrections, why: Explanation) -> dict[Term, str]:
    """The words that nobody wrote, by the terms that are looked for in their place."""
    return {
        term: word
        for word, terms in corrections.items()
        for term in (Term(text=text) for text in terms)
        if term not in why.asked
    }


def _matched(one: Matched, stands_for: Mapping[Term, str]) -> m.MatchedTerm:
    return m.MatchedTerm(
        sentence=one.sentence + 1,
        term=_term(one.term),
        instead_of=stands_for.get(one.term),
        score=one.score,
        fields={name.value: share for name, share in one.fields.items() if share},
    )


def _term(term: Term) -> str:
    return f"{term.text}*" if term.starts else term.text
