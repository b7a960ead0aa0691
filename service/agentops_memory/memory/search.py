"""Search: filters, hits, tiers, contexts and explanations."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from ..light import dataclass, field, replace
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
    """The size of a packed context, and what did not fit.

    `places` are those of its memories among all candidates.
    """

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
