"""Search: filters, hits, tiers, contexts and explanations.

The rules of ranking: the weights of fields, sentences, keys and following memories.

BM25 is computed in the same operations as in SQLite's FTS5, so that scores are equal to the last
bit: https://sqlite.org/fts5.html#the_bm25_function. A score is negative; lower is better.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from math import log
from operator import attrgetter
from typing import NamedTuple

from ..light import dataclass, field, replace
from ..recall.query import Query, Term
from .access import AgentId
from .memory import TOPIC_KEY, Links, MemoryId, Shown
from .space import GLOBAL_SCOPE, MemoryRef, Project, StoreId

SHOWN = 300  # default code points of a memory's content in a context
MOST_SHOWN = 50_000  # most code points of a memory's content


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The size limits of a context; None means no limit. `content_chars` counts code points."""

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
class LeftOutEntry:
    """A candidate that did not fit into the budget."""

    id: int
    place: int
    tokens: int
    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The size of a packed context, and what did not fit; `places` count all candidates."""

    tokens: int
    chars: int
    places: tuple[int, ...]
    left_out: tuple[LeftOutEntry, ...]
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
class Parts:
    """A memory's score in parts, as the index computes them.

    `sentences` has the counted score of each sentence, before the sentence's weight; None where
    the memory was not among the best of a sentence. A search for every word has one score
    for the whole text. Each follower adds its weight times its score without its own followers.
    """

    sentences: tuple[float | None, ...]
    terms: Mapping[Term, TermScore]
    followers: "Sequence[tuple[float, Candidate]]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A term that occurs in a memory, for one of the query's sentences."""

    sentence: int
    term: Term
    score: float
    fields: Mapping[Field, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePart:
    """A sentence's part of a score, if the memory was among the best of the sentence."""

    sentence: int
    weight: float = field(metadata={
        "description": "Weight relative to the others: less for more words, more for a question."
    })  # fmt: skip
    score: float
    share: float
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingPart:
    """The part of a score from a following memory of the session that is a top hit itself."""

    id: int
    weight: float
    score: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """An explained score; shares of fields sum to one, as do those of sentences and followers.

    The fields share the part of the score from the memory's own words and its context.
    """

    score: float
    fields: Mapping[Field, float]
    sentences: list[SentencePart]
    following: list[FollowingPart]
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
class WhyNotAnswer:
    """The reason why a memory is not in a result; the reason `none` means that it is."""

    id: int
    reason: str
    filters: list[str] | None = None
    tier: str | None = None
    # The position among all hits of the tiers; None if too many precede the memory, or if it is
    # not among the best of any sentence.
    place: int | None = None
    score: float | None = None
    last_score: float | None = None
    older: bool | None = None  # older than the newest memories that fill up the result
    beyond_depth: bool | None = None
    superseded_by: list[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of a result: `items` has the memories found by their words, by id.

    `dropped` are the words that were not searched; `queried` are the terms without corrections.
    `links` has the memories of the result that have links.
    """

    dropped: tuple[str, ...] = ()
    queried: frozenset[Term] = frozenset()
    items: Mapping[int, Explained] = field(default_factory=dict)
    links: Mapping[MemoryId, Links] = field(default_factory=dict)
    why_not: WhyNotAnswer | None = None
    is_timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which memories a read considers.

    `global_too` adds the global memories of every project to those of the project. The scope
    `global` selects the global memories of every project; any other scope selects the project's
    own. A store or a ref selects its memories only, an agent its episodic ones, a namespace the
    ones that agents share there; otherwise none of these are considered. `is_current` excludes
    memories superseded by a live one, and `excluded_types` memories of these types.
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
    def is_outside_projects(self) -> bool:
        """Whether it selects memories that belong to no project."""
        return self.store is not None or self.ref is not None or self.is_of_agents

    @property
    def is_of_agents(self) -> bool:
        """Whether words are weighed among these memories alone, which leaks nothing of others."""
        return self.agent is not None or self.namespace is not None

    @property
    def in_context(self) -> "Filter":
        """The filter of a context: without a project, only global memories."""
        return replace(self, scope=GLOBAL_SCOPE) if self.project is None else self


class Method(StrEnum):
    TOPIC_KEY = TOPIC_KEY
    FULL_TEXT = "fts5_bm25"
    RECENCY = "recency"
    PINNED = "pinned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory in a result; a lower rank is better.

    `place` is its position in the list of its project or store, before several lists
    were merged. `memory` is a whole `Memory` if the result shows more fields.
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
    """What a caller requests in addition to memories; true if it includes an explanation."""

    explain: bool = False
    why_not: MemoryId | None = None
    links: bool = False

    def __bool__(self) -> bool:
        return self.explain or self.why_not is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a query, best first.

    Degraded: the full-text search timed out or failed, and the newest memories replace it.
    `sources` are the lists that were merged.
    """

    hits: tuple[Hit, ...] = ()
    sources: tuple[Source, ...] = ()
    query: Query = field(default_factory=Query)
    is_degraded: bool = False
    explanation: Explanation | None = None

    @property
    def method(self) -> Method:
        """Full text if any memory was found by its words, otherwise recency."""
        by_words = any(hit.method in (Method.TOPIC_KEY, Method.FULL_TEXT) for hit in self.hits)
        return Method.FULL_TEXT if by_words else Method.RECENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The memories and summaries injected before an agent's turn."""

    summaries: tuple[str, ...] = ()
    found: SearchResult = SearchResult()
    packed: Packed | None = None


Scored = tuple[float, MemoryId]
"""A score and the memory that has it: lower is better, ties by id."""


class Candidate(NamedTuple):
    """A memory with its score, its session, and the second memory after it there, if any."""

    score: float
    id: MemoryId
    session: object = None
    second: MemoryId | None = None


PRIOR_MEMORIES, PRIOR_WORDS = 1_500, 100  # the prior: number of memories, and words of each
OTHER_SENTENCES = 0.4  # the weight of the sentences other than a memory's best one
SENTENCE_DEPTH = 10  # least depth of the hits that each of several sentences contributes
WEIGHTS = (2.0, 1.0, 0.4, 2.0)  # weights of the fields, in the order of Field
FOLLOWING = (0.1, 0.05)  # weights of the scores of the next two memories of the session
GAINING = 20  # how many of the best memories gain from followers among them
KEYED_RANK = -1000.0  # the rank of a memory that is found by its key; lower is better
SCORED = 100  # most rows with a text's rare words that are scored as look-alikes
PLACES = 10_000  # most memories of a tier counted to place one that is not in the result


def sentence_weights(tier: Tier, query: Query) -> tuple[float, ...]:
    """Return the weight of each sentence; the tier EVERY has the whole text as one sentence."""
    return (1.0,) if tier is Tier.EVERY else tuple(it.weight for it in query.sentences)


def followers(best: Sequence[Candidate]) -> dict[MemoryId, list[tuple[float, Candidate]]]:
    """Return the followers of each memory of `best`, with the weights of their scores.

    They are the next memories of its session, as far as these are among `best`.
    """
    sessions: dict[object, list[Candidate]] = {}
    for it in best:
        sessions.setdefault(it.session, []).append(it)
    sessions.pop(None, None)
    return {
        it.id: [
            (FOLLOWING[other.id == it.second], other)
            for other in session[position : position + len(FOLLOWING)]
            if it.second is None or other.id <= it.second
        ]
        for session in (sorted(it, key=attrgetter("id")) for it in sessions.values() if len(it) > 1)
        for position, it in enumerate(session, start=1)
    }


def with_gains(best: Sequence[Candidate]) -> list[Scored]:
    """Return the scores of `best` with the gains from followers, best first."""
    scores = {it.id: it.score for it in best}
    for id_, added in followers(best).items():
        scores[id_] += sum(weight * it.score for weight, it in added)
    return sorted((score, id_) for id_, score in scores.items())


# Weights of a word in title or tags, and in content, if it is weighed within its area; each once.
NAMED, SAID = 2.0, 1.0


def combined(sentences: Sequence[Sequence[Scored]], weights: Sequence[float]) -> list[Scored]:
    """Combine the weighted scores of sentences into one score per memory, best first.

    A memory has the score of its best sentence, plus a part of the sum of the others, added
    in the order of the sentences.
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


K1, B = 1.2, 0.75
MOST = K1 + 1.0  # the limit of a term's factor as its frequency grows
MIN_IDF = 1e-6  # the IDF of a word that more than half of the rows have

Counts = tuple[int, ...]
"""The number of occurrences of a stem in each field of a memory."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of projects whose words are weighed together, including the prior."""

    rows: int
    words: int

    @classmethod
    def alone(cls, rows: int) -> "Totals":
        """Return the totals of rows that are weighed among themselves, of the prior's length."""
        return cls.of(rows, rows * PRIOR_WORDS)

    @classmethod
    def of(cls, rows: int, words: int) -> "Totals":
        """Return the totals of the rows and words of a group, with the prior added."""
        return cls(rows + PRIOR_MEMORIES, words + PRIOR_MEMORIES * PRIOR_WORDS)

    def idf(self, having: int) -> float:
        """Return the inverse document frequency of a stem that occurs in `having` rows."""
        idf = log((self.rows - having + 0.5) / (having + 0.5))
        return idf if idf > 0 else MIN_IDF

    def norms(self, lengths: Collection[int]) -> Iterable[float]:
        """Return the BM25 length norm of each row, by its length in words."""
        mean = self.words / self.rows if self.words else 1  # without words there are no hits
        norm_of = {length: K1 * (1 - B + B * length / mean) for length in set(lengths)}
        return map(norm_of.__getitem__, lengths)


Position = int
"""The index of a memory among those that are scored together."""


class Postings(NamedTuple):
    """The IDF of one stem, the memories that have it, and its frequency in each."""

    idf: float
    places: Sequence[Position]
    frequencies: Iterable[float]


NOTHING = Postings(0.0, (), ())

PiecePostings = tuple[Sequence[Postings], Sequence[Postings]]
"""The postings of the parts of a piece of a query, and of its joined forms."""

Sums = tuple[Mapping[Position, float], Sequence[MemoryId]]
"""The sums of scores by position, and the memory at each position."""


def frequency(counts: Counts, weights: Sequence[float]) -> float:
    """Return the number of occurrences of a stem in a memory, weighted by field."""
    total = 0.0
    for count, weight in zip(counts, weights, strict=True):
        for _ in range(count):  # a product could differ in the last bit
            total += weight
    return total


def scored(idf: float, often: float, norm: float) -> float:
    """Return the part of a stem of this frequency in a memory's score."""
    return -1.0 * (idf * ((often * MOST) / (often + norm)))


def of_any(stems: Iterable[Postings], norms: Sequence[float]) -> dict[Position, float]:
    """Return the score sums of memories with any of the stems; `norms` are by position."""
    sums: dict[Position, float] = {}
    get = sums.get
    for idf, places, frequencies in stems:
        for position, often in zip(places, frequencies, strict=True):
            share = (often * MOST) / (often + norms[position])
            sums[position] = get(position, 0.0) + idf * share
    return sums


def of_every(pieces: Sequence[PiecePostings], norms: Sequence[float]) -> dict[Position, float]:
    """Return the score sums of memories that contain every piece: all parts or a joined form.

    The parts of a piece count only in memories that contain all of them.
    """
    return of_pieces([
        ([of_any([it], norms) for it in parts], [of_any([it], norms) for it in joined])
        for parts, joined in pieces
    ])  # fmt: skip


def of_pieces(
    pieces: Sequence[tuple[Sequence[Mapping[Position, float]], Sequence[Mapping[Position, float]]]],
) -> dict[Position, float]:
    """Compute the same from the sums of each part and each joined form, by position."""
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
    """Return the scores of these sums, best first, ties by id; at most `depth`."""
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
