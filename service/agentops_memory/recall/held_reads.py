"""Contexts and searches of one project from memory alone, on the thread of the event loop.

What is not in memory, or is not as of now, is left to a transaction, which answers the same.

The best memories for a query among areas in memory.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from itertools import chain, islice
from time import time_ns
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ..light import dataclass, field
from ..memory.access import Patterns
from ..memory.memory import MemoryId, Shown
from ..memory.search import FOLLOWING, GAINING, SENTENCE_DEPTH, Method, Scored, combined
from ..memory.space import GLOBAL_AREA, Project
from ..memory.table import PastStep
from ..secrets.redaction import Rules
from .cache import READ_BYTES, DatabaseIndex, Token
from .group import Group, Stem, StemPiece, Weights, Where
from .query import (
    MAX_PROMPT,
    MAX_TERMS,
    MOST_TERMS,
    MOST_WORDS,
    PREFIX,
    Corrections,
    Query,
    chunk_of,
    sentences,
    understood,
    weight,
)
from .recall import SUMMARIES
from .stems import UNKNOWN, Stems, Vocabulary

Hidden = Sequence[Collection[int]]
"""Of each area the places of memories that are left out."""

Sentences = Sequence[tuple[Sequence[Stem], float]]
"""The stems of each sentence, and what it weighs beside the others."""


class Ranking:
    """The rankings of one request among some areas of a group."""

    def __init__(
        self, parts: Sequence[Weights], vocabulary: Vocabulary, hidden: Hidden | None = None
    ) -> None:
        self._parts = parts
        self._vocabulary = vocabulary
        self._hidden = hidden or [()] * len(parts)
        self._where: list[Where] = [{} for _ in parts]
        # Of one area the places are ordered as the ids are, and cost less.
        self._lone = parts[0].area if len(parts) == 1 else None

    def look_up(self, stems: Iterable[Stem]) -> None:
        """Find where stems are in the areas, before the first lookup."""
        for part, where in zip(self._parts, self._where, strict=True):
            where.update(part.where(stems))

    def known(self, stems: Collection[Stem]) -> set[Stem]:
        """Those that a memory has, of stems that were looked up."""
        known: set[Stem] = set()
        for part, where in zip(self._parts, self._where, strict=True):
            known.update(where.keys() & stems)
            known.update(part.area.added.keys() & stems)
        return known

    def any(self, sentences: Sentences, limit: int) -> list[Scored]:
        """The best memories with any of the stems; the first gain by those that follow them.

        The stems were looked up.
        """
        if len(sentences) == 1:
            best = self._lowest(sentences[0][0], max(limit, GAINING))
        else:
            depth = max(limit, SENTENCE_DEPTH)
            lowest = [self._lowest(stems, depth) for stems, _ in sentences]
            best = combined(lowest, [weight for _, weight in sentences])
        first, others = best[:GAINING], best[GAINING : max(limit, GAINING)]
        best = [*self._with_gains(first), *others][:limit]
        return [(score, self._lone.ids[at]) for score, at in best] if self._lone else best

    def every(self, pieces: Sequence[StemPiece], limit: int) -> list[Scored]:
        """The best memories in whose own words every piece is.

        That are all parts of a piece, or one of its joined forms.
        """
        scored: list[Scored] = []
        for weights, hidden in zip(self._parts, self._hidden, strict=True):
            ids = weights.area.ids
            scored += [
                (-1.0 * total, ids[position])
                for position, total in weights.every(pieces).items()
                if position not in hidden
            ]
        return sorted(scored)[:limit]

    def corrections(self, words: Iterable[tuple[str, str]]) -> Corrections:
        """What words may have meant that no memory has, each with the form that is compared."""
        corrections: dict[str, tuple[str, ...]] = {}
        for word, form in islice(words, MOST_WORDS):
            near = self._vocabulary.near(form)
            counts = self.counts(near) if near else {}
            if len(counts) > MOST_TERMS:
                likely = sorted((-count, near[stem]) for stem, count in counts.items())
                corrections[word] = tuple([it for _, it in likely[:MOST_TERMS]])
            elif counts:
                corrections[word] = tuple(sorted([near[stem] for stem in counts]))
        return corrections

    def counts(self, stems: Collection[Stem]) -> dict[int, int]:
        """How many memories have each of the stems among their own words, if any."""
        counts: dict[int, int] = {}
        often = self._vocabulary.often_own
        for part in self._parts:
            area = part.area
            for stem in {*part.where(stems), *(it for it in stems if it in area.added)}:
                count = sum([often[code] > 0 for code in area.codes_of(stem)])
                if count:
                    counts[stem] = counts.get(stem, 0) + count
        return counts

    def _lowest(self, stems: Sequence[Stem], depth: int) -> list[Scored]:
        """The scores of the memories with any of the stems, best first; so many of them.

        Places stand for the ids of one area.
        """
        scored: list[Scored] = []
        for part, where, hidden in zip(self._parts, self._where, self._hidden, strict=True):
            names: Sequence[Any] = range(len(part.area.ids)) if self._lone else part.area.ids
            best = part.best(stems, where, depth, hidden)
            scored += [(-1.0 * it, names[position]) for it, position in best]
        scored.sort()
        return scored[:depth]

    def _with_gains(self, best: Sequence[Scored]) -> list[Scored]:
        """The best again, each with what those of them add that are the next two in its session."""
        next_, second = FOLLOWING
        gains: dict[int, float] = {}
        for area in [it.area for it in self._parts]:
            slots, ids, top = area.slots, area.ids, len(area.ids)
            if self._lone:
                by_slot = {slots[it[1]]: it for it in best}
            else:
                places = [(bisect_left(ids, it[1]), it) for it in best]
                by_slot = {slots[at]: it for at, it in places if at < top and ids[at] == it[1]}
            for slot, (_, id_) in by_slot.items():
                if slot + 1 in by_slot:
                    gains[id_] = next_ * by_slot[slot + 1][0]
                if slot + 2 in by_slot:
                    gains[id_] = gains.get(id_, 0.0) + second * by_slot[slot + 2][0]
        if not gains:
            return list(best)
        return sorted([(score + gains.get(id_, 0.0), id_) for score, id_ in best])


MOST, CHUNK = 3_000_000, 100  # characters that are remembered, and what a chunk has beside its own
NO_WORD, NOT_PLAIN = -1, -2  # instead of a word; below them are those of several words

Word = int
"""Twice the number of a word, and one more where it may be misspelt."""


class ParsedPrompt(NamedTuple):
    """What a prompt is ranked by."""

    sentences: list[tuple[list[int], float]]  # the words of each, and what it weighs
    doubtful: list[int]  # words that may be misspelt, in order
    is_plain: bool  # whether each word is a piece


class PromptWords(dict[str, Word]):
    """The word of each chunk of text between white space, as a number.

    Under load most time goes into reading objects that are in no cache of the processor. NO_WORD
    for a stop word, NOT_PLAIN where it takes more to tell. Used under the lock of the index.
    """

    def __init__(self, vocabulary: Vocabulary, stem_of: Mapping[str, str]) -> None:
        super().__init__()
        self.texts: list[str] = []  # by word
        self.stems = array("i")  # their numbers in the vocabulary, by word
        self._words: dict[str, int] = {}
        self._several: list[Sequence[Word]] = [()] * 3  # of chunks like identifiers
        self._size = 0  # in characters, about
        self._vocabulary = vocabulary
        self._stem_of = stem_of
        self._gone = vocabulary.gone

    def __missing__(self, text: str) -> Word:
        self._size += CHUNK + len(text)
        chunk = chunk_of(text)
        if any(it.endswith(PREFIX) or not self._stem_of[it] for it in chunk.terms):
            word = NOT_PLAIN
        elif not chunk.terms:
            word = NO_WORD
        else:
            words = [2 * self._word(it) + (it in chunk.doubtful) for it in chunk.terms]
            word = words[0]
            if len(words) > 1 or not chunk.pieces[0].parts:
                self._several.append(words)
                word = 1 - len(self._several)
        self[text] = word
        return word

    def parsed(self, prompt: str) -> ParsedPrompt | None:
        """A prompt by its words; None with a prefix, or a word that the index takes apart."""
        self._catch_up()
        return self._of_chunks(prompt[:MAX_PROMPT]) or self._of_terms(prompt)

    def _of_chunks(self, prompt: str) -> ParsedPrompt | None:
        """As most prompts are: plain text that there is room for."""
        parsed, doubtful, room = list[tuple[list[int], str]](), list[int](), MAX_TERMS
        is_plain, several = True, self._several
        for sentence in sentences(prompt):
            chunks = dict.fromkeys(sentence.split())
            if not chunks:
                continue
            marked = [it for it in map(self.__getitem__, chunks) if it != NO_WORD]
            if not marked or not sentence.isascii():  # all are stop words
                return None
            if min(marked) < 0:
                if NOT_PLAIN in marked:
                    return None
                is_plain = False
                marked = [
                    *chain.from_iterable([several[-it] if it < 0 else (it,) for it in marked])
                ]
            room -= len(marked)
            if room < 0:
                return None
            words = [*dict.fromkeys([it >> 1 for it in marked])]
            room += len(marked) - len(words)
            parsed.append((words, sentence))
            doubtful += [it >> 1 for it in marked if it & 1]
        if len(parsed) == 1:
            return ParsedPrompt([(parsed[0][0], 1.0)], doubtful, is_plain)
        weighed = [(words, weight(sentence, len(words))) for words, sentence in parsed]
        return ParsedPrompt(weighed, doubtful, is_plain)

    def _of_terms(self, prompt: str) -> ParsedPrompt | None:
        query = understood(prompt)
        if any(it.starts or not self._stem_of[it.text] for it in query.terms):
            return None
        weighed = [([self._word(it.text) for it in terms], by) for terms, by in query.sentences]
        return ParsedPrompt(weighed, [*map(self._word, query.doubtful)], is_plain=False)

    def _word(self, text: str) -> int:
        word = self._words.get(text)
        if word is None:
            word = self._words[text] = len(self.texts)
            self.texts.append(text)
            stem = self._stem_of[text]
            number = self._vocabulary.number(stem)
            self.stems.append(number)
            if number == UNKNOWN:
                self._vocabulary.unknown.setdefault(stem, []).append(word)
        return word

    def _catch_up(self) -> None:
        """Follow what the vocabulary has come to know since, or knows no longer."""
        vocabulary = self._vocabulary
        if self._size > MOST or self._gone != vocabulary.gone:
            self.clear()
            self.texts, self.stems, self._words = [], array("i"), {}
            self._several, self._size = [()] * 3, 0
            vocabulary.unknown, vocabulary.came = {}, []
            self._gone = vocabulary.gone
        for word, number in vocabulary.came:
            self.stems[word] = number
        vocabulary.came.clear()


P = ParamSpec("P")
Answer = TypeVar("Answer", bound=Sized)

LONGEST_LINE = 2_000  # bytes of a rendered memory that is remembered
# Memories of a project that are ranked on the event loop's thread, which serves nobody meanwhile:
# 0.1 ms for a hundred; more are ranked by a reader's.
MOST_ON_LOOP = 10_000
# Seconds that the event loop waits for a reader to let memory go. If it did not, each request
# that a reader answers would send those beside it to the readers, too, which keep it for longer.
LOCK_TIMEOUT = 0.001


class Place(NamedTuple):
    """Where a project is in the index, and the spaces of the global memories that name it."""

    group: int
    area: int
    global_spaces: frozenset[int]


@dataclass(frozen=True, slots=True)
class Stored:
    """Looks into the database of the index, of some microseconds each."""

    token: Callable[[], Token | None]
    """Of the newest committed state; None where it is not known at once."""
    place: Callable[[Project], Place | None]
    """Where a project is; None if it has no memory of its own."""
    summaries: Callable[[Project, int], list[str]]
    """The newest of a project, so many at most."""
    texts: Callable[[Sequence[MemoryId]], list[Shown]]


class Plain(NamedTuple):
    """A context or a search of one project, without anything else."""

    projects: Patterns  # of the caller
    project: Project
    text: str
    limit: int
    now: int  # microseconds since 1970
    rules: Rules | None = None  # of redaction, if what is rendered depends on them


Render = Callable[[Shown], bytes]


class HeldRead(NamedTuple):
    """What memory answers, best first: each memory with its rank and why it is there, its line."""

    hits: list[tuple[MemoryId, float, Method]]
    lines: list[bytes]
    steps: list[PastStep]
    corrections: Corrections
    summaries: Sequence[str] = ()


@dataclass(slots=True)
class HeldReads:
    """The reads of one database that memory answers."""

    index: DatabaseIndex
    stored: Stored
    stems: Stems
    _words: PromptWords = field(init=False)

    def __post_init__(self) -> None:
        self._words = PromptWords(self.index.vocabulary, self.stems.known)

    def context(self, question: Plain, render: Render) -> HeldRead | None:
        """As `recall.context` without more than these; None where memory cannot tell.

        What is rendered is remembered with the memory.
        """
        if not self.index.lock.acquire(timeout=LOCK_TIMEOUT):
            return None
        try:
            answer = self._context(question, render)
        finally:
            self.index.lock.release()
        self.index.grew(READ_BYTES)
        return answer

    def search(self, question: Plain, render: Render) -> HeldRead | None:
        """As `recall.search` without more than these."""
        if not self.index.lock.acquire(timeout=LOCK_TIMEOUT):
            return None
        try:
            answer = self._search(question, render)
        finally:
            self.index.lock.release()
        self.index.grew(READ_BYTES)
        return answer

    def _context(self, question: Plain, render: Render) -> HeldRead | None:
        project, limit = question.project, question.limit
        reading = self._reading(question)
        best = reading.best(question.text, limit) if reading else None
        if reading is None or best is None:
            return None
        summaries = self.index.summaries.get(project)
        if summaries is None:
            summaries = self.stored.summaries(project, SUMMARIES)
            self.index.summaries[project] = summaries
        hits = [(id_, rank, Method.FULL_TEXT) for rank, id_ in best]
        if len(hits) < limit:
            newest = reading.newest(limit, [id_ for _, id_ in best])
            hits += [(id_, 0.0, Method.RECENCY) for id_ in newest]
        if pins := reading.step("store.pins", None, reading.pinned, (limit + 1) // 2):
            others = [it for it in hits if it[0] not in pins][: limit - len(pins)]
            hits = [*((id_, 0.0, Method.PINNED) for id_ in pins), *others]
        lines = reading.rendered([it[0] for it in hits], self.stored, render, "lines")
        if lines is None:
            return None
        return HeldRead(hits, lines, reading.steps, reading.corrections, summaries)

    def _search(self, question: Plain, render: Render) -> HeldRead | None:
        reading = self._reading(question)
        ranked = reading.every_then_any(question.text, question.limit) if reading else None
        if reading is None or ranked is None:
            return None
        lines = reading.rendered([id_ for _, id_ in ranked], self.stored, render, "hits")
        if lines is None:
            return None
        hits, floor = [], float("-inf")
        for score, id_ in ranked:
            floor = max(floor, score)
            hits.append((id_, floor, Method.FULL_TEXT))
        return HeldRead(hits, lines, reading.steps, {})

    def _reading(self, question: Plain) -> "Reading | None":
        index, project = self.index, question.project
        if not index.parts or not question.projects.match(project):
            return None
        token = self.stored.token()
        if token is None or not index.is_at(token):
            return None
        if question.rules is not None:
            index.render_by(question.rules)
        location = index.places.get(project)
        if location is None:
            location = self.stored.place(project)
            if location is None:
                return None
            index.places[project] = location
        group = index.group(location.group)
        if group is None or group.memories_of(location.area) > MOST_ON_LOOP:
            return None
        return Reading(group, location, self._words, self.stems, question.now)


class Reading:
    """One request to the areas of a project."""

    def __init__(
        self, group: Group, location: Place, words: PromptWords, stems: Stems, now: int
    ) -> None:
        self._vocabulary = group.vocabulary
        self._words = words
        self._location = location
        self._stems = stems
        self._parts = group.weights_of((location.area, GLOBAL_AREA))
        self._hidden = [it.area.hidden(now) for it in self._parts]
        self._ranking = Ranking(self._parts, group.vocabulary, self._hidden)
        self.steps: list[PastStep] = []
        self.corrections: Corrections = {}

    def best(self, prompt: str, limit: int) -> list[Scored] | None:
        """The best of each sentence; None for what has to be looked for in another way."""
        parsed = self._words.parsed(prompt)
        if parsed is None:
            return None
        sentences, _ = self._looked_up_as_corrected(parsed)
        return self._best(sentences, limit) if sentences else []

    def every_then_any(self, text: str, limit: int) -> list[Scored] | None:
        """The best in which every word is, then others; None as of `best`, and of a path."""
        parsed = self._words.parsed(text) if "/" not in text else None
        if parsed is None or not parsed.sentences:
            return None
        if parsed.is_plain:
            sentences, meant = self._looked_up_as_corrected(parsed)
            every = dict.fromkeys(chain.from_iterable([words for words, _ in parsed.sentences]))
            stem_of = self._words.stems
            pieces: list[StemPiece] = [((stem_of[it],), meant.get(it, ())) for it in every]
        else:
            sentences, pieces = self._of_query(understood(text))
        ranked = self.step("store.fts", "every", self._ranking.every, pieces, limit)
        if len(ranked) < limit:
            first = {id_ for _, id_ in ranked}
            ranked += [it for it in self._best(sentences, limit) if it[1] not in first]
        return ranked[:limit]

    def _best(self, sentences: Sentences, limit: int) -> list[Scored]:
        return self.step("store.fts", "best", self._ranking.any, sentences, limit)

    def _looked_up_as_corrected(
        self, parsed: ParsedPrompt
    ) -> tuple[list[tuple[list[Stem], float]], dict[int, list[Stem]]]:
        """The stems of each sentence, those included that a word may have meant; and these."""
        stem_of, text_of, ranking = self._words.stems, self._words.texts, self._ranking
        sentences = [([stem_of[it] for it in words], weight) for words, weight in parsed.sentences]
        for stems, _ in sentences:
            ranking.look_up(stems)
        doubtful = [stem_of[it] for it in parsed.doubtful]
        known = ranking.known(doubtful)
        missing = {
            text_of[word]: word
            for word, stem in zip(parsed.doubtful, doubtful, strict=True)
            if stem not in known
        }
        corrections = self._corrections(missing) if missing else {}
        if not corrections:
            return sentences, {}
        self.corrections = corrections
        for (words, _), (stems, _) in zip(parsed.sentences, sentences, strict=True):
            texts = [text_of[it] for it in words]
            terms = chain.from_iterable(corrections.get(it, ()) for it in texts)
            new = [it for it in dict.fromkeys(terms) if it not in texts]
            stems.extend(self._looked_up(new) or ())
        return sentences, {
            missing[it]: self._looked_up(those) or [] for it, those in corrections.items()
        }

    def _of_query(self, query: Query) -> tuple[list[tuple[list[Stem], float]], list[StemPiece]]:
        """The same of a query in which a piece has several words."""
        texts = [it.text for it in query.terms]
        stems = self._looked_up(texts) or []
        known = self._ranking.known(stems)
        stem_of = dict(zip(texts, stems, strict=True))
        missing = [it for it in query.doubtful if stem_of[it] not in known]
        if missing and (corrections := self._corrections(missing)):
            query = query.corrected(corrections)
            texts = [it.text for it in query.terms]
            stem_of = dict(zip(texts, self._looked_up(texts) or [], strict=True))
        pieces: list[StemPiece] = [
            ([stem_of[it.text] for it in parts], [stem_of[it.text] for it in joined])
            for parts, joined in query.every
        ]
        return [([stem_of[it.text] for it in of], by) for of, by in query.sentences], pieces

    def newest(self, limit: int, but: Sequence[MemoryId]) -> list[MemoryId]:
        """The newest of the project, then of all that are visible, to fill up."""
        newest: list[MemoryId] = []
        for spaces in (self._location.global_spaces, None):
            if len(but) + len(newest) < limit:
                known = {*but, *newest}
                newest += self.step("store.backfill", None, self._newest, limit, known, spaces)
        return newest

    def _newest(
        self, limit: int, but: Collection[MemoryId], spaces: Collection[int] | None
    ) -> list[MemoryId]:
        """Of the project's own and of the global memories in some spaces, or in all."""
        newest: list[tuple[int, MemoryId]] = []
        for part, hidden in zip(self._parts, self._hidden, strict=True):
            area = part.area
            among = spaces if area.number == GLOBAL_AREA else None
            places = (
                it
                for it in area.newest_first()
                if it not in hidden and (among is None or area.spaces[it] in among)
            )
            newest += [(area.created_at[it], area.ids[it]) for it in islice(places, limit)]
        newest.sort(reverse=True)
        return [id_ for _, id_ in newest[:limit] if id_ not in but][: limit - len(but)]

    def pinned(self, most: int) -> list[MemoryId]:
        """The pinned ones, those first that were pinned first."""
        pins = [
            (at, part.area.ids[position])
            for part, hidden in zip(self._parts, self._hidden, strict=True)
            for position, at in part.area.pinned_at.items()
            if position not in hidden
        ]
        return [id_ for _, id_ in sorted(pins)[:most]] if pins else []

    def rendered(
        self, ids: Sequence[MemoryId], stored: Stored, render: Render, kind: str
    ) -> list[bytes] | None:
        """Each memory as it was rendered first; None if one is gone."""
        known = [getattr(it.area, kind) for it in self._parts] or [{}]
        try:
            return [known[0][id_] for id_ in ids]
        except KeyError:
            every = {id_: line for it in known for id_, line in it.items()}
        if missing := [id_ for id_ in ids if id_ not in every]:
            for memory in stored.texts(missing):
                part = next((it for it in self._parts if it.area.has(memory.id)), None)
                if part is None:
                    return None
                every[memory.id] = line = render(memory)
                if len(line) <= LONGEST_LINE:
                    part.area.remember(getattr(part.area, kind), memory.id, line)
        return [every[id_] for id_ in ids] if every.keys() >= set(ids) else None

    def step(
        self, name: str, match: str | None, find: Callable[P, Answer],
        *args: P.args, **kwargs: P.kwargs,
    ) -> Answer:  # fmt: skip
        """What is found, with the time it takes noted for a span."""
        began = time_ns()
        result = find(*args, **kwargs)
        attributes = {"memory.fts.match": match, "memory.search.result_count": len(result)}
        self.steps.append(PastStep(name, began, time_ns(), attributes))
        return result

    def _looked_up(self, texts: Sequence[str]) -> list[Stem] | None:
        """The stem of each text, found in the areas; None if the index takes one apart."""
        stems = list(map(self._stems.known.__getitem__, texts))
        if "" in stems:
            return None
        number_of = self._vocabulary.numbers.get
        numbers = [number_of(it, UNKNOWN) for it in stems]
        self._ranking.look_up(numbers)
        return numbers

    def _corrections(self, missing: Iterable[str]) -> Corrections:
        """What words may have meant that no memory has."""
        forms = self._stems.compared  # of a few at most: each that is new costs 40 us
        return self._ranking.corrections((it, forms[it]) for it in missing if forms[it])
