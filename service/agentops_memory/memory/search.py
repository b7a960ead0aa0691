"""Search: filters, hits, tiers, contexts and explanations.

The rules of ranking: what a field, a sentence, a key and what follows a memory are worth.

BM25 is computed as SQLite's FTS5 does, operation by operation: equal scores to the last bit.
https://sqlite.org/fts5.html#the_bm25_function; a score is below zero, the lower the better.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import log
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ..light import dataclass, field, replace
from ..recall.features import Feature, Features
from ..recall.query import Query, Term
from .access import AgentId
from .memory import Links, MemoryId, Shown
from .space import GLOBAL_SCOPE, MemoryRef, Project, StoreId

if TYPE_CHECKING:
    from .explanations import FollowingPart, LeftOutEntry, SentencePart, WhyNotAnswer


SHOWN = 300  # code points of a memory's content in a context
MOST_SHOWN = 50_000  # the length limit of a content


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The size limits of a context; None is no limit. `content_chars` are code points."""

    max_tokens: int | None = None
    max_chars: int | None = None
    content_chars: int = SHOWN

    @property
    def is_bounded(self) -> bool:
        return self.max_tokens is not None or self.max_chars is not None

    def fits(self, tokens: int, chars: int) -> bool:
        within_tokens = self.max_tokens is None or tokens <= self.max_tokens
        return within_tokens and (self.max_chars is None or chars <= self.max_chars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The size of a packed context, and what did not fit; `places` are among all candidates."""

    tokens: int
    chars: int
    places: tuple[int, ...]
    left_out: "tuple[LeftOutEntry, ...]"
    summaries_left_out: int


class Field(StrEnum):
    TITLE = "title"
    CONTENT = "content"
    CONTEXT = "context"
    TAGS = "tags"


class Tier(StrEnum):
    """The tiers of a search, in order: topic key, every word, any word."""

    KEY = "key"
    EVERY = "every"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class TermScore:
    """A term's part of a memory's score; the shares of its fields sum to one."""

    score: float
    fields: Mapping[Field, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """One of the best that follows another of them in its session, to whose score it adds.

    `weight` times `score`, which is what it has without its own followers.
    """

    memory: MemoryId
    weight: float
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A memory's score in parts, as the index computes them.

    `sentences` are the scores that count, before the weights of sentences; None where
    the memory was not among the best of a sentence. A search for every word has one
    for the whole.
    """

    sentences: tuple[float | None, ...]
    terms: Mapping[Term, TermScore]
    followers: Sequence[Follower] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A term that occurs in a memory, for one of the query's sentences."""

    sentence: int
    term: Term
    score: float
    fields: Mapping[Field, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A score explained; the shares of fields sum to one, as do those of sentences and followers.

    Fields share what the memory's own words and its context add.
    """

    score: float
    fields: Mapping[Field, float]
    sentences: "list[SentencePart]"
    following: "list[FollowingPart]"
    matched: tuple[Matched, ...]


class Reason(StrEnum):
    UNKNOWN = "unknown"
    FILTER = "filter"
    NO_MATCHED_TERM = "no_matched_term"
    RANK = "rank"
    RECENCY = "recency"
    SIZE = "size"
    BUDGET = "budget"
    PINS = "pins"
    SUPERSEDED = "superseded"
    TIMED_OUT = "timed_out"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an answer is as it is: `items` by the ids of its memories, those found by words alone.

    `dropped` are the words that were not looked for; `queried` are the terms without corrections.
    `links` are those of the memories of the answer that have any.
    """

    dropped: tuple[str, ...] = ()
    queried: frozenset[Term] = frozenset()
    items: Mapping[int, Explained] = field(default_factory=dict)
    links: Mapping[MemoryId, Links] = field(default_factory=dict)
    why_not: "WhyNotAnswer | None" = None
    is_timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which memories a read considers.

    With `global_too`, the global memories of every project join those of the project. The
    scope `global` means those of every project, whatever the project; any other scope the
    project's own. A store, or a ref, means its memories alone, an agent its episodic ones, a
    namespace those that agents share there; without one, none of these are seen. `is_current`
    leaves out what a live memory supersedes, and `excluded_types` memories of these types.
    """

    project: Project | None = None
    scope: str | None = None
    store: StoreId | None = None
    ref: MemoryRef | None = None
    agent: AgentId | None = None
    namespace: str | None = None
    type: str | None = None
    excluded_types: tuple[str, ...] = ()
    tag: str | None = None
    global_too: bool = False
    is_current: bool = False

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is of what belongs to no project."""
        return self.store is not None or self.ref is not None or self.is_of_agents

    @property
    def is_of_agents(self) -> bool:
        """Words are then weighed by those memories alone, so that nothing of others leaks."""
        return self.agent is not None or self.namespace is not None

    @property
    def in_context(self) -> "Filter":
        """The filter of a context: without a project, global memories alone."""
        return replace(self, scope=GLOBAL_SCOPE) if self.project is None else self


class Method(StrEnum):
    TOPIC_KEY = "topic_key"
    FULL_TEXT = "fts5_bm25"
    RECENCY = "recency"
    PINNED = "pinned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory in an answer; a lower rank is better.

    `place` is the one that it had in the list of its project or store, before
    several lists were merged. The memory is whole where the answer has more of it.
    """

    memory: Shown
    rank: float
    method: Method
    tier: Tier | None = None
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The hits in one project or store, and the query with misspelt words corrected."""

    filter: Filter
    query: Query
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """What a caller asks for beside memories; it is true if something is to be explained."""

    explain: bool = False
    why_not: MemoryId | None = None
    links: bool = False

    def __bool__(self) -> bool:
        return self.explain or self.why_not is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The answer to a query, best first.

    Degraded: the full-text search timed out or failed, and the newest memories stand in.
    `sources` are the lists that were merged.
    """

    hits: tuple[Hit, ...] = ()
    sources: tuple[Source, ...] = ()
    query: Query = field(default_factory=Query)
    is_degraded: bool = False
    explanation: Explanation | None = None

    @property
    def method(self) -> Method:
        """Full text if any memory was found by its words, else recency."""
        by_words = any(hit.method in (Method.TOPIC_KEY, Method.FULL_TEXT) for hit in self.hits)
        return Method.FULL_TEXT if by_words else Method.RECENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is injected before an agent's turn."""

    summaries: tuple[str, ...] = ()
    found: SearchResult = SearchResult()
    packed: Packed | None = None


Scored = tuple[float, MemoryId]
"""A score and whose it is: the lower, the better; ties by id."""


class Candidate(NamedTuple):
    """A memory with its score, its session, and the second one after it there, if there is one."""

    score: float
    id: MemoryId
    session: object = None
    second: MemoryId | None = None


PRIOR_MEMORIES, PRIOR_WORDS = 1_500, 100  # of the prior: how many, and how long each is
OTHER_SENTENCES = 0.4  # the weight of all sentences but a memory's best
SENTENCE_DEPTH = 10  # memories that one of several sentences contributes at most
WEIGHTS = (2.0, 1.0, 0.4, 2.0)  # of the fields, in their order
EVEN_WEIGHTS = (1.0, 1.0, 0.4, 1.0)
FOLLOWING = (0.1, 0.05)  # of the scores of the next two in the session of a memory
GAINING = 20  # memories: the best, which gain by those of them that follow them
KEYED_RANK = -1000.0  # of a memory that is found by its key; the lower, the better
SCORED = 100  # rows at most that the rare words of a text bring, whose look-alikes are looked for
PLACES = 10_000  # of a tier, counted to place a memory that is not in the answer


def weights_of(features: Features) -> tuple[float, ...]:
    return WEIGHTS if Feature.TITLE_WEIGHT in features else EVEN_WEIGHTS


def sentence_weights(tier: Tier, query: Query) -> tuple[float, ...]:
    """What each sentence weighs in a tier; for every word the whole text is one."""
    return (1.0,) if tier is Tier.EVERY else tuple(it.weight for it in query.sentences)


def gaining(tier: Tier, query: Query) -> int:
    """How many of the best gain by those of them that follow them in their session."""
    return GAINING if tier is Tier.ANY and Feature.FOLLOWING in query.features else 0


def followers(best: Sequence[Candidate]) -> dict[MemoryId, list[Follower]]:
    """For those of the best that gain, the others of them that follow in their session."""
    sessions: dict[object, list[Candidate]] = {}
    for it in best:
        sessions.setdefault(it.session, []).append(it)
    sessions.pop(None, None)
    return {
        it.id: [
            Follower(memory=other.id, weight=FOLLOWING[other.id == it.second], score=other.score)
            for other in session[position : position + len(FOLLOWING)]
            if it.second is None or other.id <= it.second
        ]
        for session in (sorted(it, key=attrgetter("id")) for it in sessions.values() if len(it) > 1)
        for position, it in enumerate(session, start=1)
    }


def with_gains(best: Sequence[Candidate]) -> list[Scored]:
    """The best again, each with what those that follow it add."""
    scores = {it.id: it.score for it in best}
    for id_, added in followers(best).items():
        scores[id_] += sum(it.weight * it.score for it in added)
    return sorted((score, id_) for id_, score in scores.items())


# Of a word that is weighed among its own area: in title or tags, and in content; each counts once.
NAMED, SAID = 2.0, 1.0


def combined(sentences: Sequence[Sequence[Scored]], weights: Sequence[float]) -> list[Scored]:
    """The scores of memories that some of the sentences contribute, each by its weight, best first.

    A score is that of the best sentence, and a part of the sum of the others, added up in
    the order of the sentences.
    """
    lowest: dict[MemoryId, float] = {}
    totals: dict[MemoryId, float] = {}
    for sentence, weight in zip(sentences, weights, strict=True):
        for unweighted, id_ in sentence:
            score = weight * unweighted
            if id_ not in totals:
                lowest[id_] = totals[id_] = score
                continue
            totals[id_] += score
            if score < lowest[id_]:  # noqa: PLR1730 - a call costs more
                lowest[id_] = score
    return sorted([(it + OTHER_SENTENCES * (totals[id_] - it), id_) for id_, it in lowest.items()])


def sentence_depth(query: Query, limit: int) -> int | None:
    """How many memories each of several sentences contributes to the best `limit`; None: all."""
    return max(limit, SENTENCE_DEPTH) if Feature.SENTENCE_DEPTH in query.features else None


K1, B = 1.2, 0.75
MOST = K1 + 1.0  # of a stem's worth, which a row without end of it would have
LEAST_IDF = 1e-6  # of a word that more than half of the rows have

Counts = tuple[int, ...]
"""How often a stem stands in each field of a memory."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of a group of projects whose words are weighed together, with its prior."""

    rows: int
    words: int

    @classmethod
    def alone(cls, rows: int) -> "Totals":
        """Of rows whose words are weighed among themselves, whatever lengths others have."""
        rows += PRIOR_MEMORIES
        return cls(rows, rows * PRIOR_WORDS)

    @classmethod
    def of(cls, rows: int, words: int) -> "Totals":
        """Of so many rows of a group, with its prior."""
        return cls(rows + PRIOR_MEMORIES, words + PRIOR_MEMORIES * PRIOR_WORDS)

    def idf(self, having: int) -> float:
        """What a stem is worth that so many of the rows have."""
        idf = log((self.rows - having + 0.5) / (having + 0.5))
        return idf if idf > 0 else LEAST_IDF

    def norms(self, lengths: Iterable[int]) -> list[float]:
        """What each of some rows adds to a frequency below the line, by their lengths in words."""
        mean = self.words / self.rows if self.words else 1  # without words nothing is found
        return [K1 * (1 - B + B * length / mean) for length in lengths]


Position = int
"""Where a memory lies among those whose scores are added up."""


class Postings(NamedTuple):
    """What one stem is worth, the memories that have it, and how often it is in each."""

    idf: float
    places: Sequence[Position]
    often: Iterable[float]


NOTHING = Postings(0.0, (), ())

PiecePostings = tuple[Sequence[Postings], Sequence[Postings]]
"""Of a piece of a query: of its parts, and of its joined forms."""

Sums = tuple[Mapping[Position, float], Sequence[MemoryId]]
"""What stems add to the scores of memories, and which of them lies at each place."""


def frequency(counts: Counts, weights: Sequence[float]) -> float:
    """How often a stem stands in a memory, each time by the weight of its field."""
    total = 0.0
    for count, weight in zip(counts, weights, strict=True):
        for _ in range(count):  # a product could differ in the last bit
            total += weight
    return total


def scored(idf: float, often: float, norm: float) -> float:
    """What one stem adds to the score of a memory that has it so often."""
    return -1.0 * (idf * ((often * MOST) / (often + norm)))


def of_any(stems: Iterable[Postings], norms: Sequence[float]) -> dict[Position, float]:
    """The sums for memories that have any of the stems, in their order; `norms` are by place."""
    sums: dict[Position, float] = {}
    get = sums.get
    for idf, places, frequencies in stems:
        for position, often in zip(places, frequencies, strict=True):
            share = (often * MOST) / (often + norms[position])
            sums[position] = get(position, 0.0) + idf * share
    return sums


def of_every(pieces: Sequence[PiecePostings], norms: Sequence[float]) -> dict[Position, float]:
    """The sums for memories in which every piece is: all its parts, or one of its joined forms.

    Where not all parts of a piece are, none counts.
    """
    return of_pieces([
        ([of_any([it], norms) for it in parts], [of_any([it], norms) for it in joined])
        for parts, joined in pieces
    ])  # fmt: skip


def of_pieces(
    pieces: Sequence[tuple[Sequence[Mapping[Position, float]], Sequence[Mapping[Position, float]]]],
) -> dict[Position, float]:
    """The same, of what each part and each joined form adds, by place."""
    wholes = [_having_all(parts) for parts, _ in pieces]
    matched = [whole.union(*joined) for whole, (_, joined) in zip(wholes, pieces, strict=True)]
    sums: dict[Position, float] = {}
    for position in set.intersection(*matched) if matched else ():
        total = 0.0
        for whole, (parts, joined) in zip(wholes, pieces, strict=True):
            for stem in (*parts, *joined) if position in whole else joined:
                total += stem.get(position, 0.0)
        sums[position] = total
    return sums


def lowest(parts: Sequence[Sums], depth: int | None) -> list[Scored]:
    """The scores of these sums, best first, ties by id; the first `depth` of them."""
    least = 0.0
    if depth is not None:
        totals = sorted((it for sums, _ in parts for it in sums.values()), reverse=True)
        least = totals[depth - 1] if len(totals) > depth else least
    negated = [
        (-1.0 * total, memories[position])
        for sums, memories in parts
        for position, total in sums.items()
        if total >= least
    ]
    return sorted(negated)[:depth]


def _having_all(parts: Sequence[Mapping[Position, float]]) -> set[Position]:
    if not parts:
        return set()
    first, *others = sorted(parts, key=len)
    return set(first).intersection(*others)
