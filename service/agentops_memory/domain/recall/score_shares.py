"""The shares of a score: how much of it each field, sentence and term contributed. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from ..model.search import OTHER_SENTENCES, Explained, Field, Matched, Parts, SentenceShare, Tier
from ..text.query import Query, Term

MAX_EXPLAINED = 50  # memories of one answer


def explained(parts: Parts, query: Query, tier: Tier) -> Explained:
    """The score computed again from its parts, with the share of each."""
    matched = tuple(_matched(parts, query, tier))
    counted = {at: score for at, score in enumerate(parts.sentences) if score is not None}
    best = min(counted, key=lambda at: (counted[at], at), default=None)
    weights = {at: 1.0 if at == best else OTHER_SENTENCES for at in counted}
    total = sum(weights[at] * score for at, score in counted.items())
    return Explained(
        score=total,
        fields=_field_shares(matched, weights),
        sentences=tuple(_sentence_shares(matched, counted, weights, total)),
        matched=matched,
    )


def own_score(matched: Iterable[Matched]) -> float:
    """The score of these terms if each sentence counted, whatever its depth."""
    sentences = sorted(_sums(matched).values())
    return sum(sentences[:1]) + OTHER_SENTENCES * sum(sentences[1:])


def _matched(parts: Parts, query: Query, tier: Tier) -> Iterator[Matched]:
    sentences = [_counting(parts, query)] if tier is Tier.EVERY else query.sentences
    for at, terms in enumerate(sentences):
        for term in terms:
            if found := parts.terms.get(term):
                yield Matched(sentence=at, term=term, score=found.score, fields=found.fields)


def _counting(parts: Parts, query: Query) -> list[Term]:
    """The terms that count in the tier EVERY: the parts of a piece only if all of them occur."""
    return [
        term
        for piece in query.every
        for terms in ((piece.parts,) if all(t in parts.terms for t in piece.parts) else ())
        + (piece.joined,)
        for term in terms
    ]


def _sums(matched: Iterable[Matched]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for one in matched:
        sums[one.sentence] = sums.get(one.sentence, 0.0) + one.score
    return sums


def _sentence_shares(
    matched: Iterable[Matched],
    counted: Mapping[int, float],
    weights: Mapping[int, float],
    total: float,
) -> Iterator[SentenceShare]:
    for at, score in sorted({**_sums(matched), **counted}.items()):
        share = weights.get(at, 0.0) * score / total if total else 0.0
        yield SentenceShare(sentence=at, score=score, share=share, is_counted=at in counted)


def _field_shares(
    matched: Iterable[Matched], weights: Mapping[int, float]
) -> Mapping[Field, float]:
    parts = dict.fromkeys(Field, 0.0)
    for one in matched:
        for name, share in one.fields.items():
            parts[name] += weights.get(one.sentence, 0.0) * one.score * share
    total = sum(parts.values())
    return {name: abs(part / total) if total else 0.0 for name, part in parts.items()}
