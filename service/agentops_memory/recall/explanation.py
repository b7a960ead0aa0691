"""Explains an answer: why its memories were found, and why another memory was not."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from ..engine.engine import Transaction
from ..errors import INDEX_UNAVAILABLE
from ..light import dataclass, replace
from ..memory.lifecycles import SupersessionTable
from ..memory.memories import MemoryTable
from ..memory.memory import NO_LINKS, Memory, MemoryId
from ..memory.search import (
    OTHER_SENTENCES,
    PLACES,
    Explained,
    Explanation,
    Field,
    Filter,
    FollowingPart,
    Hit,
    Include,
    Matched,
    Method,
    Packed,
    Parts,
    Reason,
    SearchResult,
    SentencePart,
    Source,
    Tier,
    WhyNotAnswer,
    sentence_weights,
)
from ..memory.space import GLOBAL_SCOPE
from .query import Query, Term, words

TIMEOUT = timedelta(seconds=1)  # of each half of an explanation
MAX_EXPLAINED = 50  # memories per answer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer and how it was computed: candidates, filter, limit and budget.

    With `fills_up`, as in a context, the newest memories fill the limit. `ranked` is the result
    without pins.
    """

    result: SearchResult
    filter: Filter
    limit: int
    fills_up: bool
    packed: Packed | None = None
    ranked: SearchResult | None = None

    @property
    def searched(self) -> Filter:
        return self.filter.in_context if self.fills_up else self.filter


def explanation(
    tx: Transaction, query: Query, hits: Sequence[Hit], answer: Answer, request: Include
) -> Explanation:
    """Explain why the hits are in the answer, and why a memory is not; each half may time out."""
    items = _in_time(tx, lambda: _items(tx, hits, answer)) if request.explain else {}
    why = None
    if (memory := request.why_not) is not None:
        late = WhyNotAnswer(id=memory, reason=Reason.TIMED_OUT)
        why = _in_time(tx, lambda: why_not(tx, memory, answer)) or late
    used = {term.text for term in answer.result.query.terms}
    return Explanation(
        dropped=tuple(it for it in words(query.prompt) if it not in used),
        queried=frozenset(query.terms),
        items=items or {},
        links=tx[SupersessionTable].of([hit.memory.id for hit in hits]) if request.explain else {},
        why_not=why,
        is_timed_out=items is None or (why is not None and why.reason == Reason.TIMED_OUT),
    )


def _items(tx: Transaction, hits: Sequence[Hit], answer: Answer) -> dict[int, Explained]:
    result = answer.result
    first_ids = [hit.memory.id for hit in hits[:MAX_EXPLAINED]]
    single_source = Source(filter=answer.searched, query=result.query, hits=tuple(hits))
    items: dict[int, Explained] = {}
    for source in result.sources or (single_source,):
        if source.filter.is_of_agents:  # their scores do not come from the index
            continue
        for tier in (Tier.EVERY, Tier.ANY):
            listed = {hit.memory.id for hit in source.hits if hit.tier is tier}
            if ids := [id_ for id_ in first_ids if id_ in listed]:
                parts = tx.search.parts(tier, source.query, source.filter, answer.limit, ids)
                items |= {id_: explained(part, source.query, tier) for id_, part in parts.items()}
    return items


def _in_time(tx: Transaction, work: Callable[[], T]) -> T | None:
    try:
        with tx.search.within(TIMEOUT):
            return work()
    except INDEX_UNAVAILABLE:
        return None


def why_not(tx: Transaction, id_: MemoryId, answer: Answer) -> WhyNotAnswer:
    """Return what kept a memory out of the answer; UNKNOWN if it is missing or soft-deleted."""
    outcome = partial(WhyNotAnswer, id=id_)
    memory = tx[MemoryTable].get(id_)
    if memory is None or not memory.is_live(tx.now):
        return outcome(reason=Reason.UNKNOWN)
    if filters := failed_filters(memory, answer):
        return outcome(reason=Reason.FILTER, filters=list(filters))
    links = tx[SupersessionTable].of([id_]).get(id_, NO_LINKS)
    if links.superseded_by and answer.filter.is_current:
        return outcome(reason=Reason.SUPERSEDED, superseded_by=list(links.superseded_by))
    for position, hit in enumerate(answer.result.hits, start=1):
        if hit.memory.id == id_:
            left_out = answer.packed.left_out if answer.packed else ()
            is_left_out = any(id_ == it.id for it in left_out)
            return outcome(reason=Reason.BUDGET if is_left_out else Reason.NONE, place=position)
    if answer.ranked and any(hit.memory.id == id_ for hit in answer.ranked.hits):
        return outcome(reason=Reason.PINS)
    return _outranked(tx, id_, answer)


def failed_filters(memory: Memory, answer: Answer) -> tuple[str, ...]:
    """Return the names of the filters that a memory fails, or only `project` if that is one."""
    filter_, space = answer.filter, memory.space
    has_globals = filter_.scope is None and (filter_.global_too or filter_.project is None)
    is_global = filter_.scope == GLOBAL_SCOPE or (space.scope == GLOBAL_SCOPE and has_globals)
    is_own = not answer.fills_up if filter_.project is None else space.project == filter_.project
    passes = {
        "project": is_global or is_own,
        "scope": filter_.scope in (None, space.scope),
        "type": filter_.type in (None, memory.text.type),
        "exclude_type": memory.text.type not in filter_.excluded_types,
        "tag": filter_.tag is None or filter_.tag in memory.text.tags,
    }
    if not passes["project"]:
        return ("project",)  # another project's memory stays hidden
    return tuple(name for name, is_passed in passes.items() if not is_passed)


def _outranked(tx: Transaction, id_: MemoryId, answer: Answer) -> WhyNotAnswer:
    result = answer.result
    older = any(hit.method is Method.RECENCY for hit in result.hits) or None
    if result.is_degraded or (answer.fills_up and not result.query.sentences):
        return WhyNotAnswer(id=id_, reason=Reason.RECENCY, older=older)
    standing = _standing(tx, id_, answer)
    if standing.place is not None and standing.place <= answer.limit and not result.sources:
        # A size limit ends a list early; fusion may do so in favor of other sources.
        return replace(standing, reason=Reason.SIZE.value)
    # Matches are outranked by other matches, not by the newest memories.
    last = result.hits[-1].rank if standing.reason == Reason.RANK and result.hits else None
    return replace(standing, last_score=last, older=older)


def _standing(tx: Transaction, memory: MemoryId, answer: Answer) -> WhyNotAnswer:
    """Return the memory's rank among all tiers, counting each memory once."""
    query = answer.result.query
    ahead: set[MemoryId] = set()
    for tier in (Tier.ANY,) if answer.fills_up else Tier:
        if query.path is None if tier is Tier.KEY else not query.sentences:
            continue
        for score, id_ in tx.search.ranking(tier, query, answer.searched, answer.limit):
            if id_ == memory:
                position = len(ahead) + 1
                return WhyNotAnswer(
                    id=memory, reason=Reason.RANK, tier=tier, place=position, score=score
                )
            ahead.add(id_)
        if len(ahead) >= PLACES:
            return _unlisted(tx, memory, answer, is_cut=True)
    return _unlisted(tx, memory, answer, is_cut=False)


def _unlisted(tx: Transaction, id_: MemoryId, answer: Answer, *, is_cut: bool) -> WhyNotAnswer:
    """Explain a memory that no tier ranks: no term matches, or its rank is beyond PLACES."""
    query = answer.result.query
    unmatched = WhyNotAnswer(id=id_, reason=Reason.NO_MATCHED_TERM)
    if not query.sentences:
        return unmatched
    parts = tx.search.parts(Tier.ANY, query, answer.searched, answer.limit, [id_]).get(id_)
    if parts is None or not parts.terms:
        return unmatched
    return WhyNotAnswer(
        id=id_, reason=Reason.RANK, tier=None if is_cut else Tier.ANY,
        score=_own_score(_matched(parts, query, Tier.ANY), query),
        beyond_depth=None if is_cut else True,
    )  # fmt: skip


def explained(parts: Parts, query: Query, tier: Tier) -> Explained:
    """Recompute a score from its parts, with the share of each part."""
    matched = tuple(_matched(parts, query, tier))
    base = sentence_weights(tier, query)
    counted = {at: score for at, score in enumerate(parts.sentences) if score is not None}
    best = min(counted, key=lambda at: (base[at] * counted[at], at), default=None)
    weights = {at: base[at] * (1.0 if at == best else OTHER_SENTENCES) for at in counted}
    total = sum(weights[at] * score for at, score in counted.items())
    total += sum(weight * it.score for weight, it in parts.followers)
    return Explained(
        score=total,
        fields=_field_shares(matched, weights),
        sentences=[
            SentencePart(
                sentence=at + 1,
                weight=base[at],
                score=score,
                counted=at in counted,
                share=weights.get(at, 0.0) * score / total if total else 0.0,
            )
            for at, score in sorted({**_sums(matched), **counted}.items())
        ],
        following=[
            FollowingPart(id=it.id, weight=weight, score=it.score, share=weight * it.score / total)
            for weight, it in parts.followers
        ],
        matched=matched,
    )


def _own_score(matched: Iterable[Matched], query: Query) -> float:
    """Return the score of these terms, even if the memory is beyond a sentence's depth."""
    weights = sentence_weights(Tier.ANY, query)
    sentences = sorted(weights[at] * score for at, score in _sums(matched).items())
    return sum(sentences[:1]) + OTHER_SENTENCES * sum(sentences[1:])


def _matched(parts: Parts, query: Query, tier: Tier) -> Iterator[Matched]:
    sentences: list[Sequence[Term]] = [it.terms for it in query.sentences]
    if tier is Tier.EVERY:  # the parts of a compound word count only if all of them occur
        sentences = [[
            term
            for it in query.every
            for term in (it.terms if parts.terms.keys() >= {*it.parts} else it.joined)
        ]]  # fmt: skip
    for at, terms in enumerate(sentences):
        for term in terms:
            if score := parts.terms.get(term):
                yield Matched(sentence=at, term=term, score=score.score, fields=score.fields)


def _sums(matched: Iterable[Matched]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for it in matched:
        sums[it.sentence] = sums.get(it.sentence, 0.0) + it.score
    return sums


def _field_shares(
    matched: Iterable[Matched], weights: Mapping[int, float]
) -> Mapping[Field, float]:
    parts = dict.fromkeys(Field, 0.0)
    for it in matched:
        for name, share in it.fields.items():
            parts[name] += weights.get(it.sentence, 0.0) * it.score * share
    total = sum(parts.values())
    return {name: abs(part / total) if total else 0.0 for name, part in parts.items()}
