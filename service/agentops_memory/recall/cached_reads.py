"""Contexts and searches of one project from the in-memory index, on the event loop's thread.

A read is left to a transaction, which answers the same, if the index is missing or outdated.
"""

from collections.abc import Callable, Collection, Iterable, Sequence, Sized
from itertools import accumulate, chain, islice, product, repeat
from operator import itemgetter
from time import time_ns
from typing import NamedTuple, ParamSpec, TypeVar, cast

from ..light import OncePerTurn, dataclass, field
from ..memory.access import Patterns
from ..memory.memory import MemoryId, Shown
from ..memory.search import GAINING, SENTENCE_DEPTH, Method, Scored, combined
from ..memory.space import GLOBAL_AREA, Project
from ..memory.table import PastStep
from ..secrets.redaction import Rules
from .cache import READ_BYTES, DatabaseIndex, Token
from .group import Group, Stem, StemPiece, StemSpans, Weights, gained
from .query import MOST_TERMS, MOST_WORDS, Corrections, Query, parse_query
from .recall import SUMMARIES
from .stems import UNKNOWN, ParsedPrompt, PromptWords, Stems, Vocabulary

Hidden = Sequence[Collection[int]]
"""The positions of hidden memories, by area."""

Sentences = Sequence[tuple[Sequence[Stem], float]]
"""The stems and the weight of each sentence."""


class Ranking:
    """The rankings of one request in some areas of a group."""

    def __init__(
        self, parts: Sequence[Weights], vocabulary: Vocabulary, hidden: Hidden | None = None
    ) -> None:
        self._parts = parts
        self._vocabulary = vocabulary
        self._hidden = hidden or [()] * len(parts)
        self._spans: list[StemSpans] = [{} for _ in parts]
        # In a single area, positions stand for ids: they have the same order and cost less.
        self._only_area = parts[0].area if len(parts) == 1 else None

    def look_up(self, stems: Iterable[Stem]) -> None:
        """Find the stems in the areas; required before `known` and `any`."""
        for part, spans in zip(self._parts, self._spans, strict=True):
            spans.update(part.spans(stems))

    def known(self, stems: Collection[Stem]) -> set[Stem]:
        """Return the looked-up stems that any memory has."""
        known: set[Stem] = set()
        for part, spans in zip(self._parts, self._spans, strict=True):
            known.update(spans.keys() & stems)
            known.update(part.area.added.keys() & stems)
        return known

    def any(self, sentences: Sentences, limit: int) -> list[Scored]:
        """Return the best memories with any of the looked-up stems, with gains for the first."""
        if not self._parts:
            return []
        depth = max(limit, GAINING if len(sentences) == 1 else SENTENCE_DEPTH)
        every = self._best_scores([stems for stems, _ in sentences], depth)
        weights = [weight for _, weight in sentences]
        best = every[0] if len(every) == 1 else combined(every, weights)
        first, others = best[:GAINING], best[GAINING : max(limit, GAINING)]
        if only := self._only_area:
            slots = map(only.slots.__getitem__, map(itemgetter(1), first))
            best = [*gained(first, [dict(zip(slots, first, strict=True))]), *others][:limit]
            return [(score, only.ids[at]) for score, at in best]
        by_slot = [it.area.by_slot(first) for it in self._parts]
        return [*gained(first, by_slot), *others][:limit]

    def every(self, pieces: Sequence[StemPiece], limit: int) -> list[Scored]:
        """Return the best memories whose own words have every looked-up piece (`Weights.every`)."""
        scored: list[Scored] = []
        for part, spans, hidden in zip(self._parts, self._spans, self._hidden, strict=True):
            ids = part.area.ids
            scored += [
                (-1.0 * total, ids[position])
                for position, total in part.every(pieces, spans).items()
                if position not in hidden
            ]
        return sorted(scored)[:limit]

    def corrections(self, words: Iterable[tuple[str, str]]) -> Corrections:
        """Return corrections of unknown words, given with their compared forms."""
        corrections: dict[str, tuple[str, ...]] = {}
        some = [*islice(words, MOST_WORDS)]
        for area, (_, form) in product([it.area for it in self._parts], some):
            area.number_near(form, self._vocabulary)
        self._vocabulary.prepare([form for _, form in some])
        for word, form in some:
            near = self._vocabulary.near(form)
            counts = self.counts(near) if near else {}
            if len(counts) > MOST_TERMS:
                likely = sorted((-count, near[stem]) for stem, count in counts.items())
                corrections[word] = tuple([it for _, it in likely[:MOST_TERMS]])
            elif counts:
                corrections[word] = tuple(sorted([near[stem] for stem in counts]))
        return corrections

    def counts(self, stems: Collection[Stem]) -> dict[int, int]:
        """Count the memories with each stem in their own words; stems without any are left out."""
        counts: dict[int, int] = {}
        for part in self._parts:
            area = part.area
            its = {*part.spans(stems), *(it for it in stems if it in area.added)}
            texts = {it: self._vocabulary.text_of(it) for it in its}
            for stem, count in zip(texts, area.counts(texts, own=True), strict=True):
                if count:
                    counts[stem] = counts.get(stem, 0) + count
        return counts

    def _best_scores(self, sentences: Sequence[Sequence[Stem]], depth: int) -> list[list[Scored]]:
        """Return the `depth` best memories for each sentence; positions in a single area."""
        lists = list[list[list[Scored]]]()
        for part, spans, hidden in zip(self._parts, self._spans, self._hidden, strict=True):
            best = part.best(sentences, spans, depth, hidden)
            if self._only_area:
                return cast(list[list[Scored]], best)
            ids = part.area.ids
            lists.append([[(score, ids[position]) for score, position in each] for each in best])
        return [sorted(chain.from_iterable(each))[:depth] for each in zip(*lists, strict=True)]


P = ParamSpec("P")
Answer = TypeVar("Answer", bound=Sized)

MAX_CORRECTIONS = 500  # cached for one area
LONGEST_LINE = 2_000  # most bytes of a rendered memory that is cached
# Larger projects are ranked by a reader thread, as the event loop serves no other request
# meanwhile: a hundred memories take 0.1 ms.
MAX_ON_LOOP = 10_000
# Seconds that the event loop waits for a reader to release the index. Without this, each read by
# a reader would divert concurrent requests to the readers, which then hold the lock for longer.
LOCK_TIMEOUT = 0.001


class ProjectLocation(NamedTuple):
    """The index area of a project, and the spaces of its own global memories."""

    group: int
    area: int
    global_spaces: frozenset[int]


@dataclass(frozen=True, slots=True)
class StoredReads:
    """Reads of the indexed database, which take some microseconds each."""

    token: Callable[[], Token | None]
    """The newest committed state, or None if it cannot be read at once."""
    location: Callable[[Project], ProjectLocation | None]
    """The location of a project, or None if it has no memory of its own."""
    summaries: Callable[[Project, int], list[str]]
    """The newest session summaries of a project, up to a limit."""
    texts: Callable[[Sequence[MemoryId]], list[Shown]]
    load: Callable[[int, Collection[int]], bool]
    """Load missing areas of a group if that is quick; return whether they may be there now."""


class PlainRead(NamedTuple):
    """A context or a search of one project, without any other parameters."""

    projects: Patterns  # that the caller may read
    project: Project
    text: str
    limit: int
    now: int  # microseconds since 1970
    rules: Rules | None = None  # of redaction, if spans are sent: these show what is rendered


Render = Callable[[Shown], bytes]


class CachedRead(NamedTuple):
    """An answer from the in-memory index: memories, best first, and their rendered lines."""

    hits: list[tuple[MemoryId, float, Method]]
    lines: list[bytes]
    steps: list[PastStep]
    corrections: Corrections
    summaries: Sequence[str] = ()


@dataclass(slots=True)
class CachedReads:
    """The reads of one database that its in-memory index answers."""

    index: DatabaseIndex
    stored: StoredReads
    stems: Stems
    _words: PromptWords = field(init=False)
    _token: OncePerTurn[Token | None] = field(init=False)

    def __post_init__(self) -> None:
        self._words = PromptWords(self.index.vocabulary, self.stems.known)
        self._token = OncePerTurn(self.stored.token)

    def context(self, request: PlainRead, render: Render) -> CachedRead | None:
        """Answer as `recall.context` would, or return None if the index cannot answer.

        Rendered lines are cached with the index.
        """
        return self._loaded(self._context, request, render)

    def search(self, request: PlainRead, render: Render) -> CachedRead | None:
        """Answer as `recall.search` would, or return None if the index cannot answer."""
        return self._loaded(self._search, request, render)

    def _loaded(
        self, read: Callable[[PlainRead, Render], CachedRead | None],
        request: PlainRead, render: Render,
    ) -> CachedRead | None:  # fmt: skip
        """Answer a request, after loading what it needs if that is quick."""
        answer = self._with_lock(read, request, render)
        if answer is not None or self.index.is_disabled:
            return answer
        project = request.project
        if not request.projects.match(project):
            return None
        location = self.index.locations.get(project) or self.stored.location(project)
        if location is None:
            return None
        group, areas = location.group, (location.area, GLOBAL_AREA)
        if self.index.has(group, areas):
            return None
        is_loaded = self.stored.load(group, areas)
        self._token.renewed()  # loading takes long: requests have arrived meanwhile
        if not is_loaded:
            return None
        return self._with_lock(read, request, render)

    def _with_lock(
        self, read: Callable[[PlainRead, Render], CachedRead | None],
        request: PlainRead, render: Render,
    ) -> CachedRead | None:  # fmt: skip
        if not self.index.lock.acquire(timeout=LOCK_TIMEOUT):
            return None
        try:
            answer = read(request, render)
        finally:
            self.index.lock.release()
        self.index.cache.grew(READ_BYTES)
        return answer

    def _context(self, request: PlainRead, render: Render) -> CachedRead | None:
        project, limit = request.project, request.limit
        reading = self._reading(request)
        best = reading.best(request.text, limit) if reading else None
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
        lines = reading.rendered([it[0] for it in hits], self, render, "lines")
        if lines is None:
            return None
        return CachedRead(hits, lines, reading.steps, reading.corrections, summaries)

    def _search(self, request: PlainRead, render: Render) -> CachedRead | None:
        reading = self._reading(request)
        ranked = reading.every_then_any(request.text, request.limit) if reading else None
        if reading is None or ranked is None:
            return None
        lines = reading.rendered([id_ for _, id_ in ranked], self, render, "hits")
        if lines is None:
            return None
        floors = accumulate([score for score, _ in ranked], max)
        hits = list(zip([id_ for _, id_ in ranked], floors, repeat(Method.FULL_TEXT)))
        return CachedRead(hits, lines, reading.steps, {})

    def _reading(self, request: PlainRead) -> "Reading | None":
        index, project = self.index, request.project
        if not index.parts or not request.projects.match(project):
            return None
        if not (index.is_at(self._token.get()) or index.is_at(self._token.renewed())):
            return None
        if request.rules is not None:
            index.set_rules(request.rules)
        location = index.locations.get(project) or self.stored.location(project)
        if location is None:
            return None
        index.locations[project] = location
        group = index.group(location.group, (location.area,))
        if group is None or group.memories_of(location.area) > MAX_ON_LOOP:
            return None
        return Reading(group, location, self._words, self.stems, request)


class Reading:
    """A read of one project's areas."""

    def __init__(
        self, group: Group, location: ProjectLocation, words: PromptWords, stems: Stems,
        request: PlainRead,
    ) -> None:  # fmt: skip
        self._vocabulary = group.vocabulary
        self._words = words
        self._location = location
        self._stems = stems
        self._parts = group.weights_of((location.area, GLOBAL_AREA))
        self._unnumbered = [it.area for it in self._parts if not it.area.is_numbered]
        self._hidden = [it.area.hidden(request.now) for it in self._parts]
        self._ranking = Ranking(self._parts, group.vocabulary, self._hidden)
        self.steps: list[PastStep] = []
        self._is_traced = request.rules is not None
        self.corrections: Corrections = {}

    def best(self, prompt: str, limit: int) -> list[Scored] | None:
        """Return the best memories for a prompt, or None if a transaction must answer."""
        parsed = self._words.parsed(prompt)
        if parsed is None:
            return None
        sentences, _ = self._corrected_sentences(parsed)
        return self._best(sentences, limit) if sentences else []

    def every_then_any(self, text: str, limit: int) -> list[Scored] | None:
        """Return memories with every word, then with any; None as `best` does, or for a path."""
        parsed = self._words.parsed(text) if "/" not in text else None
        if parsed is None or not parsed.sentences:
            return None
        sentences, corrected = self._corrected_sentences(parsed)
        pieces: list[StemPiece]
        if parsed.is_plain:
            every = dict.fromkeys(chain.from_iterable([words for words, _ in parsed.sentences]))
            stem_of = self._words.stems
            pieces = [((stem_of[it],), corrected.get(it, ())) for it in every]
        else:
            pieces = self._pieces(parse_query(text).corrected(self.corrections))
        ranked = self.step("store.fts", "every", self._ranking.every, pieces, limit)
        if len(ranked) < limit:
            first = {id_ for _, id_ in ranked}
            ranked += [it for it in self._best(sentences, limit) if it[1] not in first]
        return ranked[:limit]

    def _best(self, sentences: Sentences, limit: int) -> list[Scored]:
        return self.step("store.fts", "best", self._ranking.any, sentences, limit)

    def _corrected_sentences(
        self, parsed: ParsedPrompt
    ) -> tuple[list[tuple[list[Stem], float]], dict[int, list[Stem]]]:
        """Return the stems of each sentence with corrections, and those of each corrected word."""
        stem_of, text_of, ranking = self._words.stems, self._words.texts, self._ranking
        if self._unnumbered:
            its = chain.from_iterable([words for words, _ in parsed.sentences])
            self._number([text_of[it] for it in its])
        sentences = [([stem_of[it] for it in words], weight) for words, weight in parsed.sentences]
        ranking.look_up({*chain.from_iterable([stems for stems, _ in sentences])})
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
            stems.extend(self._look_up(new) or ())
        return sentences, {
            missing[it]: self._look_up(words) or [] for it, words in corrections.items()
        }

    def _number(self, texts: Sequence[str]) -> None:
        """Number these words' stems in areas whose stems have no numbers yet."""
        stems = self._stems.known.get_all(texts).values()
        for area in self._unnumbered:
            area.number_stems(stems, self._vocabulary)
        self._words.catch_up()

    def _pieces(self, query: Query) -> list[StemPiece]:
        """Return the stems of a query's pieces."""
        texts = list({it.text for piece in query.every for it in piece.terms})
        stem_of = dict(zip(texts, self._look_up(texts) or (), strict=True))
        return [
            ([stem_of[it.text] for it in parts], [stem_of[it.text] for it in joined])
            for parts, joined in query.every
        ]

    def newest(self, limit: int, but: Sequence[MemoryId]) -> list[MemoryId]:
        """Return the newest memories of the project, then of all visible ones, as backfill."""
        newest: list[MemoryId] = []
        for spaces in (self._location.global_spaces, None):
            if len(but) + len(newest) < limit:
                known = {*but, *newest}
                newest += self.step("store.backfill", None, self._newest, limit, known, spaces)
        return newest

    def _newest(
        self, limit: int, but: Collection[MemoryId], spaces: Collection[int] | None
    ) -> list[MemoryId]:
        """Return the newest memories of the project and of global `spaces`, or of all if None."""
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
        """Return pinned memories, by the time of pinning."""
        pins = [
            (at, part.area.ids[position])
            for part, hidden in zip(self._parts, self._hidden, strict=True)
            for position, at in part.area.pinned_at.items()
            if position not in hidden
        ]
        return [id_ for _, id_ in sorted(pins)[:most]] if pins else []

    def rendered(
        self, ids: Sequence[MemoryId], reads: CachedReads, render: Render, kind: str
    ) -> list[bytes] | None:
        """Return each memory rendered, from the cache if possible; None if one is gone."""
        known = [getattr(it.area, kind) for it in self._parts] or [{}]
        try:
            return [known[0][id_] for id_ in ids]
        except KeyError:
            every = {id_: line for it in known for id_, line in it.items()}
        if missing := [id_ for id_ in ids if id_ not in every]:
            for memory in reads.stored.texts(missing):
                its = [it.area for it in self._parts if it.area.index_of(memory.id) is not None]
                if not its:
                    return None
                every[memory.id] = line = render(memory)
                if len(line) <= LONGEST_LINE:
                    size = its[0].remember(getattr(its[0], kind), memory.id, line)
                    reads.index.cache.note_growth(size)
        return [every[id_] for id_ in ids] if every.keys() >= set(ids) else None

    def step(
        self, name: str, match: str | None, find: Callable[P, Answer],
        *args: P.args, **kwargs: P.kwargs,
    ) -> Answer:  # fmt: skip
        """Return what `find` does, and record its duration for a span if spans are sent."""
        if not self._is_traced:
            return find(*args, **kwargs)
        began = time_ns()
        result = find(*args, **kwargs)
        attributes = {"memory.fts.match": match, "memory.search.result_count": len(result)}
        self.steps.append(PastStep(name, began, time_ns(), attributes))
        return result

    def _look_up(self, texts: Sequence[str]) -> list[Stem] | None:
        """Look up the stem of each text; None if the tokenizer splits one."""
        stems = list(map(self._stems.known.__getitem__, texts))
        if "" in stems:
            return None
        for area in self._unnumbered:
            area.number_stems(stems, self._vocabulary)
        number_of = self._vocabulary.numbers.get
        numbers = [number_of(it, UNKNOWN) for it in stems]
        self._ranking.look_up(numbers)
        return numbers

    def _corrections(self, missing: Iterable[str]) -> Corrections:
        """Return corrections of words that no memory has."""
        left, forms = iter(missing), dict[str, str]()
        while batch := list(islice(left, MOST_WORDS - len(forms))):
            compared = self._stems.compared.get_all(batch)  # 40 us for new words
            forms |= {word: form for word, form in compared.items() if form}
        if not forms:
            return {}
        known = self._parts[0].corrections if self._parts else {}
        if len(known) > MAX_CORRECTIONS:
            known.clear()
        if new := [it for it in forms.items() if it[0] not in known]:
            found = self._ranking.corrections(new)
            known.update({word: found.get(word, ()) for word, _ in new})
        return {word: known[word] for word in forms if known[word]}
