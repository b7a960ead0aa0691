"""The query parser, which turns a prompt into terms, never into query syntax; typo rules."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import timedelta
from functools import lru_cache
from itertools import chain, pairwise, repeat
from typing import NamedTuple, TypeVar

from ..light import dataclass, field, replace
from . import text as forms
from .text import WITH_FORMS, base_form

T = TypeVar("T")

LENGTH_EXPONENT = -0.35  # a sentence's weight is its number of terms to this power
QUESTION_WEIGHT = 1.5  # factor for a sentence that is a question

_QUESTION_WORDS = "what|when|where|which|who|whom|whose|why|how"
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_BEGINS_AS_QUESTION = re.compile(rf"\W*(?:{_QUESTION_WORDS})\b", re.IGNORECASE)
# Both patterns begin with a rare character, so that most positions fail at once.
_LINE_ENDS = "\u3002\uff01\uff1f\uff61\r\n\u0085\u2028\u2029"
_END = re.compile(rf"[.!?;{_LINE_ENDS}](?:(?<=[{_LINE_ENDS}])|(?=\s))")
# Only with a capital letter: "I know when it began" is one sentence.
_QUESTION = re.compile(
    "|".join(
        rf"{word[0]}(?<=\S\s{word[0]}){word[1:]}\b" for word in _QUESTION_WORDS.title().split("|")
    )
)


def sentences(prompt: str) -> list[str]:
    """Split a prompt into its sentences, each with the mark that ends it.

    A capitalized question word within a sentence begins another one, as agents often append a
    question without ending the sentence before it.
    """
    ends = {end.end() for end in _END.finditer(prompt)}
    if "W" in prompt or "H" in prompt:  # few prompts do
        ends |= {question.start() for question in _QUESTION.finditer(prompt)}
    return [prompt[start:end] for start, end in pairwise([0, *sorted(ends), len(prompt)])]


def weight(sentence: str, terms: int) -> float:
    """Return the weight of a sentence with `terms` terms among the sentences of a prompt.

    A word of a longer sentence says less, and a question shows what the prompt needs: it ends
    with a question mark, or begins with an English question word.
    """
    length = float(terms**LENGTH_EXPONENT)
    is_marked = sentence.rstrip().endswith(_QUESTION_MARKS)
    is_question = is_marked or _BEGINS_AS_QUESTION.match(sentence)
    return length * QUESTION_WEIGHT if is_question else length


TIMEOUT = timedelta(seconds=2)  # of a full-text search; then the newest memories replace the best
MAX_PROMPT = 500  # code points; a prompt's intent is at its start
MAX_TERMS = 64  # bounds latency; 500 code points of prose have fewer
MAX_JOINED = 8  # joined forms of one identifier
PREFIX = "*"  # the suffix of a shown term that is a prefix; no word contains it
SHORTEST_TYPO = 5  # fewest letters of a word that may be misspelt
CACHED, LONGEST_CACHED = 4_096, 64  # most cached chunks of text, and the characters of each

STOPWORDS = frozenset(
    """
    a about above after again against all am an and any are aren as at be because been before
    being below between both but by can cannot could couldn d did didn do does doesn doing don
    down during each few for from further had hadn has hasn have haven having he her here hers
    herself him himself his how i if in into is isn it its itself just let ll m me might more
    most must my myself no nor not now o of off on once only or other our ours ourselves out
    over own re s same shall she should so some such t than that the their theirs them
    themselves then there these they this those through to too under until up upon us ve very
    was wasn we were weren what when where which while who whom whose why will with won would
    wouldn you your yours yourself yourselves
    """.split()
)

# Terms and pieces are tuples because tuples hash fast.


class Term(NamedTuple):
    """A case-folded word to search for, or a prefix if `starts`."""

    text: str
    starts: bool = False


class Piece(NamedTuple):
    """A word, an identifier or a run of an unspaced script, which matches if all parts do.

    An identifier also matches by one of its joined forms.
    """

    parts: tuple[Term, ...]
    joined: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.parts + self.joined


class Sentence(NamedTuple):
    """A sentence's terms and weight, which is 1 for a single sentence."""

    terms: tuple[Term, ...]
    weight: float = 1.0


Corrections = Mapping[str, tuple[str, ...]]
"""Words of a query that occur in no memory, each with its corrections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parsed prompt: sentences, to match any word, and pieces, to match every word.

    `timeout` bounds the full-text search.
    """

    prompt: str = ""
    sentences: tuple[Sentence, ...] = ()
    every: tuple[Piece, ...] = ()
    doubtful: tuple[str, ...] = ()  # words that may be misspelt, in order
    corrections: Corrections = field(default_factory=dict)
    timeout: timedelta = TIMEOUT

    def __bool__(self) -> bool:
        return bool(self.sentences or self.path)

    @property
    def path(self) -> str | None:
        """The prompt, if it has a slash and so may be a topic key."""
        return self.prompt.strip() if "/" in self.prompt else None

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(dict.fromkeys(chain.from_iterable([it.terms for it in self.sentences])))

    def corrected(self, corrections: Corrections) -> "Query":
        """Return a query in which these words also match by their corrections."""
        if not corrections:
            return self
        return replace(
            self,
            sentences=tuple(
                it._replace(
                    terms=tuple(dict.fromkeys([*it.terms, *_alternatives(it.terms, corrections)]))
                )
                for it in self.sentences
            ),
            every=tuple(
                piece._replace(joined=_alternatives(piece.parts[:1], corrections) or piece.joined)
                for piece in self.every
            ),
            corrections=corrections,
        )


def parse_query(prompt: str, timeout: timedelta = TIMEOUT) -> Query:
    """Parse a prompt, which may be any text; the query of a text without words is false."""
    prompt = prompt[:MAX_PROMPT]
    parsed: list[Sentence] = []
    every: list[_Chunk] = []
    for sentence, chunks, terms in _with_terms(sentences(prompt)):
        parsed.append(Sentence(terms, weight(sentence, len(terms))))
        every += chunks
    if len(parsed) == 1:
        parsed = [Sentence(parsed[0].terms)]
    return Query(
        prompt=prompt, sentences=tuple(parsed),
        every=tuple(dict.fromkeys(chain.from_iterable([it.pieces for it in every]))),
        doubtful=tuple(dict.fromkeys(chain.from_iterable([it.doubtful for it in every]))),
        timeout=timeout,
    )  # fmt: skip


def terms_of(text: str) -> tuple[Term, ...]:
    """Return the terms of a text as if it were one sentence."""
    return tuple(chain.from_iterable(terms for *_, terms in _with_terms([text[:MAX_PROMPT]])))


def _with_terms(texts: Iterable[str]) -> Iterator[tuple[str, list["_Chunk"], tuple[Term, ...]]]:
    """Yield the sentences that have terms, with their chunks and their distinct terms."""
    room = MAX_TERMS
    for sentence in texts:
        chunks = _chunks_of(sentence) or _chunks_of(sentence, every=True)
        if sum(len(it.terms) for it in chunks) > room:
            chunks = _fitting(chunks, room)
        if chunks:
            terms = tuple(dict.fromkeys(chain.from_iterable([it.terms for it in chunks])))
            room -= len(terms)
            yield sentence, chunks, terms


def words(prompt: str) -> tuple[str, ...]:
    """Return the distinct words of a prompt, stop words included."""
    chunks = (_chunks_of(part, every=True) for part in sentences(prompt))
    pieces = chain.from_iterable(it.pieces for it in chain.from_iterable(chunks))
    return tuple(dict.fromkeys(part.text for piece in pieces for part in piece.parts))


class TextCache(dict[str, T]):
    """A cache of a value for each text, computed on first use, in two generations.

    Each generation has at most `most` values. Recently used ones stay: if all were evicted at
    once, the next requests would be slow.
    """

    def __init__(self, compute: Callable[[Sequence[str]], Mapping[str, T]], most: int) -> None:
        super().__init__()
        self._compute = compute
        self._most = most
        self._previous: dict[str, T] = {}

    def __missing__(self, text: str) -> T:
        return self.get_all([text])[text]

    def get_all(self, texts: Iterable[str]) -> dict[str, T]:
        """Return the values of the texts; missing ones are computed in one batch."""
        values, before = {text: self.get(text) for text in texts}, self._previous
        if missing := [text for text, value in values.items() if value is None]:
            known = {text: before[text] for text in missing if text in before}
            if new := [text for text in missing if text not in before]:
                known |= self._compute(new)
            for text, value in known.items():
                values[text] = value
                self._put(text, value)
        return values  # type: ignore[return-value]

    @property
    def count(self) -> int:
        return len(self) + len(self._previous)

    def forget(self) -> None:
        self.clear()
        self._previous = {}

    def _put(self, text: str, value: T) -> None:
        if len(self) >= self._most:
            self._previous = dict(self)
            self.clear()
        self[text] = value


class _Chunk(NamedTuple):
    """The words and terms of a chunk of text, which is delimited by white space."""

    words: tuple[str, ...]  # as written
    pieces: tuple[Piece, ...]  # one per word
    terms: tuple[Term, ...]  # of all pieces
    doubtful: tuple[str, ...]  # words that may be misspelt

    @classmethod
    def of(cls, words: Sequence[tuple[str, Piece]]) -> "_Chunk":
        pieces = tuple(piece for _, piece in words)
        single = [it.parts[0].text for it in pieces if len(it.parts) == 1 and not it.joined]
        return cls(
            tuple(word for word, _ in words),
            pieces,
            tuple(chain.from_iterable(it.terms for it in pieces)),
            # A word with irregular forms is correct.
            tuple(
                it
                for it in single
                if len(it) >= SHORTEST_TYPO and it.isalpha() and it not in WITH_FORMS
            ),
        )


def chunk_of(text: str) -> _Chunk:
    """Return the chunk of a text without white space, without stop words."""
    return (_cached if len(text) <= LONGEST_CACHED else _parsed)(text, False)


def _parsed(chunk: str, every: bool) -> _Chunk:
    matches = forms.piece_pattern().finditer(chunk)
    pieces = [(it.group(), _piece(it.lastgroup or "", it.group())) for it in matches]
    if not every:
        pieces = [(word, _without_stopwords(piece)) for word, piece in pieces]
    return _Chunk.of([(word, piece) for word, piece in pieces if piece.terms])


_cached = lru_cache(2 * CACHED)(_parsed)  # many chunks recur


def _chunks_of(sentence: str, *, every: bool = False) -> list[_Chunk]:
    """Return the chunks that have terms, without stop words or with every word."""
    texts = forms.spaced(sentence).split()
    read = _cached if max(map(len, texts), default=0) <= LONGEST_CACHED else _parsed
    return [it for it in map(read, texts, repeat(every)) if it.terms]


def _fitting(chunks: Iterable[_Chunk], room: int) -> list[_Chunk]:
    """Return chunks of the first distinct words whose terms fit into `room`."""
    fitting, known = list[_Chunk](), set[str]()
    for chunk in chunks:
        for word, piece in zip(chunk.words, chunk.pieces, strict=True):
            if word in known:
                continue
            known.add(word)
            room -= len(piece.parts) + len(piece.joined)
            if room < 0:
                return fitting
            fitting.append(chunk if len(chunk.words) == 1 else _Chunk.of([(word, piece)]))
    return fitting


def _without_stopwords(piece: Piece) -> Piece:
    if STOPWORDS.isdisjoint([term.text for term in piece.parts]):
        return piece
    return piece._replace(parts=tuple(it for it in piece.parts if it.text not in STOPWORDS))


def _piece(kind: str, text: str) -> Piece:
    if kind == "word":
        return Piece((Term(_folded(text)),))
    if kind == "run" and len(text) == 1:
        return Piece(parts=(Term(text=text, starts=True),))
    is_run = kind == "run"
    each = (forms.pairs(text), ()) if is_run else (forms.parts(text), forms.joined_forms(text))
    parts, joined = (tuple(map(Term, dict.fromkeys(map(_folded, texts)))) for texts in each)
    joined = joined[:MAX_JOINED]
    return Piece(parts=parts[: MAX_TERMS - len(joined)], joined=joined)


def _alternatives(terms: Iterable[Term], corrections: Corrections) -> tuple[Term, ...]:
    return tuple(Term(text=word) for term in terms for word in corrections.get(term.text, ()))


def _folded(text: str) -> str:
    return base_form(text.casefold())


MOST_WORDS = 4  # words of a query that are corrected
MOST_TERMS = 3  # corrections of one word
SHORTEST, LONGEST = 4, 32  # letters of a stem that is compared for typos
_DIGIT = re.compile("[0-9]")


def is_compared(stem: str, shortest: int = SHORTEST) -> bool:
    """Whether a stem has no digits and a length at which typos are corrected."""
    return shortest <= len(stem) <= LONGEST and not _DIGIT.search(stem)


def is_one_edit(word: str, other: str) -> bool:
    """Whether two words differ by one deletion, insertion, substitution or transposition."""
    if len(word) > len(other):
        word, other = other, word
    if len(other) - len(word) > 1 or word == other:
        return False
    same = 0
    for one, two in zip(word, other):  # noqa: B905 - lengths may differ
        if one != two:
            break
        same += 1
    ending, other_ending = word[same:], other[same:]
    if len(word) < len(other):
        return ending == other_ending[1:]
    swapped = ending[1:2] + ending[:1] + ending[2:]
    return ending[1:] == other_ending[1:] or swapped == other_ending


def similarity(one: Set[str], other: Set[str]) -> float:
    """Return the Dice coefficient of two sets, or 0.0 if both are empty."""
    total = len(one) + len(other)
    return 2 * len(one & other) / total if total else 0.0
