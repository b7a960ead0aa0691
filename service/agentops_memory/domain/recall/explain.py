"""Why a memory was found: what its score is made of. The shares come from the score itself."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..text.query import Query, Term

OTHER_SENTENCES = 0.4  # the weight of all sentences but a memory's best
PLACES = 10_000  # of a tier that are counted for a memory that is not shown
MOST_EXPLAINED = 50  # memories of one answer whose scores are taken apart


class Field(StrEnum):
    """A part of a memory in which words are looked for; `context` is what it borrows."""

    TITLE = "title"
    CONTENT = "content"
    CONTEXT = "context"
    TAGS = "tags"


class Tier(StrEnum):
    """What a search looks for, one after the other: the path in keys, every word, any word."""

    KEY = "key"
    EVERY = "every"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class TermScore:
    """What one term adds to a memory's score; the shares of the fields in it sum to one."""

    score: float
    fields: Mapping[Field, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A memory's score in pieces, as the index has them.

    `sentences` are the scores that count; None where the memory was not among
    the best of a sentence. A search for every word has one for the whole.
    """

    sentences: tuple[float | None, ...]
    terms: Mapping[Term, TermScore]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A term that occurs in a memory, for one of the query's sentences."""

    sentence: int
    term: Term
    score: float
    fields: Mapping[Field, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceShare:
    """What a sentence adds; one in which the memory was not among the best counts for nothing."""

    sentence: int
    score: float
    share: float
    is_counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """How a memory came to its score. The shares of its fields sum to one, as do its sentences'."""

    score: float
    fields: Mapping[Field, float]
    sentences: tuple[SentenceShare, ...]
    matched: tuple[Matched, ...]


class Reason(StrEnum):
    """What kept a memory out of an answer."""

    UNKNOWN = "unknown"
    FILTER = "filter"
    NO_MATCHED_TERM = "no_matched_term"
    RANK = "rank"
    RECENCY = "recency"
    SIZE = "size"
    BUDGET = "budget"
    TIMED_OUT = "timed_out"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNot:
    """What kept a memory out of an answer, and how far it was from it.

    `place` counts all that the tiers list; a memory that no sentence has among
    its best has none (`is_beyond_depth`), and one behind too many has none either.
    `is_older`: by its age it comes after the newest that fill up the answer.
    """

    reason: Reason
    filters: tuple[str, ...] = ()
    tier: Tier | None = None
    place: int | None = None
    score: float | None = None
    last_score: float | None = None
    is_older: bool = False
    is_beyond_depth: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an answer is as it is: `items` by the ids of its memories, those found by words alone.

    `dropped` are the words that were not looked for; `asked` are the terms without corrections.
    """

    dropped: tuple[str, ...] = ()
    asked: frozenset[Term] = frozenset()
    items: Mapping[int, Explained] = field(default_factory=dict)
    why_not: WhyNot | None = None
    is_timed_out: bool = False


def explained(parts: Parts, query: Query, tier: Tier) -> Explained:
    """The parts put together as the score was."""
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
    """The score that these terms would make, if each sentence counted whatever its depth."""
    sentences = sorted(_sums(matched).values())
    return sum(sentences[:1]) + OTHER_SENTENCES * sum(sentences[1:])


def _matched(parts: Parts, query: Query, tier: Tier) -> Iterator[Matched]:
    sentences = [_counting(parts, query)] if tier is Tier.EVERY else query.sentences
    for at, terms in enumerate(sentences):
        for term in terms:
            if found := parts.terms.get(term):
                yield Matched(sentence=at, term=term, score=found.score, fields=found.fields)


def _counting(parts: Parts, query: Query) -> list[Term]:
    """The terms that count when every piece must occur: parts do where none is missing."""
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
